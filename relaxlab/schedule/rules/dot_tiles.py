"""Products of few rows by a transposed matrix that is read in place, once: tiles of dot products.

Each row of the matrix is that of one column of the result, so that neighbours in memory are terms
of one sum. A tile of results keeps a vector of partial sums for each of them, and each vector of
the matrix is loaded once for all rows of the tile; the lanes are added at the end.
"""

from __future__ import annotations

from relaxlab.ir.facts import Facts
from relaxlab.schedule.rules.base import (
    axis_loops,
    found_block,
    reduce_innermost,
    separate_store,
    where_allowed,
)
from relaxlab.schedule.rules.context import Context
from relaxlab.schedule.rules.decisions import DOT_TILE_COLUMNS, DOT_TILE_ROWS
from relaxlab.schedule.rules.product import inlined, product_of
from relaxlab.schedule.schedule import Schedule


def dot_tiles(sch: Schedule, context: Context) -> Schedule:
    """Schedule a product in tiles of dot products. Raises ScheduleError where the sums may not be
    taken in another order."""
    sch = inlined(sch)
    parts = product_of(sch.func, context)
    lanes = context.target.lanes(parts.dtype)
    product = sch.get_block(parts.product)
    sums = found_block(sch, product).writes[0].buffer
    store = separate_store(sch, parts.product)
    nest = axis_loops(sch, product)
    outer = nest[: parts.row]
    rows, columns = _tile(sch, context.target.facts)
    tile, row = sch.split(nest[parts.row], factors=[None, rows])
    panel, col = sch.split(nest[parts.col], factors=[None, columns])
    step, lane = sch.split(nest[-1], factors=[None, lanes])
    sch.reorder(*outer, panel, tile, step, col, row, lane)
    partial = sch.rfactor(lane, sums.ndim)
    sch.set_scope(partial, 0, "local")
    for one in (product, store):
        sch.reverse_compute_at(one, tile, preserve_unit_loops=True)
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
    sch.parallel(sch.fuse(*outer, panel) if outer else panel)
    sch.compact_buffers()
    where_allowed(sch.round_up_tails)
    return sch


def _tile(sch: Schedule, facts: Facts) -> tuple[int, int]:
    """Return the rows and columns of a tile: accumulators fill half of the registers, so that the
    vectors of one step have room beside them. With 16 registers four columns of two rows."""
    columns = DOT_TILE_COLUMNS.of(sch, 4)
    return DOT_TILE_ROWS.at_most(sch, facts.vector_registers // 2 // columns), columns
