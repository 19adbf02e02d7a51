"""Row kernels: softmax, norms, sums over trailing axes. A block of threads works on one row.

All blocks share their leading axes, the row. A reduction gives each thread every n-th element, and
the threads' partial results are combined across threads; spatial axes are spread over the threads.
Intermediates of a row stay in registers (one value per row) or in shared memory.
"""

from __future__ import annotations

import math

from relaxlab.analysis.index_map import IndexMap
from relaxlab.ir.dtypes import bytes_of
from relaxlab.ir.facts import Facts
from relaxlab.ir.loops import Block, Buffer, PrimFunc
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
from relaxlab.schedule.rules.decisions import (
    ROW_IN_SHARED_MEMORY,
    ROWS_PER_BLOCK,
    THREADS_PER_ROW,
    UNROLL_TERMS,
    VECTOR_WIDTH,
)
from relaxlab.schedule.rules.rows import read_more_than_once, row_rank, separate_stores
from relaxlab.schedule.rules_gpu.base import THREADS, fits_a_block, fused, unroll_all, unrolled
from relaxlab.schedule.rules_gpu.row_registers import (
    Share,
    keep_in_registers,
    operands_at_own_element,
)
from relaxlab.schedule.schedule import BlockRV, LoopRV, Schedule
from relaxlab.schedule.scope import is_output

SHORT_ROW = 1024
"""Elements up to which a warp has a row of its own: it needs no barrier to exchange results."""
OWN_ELEMENTS = 16
"""Elements of a long row that a thread has, until blocks have no more threads."""
TERMS_AT_ONCE = 8
"""Accesses of a thread that are under way together where it keeps nothing of its row."""


def apply(sch: Schedule, context: Context) -> Schedule | str:
    """Fits kernels whose reductions all run over trailing axes of a common row."""
    facts = context.target.facts
    inline_producers(sch, keep=_stored(sch.func, facts))
    _join_rows(sch)
    blocks = blocks_of(sch.func)
    rank = row_rank(blocks)
    if rank is None or (rank == 0 and not _sums_everything(blocks)):
        return "it has no reduction over trailing axes of a row that all blocks share"
    stores = separate_stores(sch, rank, facts)
    blocks = blocks_of(sch.func)
    if blocks[0].name in stores:  # it follows its store
        del blocks[0]
    spatial, _ = block_loops(sch, sch.get_block(blocks[0].name))
    rows = spatial[:rank]
    for block in blocks[1:]:
        if rows:
            sch.reverse_compute_at(sch.get_block(block.name), rows[-1])
    schedule_rows(sch, [b.name for b in blocks if b.name not in stores], rows, facts)
    for name, store in stores.items():
        _in_registers(sch, name, store)
    sch.compact_buffers()
    return sch


def _join_rows(sch: Schedule) -> None:
    """Give an elementwise block with several rows in each row of the reductions, as the parts of
    integers that stand for a group of numbers, the reductions' rows as axes."""
    reductions = [b for b in blocks_of(sch.func) if not is_spatial(b)]
    if not reductions:
        return
    of_rows = [constant(it.dom.extent) for it in reductions[0].iter_vars if it.kind == "spatial"]
    for block in blocks_of(sch.func):
        extents = [constant(it.dom.extent) for it in block.iter_vars]
        at = next((n for n, (a, b) in enumerate(zip(of_rows, extents, strict=False)) if a != b), 0)
        whole, row = extents[at : at + 1], of_rows[at : at + 1]
        if not is_spatial(block) or not (whole and row and whole[0] and row[0]):
            continue
        count = whole[0] // row[0]
        if count > 1 and whole[0] == row[0] * count:
            axes = [it.var for it in block.iter_vars]
            parts = (axes[at] // count, axes[at] % count)
            apart = IndexMap(tuple(axes), (*axes[:at], *parts, *axes[at + 1 :]))
            sch.transform_block_layout(sch.get_block(block.name), apart)


def _stored(func: PrimFunc, facts: Facts) -> list[str]:
    """The producers that several blocks read and of which a row fits shared memory. Others are
    computed again by each reader: what is loaded for that is no more than what would be stored."""
    rank = row_rank(blocks_of(func)) or 0
    made = {b.name: b.writes[0].buffer for b in blocks_of(func)}

    def fits(buffer: Buffer) -> bool:
        row = [constant(d) for d in buffer.shape[rank:]]
        size = bytes_of(buffer.dtype) * math.prod(d or 0 for d in row)
        return None not in row and size <= facts.most_shared

    return [name for name in read_more_than_once(func) if fits(made[name])]


def _in_registers(sch: Schedule, name: str, store: str) -> None:
    """A thread computes the sums of few terms that it stores in block `store`."""
    rv = sch.get_block(name)
    *_, thread = sch.get_loops(sch.get_block(store))
    sch.compute_at(rv, thread)
    _, reduce = block_loops(sch, rv)
    if reduce:  # a single term has no loop that the sum could start before
        sch.decompose_reduction(rv, reduce[0])


def _sums_everything(blocks: list[Block]) -> bool:
    """True if no reduction has an axis that it is not over."""
    return all(it.kind != "spatial" for b in blocks if not is_spatial(b) for it in b.iter_vars)


def schedule_rows(
    sch: Schedule, names: list[str], rows: list[LoopRV], facts: Facts, about: str | None = None
) -> None:
    """Bind the loops `rows`, which hold all blocks, and the loops inside them. `about` tells the
    decisions from those of other rows of the kernel."""
    share = _share(sch, names, len(rows), facts, about)
    together = _rows_per_block(sch, rows, share.threads, facts, about)
    kept = keep_in_registers(sch, names, rows, share, facts, about)
    copies = [name for name in kept if name not in names]
    remaining = facts.most_shared // together
    for name in names:
        remaining -= _between_warps(sch, name, len(rows), share.threads, facts)
    for name in names[:-1]:
        remaining -= keep_near(sch, name, len(rows), remaining)
    for name in [*copies, *names]:
        _inside_row(sch, name, rows, share, name in kept)
    if not rows:
        return
    if together > 1:
        last, thread = sch.split(rows[-1], factors=[None, together])
        sch.bind(thread, "threadIdx.y")
        rows = [*rows[:-1], last]
    sch.bind(fused(sch, rows), "blockIdx.x")


def _rows_per_block(
    sch: Schedule, rows: list[LoopRV], threads: int, facts: Facts, about: str | None
) -> int:
    """Decide on the rows of a block of threads: one, which suffices where a row has many."""
    if not rows:
        return 1
    choice = ROWS_PER_BLOCK.where(lambda n: fits_a_block(n * threads, facts))
    # A warp each, as many as make a block.
    most = max(1, THREADS // threads) if threads == facts.warp else 1
    return choice.at_most(sch, min(most, constant(extent_of(sch, rows[-1])) or most), about)


def _between_warps(sch: Schedule, name: str, rank: int, threads: int, facts: Facts) -> int:
    """Bytes of shared memory through which warps exchange the partial results of a reduction."""
    rv = sch.get_block(name)
    spatial, reduce = block_loops(sch, rv)
    if not reduce or any(constant(extent_of(sch, loop)) != 1 for loop in spatial[rank:]):
        return 0
    size = threads // facts.warp * bytes_of(found_block(sch, rv).writes[0].buffer.dtype)
    access = facts.vector_bits // 8
    return -(-size // access) * access


def keep_near(sch: Schedule, name: str, rank: int, room: int) -> int:
    """Keep an intermediate of a row in registers, or in shared memory if it fits into `room`
    bytes; returns the bytes taken."""
    rv = sch.get_block(name)
    buffer = found_block(sch, rv).writes[0].buffer
    if is_output(buffer, sch.func) or buffer.scope == "local":
        return 0
    size = bytes_of(buffer.dtype)
    inner = [constant(extent_of(sch, loop)) for loop in block_loops(sch, rv)[0][rank:]]
    if all(extent == 1 for extent in inner):
        sch.set_scope(rv, 0, "local")
        return 0
    for dim in buffer.shape[rank:]:
        size *= constant(dim) or room + 1
    if size > room or not ROW_IN_SHARED_MEMORY.of(sch, True, buffer.name):
        return 0
    sch.set_scope(rv, 0, "shared")
    return size


def _share(sch: Schedule, names: list[str], rank: int, facts: Facts, about: str | None) -> Share:
    """Decide on the threads per row: a warp for a short one, else so many that each has sixteen
    elements, up to those of a block; on the neighbours that a thread loads together; and on how
    many of these loads are under way."""
    longest = 1
    sizes: set[int | None] = set()
    for name in names:
        spatial, reduce = block_loops(sch, sch.get_block(name))
        inner = [constant(extent_of(sch, loop)) for loop in reduce or spatial[rank:]]
        longest = max(longest, math.prod(n or THREADS * OWN_ELEMENTS for n in inner))
        sizes |= {n for n in inner[-1:] if n != 1}
    # One reduction alone keeps nothing of its row.
    most = facts.block_threads if len(names) > 1 else THREADS
    threads = facts.warp
    while longest > SHORT_ROW and threads < min(longest // OWN_ELEMENTS, most):
        threads *= 2
    fitting = THREADS_PER_ROW.where(lambda n: fits_a_block(n, facts))
    threads = fitting.at_most(sch, threads, about)
    width = _width(sch, names, threads, longest, sizes, facts, about)
    at_once = UNROLL_TERMS.of(sch, TERMS_AT_ONCE if width > 1 else 1, about)
    return Share(threads, width, at_once)


def _width(
    sch: Schedule, names: list[str], threads: int, longest: int, sizes: set[int | None],
    facts: Facts, about: str | None,
) -> int:  # fmt: skip
    """Decide on the neighbours that a thread loads together: 16 bytes of the narrowest dtype, where
    every thread has some, and all rows, of `sizes`, are multiples."""
    regions = [r for n in names for b in [found_block(sch, sch.get_block(n))] for r in b.reads]
    bytes_ = [bytes_of(r.buffer.dtype) for r in regions if r.region and r.buffer.scope == "global"]
    most = min(facts.vector_bits // 8 // min(bytes_, default=16), max(1, longest // threads))

    def fits(width: int) -> bool:
        return width == 1 or (width <= most and all(n and n % width == 0 for n in sizes))

    choice = VECTOR_WIDTH.where(fits)
    # Preferably every thread has as many: 8 bytes without a guard are read as fast as 16.
    even = [n for n in choice.candidates if n > 1 and longest % (n * threads) == 0]
    return choice.of(sch, max(even or choice.candidates), about)


def _inside_row(
    sch: Schedule, name: str, rows: list[LoopRV], share: Share, in_registers: bool
) -> None:
    """Spread one block of a row over the threads."""
    rv = sch.get_block(name)
    spatial, reduce = block_loops(sch, rv)
    inner = [loop for loop in spatial[len(rows) :] if constant(extent_of(sch, loop)) != 1]
    if inner:
        if reduce:
            sch.reorder(*inner, *reduce)
        turns, _, lane = _shared_out(sch, inner, share)
        if in_registers:
            sch.unroll(turns)
        if reduce:
            sch.decompose_reduction(rv, reduce[0])
        for loop in lane:
            sch.vectorize(loop)
    elif reduce:
        _across_threads(sch, rv, rows, reduce, share, in_registers)


def _shared_out(
    sch: Schedule, nest: list[LoopRV], share: Share
) -> tuple[LoopRV, LoopRV, list[LoopRV]]:
    """Split a nest into turns, threads, which are bound, and the neighbours of a thread."""
    loop, lane = fused(sch, nest), list[LoopRV]()
    if share.width > 1:
        loop, *lane = sch.split(loop, factors=[None, share.width])
    turns, thread = sch.split(loop, factors=[None, share.threads])
    sch.bind(thread, "threadIdx.x")
    return turns, thread, lane


def _across_threads(
    sch: Schedule, rv: BlockRV, rows: list[LoopRV], reduce: list[LoopRV], share: Share,
    in_registers: bool,
) -> None:  # fmt: skip
    """Make partial results per thread, then reduce across the threads. If the order must be kept
    one thread reduces."""
    if keeps_order(sch.func, found_block(sch, rv)):
        return
    block = found_block(sch, rv)
    if all(constant(extent_of(sch, loop)) == 1 for loop in reduce):
        share = Share(share.threads, 1, share.at_once)  # a single term has no neighbours
    operands = operands_at_own_element(sch, block, len(rows)) if share.width > 1 else []
    loop, lane = fused(sch, reduce), list[LoopRV]()
    if share.width > 1:
        loop, *lane = sch.split(loop, factors=[None, share.width])
    _, thread = sch.split(loop, factors=[None, share.threads])
    partial = sch.rfactor(thread, block.writes[0].buffer.ndim)
    sch.set_scope(partial, 0, "local")
    if rows and sch.get(rows[-1]) not in [sch.get(loop) for loop in sch.get_loops(rv)]:
        sch.reverse_compute_at(rv, rows[-1])
    _, inside = block_loops(sch, partial)
    if inside:
        if lane and len(inside) == 1:  # there is one turn
            inside = [sch.add_unit_loop(inside[0]), *inside]
        turns, *neighbours = inside
        sch.reorder(thread, *inside)
        for buffer in operands:
            _load_together(sch, partial, buffer, turns)
        sch.decompose_reduction(partial, turns)
        unroll_all(sch, *neighbours)
        if in_registers:
            sch.unroll(turns)
        else:
            unrolled(sch, turns, share.at_once)
    sch.bind(thread, "threadIdx.x")
    *_, last = sch.get_loops(rv)
    sch.bind(last, "threadIdx.x")


def _load_together(sch: Schedule, partial: BlockRV, buffer: Buffer, turns: LoopRV) -> None:
    """Load the neighbours of a thread by one access in each turn."""
    reads = found_block(sch, partial).reads
    copy = sch.cache_read(
        partial, next(n for n, r in enumerate(reads) if r.buffer is buffer), "local", [partial]
    )
    sch.compute_at(copy, turns, preserve_unit_loops=True)
    sch.vectorize(sch.get_loops(copy)[-1])
