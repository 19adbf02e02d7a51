"""Row kernels: softmax, norms, sums over trailing axes. A block of threads works on one row.

All blocks share their leading axes, the row. A reduction gives each thread every n-th element, and
the threads' partial results are combined across threads; spatial axes are spread over the threads.
Intermediates of a row stay in registers (one value per row) or in shared memory.
"""

from __future__ import annotations

from relaxlab.ir.dtypes import bytes_of
from relaxlab.ir.facts import Facts
from relaxlab.ir.loops import Block
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
)
from relaxlab.schedule.rules.rows import read_more_than_once, row_rank, separate_stores
from relaxlab.schedule.rules_gpu.base import THREADS, fits_a_block, fused, unrolled
from relaxlab.schedule.schedule import BlockRV, LoopRV, Schedule
from relaxlab.schedule.scope import is_output

SHORT_ROW = 1024
"""Elements up to which a warp has a row of its own: it needs no barrier to exchange results."""
LONG_ROW = 8192
"""Elements from which on rows in shared memory leave room for few blocks on a multiprocessor, which
then have more threads."""
MOST_THREADS = 1024


def apply(sch: Schedule, context: Context) -> Schedule | str:
    """Fits kernels whose reductions all run over trailing axes of a common row."""
    inline_producers(sch, keep=read_more_than_once(sch.func))
    blocks = blocks_of(sch.func)
    rank = row_rank(blocks)
    if rank is None or (rank == 0 and not _sums_everything(blocks)):
        return "it has no reduction over trailing axes of a row that all blocks share"
    facts = context.target.facts
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
    threads = _threads(sch, names, len(rows), facts, about)
    together = _rows_per_block(sch, rows, threads, facts, about)
    remaining = facts.most_shared // together
    for name in names:
        remaining -= _between_warps(sch, name, len(rows), threads, facts)
    for name in names[:-1]:
        remaining -= keep_near(sch, name, len(rows), remaining)
    for name in names:
        _inside_row(sch, name, rows, threads)
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
    if is_output(buffer, sch.func):
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


def _threads(
    sch: Schedule, names: list[str], rank: int, facts: Facts, about: str | None
) -> int:
    """Decide on the threads per row: a warp for a short one, else as many as the longest axis has
    elements, rounded up to a power of two, up to those of a block."""
    longest = 1
    for name in names:
        spatial, reduce = block_loops(sch, sch.get_block(name))
        size = 1
        for loop in reduce or spatial[rank:]:
            size *= constant(extent_of(sch, loop)) or 2 * SHORT_ROW
        longest = max(longest, size)
    # One reduction alone keeps nothing of its row.
    most = MOST_THREADS if longest > LONG_ROW and len(names) > 1 else THREADS
    threads = facts.warp
    while longest > SHORT_ROW and threads < min(longest, most):
        threads *= 2
    fitting = THREADS_PER_ROW.where(lambda n: fits_a_block(n, facts))
    return fitting.at_most(sch, threads, about)


def _inside_row(sch: Schedule, name: str, rows: list[LoopRV], threads: int) -> None:
    """Spread one block of a row over the threads."""
    rv = sch.get_block(name)
    spatial, reduce = block_loops(sch, rv)
    inner = [loop for loop in spatial[len(rows) :] if constant(extent_of(sch, loop)) != 1]
    if inner:
        if reduce:
            sch.reorder(*inner, *reduce)
        _, thread = sch.split(fused(sch, inner), factors=[None, threads])
        sch.bind(thread, "threadIdx.x")
        if reduce:
            sch.decompose_reduction(rv, reduce[0])
    elif reduce:
        _across_threads(sch, rv, rows, reduce, threads)


def _across_threads(
    sch: Schedule, rv: BlockRV, rows: list[LoopRV], reduce: list[LoopRV], threads: int
) -> None:
    """Make partial results per thread, then reduce across the threads. If the order must be kept
    one thread reduces."""
    if keeps_order(sch.func, found_block(sch, rv)):
        return
    buffer = found_block(sch, rv).writes[0].buffer
    _, thread = sch.split(fused(sch, reduce), factors=[None, threads])
    partial = sch.rfactor(thread, buffer.ndim)
    sch.set_scope(partial, 0, "local")
    if rows and sch.get(rows[-1]) not in [sch.get(loop) for loop in sch.get_loops(rv)]:
        sch.reverse_compute_at(rv, rows[-1])
    _, inside = block_loops(sch, partial)
    if inside:
        sch.reorder(thread, *inside)
        sch.decompose_reduction(partial, inside[0])
        unrolled(sch, inside[-1], UNROLL_TERMS.of(sch, 1))
    sch.bind(thread, "threadIdx.x")
    *_, last = sch.get_loops(rv)
    sch.bind(last, "threadIdx.x")
