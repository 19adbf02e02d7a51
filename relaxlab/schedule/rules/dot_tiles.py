"""Products of few rows by a transposed matrix that is read in place, once: tiles of dot products.

Each row of the matrix is that of one column of the result, so that neighbours in memory are terms
of one sum. A tile of results keeps a vector of partial sums for each of them, and each vector of
the matrix is loaded once for all rows of the tile; the lanes are added at the end.
"""

from __future__ import annotations

from relaxlab.ir.dtypes import bytes_of
from relaxlab.ir.expr import PrimExpr
from relaxlab.ir.facts import Facts
from relaxlab.schedule.error import ScheduleError
from relaxlab.schedule.rules.base import (
    axis_loops,
    bound_private_buffers,
    constant,
    extent_of,
    found_block,
    reduce_innermost,
    separate_store,
    split_vector,
    sum_of_products,
    where_allowed,
)
from relaxlab.schedule.rules.context import Context
from relaxlab.schedule.rules.decisions import DOT_TILE_COLUMNS, DOT_TILE_ROWS
from relaxlab.schedule.rules.product import Product, inlined, product_of
from relaxlab.schedule.schedule import BlockRV, Schedule

TILES = 32
"""Tiles of rows for which a copied matrix of few columns is copied once."""


def dot_tiles(sch: Schedule, context: Context) -> Schedule:
    """Schedule a product in tiles of dot products. Raises ScheduleError where the sums may not be
    taken in another order."""
    return _in_tiles(inlined(sch), context, None)


def few_columns(dtype: str, depth: PrimExpr, context: Context) -> range:
    """Return the numbers of columns of which sums in a dtype are better dot products, by a copy
    whose size is known, than parts of a vector: 200 x 1024 by 1024 x 3 took 80 us in vectors, takes
    16; by 7 83 and 36; 200 x 300 by 8 17 either way (EPYC with AVX-512); 512 x 512 int8 by three
    161 and 23. The copy is to stay in the second-level cache: with as many columns as lanes it
    would take a quarter of that."""
    size, lanes = constant(depth), context.target.lanes(dtype)
    room = size is not None and size * lanes * bytes_of(dtype) <= context.target.facts.cache(2) // 4
    return range(2, lanes // 2 if room else 2)


def narrow_dot_tiles(sch: Schedule, context: Context, most: int) -> Schedule:
    """Schedule many rows by a matrix of at most so many columns, copied as rows for each share of
    the rows of the result, in tiles of dot products: of vectors of columns most lanes would be
    empty. Raises ScheduleError where the sums may not be taken in another order, or operands are
    no rows and columns of terms."""
    sch = inlined(sch)
    parts = product_of(sch.func, context)
    block = found_block(sch, sch.get_block(parts.product))
    column, term = block.iter_vars[parts.col].var, block.iter_vars[-1].var
    last = {n.buffer: n.indices[-2:] for n in sum_of_products(block) or ()}
    along = parts.copied in last and last[parts.copied] == (term, column)
    if not along or last.get(parts.rows, ())[-1:] != (term,):
        raise ScheduleError("narrow_dot_tiles", parts.product, "its factors are rows and columns")
    return _in_tiles(sch, context, most)


def _in_tiles(sch: Schedule, context: Context, most: int | None) -> Schedule:
    """Schedule tiles; `most`: the columns, at most, of a matrix that is to be copied."""
    parts = product_of(sch.func, context)
    lanes = context.target.lanes(parts.dtype)
    product = sch.get_block(parts.product)
    sums = found_block(sch, product).writes[0].buffer
    width = found_block(sch, product).iter_vars[parts.col].dom.extent
    store = separate_store(sch, parts.product)
    copy = None if most is None else _copy(sch, product, parts)
    nest = axis_loops(sch, product)
    outer = nest[: parts.row]
    rows, columns = _tile(sch, context.target.facts)
    columns = min(columns, constant(width) or columns)
    tiles = _tiles(constant(extent_of(sch, nest[parts.row])), rows)
    tile, row = sch.split(nest[parts.row], factors=[None, rows])
    panel, col = sch.split(nest[parts.col], factors=[None, columns])
    step, lane = sch.split(nest[-1], factors=[None, lanes])
    shared = panel
    if copy is not None:
        shared, tile = sch.split(tile, factors=[None, tiles])
        sch.reorder(*outer, shared, panel, tile)
    sch.reorder(*outer, panel, tile, step, col, row, lane)
    partial = sch.rfactor(lane, sums.ndim)
    sch.set_scope(partial, 0, "local")
    for one in (product, store):
        sch.reverse_compute_at(one, tile, preserve_unit_loops=True)
    if copy is not None:
        sch.compute_at(copy, shared, preserve_unit_loops=True)
        term, column = sch.get_loops(copy)[-2:]
        sch.reorder(column, term)
        split_vector(sch, term, lanes, unroll=False)
    init = sch.decompose_reduction(partial, step)
    for one in (init, partial):
        *_, col, row, lane = sch.get_loops(one)
        sch.unroll(col)
        sch.unroll(row)
        sch.vectorize(lane)
    lane = reduce_innermost(sch, product)
    *_, row, col, _ = sch.get_loops(product)
    sch.decompose_reduction(product, lane)
    sch.tensorize(lane, f"reduce_add_{parts.dtype}_{lanes}")
    for one in (row, col):
        sch.unroll(one)
    *_, row, col = sch.get_loops(store)
    sch.unroll(row)
    sch.unroll(col)
    sch.parallel(sch.fuse(*outer, shared) if outer else shared)
    sch.compact_buffers()
    where_allowed(sch.round_up_tails)
    if most is not None:
        bound_private_buffers(sch, {width: most})
    return sch


def _copy(sch: Schedule, product: BlockRV, parts: Product) -> BlockRV:
    """The block that copies the matrix, its columns as rows."""
    reads = [region.buffer for region in found_block(sch, product).reads]
    assert parts.copied is not None
    copy = sch.cache_read(product, reads.index(parts.copied), "local", [product])

    def columns_first(*at: PrimExpr) -> tuple[PrimExpr, ...]:
        return (*at[:-2], at[-1], at[-2])

    sch.transform_layout(copy, found_block(sch, copy).writes[0].buffer, columns_first)
    return copy


def _tiles(size: int | None, rows: int) -> int:
    """Return the tiles of a share of the rows of the result, equal ones of a constant number."""
    if size is None:
        return TILES
    shares = -(-size // (TILES * rows))
    return -(-size // (shares * rows))


def _tile(sch: Schedule, facts: Facts) -> tuple[int, int]:
    """Return the rows and columns of a tile: accumulators fill half of the registers, so that the
    vectors of one step have room beside them. With 16 registers four columns of two rows."""
    columns = DOT_TILE_COLUMNS.of(sch, 4)
    return DOT_TILE_ROWS.at_most(sch, facts.vector_registers // 2 // columns), columns
