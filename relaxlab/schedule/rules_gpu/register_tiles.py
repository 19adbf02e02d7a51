"""Products of float32 matrices: squares of 8 x 8 results in the registers of each thread.

A block of 16 x 16 threads makes a tile of 128 x 128 results, one of fewer threads a tile of few
rows. In steps of 16 along the reduced axis it copies slices of both operands into shared memory,
two steps ahead of the one that it multiplies (`cp.async`). A thread loads what it multiplies by
accesses of 16 bytes: neighbours along the axis that an operand is stored along, either terms of one
of its rows or neighbouring rows. Extents are rounded up to those of tiles by zeros around the
operands, so the number of rows may be a symbol. Where tiles are few, blocks share the terms of each
(`split_terms`).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from relaxlab.ir.dtypes import bytes_of
from relaxlab.ir.facts import Facts
from relaxlab.schedule.annotate import PIPELINE
from relaxlab.schedule.order import keeps_order
from relaxlab.schedule.rules.base import (
    axis_loops,
    blocks_of,
    constant,
    extent_of,
    fitting,
    found_block,
    inline_producers,
    loops_inside,
    separate_store,
    with_versions,
)
from relaxlab.schedule.rules.context import Context
from relaxlab.schedule.rules.decisions import (
    BLOCK_TERMS,
    PIPELINE_STAGES,
    RASTER_COLUMNS,
    THREAD_COLUMNS,
    THREAD_ROWS,
)
from relaxlab.schedule.rules_gpu import matmul
from relaxlab.schedule.rules_gpu.base import bind_blocks, fused, unroll_all
from relaxlab.schedule.rules_gpu.split_terms import add_parts, fitting_parts, part_sums
from relaxlab.schedule.rules_gpu.tensor_matmul import (
    RASTER,
    HalfProduct,
    find_half_product,
    inline_permutations,
)
from relaxlab.schedule.schedule import BlockRV, LoopRV, Schedule

THREADS = 16
"""Threads along each side of a tile."""
SIDE = 8
"""Rows and columns of the results of a thread: 64 multiplications for 16 values that it loads."""
TERMS = 16
"""Terms that are copied at once."""
STAGES = 3
"""Slices in shared memory: 16 KB each."""
FEW_ROWS = 4
"""Rows up to which warps that have a column of the results each (`matmul`) load no more."""
BOUNDS = (16, 64)
"""Symbolic rows up to which tiles have as many: 16 rows by 4096 x 14336 are predicted to take 95 us
on an H200 by tiles of 16 rows, 504 by `matmul` (main memory: 55)."""
LEAST_SLICES = 16
"""Slices that a part of the terms has at least: fewer do not hide the latency of their first."""


@dataclass(frozen=True, slots=True)
class _Side:
    """An operand: the number of its region, the letters of its last two axes, how many of its rows
    or columns a thread multiplies, the threads along them, and how many the tile has."""

    number: int
    axes: str
    own: int
    threads: int

    @property
    def extent(self) -> int:
        return self.threads * self.own

    @property
    def along_terms(self) -> bool:
        """True if neighbours in memory are terms."""
        return self.axes[-1] == "k"


def apply(sch: Schedule, context: Context) -> Schedule | str:
    """Fits one multiply-accumulate of two float32 matrices whose rows are multiples of 16 bytes."""
    facts = context.target.facts
    inline_permutations(sch)
    found = find_half_product(sch.func, ("float32",))
    if isinstance(found, str):
        return found
    block = next(b for b in blocks_of(sch.func) if b.name == found.name)
    if keeps_order(sch.func, block):
        return f"{found.name} adds its terms in order"
    width = facts.vector_bits // 8 // bytes_of(found.dtype)
    side, extents = THREADS * SIDE, [it.dom.extent for it in block.iter_vars]
    for number, (_, axes) in enumerate((found.left, found.right)):
        stored = found.reduce if axes[-1] == "k" else (found.row, found.col)[number]
        if width < 4 or (constant(extents[stored]) or 1) % width:
            return f"{found.name}: no accesses of 16 bytes along the rows of its operands"
    cols, rows = constant(extents[found.col]), constant(extents[found.row])
    if cols is None or cols < side or (rows is not None and rows <= FEW_ROWS):
        return f"{found.name} is narrower than a tile of {side} results"

    def version(one: Schedule, most: int | None) -> Schedule:
        if most == 1:
            return fitting(matmul.apply(one, context))
        return _by_squares(one, found, facts, rows or most)

    with_versions(sch, context, extents[found.row], [1, *BOUNDS], version)
    return sch


def _sides(
    sch: Schedule, found: HalfProduct, width: int, most: int | None
) -> tuple[_Side, _Side]:
    """Decide on the tile of at most so many rows."""
    own_rows, own_cols = (c.where(lambda n: n % width == 0) for c in (THREAD_ROWS, THREAD_COLUMNS))
    # Two threads along the rows at least, which load the same columns together, with a row each.
    high = own_rows.at_most(sch, SIDE if most is None or most > SIDE else SIDE // 2)
    wide = own_cols.at_most(sch, SIDE)
    needed = THREADS if most is None else -(-most // high)
    threads = next((n for n in (2, 4, 8) if n >= needed), THREADS)
    return _Side(*found.left, high, threads), _Side(*found.right, wide, THREADS)


def _parts(
    sch: Schedule, found: HalfProduct, sides: tuple[_Side, _Side], terms: int, facts: Facts
) -> int:
    """Decide on the blocks that share the terms of a tile: as many as leave no multiprocessor
    without one, where the rows are known."""
    axes = found_block(sch, sch.get_block(found.name)).iter_vars
    extents = [constant(it.dom.extent) for it in axes]
    depth, extents[found.reduce] = extents[found.reduce], 1
    if sides[0].threads < THREADS:  # symbolic rows of a version with a bound fill one tile
        extents[found.row] = extents[found.row] or sides[0].extent
    sizes = {found.row: sides[0].extent, found.col: sides[1].extent}
    tiles = prod(-(-(n or 0) // sizes.get(axis, 1)) for axis, n in enumerate(extents))
    slices = 1 if depth is None else -(-depth // terms)
    free = facts.multiprocessors // tiles if tiles else 1  # of unknown rows there are enough
    wanted = max(1, min(free, slices // LEAST_SLICES))
    return fitting_parts(depth, terms).at_most(sch, wanted)


def _by_squares(
    sch: Schedule, found: HalfProduct, facts: Facts, most: int | None
) -> Schedule:
    """`most`: an upper bound of the rows, if there is one."""
    product = sch.get_block(found.name)
    width = facts.vector_bits // 8 // bytes_of(found.dtype)
    sides = _sides(sch, found, width, most)
    terms = BLOCK_TERMS.of(sch, TERMS)
    parts = _parts(sch, found, sides, terms, facts)
    padding = [1] * len(found_block(sch, product).iter_vars)
    padding[found.row], padding[found.col] = (side.extent for side in sides)
    padding[found.reduce] = terms * parts
    sch.pad_einsum(product, padding)
    sums = None
    if parts > 1:
        sums, product = product, part_sums(sch, product, found.reduce, parts)
        part = found_block(sch, product)
        found = found.of_part(part.name, len(part.iter_vars))
    slices = [sch.cache_read(product, side.number, "shared") for side in sides]
    operands = [sch.cache_read(product, side.number, "local") for side in sides]
    inline_producers(sch, keep=[found_block(sch, b).name for b in (*slices, *operands)])
    if sums is None:
        store = separate_store(sch, found.name)
    else:
        store = sch.cache_write(product, 0, "local")
        add_parts(sch, sums, facts)
    nest = axis_loops(sch, product)
    outer = [x for i, x in enumerate(nest) if i not in (found.row, found.col, found.reduce)]
    i0, y, i = sch.split(nest[found.row], factors=[None, sides[0].threads, sides[0].own])
    j0, x, j = sch.split(nest[found.col], factors=[None, THREADS, sides[1].own])
    k0, k1, k2 = sch.split(nest[found.reduce], factors=[None, terms // width, width])
    columns = constant(extent_of(sch, j0)) or 1
    together = RASTER_COLUMNS.where(lambda n: columns % n == 0).at_most(sch, RASTER)
    g, j0 = sch.split(j0, factors=[None, together])
    sch.reorder(*outer, g, i0, j0, k0, y, x, k1, k2, i, j)
    for copy, side in zip(operands, sides, strict=True):
        sch.compute_at(copy, k1 if side.along_terms else k2, preserve_unit_loops=True)
    for part in slices:
        sch.compute_at(part, k0, preserve_unit_loops=True)
    sch.reverse_compute_at(store, j0, preserve_unit_loops=True)
    *_, y_init, x_init, i_init, j_init = sch.get_loops(sch.decompose_reduction(product, k0))
    _bind(sch, y, x)
    _bind(sch, y_init, x_init)
    unroll_all(sch, k1, k2, i, j, i_init, j_init)
    for part, copy, side in zip(slices, operands, sides, strict=True):
        _copy(sch, part, k0, sides[0].threads, width)
        _swizzle(sch, part, side, terms, width)
        *_, down, along = sch.get_loops(copy)
        far, near = sch.split(along, factors=[None, width])
        sch.vectorize(near)
        unroll_all(sch, down, far)
    _store(sch, store, sides, width)
    sch.annotate(k0, PIPELINE, PIPELINE_STAGES.where(lambda n: n > 1).at_most(sch, STAGES))
    bind_blocks(sch, [*outer, g, fused(sch, [i0, j0])], facts)
    sch.compact_buffers()
    return sch


def _bind(sch: Schedule, rows: LoopRV, cols: LoopRV) -> None:
    """Bind threads so that neighbouring lanes have the same columns, and those two apart the same
    rows: of an access of 16 bytes by a half of a warp, lanes that differ in one of these bits and
    load the same are served at once."""
    high, low = sch.split(rows, factors=[None, 2])
    sch.bind(high, "threadIdx.z")
    sch.bind(low, "threadIdx.x")
    sch.bind(cols, "threadIdx.y")


def _copy(sch: Schedule, part: BlockRV, outside: LoopRV, rows: int, width: int) -> None:
    """Copy a slice by all threads of the block, `rows` along the rows, 16 bytes each."""
    inner = fused(sch, loops_inside(sch, part, outside))
    _, *threads, lane = sch.split(inner, factors=[None, rows // 2, THREADS, 2, width])
    for loop, axis in zip(threads, "zyx", strict=True):
        sch.bind(loop, f"threadIdx.{axis}")
    sch.vectorize(lane)


def _swizzle(sch: Schedule, part: BlockRV, side: _Side, terms: int, width: int) -> None:
    """Swizzle a slice so that the accesses of eight neighbouring threads, which are those of all
    banks, are in different ones: the number of an access is xored with that of the thread."""
    access = width.bit_length() - 1
    if side.along_terms:  # each thread has rows of its own
        thread = (terms * side.own).bit_length() - 1
        sch.swizzle(part, 0, 3, access, thread - access)
    elif side.own > width:  # a thread has several accesses side by side
        bits = (side.own // width).bit_length() - 1
        sch.swizzle(part, 0, bits, access, 3)


def _store(sch: Schedule, store: BlockRV, sides: tuple[_Side, _Side], width: int) -> None:
    """Let each thread store the square that it has summed."""
    *_, row, col = sch.get_loops(store)
    y, i = sch.split(row, factors=[sides[0].threads, sides[0].own])
    x, j, near = sch.split(col, factors=[THREADS, sides[1].own // width, width])
    sch.reorder(y, x, i, j, near)
    _bind(sch, y, x)
    unroll_all(sch, i, j)
    sch.vectorize(near)
