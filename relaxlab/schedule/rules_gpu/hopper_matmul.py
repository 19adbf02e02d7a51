"""Matrix products of 16-bit floats by the tensor cores of a Hopper GPU (`wgmma`).

Two warpgroups make a tile of 128 x 256 results, by default. A warp of its own copies slices of 64
terms of both operands into shared memory, as boxes that are zero beyond the edges of the matrices;
the warpgroups multiply them from there (`schedule/intrinsics/wgmma.py`), and all sums stay in
registers. As many blocks as the GPU has multiprocessors take tile after tile
(`codegen/gpu/warp_specialize.py`).
"""

from __future__ import annotations

from dataclasses import dataclass

from relaxlab.analysis.index_map import IndexMap
from relaxlab.ir.dtypes import bytes_of
from relaxlab.ir.expr import Var
from relaxlab.ir.facts import Facts
from relaxlab.schedule.annotate import PIPELINE, WARP_SPECIALIZE
from relaxlab.schedule.intrinsics.wgmma import LINE, ROWS, TERMS, accumulator
from relaxlab.schedule.order import keeps_order
from relaxlab.schedule.rules.base import (
    axis_loops,
    blocks_of,
    constant,
    found_block,
    inline_producers,
    separate_store,
    with_versions,
)
from relaxlab.schedule.rules.context import Context
from relaxlab.schedule.rules.decisions import (
    PERSISTENT_BLOCKS,
    PIPELINE_STAGES,
    RASTER_COLUMNS,
    WARPGROUP_COLS,
    WARPGROUPS,
)
from relaxlab.schedule.rules_gpu import tensor_matmul
from relaxlab.schedule.rules_gpu.base import fused, unroll_all
from relaxlab.schedule.rules_gpu.tensor_matmul import (
    RASTER,
    HalfProduct,
    find_half_product,
    inline_permutations,
)
from relaxlab.schedule.schedule import BlockRV, Schedule

FEW_ROWS = 64
"""Rows up to which half of a tile would be empty, and tiles of `tensor_matmul` are made."""
BLOCKS = 132
"""The multiprocessors of an H100 or H200."""
STAGES = 4
"""Slices in shared memory: of 48 KB with the default tile. Not measured."""
ACCESS = 16
"""Bytes that the distance of rows in main memory is a multiple of, for copies of boxes."""


@dataclass(frozen=True, slots=True)
class _Tile:
    """Warpgroups and columns of the tile of a block, slices in shared memory, columns of tiles that
    blocks go down together, and blocks."""

    warpgroups: int
    cols: int
    stages: int
    raster: int
    blocks: int


def apply(sch: Schedule, context: Context) -> Schedule | str:
    """Fits products without batches of two matrices in main memory whose rows are multiples of 16
    bytes, where a row of the left one holds the terms of a result."""
    facts = context.target.facts
    if not facts.warpgroups:
        return "the GPU has no tensor instructions of warpgroups"
    inline_permutations(sch)
    found = find_half_product(sch.func)
    if isinstance(found, str):
        return found
    block = next(b for b in blocks_of(sch.func) if b.name == found.name)
    if keeps_order(sch.func, block):
        return f"{found.name} adds its terms in order"
    if found.left[1] != "ik" or len(block.iter_vars) != 3:
        return f"{found.name} has batches, or terms that are no rows of its left operand"
    for number, _ in (found.left, found.right):
        operand = block.reads[number].buffer
        if operand not in sch.func.params:
            return f"{found.name} reads {operand.name}, which it computes: boxes are of main memory"
        row = constant(operand.shape[-1])
        if not row or row * bytes_of(found.dtype) % ACCESS:
            return f"rows of an operand of {found.name} are no constant multiple of {ACCESS} bytes"
    rows = block.iter_vars[found.row].dom.extent
    known = constant(rows)
    if known is not None and known <= FEW_ROWS:
        return f"{found.name} has {known} rows: a tile would be half empty"

    def version(sch: Schedule, most: int | None) -> Schedule:
        if most is not None:
            return tensor_matmul.version(sch, found, context, most)
        return _by_warpgroups(sch, found, facts)

    with_versions(sch, context, rows, [1, FEW_ROWS], version)
    return sch


def _tile(sch: Schedule, found: HalfProduct, facts: Facts) -> _Tile:
    block = next(b for b in blocks_of(sch.func) if b.name == found.name)
    cols = constant(block.iter_vars[found.col].dom.extent)
    groups = WARPGROUPS.of(sch, 2)
    wide = WARPGROUP_COLS.where(lambda n: cols is None or n < 2 * max(cols, LINE)).at_most(
        sch, 128 if cols is None else 256
    )
    slices = (groups * ROWS + wide) * LINE * bytes_of(found.dtype)
    room = facts.most_shared - 1024  # barriers, and the alignment of slices
    stages = PIPELINE_STAGES.where(lambda n: n > 1 and n * slices <= room).at_most(sch, STAGES)
    tiles = None if cols is None else -(-cols // wide)
    together = RASTER_COLUMNS.where(lambda n: tiles is None or tiles % n == 0)
    raster = together.at_most(sch, 1 if tiles is None else RASTER)
    return _Tile(groups, wide, stages, raster, PERSISTENT_BLOCKS.of(sch, BLOCKS))


def _by_warpgroups(sch: Schedule, found: HalfProduct, facts: Facts) -> Schedule:
    tile, product = _tile(sch, found, facts), sch.get_block(found.name)
    padding = [1, 1, 1]
    padding[found.row], padding[found.col] = tile.warpgroups * ROWS, tile.cols
    padding[found.reduce] = LINE
    sch.pad_einsum(product, padding)
    slices = [sch.cache_read(product, n, "shared") for n, _ in (found.left, found.right)]
    inline_producers(sch, keep=[found_block(sch, b).name for b in slices])
    store = separate_store(sch, found.name)
    by_rows = found.right[1] == "kj"
    _lay_out(sch, product, slices[1], tile.cols, by_rows)
    nest = axis_loops(sch, product)
    row, col, depth = nest[found.row], nest[found.col], nest[found.reduce]
    i0, y, i1 = sch.split(row, factors=[None, tile.warpgroups, ROWS])
    j0, j1 = sch.split(col, factors=[None, tile.cols])
    k0, k1, k2 = sch.split(depth, factors=[None, LINE // TERMS, TERMS])
    g, j0 = sch.split(j0, factors=[None, tile.raster])
    sch.reorder(g, i0, j0, k0, y, k1, i1, j1, k2)
    for part in slices:
        sch.compute_at(part, k0, preserve_unit_loops=True)
    sch.reverse_compute_at(store, j0, preserve_unit_loops=True)
    init = sch.decompose_reduction(product, k0)
    *outside, first, _ = sch.get_loops(init)
    sch.tensorize(first, f"wgmma_fill_{tile.cols}")
    unroll_all(sch, k1)
    sch.tensorize(i1, f"wgmma_{found.dtype}_{tile.cols}{'_trans' if by_rows else ''}")
    sch.bind(y, "threadIdx.y")
    if tile.warpgroups > 1:
        sch.bind(outside[-1], "threadIdx.y")
    if by_rows:
        *_, terms, columns = sch.get_loops(slices[1])
        block, columns = sch.split(columns, factors=[None, LINE])
        sch.reorder(block, terms, columns)
    _store(sch, store, tile)
    sch.annotate(k0, PIPELINE, tile.stages)
    sch.annotate(k0, WARP_SPECIALIZE, tile.blocks)
    sch.bind(fused(sch, [g, i0, j0]), "blockIdx.x")
    sch.compact_buffers()
    return sch


def _lay_out(sch: Schedule, product: BlockRV, right: BlockRV, cols: int, by_rows: bool) -> None:
    """Store sums as they lie in the threads' registers, and a right operand that is stored row by
    row in blocks of 64 columns."""
    i, j = Var("i"), Var("j")
    thread, register = accumulator(i, j, cols)
    sums = IndexMap((i, j), (i // ROWS, j // cols, thread, register))
    sch.transform_layout(product, ("write", 0), sums)
    if by_rows:
        sch.transform_layout(right, ("write", 0), lambda k, j: (j // LINE, k, j % LINE))


def _store(sch: Schedule, store: BlockRV, tile: _Tile) -> None:
    """Let each thread store what is in its registers: rows 8 apart, pairs of columns."""
    *_, row, col = sch.get_loops(store)
    y, warp, half, group = sch.split(row, factors=[tile.warpgroups, 4, 2, 8])
    part, pair, both = sch.split(col, factors=[tile.cols // 8, 4, 2])
    sch.reorder(y, warp, group, pair, half, part, both)
    sch.bind(y, "threadIdx.y")
    sch.bind(sch.fuse(sch.fuse(warp, group), pair), "threadIdx.x")
    sch.vectorize(both)
    unroll_all(sch, half, part)
