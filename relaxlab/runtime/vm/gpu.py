"""Programs compiled for GPUs, whatever the language of their kernels."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from relaxlab.analysis.evaluate import evaluator, remembered
from relaxlab.codegen.gpu.launch import DeviceKernel, Launch
from relaxlab.codegen.gpu.program import GpuProgram
from relaxlab.ir import expr
from relaxlab.ir.errors import UserError, brief
from relaxlab.ir.host import HostProgram, kernel_arguments
from relaxlab.ir.loops import PrimFunc
from relaxlab.ir.names import among
from relaxlab.ir.target import Target
from relaxlab.runtime.arrays import uninitialised
from relaxlab.runtime.simt.simt import simt_device_kernel
from relaxlab.runtime.vm.executable import MachineExecutable
from relaxlab.runtime.vm.vm import Kernel, VirtualMachine


class NoGpu(UserError, RuntimeError):
    """A GPU program was called where it cannot run. The message names what is missing."""


@dataclass(repr=False)
class GpuExecutable(MachineExecutable):
    """A program compiled for a GPU: `source` is its kernels, and `simulate` runs them without a
    GPU, on the SIMT interpreter."""

    gpu: GpuProgram
    target: Target
    entries: Mapping[str, PrimFunc] = field(default_factory=dict[str, PrimFunc])

    @property
    def program(self) -> HostProgram:
        """The host functions and loop functions."""
        return self.gpu.program

    @brief
    def source(self, name: str | None = None) -> str:
        """The source of all kernels; or the kernels of one loop function, without the prelude that
        all share. Raises KeyError for an unknown name."""
        if name is None:
            return self.gpu.source
        if name not in self.gpu.functions:
            known = among(name, self.gpu.functions)
            raise KeyError(f"the program has no loop function {name!r}; there are: {known}")
        return "\n".join(kernel.code for kernel in self.gpu.functions[name])

    def simulate(self, name: str, *args: Any) -> Any:
        """Call a function with its kernels on the SIMT interpreter: slow, on NumPy arrays, without
        a GPU. Raises SimtError for races, diverging barriers and stray accesses."""
        kernels = simulated(self.program, self.gpu.kernels)

        def run(name: str, *args: Any) -> Any:
            given = self.completed(name, args, uninitialised)
            return VirtualMachine(self.program, kernels).run(name, *given)

        if name in self._transforms:
            return self._transforms[name].noted(run(name, *args))
        return run(name, *self.with_weights(name, args, run))


def simulated(program: HostProgram, kernels: Mapping[str, DeviceKernel]) -> dict[str, Kernel]:
    """The kernels on the SIMT interpreter, as a virtual machine calls them."""
    return {name: _on_simt(program.kernels[name], kernel) for name, kernel in kernels.items()}


Sizes: TypeAlias = tuple[tuple[int, ...], tuple[int, ...]]
"""Blocks of the grid and threads of a block, along x, y and z."""


def sizes_of(launch: Launch) -> Callable[[Mapping[expr.Var, int]], Sizes | None]:
    """Return a function of the scalars that gives the sizes of a launch, None where it does not
    happen."""
    condition = evaluator(launch.condition)
    extents = [evaluator(e) for kind in ("blockIdx", "threadIdx") for e in launch.extents(kind)]

    def sizes(scalars: Mapping[expr.Var, int]) -> Sizes | None:
        if not condition(scalars):
            return None
        x, y, z, *block = (extent(scalars) for extent in extents)
        # CUDA refuses a grid without blocks.
        return ((x, y, z), tuple(block)) if min(x, y, z) > 0 else None

    return remembered(
        sizes, (launch.condition, launch.extents("blockIdx"), launch.extents("threadIdx"))
    )


def _on_simt(func: PrimFunc, kernel: DeviceKernel) -> Kernel:
    def run(buffers: Sequence[Any], scalars: Sequence[int]) -> None:
        simt_device_kernel(func, kernel, kernel_arguments(func, buffers, scalars)).check()

    return run
