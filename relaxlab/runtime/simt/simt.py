"""The SIMT interpreter: GPU kernels on the CPU, with reports of the faults that a GPU lets pass.

`simt` runs a function of a module whose loop functions are bound to blocks and threads. What runs
are the launches of `relaxlab.codegen.gpu.lower`, the same that CUDA C is written from, barriers
and warp shuffles included.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np

from relaxlab.analysis.evaluate import evaluate
from relaxlab.codegen.gpu.launch import DeviceKernel, Launch
from relaxlab.codegen.gpu.lower import lower_launches
from relaxlab.ir import loops
from relaxlab.ir.arguments import names_arguments
from relaxlab.ir.dtypes import numpy_dtype
from relaxlab.ir.errors import brief, counted
from relaxlab.ir.expr import Var
from relaxlab.ir.facts import CUDA, Facts
from relaxlab.ir.loops import Buffer
from relaxlab.ir.module import Module, name_of
from relaxlab.ir.names import among
from relaxlab.ir.target import Target, parse_target
from relaxlab.runtime.arrays import Array, ExecutionError
from relaxlab.runtime.interpreter.graph import Machine
from relaxlab.runtime.interpreter.interpreter import bind_parameters
from relaxlab.runtime.simt.asynchronous import waits
from relaxlab.runtime.simt.counting import CountingTeam
from relaxlab.runtime.simt.kernel import Kernel, broken_limits, geometry_of, stored_buffers
from relaxlab.runtime.simt.memory import Memory
from relaxlab.runtime.simt.report import (
    LaunchReport,
    Problem,
    Problems,
    SimtError,
    SimtReport,
    Triple,
)
from relaxlab.runtime.simt.team import Team

__all__ = ["SimtError", "SimtReport", "simt", "simt_device_kernel", "simt_prim_func"]

TOGETHER = 1 << 14
"""Threads that are simulated together: enough that NumPy's overhead per statement does not matter,
few enough that a value per thread stays in cache."""


@names_arguments
@brief
def simt(
    mod: Module, name: str = "main", *args: Any, record: Triple | None = None,
    target: str | Target = "cuda",
) -> SimtReport:  # fmt: skip
    """Run a function of `mod` like `interpret`, its loop functions on simulated GPU threads.

    A loop function is bound to blocks and threads as the section "GPUs" of docs/architecture.md
    says (one that is not runs as one thread); it stores into its arguments. What a graph function
    returns is the report's `result`. The report has all problems: data races between threads of a
    block and between blocks, barriers and warp shuffles that not all threads reach, accesses
    outside of their buffers, reads of shared or local memory that nobody wrote. A read outside of
    a buffer or of unwritten memory gives NaN (0x5A bytes for integers), a write outside of a
    buffer is dropped.

    `record` is a block index (x, y, z): what the threads of that block touch in each launch is
    kept in the report, and its work is counted: sectors and lines of main memory, rounds of
    shared-memory banks, products of tensor cores, arithmetic. `target` is the GPU whose
    limits hold, such as "cuda:sm_90". Raises ValueError for a target that is no GPU, ExecutionError
    for arguments that do not fit and for what has no meaning on a GPU, CodegenError for a loop
    function that cannot become launches.
    """
    facts = parse_target(target).facts
    if not facts.block_threads:
        raise ValueError(f"{target} is no GPU; write for example target='cuda:sm_90'")
    Module.require(mod)
    if name not in mod:
        raise KeyError(f"no function named {name!r} in the module; it has: {among(name, mod)}")
    run = _Run(record, facts)
    result = Machine.of(mod, run.prim_func).call(name, args)
    return run.report(name, result)


def simt_prim_func(
    func: loops.PrimFunc, args: Sequence[Any], *, name: str = "", record: Triple | None = None
) -> SimtReport:
    """Run one loop function: one array per buffer parameter and a number per scalar parameter."""
    run = _Run(record)
    run.prim_func(func, args, name=name)
    return run.report(name or "loop function")


def simt_device_kernel(
    func: loops.PrimFunc, kernel: DeviceKernel, args: Sequence[Any], record: Triple | None = None
) -> SimtReport:
    """Run launches that were made from the loop function `func` on the arguments of `func`."""
    run = _Run(record)
    run.device_kernel(func, kernel, args)
    return run.report(kernel.name)


@dataclass(slots=True)
class _Run:
    """The findings of a run so far."""

    record: Triple | None
    facts: Facts = CUDA
    launches: list[LaunchReport] = field(default_factory=list[LaunchReport])
    lowered: dict[loops.PrimFunc, DeviceKernel] = field(
        default_factory=dict[loops.PrimFunc, DeviceKernel]
    )
    problems: Problems = field(default_factory=Problems)

    def report(self, name: str, result: Any = None) -> SimtReport:
        return SimtReport(name, tuple(self.launches), tuple(self.problems.found.values()), result)

    def prim_func(self, func: loops.PrimFunc, args: Sequence[Any], *, name: str = "") -> None:
        if func not in self.lowered:
            label = name or name_of(func)
            self.lowered[func] = lower_launches(func, label, facts=self.facts)
        self.device_kernel(func, self.lowered[func], args)

    def device_kernel(
        self, func: loops.PrimFunc, kernel: DeviceKernel, args: Sequence[Any]
    ) -> None:
        if len(args) != len(func.params):
            raise ExecutionError(
                f"{kernel.name} takes {counted(len(func.params), 'argument')}, got {len(args)}"
            )
        sizes = bind_parameters(func, args)
        arrays = {p: a for p, a in zip(func.params, args, strict=True) if isinstance(p, Buffer)}
        memory = _main_memory(arrays)
        for b in kernel.workspace:
            # A workspace of n - 2 elements is empty for n = 1.
            size = int(np.prod([max(evaluate(d, sizes), 0) for d in b.shape]))
            memory[b] = Memory.fresh(size, b.dtype, per_block=False)
        for launch in kernel.launches:
            if evaluate(launch.condition, sizes):
                self.launch(launch, sizes, memory)
        for b, a in arrays.items():
            # A dense array is simulated in place; of any other one there was a copy.
            if not a.flags.c_contiguous and memory[b].changed:
                a[...] = memory[b].data.reshape(a.shape)

    def launch(
        self, launch: Launch, sizes: Mapping[Var, Any], memory: Mapping[Buffer, Memory]
    ) -> None:
        geometry = geometry_of(launch, sizes)
        if not geometry.blocks:
            return
        for text in broken_limits(launch, geometry):
            key = (launch.name, text)
            self.problems.add(key, 1, lambda t=text: Problem("launch limit", launch.name, t))
        for b in stored_buffers(launch.body) & set(memory):
            memory[b].watch()
        shapes = {
            b: tuple(int(evaluate(d, sizes)) for d in b.shape)
            for b in (*launch.buffers, *launch.shared, *launch.local)
        }
        scalars = {v: np.asarray(n).astype(numpy_dtype(v.dtype))[()] for v, n in sizes.items()}
        record = None if self.record is None else geometry.block_number(self.record)
        kernel = Kernel(launch, scalars, memory, shapes, geometry, self.problems)
        counting = None if record is None else CountingTeam(kernel, record)
        barriers = 0
        with np.errstate(all="ignore"):
            for first, count in _teams(kernel, record):
                team = counting if counting and first == record else Team(kernel, first, count)
                team.run()
                barriers = max(barriers, int(team.barriers.max()))
        for m in memory.values():
            m.histories = None
        report = LaunchReport(launch.name, geometry, barriers)
        if counting is not None:
            accesses, counters = tuple(counting.accesses), counting.counters()
            report = replace(report, accesses=accesses, counters=counters)
        self.launches.append(report)


def _teams(kernel: Kernel, alone: int | None) -> Iterator[tuple[int, int]]:
    """The first block and the number of the blocks that run together, whole ones, as barriers are
    within them; one, if what its threads wait for differs from block to block. The block `alone` is
    by itself."""
    geometry = kernel.geometry
    together = 1 if waits(kernel.launch.body) else max(1, TOGETHER // geometry.threads)
    cuts = [0, geometry.blocks] if alone is None else [0, alone, alone + 1, geometry.blocks]
    for low, high in pairwise(cuts):
        for first in range(low, high, together):
            yield first, min(together, high - first)


def _main_memory(arrays: Mapping[Buffer, Array]) -> dict[Buffer, Memory]:
    """The memory of every parameter; parameters that are given one array share it."""
    memory: dict[Buffer, Memory] = {}
    for b, a in arrays.items():
        same = next((o for o in memory if _same_memory(arrays[o], a)), None)
        if same is None:
            for o in memory:
                if np.may_share_memory(arrays[o], a):
                    # Races are found by element numbers, which would be those of one array only.
                    raise ExecutionError(f"the arrays of {o.name} and {b.name} overlap in part")
        memory[b] = Memory(np.ascontiguousarray(a).reshape(-1)) if same is None else memory[same]
    return memory


def _same_memory(a: Array, b: Array) -> bool:
    start, other = (x.__array_interface__["data"][0] for x in (a, b))
    contiguous = a.flags.c_contiguous and b.flags.c_contiguous
    return contiguous and start == other and a.nbytes == b.nbytes and a.dtype == b.dtype
