"""Matrix products: tiles in shared memory, a square of sums per thread; single rows by warps.

A block of 16 x 16 threads makes a tile of 64 x 64 results. In steps of 16 along the reduced axis
the threads copy a slice of both operands into shared memory together, computing there what
produces them (decoding of quantised weights, transposes), and each adds the products of its 4 x 4
results, 16 rows and columns apart, in registers. Edges of tiles are guarded, so the number of rows
may be a symbol; a version for a single row gives each result to a warp instead.
"""

from __future__ import annotations

from dataclasses import dataclass

from relaxlab.ir.dtypes import bytes_of
from relaxlab.ir.loops import Block, PrimFunc
from relaxlab.ir.substitute import symbols_in
from relaxlab.schedule.error import ScheduleError
from relaxlab.schedule.order import keeps_order
from relaxlab.schedule.rules.base import (
    axis_loops,
    block_loops,
    blocks_of,
    constant,
    extent_of,
    found_block,
    inline_producers,
    is_spatial,
    separate_store,
    sum_of_products,
    with_versions,
)
from relaxlab.schedule.rules.context import Context
from relaxlab.schedule.rules_gpu.base import fused
from relaxlab.schedule.schedule import BlockRV, LoopRV, Schedule

SIDE = 16
"""Threads along each side of a tile, and the depth of a slice: 256 threads, and slices of both
operands of 64 rows, 8 KB of shared memory together."""
SQUARE = 4
"""Results per thread along each side: 16 accumulators for 8 loads from shared memory."""
ROWS_BY_WARPS = 2
"""Most rows for which a warp computes one result together; from then on tiles reuse what they
load."""
WARPS = 8
"""Warps per block: 256 threads."""


@dataclass(frozen=True, slots=True)
class _Product:
    """The reduction block and the numbers of its row, column and reduce axes."""

    name: str
    row: int
    col: int
    reduce: int


def apply(sch: Schedule, context: Context) -> Schedule | str:
    """Fits one multiply-accumulate of a matrix of rows and a matrix of columns."""
    func, found = sch.func, _find(sch.func)
    if isinstance(found, str):
        return found
    block = next(b for b in blocks_of(func) if b.name == found.name)
    rows = block.iter_vars[found.row].dom.extent
    if keeps_order(func, block):  # the lanes of a warp would share a sum
        return _by_tiles(sch, found)
    warp = context.target.facts.warp
    few = (constant(rows) or ROWS_BY_WARPS + 1) <= ROWS_BY_WARPS
    with_versions(
        sch, context, rows, [1],
        lambda s, most: _by_warps(s, found, warp) if most or few else _by_tiles(s, found),
    )  # fmt: skip
    return sch


def _find(func: PrimFunc) -> _Product | str:
    """The product, or why the kernel is none that the rule is for."""
    reductions = [b for b in blocks_of(func) if not is_spatial(b)]
    if len(reductions) != 1:
        return f"it has {len(reductions)} reductions, not one"
    block = reductions[0]
    loads = sum_of_products(block)
    spatial = [i for i, it in enumerate(block.iter_vars) if it.kind == "spatial"]
    reduce = [i for i, it in enumerate(block.iter_vars) if it.kind != "spatial"]
    if loads is None or len(reduce) != 1 or len(spatial) < 2:
        return f"{block.name} is no sum of products of two loads over one axis, of a matrix"
    row, col = spatial[-2], spatial[-1]
    row_var, col_var = block.iter_vars[row].var, block.iter_vars[col].var
    sides = [set(symbols_in(load.indices)) for load in loads]
    if col_var not in sides[1]:
        sides.reverse()
    left, right = sides
    if row_var not in left or col_var not in right or row_var in right or col_var in left:
        return f"{block.name}: {row_var} and {col_var} do not each index one operand"
    # A product with a vector has no tile to share.
    if constant(block.iter_vars[col].dom.extent) == 1:
        return f"{block.name} has one column"
    return _Product(block.name, row, col, reduce[0])


def _by_tiles(sch: Schedule, found: _Product) -> Schedule:
    product = sch.get_block(found.name)
    copies = [sch.cache_read(product, i, "shared") for i in _operands(found_block(sch, product))]
    inline_producers(sch, keep=[found_block(sch, c).name for c in copies])
    store = separate_store(sch, found.name)
    nest = axis_loops(sch, product)
    row, col, depth = nest[found.row], nest[found.col], nest[found.reduce]
    outer = [x for i, x in enumerate(nest) if i not in (found.row, found.col, found.reduce)]
    rows, cols = (_per_thread(constant(extent_of(sch, loop))) for loop in (row, col))
    row_tile, row, y = sch.split(row, factors=[None, rows, SIDE])
    col_tile, col, x = sch.split(col, factors=[None, cols, SIDE])
    slice_, depth = sch.split(depth, factors=[None, SIDE])
    # The results of a thread lie innermost: each value that it loads from shared memory is used for
    # a row or column of them.
    sch.reorder(*outer, row_tile, col_tile, slice_, y, x, depth, row, col)
    for copy in copies:
        sch.compute_at(copy, slice_, preserve_unit_loops=True)
    sch.reverse_compute_at(store, col_tile, preserve_unit_loops=True)
    # The sums stay in registers across slices, so they start from zero outside of that loop.
    init = sch.decompose_reduction(product, slice_)
    zeros = sch.get_loops(init)[len(outer) + 2 :]  # without `col` where a thread has one column
    for square in ([y, x, row, col], zeros):
        sch.bind(square[0], "threadIdx.y")
        sch.bind(square[1], "threadIdx.x")
        for loop in square[2:]:
            sch.unroll(loop)
    for copy in copies:
        _together(sch, copy, slice_)
    _squares(sch, store, rows, cols)
    sch.bind(fused(sch, [*outer, row_tile, col_tile]), "blockIdx.x")
    sch.compact_buffers()
    return sch


def _operands(block: Block) -> list[int]:
    """The numbers of the regions that the block reads and does not write."""
    return [i for i, r in enumerate(block.reads) if r.buffer is not block.writes[0].buffer]


def _together(sch: Schedule, copy: BlockRV, outside: LoopRV) -> None:
    """Copy a slice by all threads of the block, neighbours by neighbours. Its rows are an odd
    number of words long, so that threads that read a column of it use different banks."""
    words = max(1, 4 // bytes_of(found_block(sch, copy).writes[0].buffer.dtype))
    sch.storage_align(copy, 0, -2, 2 * words, words)
    nest = sch.get_loops(copy)
    inner = nest[[sch.get(n) for n in nest].index(sch.get(outside)) + 1 :]
    _, y, x = sch.split(fused(sch, inner), factors=[None, SIDE, SIDE])
    sch.bind(y, "threadIdx.y")
    sch.bind(x, "threadIdx.x")


def _per_thread(extent: int | None) -> int:
    """Results per thread along a side: fewer where a tile would be wider than the product."""
    return SQUARE if extent is None else min(SQUARE, -(-extent // SIDE))


def _squares(sch: Schedule, store: BlockRV, rows: int, cols: int) -> None:
    """Bind the store so that each thread stores the results that it has summed."""
    *_, row, col = sch.get_loops(store)
    row, y = sch.split(row, factors=[rows, SIDE])
    col, x = sch.split(col, factors=[cols, SIDE])
    sch.reorder(y, x, row, col)
    sch.bind(y, "threadIdx.y")
    sch.bind(x, "threadIdx.x")
    sch.unroll(row)
    sch.unroll(col)


def _by_warps(sch: Schedule, found: _Product, warp_size: int) -> Schedule:
    """A warp per result: each lane every 32nd product, then a sum across the lanes."""
    inline_producers(sch)
    product = sch.get_block(found.name)
    store = separate_store(sch, found.name)
    *spatial, depth = axis_loops(sch, product)
    if len(spatial) != len(sch.get_loops(store)):
        raise ScheduleError("matmul", "kernel", "what stores the results has the product's axes")
    buffer = found_block(sch, product).writes[0].buffer
    *outer, col = spatial
    col, warp = sch.split(col, factors=[None, WARPS])
    sch.reverse_compute_at(store, warp, preserve_unit_loops=True)
    _, lane = sch.split(depth, factors=[None, warp_size])
    partial = sch.rfactor(lane, buffer.ndim)
    # No other lane reads a lane's partial sum: a register holds it.
    sch.set_scope(partial, 0, "local")
    _, inside = block_loops(sch, partial)
    if inside:
        sch.reorder(lane, *inside)
        sch.decompose_reduction(partial, inside[0])
    sch.bind(lane, "threadIdx.x")
    *_, last = sch.get_loops(product)
    sch.bind(last, "threadIdx.x")
    sch.bind(warp, "threadIdx.y")
    sch.bind(fused(sch, [*outer, col]), "blockIdx.x")
    sch.compact_buffers()
    return sch
