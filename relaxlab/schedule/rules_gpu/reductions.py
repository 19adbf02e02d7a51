"""Reductions that one block of threads per result would do badly.

Where few results have many terms, blocks of threads share the terms of each (split-K): every block
leaves partial results in main memory, and a second launch adds those up. Where neighbours in memory
belong to different results (a sum over the leading axis of a matrix), neighbouring threads have
neighbouring results and go down together, so that a warp reads whole sectors.
"""

from __future__ import annotations

import math

from relaxlab.ir.facts import Facts
from relaxlab.ir.loops import Block, Buffer, BufferLoad
from relaxlab.ir.node import walk
from relaxlab.ir.substitute import symbols_in
from relaxlab.schedule.order import keeps_order
from relaxlab.schedule.rules.base import (
    block_loops,
    blocks_of,
    constant,
    extent_of,
    found_block,
    inline_producers,
    is_spatial,
)
from relaxlab.schedule.rules.context import Context
from relaxlab.schedule.rules.decisions import REDUCTION_SPLITS, UNROLL_TERMS
from relaxlab.schedule.rules_gpu.base import bind_flat, fused, threads_per_block, unrolled
from relaxlab.schedule.rules_gpu.rows import schedule_rows
from relaxlab.schedule.schedule import BlockRV, LoopRV, Schedule

MANY_THREADS = 1 << 18
"""Threads that keep an H100's 132 multiprocessors busy, each of which holds 2048."""
MANY_ROWS = 1 << 10
"""Blocks of threads that do so, of 256 threads each."""
LEAST_TERMS = 1 << 15
"""Terms of a result from which on a second launch pays, which takes some microseconds: one
multiprocessor reads so many in about as long. Not measured."""
LEAST_PART = 1 << 7
"""Terms that a part has at least. Not measured."""
TERMS_AT_ONCE = 8
"""Loads of a thread that are under way together. Not measured."""


def apply(sch: Schedule, context: Context) -> Schedule | str:
    """Fits one reduction, perhaps with elementwise steps behind it, over many terms."""
    inline_producers(sch)
    blocks = blocks_of(sch.func)
    if not blocks:
        return "it has no blocks"
    block, *rest = blocks
    if is_spatial(block) or not all(map(is_spatial, rest)):
        return "it is not one reduction followed by elementwise steps"
    if keeps_order(sch.func, block) or len(block.writes) != 1:
        return f"{block.name} has no partial results that can be combined in any order"
    spatial, reduce = block_loops(sch, sch.get_block(block.name))
    if len(spatial) + len(reduce) != len(sch.get_loops(sch.get_block(block.name))):
        return f"{block.name} is inside of other loops"
    if not spatial and not reduce:
        return f"{block.name} has one term"
    down = _goes_down(block)
    terms = _size(sch, reduce)
    if terms is not None and terms < (LEAST_PART if down else LEAST_TERMS):
        return f"{block.name} has {terms} terms per result, too few to share"
    splits = _splits(sch, down, _size(sch, spatial), terms)
    if splits == 1 and not down:
        return f"{block.name} has results enough for a block of threads each"
    return _split(sch, block.name, [b.name for b in rest], splits, down, context.target.facts)


def by_columns(sch: Schedule, context: Context) -> Schedule:
    """Schedule one reduction whose neighbours in memory belong to different results, and the
    elementwise steps behind it."""
    inline_producers(sch)
    block, *rest = blocks_of(sch.func)
    spatial, reduce = block_loops(sch, sch.get_block(block.name))
    splits = _splits(sch, True, _size(sch, spatial), _size(sch, reduce))
    return _split(sch, block.name, [b.name for b in rest], splits, True, context.target.facts)


def _split(
    sch: Schedule, name: str, behind: list[str], splits: int, down: bool, facts: Facts
) -> Schedule:
    """Schedule a reduction in parts, and the blocks behind it."""
    rv = sch.get_block(name)
    spatial, reduce = block_loops(sch, rv)
    if splits == 1:
        for later in behind[:-1]:
            sch.compute_inline(sch.get_block(later))
        _down(sch, rv, spatial, reduce, facts)
        for later in behind[-1:]:
            bind_flat(sch, sch.get_loops(sch.get_block(later)), facts)
        sch.compact_buffers()
        return sch
    sch.reorder(*spatial, *reduce)
    part, _ = sch.split(fused(sch, reduce), factors=[splits, None])
    partial = sch.rfactor(part, len(spatial))
    axes, inner = block_loops(sch, partial)
    if down:
        *results, part = axes
        _down(sch, partial, [part, *results], inner, facts)
    else:
        first = found_block(sch, partial).name
        schedule_rows(sch, [first], axes, facts, first)
    rows = block_loops(sch, rv)[0]
    for later in behind if rows else ():
        sch.reverse_compute_at(sch.get_block(later), rows[-1])
    schedule_rows(sch, [name, *behind], rows, facts)
    sch.compact_buffers()
    return sch


def _goes_down(block: Block) -> bool:
    """True if neighbours in memory of what the block reads belong to different results."""
    results = {it.var for it in block.iter_vars if it.kind == "spatial"}
    terms = {it.var for it in block.iter_vars if it.kind != "spatial"}
    written = {r.buffer for r in block.writes}
    loads = [n for n in walk(block.body) if isinstance(n, BufferLoad) and n.buffer not in written]
    largest = max(loads, key=lambda load: _elements(load.buffer), default=None)
    if largest is None or not largest.indices:
        return False
    last = set(symbols_in(largest.indices[-1]))
    return bool(last & results) and not last & terms


def _elements(buffer: Buffer) -> int:
    """The number of elements, where symbols count as many."""
    return math.prod(constant(d) or 1 << 16 for d in buffer.shape)


def _size(sch: Schedule, nest: list[LoopRV]) -> int | None:
    """The iterations of a nest; None where they are not constant."""
    extents = [constant(extent_of(sch, loop)) for loop in nest]
    return None if None in extents else math.prod(e or 0 for e in extents)


def _splits(sch: Schedule, down: bool, results: int | None, terms: int | None) -> int:
    """Decide on the parts of the reduction: as many as fill a GPU; none for results of unknown
    number that are in rows, which are mostly many."""
    many = MANY_THREADS if down else MANY_ROWS
    wanted = many // max(1, results) if results is not None else 32 if down else 1
    longest = max(1, (terms or many * LEAST_PART) // LEAST_PART)
    fitting = REDUCTION_SPLITS.where(lambda n: n == 1 or n <= longest)
    return fitting.at_most(sch, max(1, wanted))


def _down(
    sch: Schedule, rv: BlockRV, results: list[LoopRV], reduce: list[LoopRV], facts: Facts
) -> None:
    """Give each result to a thread, neighbours to neighbouring threads. Each sums in a register."""
    name = found_block(sch, rv).name
    sch.reorder(*results, *reduce)
    store = sch.cache_write(rv, 0, "local")
    sch.reverse_compute_at(store, results[-1])
    if reduce:  # a single term has no loop
        sch.decompose_reduction(rv, reduce[0])
        unrolled(sch, reduce[-1], UNROLL_TERMS.of(sch, TERMS_AT_ONCE, name))
    threads = threads_per_block(sch, facts)
    *outer, last = results
    count = _size(sch, outer)
    # Fused with others, an axis of symbolic extent would be hard to take apart again.
    if outer and constant(extent_of(sch, last)) is None and (count or 1 << 32) <= facts.grid[1]:
        sch.bind(fused(sch, outer), "blockIdx.y")
        results = [last]
    block, thread = sch.split(fused(sch, results), factors=[None, threads])
    sch.bind(block, "blockIdx.x")
    sch.bind(thread, "threadIdx.x")
