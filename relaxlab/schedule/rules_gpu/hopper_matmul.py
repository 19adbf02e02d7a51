"""Matrix products of 16-bit floats by the tensor cores of a Hopper GPU (`wgmma`).

Two warpgroups make a tile of 128 x 256 results where there are many; `_estimate` says which tile
is best for fewer, and how many blocks share the terms of one (split-K). A warp of its own copies
slices of 64 terms of both operands into shared memory, as boxes that are zero beyond the edges of
the matrices; the warpgroups multiply them from there (`schedule/intrinsics/wgmma.py`), and all sums
stay in registers. As many blocks as the GPU has multiprocessors take tile after tile
(`codegen/gpu/warp_specialize.py`). Operands that no box can be copied from are stored first: those
that are computed, and those whose rows do not begin at multiples of 16 bytes.
"""

from __future__ import annotations

from dataclasses import dataclass

from relaxlab.analysis.index_map import IndexMap
from relaxlab.ir.dtypes import bytes_of
from relaxlab.ir.expr import Var
from relaxlab.ir.facts import BOX_DIMENSIONS, Facts
from relaxlab.ir.loops import Buffer
from relaxlab.schedule.annotate import PIPELINE, WARP_SPECIALIZE
from relaxlab.schedule.intrinsics.wgmma import LINE, ROWS, TERMS, accumulator
from relaxlab.schedule.order import keeps_order
from relaxlab.schedule.rules.base import (
    blocks_of,
    constant,
    extent_of,
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
    SPLIT_TERMS,
    WARPGROUP_COLS,
    WARPGROUPS,
)
from relaxlab.schedule.rules_gpu import tensor_matmul
from relaxlab.schedule.rules_gpu.base import bind_flat, fused, unroll_all
from relaxlab.schedule.rules_gpu.split_terms import add_parts, fitting_parts, part_sums
from relaxlab.schedule.rules_gpu.tensor_matmul import (
    RASTER,
    HalfProduct,
    find_half_product,
    inline_permutations,
)
from relaxlab.schedule.schedule import BlockRV, Schedule

ROW_BOUNDS = (64, 128, 256, 512, 1024, 2048)
"""Numbers of rows up to which a symbolic number of them may have tiles of its own."""
BLOCKS = 132
"""The multiprocessors of an H100 or H200."""
STAGES = 4
"""Slices in shared memory: of 48 KB with the largest tile. Not measured with others."""
ACCESS = 16
"""Bytes that the distance of rows in main memory is a multiple of, for copies of boxes."""
TENSOR_RATE, LOAD_RATE, CACHE_RATE = 2048, 48, 5000
"""Products that a multiprocessor adds in a cycle, the bytes that it can load in one, and those that
the second-level cache gives all of them: a product of 8192^3 loaded 8.5 TB/s (H200)."""
LAUNCH = 4000
"""Cycles that one more launch costs in a CUDA graph: about 2 us, not measured."""
COMPUTED_ROWS = 256
"""Rows up to which operands are computed where tiles are copied, such as quantised weights, which
are then decoded once for each tile. Not measured: written in bfloat16 and read again, weights of
4096 x 14336 take 50 us at 4.7 TB/s, as long as a product of 350 rows at 800 TFLOP/s."""
LEAST_SLICES = 8
"""Slices that a part of the terms has at least: fewer do not hide the latency of their first."""


@dataclass(frozen=True, slots=True)
class _Tile:
    """Warpgroups and columns of the tile of a block, and the blocks that share its terms."""

    warpgroups: int
    cols: int
    parts: int = 1

    @property
    def rows(self) -> int:
        return self.warpgroups * ROWS


LARGEST = _Tile(2, 256)
TILES = (LARGEST, _Tile(2, 128), _Tile(1, 256), _Tile(1, 128), _Tile(1, 64))


def apply(sch: Schedule, context: Context) -> Schedule | str:
    """Fits products of two matrices, or of batches of them, where a row of the left one holds the
    terms of a result."""
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
    if found.left[1] != "ik" or found.reduce != len(block.iter_vars) - 1:
        return f"{found.name} has terms that are no rows of its left operand"
    if max(block.reads[n].buffer.ndim for n, _ in (found.left, found.right)) > BOX_DIMENSIONS:
        return f"{found.name} has operands of more than {BOX_DIMENSIONS} dimensions"
    rows, cols, terms = (
        constant(block.iter_vars[n].dom.extent) for n in (found.row, found.col, found.reduce)
    )
    few = _few_rows(sch, found)
    if rows is not None and rows <= few:
        return f"{found.name} has {rows} rows: a tile would be mostly empty, or copies cost more"

    def version(sch: Schedule, most: int | None) -> Schedule:
        if most is not None and most <= few:
            return tensor_matmul.version(sch, found, context, most)
        return _by_warpgroups(sch, found, _best_tile(rows or most, cols, terms), facts)

    tiles = [(most, _best_tile(most, cols, terms)) for most in ROW_BOUNDS]
    after = [tile for _, tile in tiles[1:]] + [_best_tile(None, cols, terms)]
    changes = [most for (most, tile), next_tile in zip(tiles, after, strict=True)
               if tile != next_tile or most in (ROWS, few)]  # fmt: skip
    with_versions(sch, context, block.iter_vars[found.row].dom.extent, [1, *changes], version)
    return sch


def _few_rows(sch: Schedule, found: HalfProduct) -> int:
    """The number of rows up to which tiles of `tensor_matmul` are faster."""
    copied = _copied(sch, found)
    if any(b not in sch.func.params for b in copied):
        return COMPUTED_ROWS
    return ROWS if copied else 1


def _copied(sch: Schedule, found: HalfProduct) -> list[Buffer]:
    """The operands that no box can be copied from: those that are computed, and those whose rows
    are no constant multiple of 16 bytes."""
    block = next(b for b in blocks_of(sch.func) if b.name == found.name)
    operands = [block.reads[number].buffer for number, _ in (found.left, found.right)]

    def has_boxes(buffer: Buffer) -> bool:
        row = constant(buffer.shape[-1])
        return buffer in sch.func.params and bool(row) and row * bytes_of(found.dtype) % ACCESS == 0

    return [b for b in operands if not has_boxes(b)]


def _best_tile(rows: int | None, cols: int | None, terms: int | None) -> _Tile:
    """The tile of the least estimated time; the largest where an extent is unknown."""
    if cols is None:
        return _Tile(2, 128)
    if rows is None or terms is None:
        return LARGEST
    slices = -(-terms // LINE)
    parts = [n for n in SPLIT_TERMS.candidates if n == 1 or slices >= n * LEAST_SLICES]
    fitting = [t for t in TILES if t.cols < 2 * max(cols, LINE) and t.rows < 2 * max(rows, ROWS)]
    wanted = [_Tile(t.warpgroups, t.cols, n) for n in parts for t in fitting]
    return min(wanted, key=lambda tile: _estimate(tile, rows, cols, slices))


def _estimate(tile: _Tile, rows: int, cols: int, slices: int) -> float:
    """Cycles of a product: what the busiest multiprocessor multiplies or loads, or all of them load
    from the second-level cache, whichever takes longest; and the sums of parts, which go there and
    back."""
    tiles = -(-rows // tile.rows) * -(-cols // tile.cols) * tile.parts
    depth = -(-slices // tile.parts)
    busiest = -(-tiles // BLOCKS) * depth
    loaded = (min(rows, tile.rows) + tile.cols) * LINE * 2
    products = busiest * tile.rows * tile.cols * LINE / TENSOR_RATE
    loads = max(busiest * loaded / LOAD_RATE, tiles * depth * loaded / CACHE_RATE)
    sums = 2 * 4 * rows * cols * tile.parts / CACHE_RATE + LAUNCH
    return max(products, loads) + (sums if tile.parts > 1 else 0)


def _by_warpgroups(sch: Schedule, found: HalfProduct, tile: _Tile, facts: Facts) -> Schedule:
    block = next(b for b in blocks_of(sch.func) if b.name == found.name)
    cols, terms = (constant(block.iter_vars[i].dom.extent) for i in (found.col, -1))
    groups = WARPGROUPS.of(sch, tile.warpgroups)
    wide = WARPGROUP_COLS.where(lambda n: cols is None or n < 2 * max(cols, LINE)).at_most(
        sch, tile.cols
    )

    tile = _Tile(groups, wide, fitting_parts(terms, LINE).at_most(sch, tile.parts))
    product = sch.get_block(found.name)
    batch = [1] * found.row
    padding = [*batch, tile.rows, tile.cols, LINE * tile.parts]
    numbers = [n for n, _ in (found.left, found.right)]
    copied = [n for n in numbers if block.reads[n].buffer in _copied(sch, found)]
    sch.pad_einsum(product, padding)
    read = [found_block(sch, product).reads[n].buffer for n in copied]
    copies = [b.name for b in blocks_of(sch.func) if b.writes[0].buffer in read]
    sums = None
    if tile.parts > 1:
        sums, product = product, part_sums(sch, product, found.reduce, tile.parts)
    slices = [sch.cache_read(product, n, "shared") for n in numbers]
    inline_producers(sch, keep=[*copies, *(found_block(sch, b).name for b in slices)])
    for name in copies:
        bind_flat(sch, sch.get_loops(sch.get_block(name)), facts, ACCESS // bytes_of(found.dtype))
    if sums is None:
        store = separate_store(sch, found.name)
    else:
        store = sch.cache_write(product, 0, "local")
        add_parts(sch, sums, facts)
    _multiply(sch, found, tile, facts, product, slices, store)
    sch.compact_buffers()
    return sch


def _multiply(
    sch: Schedule, found: HalfProduct, tile: _Tile, facts: Facts, product: BlockRV,
    slices: list[BlockRV], store: BlockRV,
) -> None:  # fmt: skip
    """Schedule the product, whose last three loops are over a row, a column and a term, the copies
    of its slices, and the store of its sums."""
    by_rows = found.right[1] == "kj"
    _lay_out(sch, product, slices[1], tile.cols, by_rows)
    *outer, row, col, depth = sch.get_loops(product)
    i0, y, i1 = sch.split(row, factors=[None, tile.warpgroups, ROWS])
    j0, j1 = sch.split(col, factors=[None, tile.cols])
    k0, k1, k2 = sch.split(depth, factors=[None, LINE // TERMS, TERMS])
    tiles = constant(extent_of(sch, j0))
    together = RASTER_COLUMNS.where(lambda n: tiles is None or tiles % n == 0)
    g, j0 = sch.split(j0, factors=[None, together.at_most(sch, 1 if tiles is None else RASTER)])
    sch.reorder(*outer, g, i0, j0, k0, y, k1, i1, j1, k2)
    for copy in slices:
        sch.compute_at(copy, k0, preserve_unit_loops=True)
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
    size = (tile.rows + tile.cols) * LINE * bytes_of(found.dtype)
    room = facts.most_shared - 1024  # barriers, and the alignment of slices
    fitting = PIPELINE_STAGES.where(lambda n: n > 1 and n * size <= room)
    sch.annotate(k0, PIPELINE, fitting.at_most(sch, STAGES if tile.cols == LARGEST.cols else 6))
    sch.annotate(k0, WARP_SPECIALIZE, PERSISTENT_BLOCKS.of(sch, BLOCKS))
    sch.bind(fused(sch, [*outer, g, i0, j0]), "blockIdx.x")


def _lay_out(sch: Schedule, product: BlockRV, right: BlockRV, cols: int, by_rows: bool) -> None:
    """Store sums as they lie in the threads' registers, and a right operand that is stored row by
    row in blocks of 64 columns."""
    i, j = Var("i"), Var("j")
    thread, register = accumulator(i, j, cols)
    outer = tuple(Var(f"b{n}") for n in range(found_block(sch, product).writes[0].buffer.ndim - 2))
    sums = IndexMap((*outer, i, j), (*outer, i // ROWS, j // cols, thread, register))
    sch.transform_layout(product, ("write", 0), sums)
    if by_rows:
        batch = outer[: found_block(sch, right).writes[0].buffer.ndim - 2]
        blocks = IndexMap((*batch, i, j), (*batch, j // LINE, i, j % LINE))
        sch.transform_layout(right, ("write", 0), blocks)


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
