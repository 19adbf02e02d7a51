"""Programs whose kernels are WGSL, for other programs to run."""

from __future__ import annotations

from dataclasses import dataclass

from relaxlab.codegen.gpu.program import generate
from relaxlab.codegen.wgsl.dialect import WGSL
from relaxlab.ir.display import Displayed
from relaxlab.passes.lower_shapes import lower_shapes
from relaxlab.runtime.request import Request
from relaxlab.runtime.vm.gpu import GpuExecutable, NoGpu
from relaxlab.runtime.vm.vm import VirtualMachine


@dataclass(repr=False)
class WgslExecutable(Displayed, GpuExecutable):
    """A program whose kernels are WGSL: `source` is one shader module with an entry point for each
    launch, `gpu.kernels` has their sizes, buffers and scalars. A call raises NoGpu: a page or
    another program runs the kernels; `simulate` runs them on the SIMT interpreter."""

    def __repr__(self) -> str:
        return f"WgslExecutable({', '.join(self)})"

    def machine(self) -> VirtualMachine:
        """Raise NoGpu: WGSL is run by other programs."""
        raise NoGpu(
            "relaxlab writes WGSL for other programs and does not run it itself; "
            "exe.simulate(name, ...) runs the program without a GPU, on the SIMT interpreter"
        )


def compile_wgsl(request: Request) -> WgslExecutable:
    """Compile to WGSL. Raises CodegenError for a kernel with dtypes that WGSL does not have, and
    ValueError for batches and for options of CPUs."""
    request.refuse_batches()
    request.refuse_options_of_cpus()
    result = request.result()
    program = generate(lower_shapes(result), WGSL, request.target.facts)
    exe = WgslExecutable(program, request.target, request.entries)
    exe.belongs_to(request.mod, result)
    return exe
