"""Any kernel: each block in loops of its own, with vectors, partial results and threads.

What no other rule takes has blocks that share no rows or columns. Each is then scheduled as if it
were alone: an elementwise block as the rule `elementwise` would, a reduction along rows or down
columns, and a long reduction with few results in two steps, partial results by all threads first.
A block whose schedule is refused keeps its loops; threads take the outermost independent one.
"""

from __future__ import annotations

import math
from contextlib import suppress

from relaxlab.ir.expr import Var
from relaxlab.ir.loops import Block, BufferLoad, For, IterVar, PrimFunc
from relaxlab.ir.node import walk
from relaxlab.ir.substitute import symbols_in
from relaxlab.schedule.error import ScheduleError
from relaxlab.schedule.order import keeps_order
from relaxlab.schedule.ranges import shape_analyzer
from relaxlab.schedule.rfactor import reduction_of
from relaxlab.schedule.rules import elementwise
from relaxlab.schedule.rules.base import (
    block_loops,
    blocks_of,
    constant,
    extent_of,
    found_block,
    inline_producers,
    is_spatial,
    output_dtype,
    vectorize_inner,
    where_allowed,
    with_joined_axes,
)
from relaxlab.schedule.rules.context import Context
from relaxlab.schedule.rules.decisions import SHARE_TERMS
from relaxlab.schedule.rules.reductions import (
    BLOCK,
    columns_at_once,
    fuse_neighbours,
    goes_along_rows,
    order_axes,
    partial_lanes,
    prefers_columns,
    reduce_along_rows,
    reduce_down_columns,
    split_off_blocks,
)
from relaxlab.schedule.schedule import BlockRV, LoopRV, Schedule
from relaxlab.schedule.tree import describe_block, realizes_under

MIN_PARALLEL_RESULTS = 8
"""Results (tiles of them, down columns) below which threads split reductions instead of sharing out
results: a team of up to eight threads gets one each."""
MIN_SPLIT_REDUCTION = 1 << 14
"""Reduction extent from which on they do: a few microseconds' work of two threads, more than a
second step and waking the team take."""


def apply(sch: Schedule, context: Context) -> Schedule | str:
    """Schedule every block by itself, as far as its dependences allow."""
    return with_joined_axes(sch, _apply, context)


def _apply(sch: Schedule, context: Context) -> Schedule:
    order_axes(sch)
    inline_producers(sch)  # to compute again costs less than a way through main memory
    tried: set[Var] = set()
    for block in blocks_of(sch.func):
        alone = sch.copy()
        try:
            schedule_alone(alone, block, context)
        except ScheduleError:
            _parallel_outermost(sch, block, tried)
        else:
            sch = alone
    sch.compact_buffers()
    where_allowed(sch.round_up_vectors)
    return sch


def schedule_alone(sch: Schedule, block: Block, context: Context) -> None:
    """Schedule a block that shares no loop with others. Raises ScheduleError."""
    rv = sch.get_block(block.name)
    nest = sch.get_loops(rv)
    if nest and len(realizes_under(sch.get(nest[0]))) > 1:
        raise ScheduleError("schedule", describe_block(block), "no other block is in its loops")
    if is_spatial(block):
        elementwise.schedule_block(sch, block, context)
        return
    down = prefers_columns(block, context.target)
    if reduction_of(block) is None or not (down or goes_along_rows(block)):
        raise ScheduleError(
            "schedule", describe_block(block), "neighbours in memory are reduced, or results"
        )
    lanes = columns_at_once(sch, block, context) if down else 1
    is_long = not _is_short(sch.func, block, lanes)
    if not keeps_order(sch.func, block) and SHARE_TERMS.of(sch, is_long, block.name):
        _in_two_steps(sch, rv, context)
    else:
        _in_one_step(sch, rv, context)


def _parallel_outermost(sch: Schedule, block: Block, tried: set[Var]) -> None:
    for loop in sch.get_loops(sch.get_block(block.name)):
        found = sch.get(loop)
        assert isinstance(found, For)
        # Blocks that share a loop would ask the same question again: a loop that could not be
        # parallel is left alone, and one that is has what it needs.
        if found.loop_var in tried:
            return
        tried.add(found.loop_var)
        with suppress(ScheduleError):
            sch.parallel(loop)
            return


def _is_short(func: PrimFunc, block: Block, lanes: int) -> bool:
    """True if there are results enough for all threads, or too few terms for more than one. Extents
    without an upper bound count as large."""
    an = shape_analyzer(func)

    def size_of(axis: IterVar) -> int:
        most = an.upper_bound(axis.dom.extent)
        return MIN_SPLIT_REDUCTION if most is None else most

    results = [size_of(it) for it in block.iter_vars if it.kind == "spatial"]
    terms = math.prod(size_of(it) for it in block.iter_vars if it.kind != "spatial")
    if results:
        results[-1] = -(-results[-1] // lanes)
    return math.prod(results) >= MIN_PARALLEL_RESULTS or terms < MIN_SPLIT_REDUCTION


def _in_one_step(sch: Schedule, rv: BlockRV, context: Context) -> None:
    """Schedule a reduction whose results, or tiles of them, are each made by one thread."""
    outer = _made_by_thread(sch, rv, context)
    if any(constant(extent_of(sch, loop)) != 1 for loop in outer):
        sch.parallel(sch.fuse(*outer) if len(outer) > 1 else outer[0])


def _in_two_steps(sch: Schedule, rv: BlockRV, context: Context) -> None:
    """Sums of blocks of terms by all threads, then their sums."""
    spatial, reduce = block_loops(sch, rv)
    reduce = fuse_neighbours(sch, rv, reduce)
    lanes = 1
    if prefers_columns(found_block(sch, rv), context.target):
        lanes = _rows_at_once(sch, rv, context)
        sch.reorder(*reduce, spatial[-1])
    else:
        lanes = partial_lanes(sch, rv, reduce, context)
    found = split_off_blocks(sch, rv, reduce, lanes)
    if found is not None:
        inner, _ = found
        _in_one_step(sch, inner, context)
    _in_one_step(sch, rv, context)


def _made_by_thread(sch: Schedule, rv: BlockRV, context: Context) -> list[LoopRV]:
    """Vectorise one reduction; returns the loops over its results, or tiles of them."""
    if not prefers_columns(found_block(sch, rv), context.target):
        spatial, reduce = block_loops(sch, rv)
        reduce = fuse_neighbours(sch, rv, reduce)
        reduce_along_rows(sch, rv, reduce, partial_lanes(sch, rv, reduce, context))
        return spatial
    rows = _rows_at_once(sch, rv, context)
    terms = constant(extent_of(sch, block_loops(sch, rv)[1][-1])) or 0
    if rows > 1 and rows < terms <= BLOCK * rows and terms % rows == 0:
        return _down_rows_at_once(sch, rv, rows)
    store = sch.cache_write(rv, 0, "local")
    (*outer, column), reduce = block_loops(sch, rv)
    block = found_block(sch, rv)
    lanes = columns_at_once(sch, block, context)
    width = constant(extent_of(sch, column))
    if width is None or width > lanes:
        tile, column = sch.split(column, factors=[None, lanes])
        outer.append(tile)
    sch.reorder(*outer, *reduce, column)
    if outer:
        sch.reverse_compute_at(store, outer[-1])
    vectorize_inner(sch, sch.get_loops(store)[-1], lanes)
    reduce_down_columns(sch, rv, reduce, lanes)
    return outer


def _rows_at_once(sch: Schedule, rv: BlockRV, context: Context) -> int:
    """Return the rows of a matrix of few columns that are a whole number of vectors, 1 of others,
    and where the order of terms is kept. Row by row most lanes would be empty: sums of 87,381 rows
    of three int8 took 330 us, now 5, of 21,845 of three float32 16.5 and 3.2."""
    block = found_block(sch, rv)
    width = constant([it.dom.extent for it in block.iter_vars if it.kind == "spatial"][-1])
    lanes = context.target.lanes(output_dtype(block))
    # Operands that all rows share are gathered for the lanes: deviations of rows of seven float32
    # took twice as long so, of three half as long.
    terms = {it.var for it in block.iter_vars if it.kind != "spatial"}
    loads = [n for n in walk(block.body) if isinstance(n, BufferLoad)]
    read = [n for n in loads if n.buffer not in [r.buffer for r in block.writes]]
    shares = any(terms.isdisjoint(symbols_in(n.indices)) for n in read)
    is_narrow = width is not None and (4 if shares else 2) * width <= lanes
    return lanes if is_narrow and not keeps_order(sch.func, block) else 1


def _down_rows_at_once(sch: Schedule, rv: BlockRV, rows: int) -> list[LoopRV]:
    """Sum so many rows of few columns as vectors, and these sums then; returns the loops over
    results but the columns."""
    (*outer, column), reduce = block_loops(sch, rv)
    _, row = sch.split(reduce[-1], factors=[None, rows])
    partial = sch.rfactor(row, found_block(sch, rv).writes[0].buffer.ndim - 1)
    sch.set_scope(partial, 0, "local")
    if outer:
        sch.reverse_compute_at(rv, sch.get_loops(partial)[len(outer) - 1])
    (*_, row, column), reduce = block_loops(sch, partial)
    sch.reorder(*reduce, row, column)
    lane = sch.fuse(row, column)
    sch.vectorize(lane)
    init = sch.decompose_reduction(partial, reduce[0])
    sch.vectorize(sch.get_loops(init)[-1])
    (*_, column), reduce = block_loops(sch, rv)
    sch.reorder(*reduce, column)
    init = sch.decompose_reduction(rv, reduce[0])
    for one in (init, rv):
        sch.vectorize(block_loops(sch, one)[0][-1])
    return sch.get_loops(rv)[: len(outer)]
