"""Loops that are not equally long, on a GPU: batches of sequences and matrices of different sizes,
triangles.

Blocks of threads take the outer loops that have one length each. The iterations of a loop that has
none are dealt out in turn to a fixed number of blocks of threads: a launch has the same blocks for
all lengths, and none of them has one long sequence for itself. Neighbouring threads have
neighbouring results, or share the terms of one, and sum in registers.
"""

from __future__ import annotations

from relaxlab.ir.loops import For
from relaxlab.schedule.error import ScheduleError
from relaxlab.schedule.order import keeps_order
from relaxlab.schedule.rfactor import reduction_of
from relaxlab.schedule.rules.base import (
    blocks_of,
    constant,
    extent_of,
    found_block,
    inline_producers,
    is_spatial,
    where_allowed,
)
from relaxlab.schedule.rules.context import Context
from relaxlab.schedule.rules.decisions import THREAD_ROWS, THREADS_PER_ROW
from relaxlab.schedule.rules.ragged import Axes, axes_of, not_ragged
from relaxlab.schedule.rules_gpu.base import fits_a_block, fused
from relaxlab.schedule.schedule import BlockRV, LoopRV, Schedule
from relaxlab.schedule.tree import vars_in

BLOCKS = 16
"""Blocks of threads that share the iterations of a loop of unknown length. Not measured."""
ROWS = 8
"""Threads along rows of a block of 256. Not measured."""


def apply(sch: Schedule, context: Context) -> Schedule | str:
    """Fits functions of blocks one element each, in loops of their own, some of whose extents
    depend on loops around them."""
    reason = not_ragged(sch.func)
    if reason is not None:
        return reason
    inline_producers(sch)
    for block in blocks_of(sch.func):
        rv = sch.get_block(block.name)
        axes = axes_of(sch, rv)
        if axes.outer:
            return f"{block.name} shares a loop with other blocks"
        _schedule_block(sch, rv, axes, context)
    sch.compact_buffers()
    return sch


def _schedule_block(sch: Schedule, rv: BlockRV, axes: Axes, context: Context) -> None:
    block = found_block(sch, rv)
    if not axes.results:
        raise ScheduleError("schedule", f"block {block.name}", "it has more than one result")
    accumulates = not is_spatial(block)
    if accumulates and reduction_of(block) is None:
        raise ScheduleError("schedule", f"block {block.name}", "it stores, or reduces by one store")
    long = axes.lane is not None and (constant(extent_of(sch, axes.lane)) or 32) >= 32
    warp = THREADS_PER_ROW.where(lambda n: fits_a_block(n, context.target.facts))
    threads = warp.at_most(sch, context.target.facts.warp)
    if long and axes.column is None and not keeps_order(sch.func, block):
        _by_terms(sch, rv, axes, threads)
        return
    column = axes.column or axes.results[-1]
    taken = (column, *_uniform(sch, axes.results))
    row = axes.row or next((x for x in reversed(axes.results) if x not in taken), None)
    _by_columns(sch, rv, axes, column, row, threads, accumulates)


def _uniform(sch: Schedule, results: list[LoopRV]) -> list[LoopRV]:
    """The first of the loops that have one length each."""
    found, around = list[LoopRV](), set[object]()
    for loop in results:
        s = sch.get(loop)
        assert isinstance(s, For)
        if vars_in(s.extent) & around:
            break
        around.add(s.loop_var)
        found.append(loop)
    return found


def _by_terms(sch: Schedule, rv: BlockRV, axes: Axes, threads: int) -> None:
    """Threads share the terms of each result. Blocks of threads share the results."""
    assert axes.lane is not None
    terms, lane = sch.split(axes.lane, factors=[None, threads])
    uniform = _uniform(sch, axes.results)
    rest = [loop for loop in axes.results if loop not in uniform]
    bound = list[LoopRV]()
    if rest:
        rest[0], part = sch.split(rest[0], factors=[None, BLOCKS])
        bound = [part]
    sch.reorder(*uniform, *bound, *rest, lane, *axes.terms[:-1], terms)
    around = [*uniform, *bound, *rest]
    for block in (rv, *sch.privatize(rv, around[-1], lane)):
        sch.bind(sch.get_loops(block)[len(around)], "threadIdx.x")
    sch.bind(fused(sch, uniform), "blockIdx.x")
    for loop in bound:
        sch.bind(loop, "blockIdx.y")


def _by_columns(
    sch: Schedule, rv: BlockRV, axes: Axes, column: LoopRV, row: LoopRV | None, threads: int,
    accumulates: bool,
) -> None:  # fmt: skip
    """Threads next to each other have results of neighbouring columns, and sum their terms in
    registers; with a row, each has several."""
    columns, x = sch.split(column, factors=[None, threads])
    others = [loop for loop in axes.results if loop not in (column, row)]
    inside, held, bound = [columns], list[LoopRV](), list[LoopRV]()
    if row is not None:
        count = THREAD_ROWS.of(sch, 4) if axes.row is not None and accumulates else 1
        factors = [BLOCKS, ROWS, count] if count > 1 else [BLOCKS, ROWS]
        rows, part, y, *held = sch.split(row, factors=[None, *factors])
        bound, inside = [part, y], [rows, columns]
        for loop in axes.terms if held else ():
            where_allowed(lambda loop=loop: sch.rectangularize(loop, held[0]))
    uniform = _uniform(sch, others)
    serial = [loop for loop in others if loop not in uniform]
    sch.reorder(*uniform, *bound, x, *serial, *inside, *axes.terms, *held)
    if accumulates:
        for block in (rv, *sch.privatize(rv, columns)):
            if held:
                sch.unroll(sch.get_loops(block)[-1])
    if uniform:
        sch.bind(fused(sch, uniform), "blockIdx.x")
    for loop, axis in zip(bound, ("blockIdx.y", "threadIdx.y"), strict=False):
        sch.bind(loop, axis)
    sch.bind(x, "threadIdx.x")
