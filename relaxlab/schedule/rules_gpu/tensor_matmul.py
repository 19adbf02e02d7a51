"""Matrix products of 16-bit floats by tensor cores.

A block of 4 x 2 warps makes a tile of 256 x 128 results, by default. In steps of 64 along the
reduced axis its threads copy a slice of both operands into shared memory; each warp loads tiles of
16 x 16 from there into registers and multiplies them by tensor instructions
(`schedule/intrinsics/mma.py`). Sums stay in registers. Extents are rounded up to those of tiles by
zeros around the operands, so any of them may be a symbol.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from relaxlab.analysis.index_map import IndexMap
from relaxlab.ir import expr
from relaxlab.ir.dtypes import bytes_of
from relaxlab.ir.expr import Var
from relaxlab.ir.facts import Facts
from relaxlab.ir.loops import BufferLoad, BufferStore, PrimFunc
from relaxlab.schedule.annotate import DOUBLE_BUFFER, PIPELINE
from relaxlab.schedule.intrinsics.mma import DTYPES, SIZE, columns_fragment, rows_fragment
from relaxlab.schedule.order import keeps_order
from relaxlab.schedule.rules.base import (
    axis_loops,
    blocks_of,
    constant,
    extent_of,
    fitting,
    found_block,
    inline_producers,
    is_spatial,
    loops_inside,
    separate_store,
    with_versions,
)
from relaxlab.schedule.rules.context import Context
from relaxlab.schedule.rules.decisions import (
    BLOCK_COLS,
    BLOCK_ROWS,
    BLOCK_TERMS,
    FRAGMENTS_AHEAD,
    PIPELINE_STAGES,
    RASTER_COLUMNS,
    SPLIT_TERMS,
    WARP_COLS,
    WARP_ROWS,
)
from relaxlab.schedule.rules_gpu import matmul
from relaxlab.schedule.rules_gpu.base import find_product, fused, swizzle_rows, unroll_all
from relaxlab.schedule.rules_gpu.split_terms import add_parts, fitting_parts, part_sums
from relaxlab.schedule.schedule import BlockRV, LoopRV, Schedule

ROWS, COLS = 256, 128
"""The largest tile of a block. On an H200, 8192^3 ran at 401 TFLOP/s with it, 64 terms and 64 x 64
results per warp (cuBLAS: 741), at 369 with 128 rows, at 319 with 128 rows and 32 terms. Without
loading fragments ahead, 128 rows and 32 terms ran at 335."""
SIDES = (ROWS, 128, 64, 32, 16)
"""Its sides, the largest first, which wins where several are estimated alike."""
TERMS = 64
"""Terms that are copied at once: rows of 128 bytes, a line of the second-level cache."""
STAGES = 3
"""Slices in shared memory that a tile has room for: two are under way."""
TENSOR_RATE, SHARED_RATE, CACHE_RATE, MEMORY_RATE = 1024, 128, 5000, 1300
"""Products that a multiprocessor of an A100 adds in a cycle, the bytes that its shared memory moves
in one, and those that the second-level cache and main memory give all of them."""
LAUNCH = 3000
"""Cycles that one more launch costs in a CUDA graph: about 2 us, not measured."""
LEAST_SLICES = 8
"""Slices that a part of the terms has at least: fewer do not hide the latency of their first."""
RASTER = 8
"""Columns of tiles that blocks go down together: 132 blocks of an H100 then read 8 slices of one
operand and 17 of the other. Not measured."""


@dataclass(frozen=True, slots=True)
class HalfProduct:
    """A product of matrices of 16-bit floats: the block, its dtype, the numbers of its row, column
    and reduce axes, and of its reads of the left and the right operand with the axes that these are
    indexed by, as letters."""

    name: str
    dtype: str
    row: int
    col: int
    reduce: int
    left: tuple[int, str]
    right: tuple[int, str]

    def of_part(self, name: str, axes: int) -> HalfProduct:
        """The block of so many axes that sums a part of the terms (`part_sums`)."""
        row, col = (n + (n < self.reduce) for n in (self.row, self.col))
        return replace(self, name=name, row=row, col=col, reduce=axes - 1)


@dataclass(frozen=True, slots=True)
class _Tile:
    """Rows, columns and terms of the tile of a block, its warps along rows and columns, the slices
    of its operands that are in shared memory, and the blocks that share its terms."""

    rows: int
    cols: int
    terms: int
    warp_rows: int
    warp_cols: int
    stages: int
    parts: int

    @property
    def fragments(self) -> tuple[int, int]:
        """Tiles of a tensor instruction that a warp has, along rows and columns."""
        return self.rows // self.warp_rows // SIZE, self.cols // self.warp_cols // SIZE


def apply(sch: Schedule, context: Context) -> Schedule | str:
    """Fits one multiply-accumulate in float32 of two matrices of 16-bit floats."""
    facts = context.target.facts
    if not facts.tensor_cores:
        return "the GPU has no tensor cores"
    inline_permutations(sch)
    found = find_half_product(sch.func)
    if isinstance(found, str):
        return found
    block = next(b for b in blocks_of(sch.func) if b.name == found.name)
    if keeps_order(sch.func, block):
        return f"{found.name} adds its terms in order"
    rows = block.iter_vars[found.row].dom.extent
    known = constant(rows)
    if known is not None and known <= matmul.FEW_ROWS:
        return f"{found.name} has {known} rows: a tile would be mostly empty"

    # One row, few rows, any number of them.
    with_versions(
        sch, context, rows, [1, COLS // 2], lambda one, most: version(one, found, context, most)
    )
    return sch


def version(sch: Schedule, found: HalfProduct, context: Context, most: int | None) -> Schedule:
    """Schedule a version for at most so many rows; for any number where it is None."""
    if most == 1:
        return fitting(matmul.apply(sch, context))
    return _by_tiles(sch, found, context.target.facts, most)


def inline_permutations(sch: Schedule) -> None:
    """Read an operand where it is stored, not through a transposed copy."""
    for block in blocks_of(sch.func)[:-1]:
        axes = {it.var for it in block.iter_vars}
        match block.body:
            case BufferStore(_, BufferLoad(_, read), _) if is_spatial(block) and axes == set(read):
                sch.compute_inline(sch.get_block(block.name))
            case _:
                pass


def find_half_product(func: PrimFunc, dtypes: Sequence[str] = DTYPES) -> HalfProduct | str:
    """The product of two matrices of one of the `dtypes`, which is added in float32, or why the
    kernel is none."""
    found = find_product(func)
    if isinstance(found, str):
        return found
    block, loads = found.block, found.loads
    dtype = loads[0].dtype
    if dtype not in dtypes or loads[1].dtype != dtype or block.writes[0].buffer.dtype != "float32":
        return f"{block.name} does not add products of two {' or '.join(dtypes)} in float32"
    row, col, k = (block.iter_vars[n].var for n in (found.row, found.col, found.reduce))
    letters = {row: "i", col: "j", k: "k"}
    places: dict[str, tuple[int, str]] = {}
    for load in loads:
        axes = "".join(letters.get(x, "b") for x in load.indices)  # type: ignore[arg-type]
        ends = axes[-2:]
        number = next(n for n, r in enumerate(block.reads) if r.buffer is load.buffer)
        places["".join(sorted(ends))] = (number, ends)
        if any(not isinstance(x, expr.Var) for x in load.indices) or set(axes[:-2]) - {"b"}:
            return f"{block.name}: {load.buffer.name} is not indexed by its axes alone"
    if set(places) != {"ik", "jk"}:
        return f"{block.name}: its operands are not indexed by row and term, and column and term"
    return HalfProduct(
        block.name, dtype, found.row, found.col, found.reduce, places["ik"], places["jk"]
    )


def _by_tiles(sch: Schedule, found: HalfProduct, facts: Facts, most: int | None) -> Schedule:
    """`most`: an upper bound of the rows, if there is one."""
    product = sch.get_block(found.name)
    block = found_block(sch, product)
    known = [constant(it.dom.extent) for it in block.iter_vars]
    known[found.row] = known[found.row] or most
    tile = _tile(sch, found, known, facts)
    padding = [1] * len(block.iter_vars)
    padding[found.row], padding[found.col] = tile.rows, tile.cols
    padding[found.reduce] = tile.terms * tile.parts
    sch.pad_einsum(product, padding)
    sums = None
    if tile.parts > 1:
        sums, product = product, part_sums(sch, product, found.reduce, tile.parts)
        part = found_block(sch, product)
        found = found.of_part(part.name, len(part.iter_vars))
    slices = [sch.cache_read(product, n, "shared") for n, _ in (found.left, found.right)]
    fragments = [sch.cache_read(product, n, "local") for n, _ in (found.left, found.right)]
    inline_producers(sch, keep=[found_block(sch, b).name for b in (*slices, *fragments)])
    if sums is None:
        store = separate_store(sch, found.name)
    else:
        store = sch.cache_write(product, 0, "local")
        add_parts(sch, sums, facts)
    _lay_out(sch, product, fragments, found)
    nest = axis_loops(sch, product)
    row, col, depth = nest[found.row], nest[found.col], nest[found.reduce]
    outer = [x for i, x in enumerate(nest) if i not in (found.row, found.col, found.reduce)]
    height, width = tile.fragments
    i0, y, i1, i2 = sch.split(row, factors=[None, tile.warp_rows, height, SIZE])
    j0, x, j1, j2 = sch.split(col, factors=[None, tile.warp_cols, width, SIZE])
    k0, k1, k2 = sch.split(depth, factors=[None, tile.terms // SIZE, SIZE])
    columns = constant(extent_of(sch, j0))
    together = RASTER_COLUMNS.where(lambda n: columns is None or columns % n == 0)
    g, j0 = sch.split(j0, factors=[None, together.at_most(sch, RASTER if columns else 1)])
    sch.reorder(*outer, g, i0, j0, k0, y, x, k1, i1, j1, i2, j2, k2)
    for copy in fragments:
        sch.compute_at(copy, k1, preserve_unit_loops=True)
    for part in slices:
        sch.compute_at(part, k0, preserve_unit_loops=True)
    sch.reverse_compute_at(store, j0, preserve_unit_loops=True)
    _fill(sch, sch.decompose_reduction(product, k0), tile)
    unroll_all(sch, i1, j1, k1)
    sch.tensorize(i2, f"mma_{found.dtype}")
    _load_fragments(sch, fragments, found)
    sch.bind(y, "threadIdx.z")
    sch.bind(x, "threadIdx.y")
    operands = ((tile.rows, found.left), (tile.cols, found.right))
    for part, (side, (_, axes)) in zip(slices, operands, strict=True):
        _copy_together(sch, part, k0, tile, facts)
        swizzle_rows(sch, part, tile.terms if axes[1] == "k" else side, facts)
    _store(sch, store, tile)
    if tile.stages > 1:
        sch.annotate(k0, PIPELINE, tile.stages)
        if tile.terms // SIZE % 2 == 0 and FRAGMENTS_AHEAD.of(sch, True):
            sch.annotate(k1, DOUBLE_BUFFER, True)
    sch.bind(fused(sch, [*outer, g, i0, j0]), "blockIdx.x")
    sch.compact_buffers()
    return sch


def _fill(sch: Schedule, init: BlockRV, tile: _Tile) -> None:
    """Let each warp fill its accumulators with zeros."""
    *nest, first, _ = sch.get_loops(init)
    sch.tensorize(first, "mma_fill")
    # It has no loops of one iteration.
    counts = [n for n in (tile.warp_rows, tile.warp_cols, *tile.fragments) if n > 1]
    zeros = nest[len(nest) - len(counts) :]
    axes = ["threadIdx.z"] * (tile.warp_rows > 1) + ["threadIdx.y"] * (tile.warp_cols > 1)
    unroll_all(sch, *zeros[len(axes) :])
    for loop, axis in zip(zeros, axes, strict=False):
        sch.bind(loop, axis)


def _load_fragments(sch: Schedule, fragments: list[BlockRV], found: HalfProduct) -> None:
    """Load tiles of the operands from shared memory by tensor instructions."""
    operands = zip(fragments, (found.left, found.right), ("rows", "columns"), strict=True)
    for copy, (_, axes), side in operands:
        *_, first, second = sch.get_loops(copy)
        first, inner = sch.split(first, factors=[None, SIZE])
        second, last = sch.split(second, factors=[None, SIZE])
        sch.reorder(first, second, inner, last)
        unroll_all(sch, first, second)
        trans = "_trans" if axes[0] == "k" else ""
        sch.tensorize(inner, f"mma_{side}_{found.dtype}{trans}")


def _tile(sch: Schedule, found: HalfProduct, known: list[int | None], facts: Facts) -> _Tile:
    """Decide on the tile: no side is twice as long as the product's."""
    rows, cols = known[found.row], known[found.col]
    size, access = bytes_of(found.dtype), facts.vector_bits // 8

    def slice_bytes(high: int, wide: int, terms: int) -> int:
        """Bytes of the slices of both operands."""
        return (high + wide) * terms * size

    room = facts.most_shared // STAGES
    batch = [n for i, n in enumerate(known) if i not in (found.row, found.col, found.reduce)]
    # The tiles of a batch are many, mostly.
    shared = None if any(n != 1 for n in batch) else known[found.reduce]
    high, wide, parts = _best_sides(rows, cols, shared, facts.multiprocessors)
    while slice_bytes(high, wide, SIZE) > room:
        high, wide = high // 2, wide // 2
    high = BLOCK_ROWS.where(lambda n: rows is None or n < 2 * max(rows, SIZE)).at_most(sch, high)
    wide = BLOCK_COLS.where(lambda n: cols is None or n < 2 * max(cols, SIZE)).at_most(sch, wide)

    def fits(terms: int, warps: int) -> bool:
        """True for slices that are whole turns of all threads, without guards."""
        turn = warps * facts.warp * access // size
        whole = high * terms % turn == 0 and wide * terms % turn == 0
        return whole and slice_bytes(high, wide, terms) <= room

    def some_fit(warps: int) -> bool:
        return any(fits(terms, warps) for terms in BLOCK_TERMS.candidates)

    warp = _warp_side(high, wide)
    warp_rows = WARP_ROWS.where(lambda n: high % (n * SIZE) == 0 and some_fit(n)).at_most(
        sch, high // warp
    )
    warp_cols = WARP_COLS.where(
        lambda n: wide % (n * SIZE) == 0 and some_fit(warp_rows * n)
    ).at_most(sch, wide // warp)
    terms = BLOCK_TERMS.where(lambda n: fits(n, warp_rows * warp_cols)).at_most(sch, TERMS)
    most = facts.most_shared // slice_bytes(high, wide, terms)
    # Small slices leave room for more of them, which hide more of the latency.
    stages = PIPELINE_STAGES.where(lambda n: n <= most).at_most(
        sch, STAGES if high * wide >= ROWS * COLS // 2 else 2 * STAGES
    )
    split = fitting_parts(known[found.reduce], terms).at_most(sch, parts)
    return _Tile(high, wide, terms, warp_rows, warp_cols, stages, split)


def _best_sides(
    rows: int | None, cols: int | None, terms: int | None, multiprocessors: int
) -> tuple[int, int, int]:
    """The default rows and columns of a block's tile and the parts of its terms, one where these
    are None: those of the least estimated time."""
    if rows is None or cols is None:  # perhaps not many
        return COLS, COLS, 1
    slices = -(-(terms or TERMS) // TERMS)
    sizes = [(h, w) for h in SIDES for w in SIDES if w <= COLS and h < 2 * rows and w < 2 * cols]
    parts = [n for n in SPLIT_TERMS.candidates if n == 1 or slices >= n * LEAST_SLICES]
    every = [(h, w, n) for n in parts for h, w in sizes or [(SIZE, SIZE)]]
    return min(every, key=lambda tile: _estimate(*tile, (rows, cols, slices), multiprocessors))


def _estimate(
    high: int, wide: int, parts: int, extents: tuple[int, int, int], multiprocessors: int
) -> float:
    """Cycles of a product of rows, columns and slices: of the multiprocessor with the most tiles,
    which multiplies and loads from shared memory, and of main memory and the second-level cache;
    and of the sums of parts, which go there and back."""
    rows, cols, slices = extents
    tiles = -(-rows // high) * -(-cols // wide) * parts
    depth = -(-slices // parts)
    warp = _warp_side(high, wide)
    down, across = max(1, high // warp), max(1, wide // warp)
    # Each warp loads its rows and columns, and all together store the slices.
    shared = (high * across + wide * down + high + wide) * TERMS * 2 / SHARED_RATE
    products = high * wide * TERMS / TENSOR_RATE
    # The more warps there are to choose from, at most those of two tiles, the better both overlap.
    turns = -(-tiles // multiprocessors)
    near = turns * depth * _norm((shared, products), 1 + min(turns, 2) * down * across / 8)
    loaded = tiles * depth * (min(rows, high) + min(cols, wide)) * TERMS * 2 / CACHE_RATE
    memory = (rows + cols) * slices * TERMS * 2 / MEMORY_RATE
    sums = 2 * 4 * rows * cols * parts / CACHE_RATE + LAUNCH
    return _norm((near, loaded, memory), 4) + (sums if parts > 1 else 0)


def _norm(cycles: Sequence[float], exponent: float) -> float:
    """Cycles of what overlaps: the larger the exponent, the better."""
    most = max(cycles)
    return most * sum((c / most) ** exponent for c in cycles) ** (1 / exponent)


def _warp_side(high: int, wide: int) -> int:
    """The default side of the tile of a warp: four warps or more have a block's."""
    return next((n for n, least in ((64, 128 * 128), (32, 64 * 64)) if high * wide >= least), SIZE)


def _lay_out(sch: Schedule, product: BlockRV, fragments: list[BlockRV], found: HalfProduct) -> None:
    """Store tiles of the operands and of the sums as they lie in the lanes' registers."""
    layouts = (
        (fragments[0], found.left[1], rows_fragment),
        (fragments[1], found.right[1], columns_fragment),
        (product, "ij", rows_fragment),
    )
    for block, axes, fragment in layouts:
        buffer = found_block(sch, block).writes[0].buffer
        at = tuple(Var(f"i{n}") for n in range(buffer.ndim))
        *batch, a, b = at
        lane, register = fragment(b, a) if axes[0] == "k" else fragment(a, b)
        tiles = (*batch, a // SIZE, b // SIZE, lane, register)
        sch.transform_layout(block, ("write", 0), IndexMap(at, tiles))


def _copy_together(
    sch: Schedule, part: BlockRV, outside: LoopRV, tile: _Tile, facts: Facts
) -> None:
    """Copy a slice by all threads of the block, 16 bytes each."""
    width = facts.vector_bits // 8 // bytes_of(found_block(sch, part).writes[0].buffer.dtype)
    factors = [None, tile.warp_rows, tile.warp_cols, facts.warp, width]
    _, z, y, x, lane = sch.split(fused(sch, loops_inside(sch, part, outside)), factors=factors)
    sch.vectorize(lane)
    sch.bind(z, "threadIdx.z")
    sch.bind(y, "threadIdx.y")
    sch.bind(x, "threadIdx.x")


def _store(sch: Schedule, store: BlockRV, tile: _Tile) -> None:
    """Let each lane store what is in its registers: rows 8 apart, pairs of columns."""
    *_, row, col = sch.get_loops(store)
    high, wide = tile.fragments
    y, i1, half, group = sch.split(row, factors=[tile.warp_rows, high, 2, 8])
    x, j1, part, pair, both = sch.split(col, factors=[tile.warp_cols, wide, 2, 4, 2])
    sch.reorder(y, x, i1, j1, half, part, group, pair, both)
    lane = sch.fuse(group, pair)
    sch.bind(y, "threadIdx.z")
    sch.bind(x, "threadIdx.y")
    sch.bind(lane, "threadIdx.x")
    sch.vectorize(both)
    unroll_all(sch, i1, j1, half, part)
