"""Checks of lesson 10, GPUs."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

import relaxlab as rl
from relaxlab.ir.loops import Block, For
from relaxlab.ir.module import Module
from relaxlab.ir.node import walk
from relaxlab.runtime.simt.simt import simt_prim_func
from relaxlab.runtime.simt.access import costs

from .compare import floats, loop_function, same
from relaxlab.lab.verdict import Hint, ask, exercise, whole

Answer = Callable[[rl.Schedule], None]


@exercise
def by_rows(mod: Module, answer: Answer) -> str:
    """A block of 64 threads per row of 100 numbers."""
    sch = rl.Schedule(loop_function(mod, "rows"))
    ask(answer, sch)
    axes = {n.thread for n in walk(sch.func.body) if isinstance(n, For) and n.thread}
    for axis, loop in (("blockIdx.x", "i"), ("threadIdx.x", "the inner loop of the split j")):
        if axis not in axes:
            raise Hint(f"no loop is bound to {axis} yet; it should be {loop}")
    a = floats(3, 100)
    b = np.full((3, 100), np.nan, "float32")
    report = simt_prim_func(sch.func, [a, b], name="rows")
    if not report.ok:
        raise Hint(f"the threads do something wrong:\n{report.problems[0]}")
    same(b, np.exp(a), "`rows`")
    geometry = report.launches[0].geometry
    if geometry.blocks != 3:
        raise Hint(f"for 3 rows there are {geometry.blocks} blocks; bind i to blockIdx.x")
    if geometry.threads != 64:
        raise Hint(
            f"a block has {geometry.threads} threads, not 64; "
            "bind the inner one of the two loops that split(j, factors=[None, 64]) gives"
        )
    return "3 rows, 3 blocks of 64 threads; 36 threads of each do a second number."


@exercise
def sectors(mod: Module, answer: dict[str, int]) -> str:
    """Sectors of 32 bytes that a warp reads in one round: of a row, and of a column."""
    names = ("a thread for each column", "a thread for each row")
    for name, column in zip(names, (True, False), strict=True):
        given = whole(answer.get(name))
        if given is None:
            raise Hint(f"the number for {name!r} is missing")
        want, threads = _sectors_of_a_load(mod, column=column)
        if given != want:
            raise Hint(
                f"with {name}, {threads} threads read {threads} numbers at once, "
                + ("which lie side by side" if column else "each from a row of its own")
                + f": not {given} sectors. A sector has 8 numbers"
            )
    return "eight times the traffic for the same numbers."


def _sectors_of_a_load(mod: Module, *, column: bool) -> tuple[int, int]:
    """Run the loops, with A transposed for threads that sum rows; sectors and threads of a load."""
    func = loop_function(mod, "column_sums")
    if not column:
        func = loop_function(
            rl.parse(mod.script().replace("A[vi, vj]", "A[vj, vi]")), "column_sums"
        )
    given = [floats(32, 32), np.zeros(32, "float32")]
    report = simt_prim_func(func, given, name="column_sums", record=(0, 0, 0))
    loads = [a for a in report.launches[0].accesses
             if a.site.buffer and a.site.buffer.name == "A"]  # fmt: skip
    (cost,) = costs(loads[:1]).values()
    return cost.count, len(loads[0].threads)


@exercise
def shared_max(mod: Module, answer: Answer) -> str:
    """Blocks of 16 threads, one for each row, that share partial results."""
    sch = rl.Schedule(loop_function(mod, "row_max"))
    ask(answer, sch)
    scopes = {b.scope for n in walk(sch.func.body) if isinstance(n, Block) for b in n.alloc_buffers}
    if "shared" not in scopes:
        raise Hint(
            "no buffer is shared yet: split k, `rfactor` the inner loop, and "
            '`set_scope(partial, 0, "shared")`'
        )
    a, b = floats(24, 48) - 2, np.full(24, np.nan, "float32")
    report = simt_prim_func(sch.func, [a, b], name="row_max")
    if not report.ok:
        raise Hint(f"the threads do something wrong:\n{report.problems[0]}")
    same(b, a.max(1), "`row_max`")
    geometry = report.launches[0].geometry
    if (geometry.blocks, geometry.threads) != (24, 16):
        raise Hint(
            f"there are {geometry.blocks} blocks of {geometry.threads} threads, not 24 of 16; bind "
            "the loop over rows to blockIdx.x, and that over partial results to threadIdx.x"
        )
    return "24 blocks of 16 threads; barriers keep them in step."
