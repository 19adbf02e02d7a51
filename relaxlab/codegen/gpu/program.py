"""The kernels of a lowered program in a dialect."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from relaxlab.codegen.gpu.dialect import Dialect
from relaxlab.codegen.gpu.kernel import KernelSource, emit_kernel
from relaxlab.codegen.gpu.launch import DeviceKernel
from relaxlab.codegen.gpu.lower import lower_launches
from relaxlab.ir import host
from relaxlab.ir.brief import Brief
from relaxlab.ir.expr import Var
from relaxlab.ir.facts import CUDA, Facts
from relaxlab.ir.loops import PrimFunc
from relaxlab.ir.names import UniqueNames


@dataclass(frozen=True, slots=True, repr=False)
class GpuProgram(Brief):
    """A program for a GPU: host functions, which a virtual machine runs, and per loop function its
    launches and their functions in a dialect. `source` is all of them as one file."""

    program: host.HostProgram
    kernels: dict[str, DeviceKernel]
    functions: dict[str, tuple[KernelSource, ...]]
    source: str


def generate(program: host.HostProgram, dialect: Dialect, facts: Facts = CUDA) -> GpuProgram:
    """All loop functions that the program calls in a dialect, for a GPU.

    Raises CodegenError for a loop function that the dialect cannot express.
    """
    kernels = called_kernels(program, facts)
    functions, source = sources_of(kernels, dialect)
    return GpuProgram(program, kernels, functions, source)


def called_kernels(program: host.HostProgram, facts: Facts = CUDA) -> dict[str, DeviceKernel]:
    """The launches of all loop functions that the program calls. Raises CodegenError for a schedule
    that no GPU can run."""
    called = {
        i.function
        for f in program.functions.values()
        for i in host.walk_instrs(f.instrs)
        if isinstance(i, host.CallKernel)
    }
    return launches_of({name: program.kernels[name] for name in sorted(called)}, facts)


def launches_of(funcs: Mapping[str, PrimFunc], facts: Facts = CUDA) -> dict[str, DeviceKernel]:
    """The launches of loop functions, each with a name of its own. Raises CodegenError for a
    schedule that no GPU can run."""
    names = UniqueNames()
    kernels: dict[str, DeviceKernel] = {}
    for name, func in funcs.items():
        kernel = lower_launches(func, name, facts=facts)
        launches = tuple(replace(x, name=names(x.name)) for x in kernel.launches)
        kernels[name] = replace(kernel, launches=launches)
    return kernels


def sources_of(
    kernels: Mapping[str, DeviceKernel],
    dialect: Dialect,
    in_memory: Mapping[str, frozenset[Var]] | None = None,
) -> tuple[dict[str, tuple[KernelSource, ...]], str]:
    """The functions of loop functions' launches, and one source with all of them. `in_memory` are
    by loop function the scalars that they take the addresses of."""
    outside = {x.name for kernel in kernels.values() for x in kernel.launches}
    read = in_memory or {}
    functions = {
        name: tuple(
            emit_kernel(x, dialect, outside, read.get(name, frozenset())) for x in kernel.launches
        )
        for name, kernel in kernels.items()
    }
    code = "\n".join(k.code for sources in functions.values() for k in sources)
    return functions, "\n".join(filter(None, (dialect.prelude(code), code)))
