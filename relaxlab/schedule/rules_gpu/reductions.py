"""Reductions that one block of threads per result would do badly.

Where few results have many terms, blocks of threads share the terms of each (split-K): every block
leaves partial results in main memory, and a second launch adds those up. Where neighbours in memory
belong to different results (a sum over the leading axis of a matrix), neighbouring threads have
neighbouring results and go down together, so that a warp reads whole sectors.
"""

from __future__ import annotations

import math

from relaxlab.ir.dtypes import bytes_of
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
    separate_store,
)
from relaxlab.schedule.rules.context import Context
from relaxlab.schedule.rules.decisions import REDUCTION_SPLITS, UNROLL_TERMS, VECTOR_WIDTH
from relaxlab.schedule.rules_gpu.base import (
    THREADS,
    bind_blocks,
    fused,
    threads_per_block,
    unrolled,
)
from relaxlab.schedule.rules_gpu.rows import schedule_rows
from relaxlab.schedule.schedule import BlockRV, LoopRV, Schedule

MANY_THREADS = 1 << 17
"""Threads that keep an H100's 132 multiprocessors busy with eight accesses of 16 bytes each: a
thousand for each, of the 2048 that it holds."""
SMALL_BLOCK = 64
"""Threads of a block where they are few: so that every multiprocessor has some."""
MANY_ROWS = 1 << 10
"""Blocks of threads that do so, of 256 threads each."""
LEAST_TERMS = 1 << 15
"""Terms of a result from which on a second launch pays, which takes some microseconds: one
multiprocessor reads so many in about as long. Not measured."""
LEAST_PART = 1 << 6
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
    if down and splits == 1:
        _down(sch, rv, facts)
        sch.compact_buffers()
        return sch
    sch.reorder(*spatial, *reduce)
    if not down:
        part, _ = sch.split(fused(sch, reduce), factors=[splits, None])
        partial = sch.rfactor(part, len(spatial))
        first = found_block(sch, partial).name
        schedule_rows(sch, [first], block_loops(sch, partial)[0], facts, first)
        rows = block_loops(sch, rv)[0]
        for later in behind if rows else ():
            sch.reverse_compute_at(sch.get_block(later), rows[-1])
        schedule_rows(sch, [name, *behind], rows, facts)
        sch.compact_buffers()
        return sch
    # Parts take turns: the one guard is that of the last term.
    at_once = UNROLL_TERMS.of(sch, TERMS_AT_ONCE, name)
    _, part, _ = sch.split(fused(sch, reduce), factors=[None, splits, at_once])
    # Results of a part lie side by side, as the threads that store and load them.
    partial = sch.rfactor(part, 0)
    _down(sch, partial, facts, part)
    _down(sch, rv, facts)
    sch.compact_buffers()
    return sch


def _goes_down(block: Block) -> bool:
    """True if neighbours in memory of what the block reads belong to different results."""
    results = {it.var for it in block.iter_vars if it.kind == "spatial"}
    terms = {it.var for it in block.iter_vars if it.kind != "spatial"}
    largest = _largest_load(block)
    if largest is None:
        return False
    last = set(symbols_in(largest.indices[-1]))
    return bool(last & results) and not last & terms


def _largest_load(block: Block) -> BufferLoad | None:
    """The load of the largest buffer that has axes and that the block does not write."""
    written = {r.buffer for r in block.writes}
    loads = [n for n in walk(block.body) if isinstance(n, BufferLoad) and n.buffer not in written]
    largest = max(loads, key=lambda load: _elements(load.buffer), default=None)
    return largest if largest is not None and largest.indices else None


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
    # Neighbouring results are a thread's, mostly four.
    wanted = 32 if down else 1
    if results is not None:
        wanted = many * (4 if down else 1) // max(1, results)
    longest = max(1, (terms or many * LEAST_PART) // LEAST_PART)
    fitting = REDUCTION_SPLITS.where(lambda n: n == 1 or n <= longest)
    return fitting.at_most(sch, max(1, wanted))


def _down(
    sch: Schedule, rv: BlockRV, facts: Facts, part: LoopRV | None = None
) -> None:
    """Give neighbouring results to neighbouring threads, as many to each as an access of 16 bytes
    loads terms of. Each sums in registers, and stores what the blocks behind make of the sums.
    `part`: the loop over parts of the terms, each of which has results of its own."""
    block = found_block(sch, rv)
    results, reduce = block_loops(sch, rv)
    if part is not None:
        results = [part, *(loop for loop in results if sch.get(loop) is not sch.get(part))]
    width, lane = _neighbours(sch, block, results, facts), list[LoopRV]()
    if width > 1:
        results[-1], *lane = sch.split(results[-1], factors=[None, width])
    sch.reorder(*results, *reduce, *lane)
    alone = part is None
    store = separate_store(sch, block.name) if alone else sch.cache_write(rv, 0, "local")
    sch.reverse_compute_at(store, results[-1], preserve_unit_loops=True)
    if reduce:  # a single term has no loop
        init = sch.decompose_reduction(rv, reduce[0])
        unrolled(sch, reduce[-1], UNROLL_TERMS.of(sch, TERMS_AT_ONCE, block.name))
        for loop in sch.get_loops(init)[-1:] if lane else ():
            sch.unroll(loop)
    for loop in lane:
        sch.vectorize(loop)
        sch.vectorize(sch.get_loops(store)[-1])
    _bind_down(sch, block.name, results, facts)


def _neighbours(sch: Schedule, block: Block, results: list[LoopRV], facts: Facts) -> int:
    """Decide on the neighbouring results of a thread: those whose terms an access of 16 bytes
    loads, where enough threads are left."""
    *_, last = (it for it in block.iter_vars if it.kind == "spatial")
    loaded = _largest_load(block)
    if loaded is None or loaded.indices[-1] != last.var:
        return 1
    along = constant(last.dom.extent) or 1
    most = facts.vector_bits // 8 // bytes_of(loaded.dtype)
    count = _size(sch, results)
    choice = VECTOR_WIDTH.where(lambda n: n == 1 or (n <= most and along % n == 0))
    enough = count is None or count // most >= MANY_THREADS // 4
    return choice.at_most(sch, most if enough else 1, block.name)


def _bind_down(sch: Schedule, name: str, results: list[LoopRV], facts: Facts) -> None:
    """Bind loops of which each iteration is a thread's."""
    count = _size(sch, results)
    few = count is not None and count < MANY_THREADS // 4
    threads = threads_per_block(sch, facts, SMALL_BLOCK if few else THREADS, name)
    *outer, last = results
    apart = constant(extent_of(sch, last)) is None
    # Fused with others, an axis of symbolic extent would be hard to take apart again.
    block, thread = sch.split(last if apart else fused(sch, results), factors=[None, threads])
    sch.bind(thread, "threadIdx.x")
    bind_blocks(sch, [*outer, block] if apart else [block], facts)
