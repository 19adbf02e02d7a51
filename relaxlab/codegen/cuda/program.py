"""The kernels of a lowered program as CUDA C."""

from __future__ import annotations

from dataclasses import dataclass, replace

from relaxlab.codegen.cuda.kernel import KernelSource, emit_kernel
from relaxlab.codegen.cuda.launch import DeviceKernel
from relaxlab.codegen.cuda.lower import lower_launches
from relaxlab.codegen.cuda.prelude import prelude
from relaxlab.codegen.positive import sizes_of
from relaxlab.ir import host
from relaxlab.ir.brief import Brief
from relaxlab.ir.facts import CUDA, Facts
from relaxlab.ir.loops import PrimFunc
from relaxlab.ir.names import UniqueNames


@dataclass(frozen=True, slots=True, repr=False)
class CudaProgram(Brief):
    """A program for a GPU: host functions, which a virtual machine runs, and per loop function its
    launches and their CUDA functions. `source` is all of them as one file."""

    program: host.HostProgram
    kernels: dict[str, DeviceKernel]
    functions: dict[str, tuple[KernelSource, ...]]
    source: str


def generate_cuda(program: host.HostProgram, facts: Facts = CUDA) -> CudaProgram:
    """CUDA C for all loop functions that the program calls, for a GPU.

    Raises CodegenError for a loop function that CUDA cannot express.
    """
    called = {
        i.function
        for f in program.functions.values()
        for i in host.walk_instrs(f.instrs)
        if isinstance(i, host.CallKernel)
    }
    kernels, functions, source = cuda_of({n: program.kernels[n] for n in sorted(called)}, facts)
    return CudaProgram(program, kernels, functions, source)


def cuda_of(
    funcs: dict[str, PrimFunc], facts: Facts = CUDA
) -> tuple[dict[str, DeviceKernel], dict[str, tuple[KernelSource, ...]], str]:
    """Return the launches and CUDA functions of loop functions, and one source with all of them."""
    kernels: dict[str, DeviceKernel] = {}
    functions: dict[str, tuple[KernelSource, ...]] = {}
    names = UniqueNames()
    for name, func in funcs.items():
        kernel = lower_launches(func, name, facts=facts)
        launches = tuple(replace(x, name=names(x.name)) for x in kernel.launches)
        kernels[name] = replace(kernel, launches=launches)
        functions[name] = tuple(emit_kernel(x, sizes_of(func)) for x in launches)
    code = "\n".join(k.code for sources in functions.values() for k in sources)
    return kernels, functions, f"{prelude(code)}\n{code}"
