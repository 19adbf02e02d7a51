"""Contractions of many terms whose operands both lie across them, as in gradients of weights:
blocks of results, each over one block of the terms after the other."""

from __future__ import annotations

from relaxlab.ir.dtypes import bytes_of
from relaxlab.schedule.rules.base import (
    axis_loops,
    blocks_of,
    constant,
    extent_of,
    found_block,
    output_dtype,
    separate_store,
    split_vector,
    sum_of_products,
    where_allowed,
)
from relaxlab.schedule.rules.context import Context
from relaxlab.schedule.rules.contraction_parts import ROWS, Parts
from relaxlab.schedule.rules.decisions import (
    BLOCK_COLUMNS,
    BLOCK_DEPTH,
    BLOCK_TILES,
    REGISTER_ROWS,
    TILE_VECTORS,
)
from relaxlab.schedule.schedule import BlockRV, Schedule

SHALLOW = 64
"""Terms up to which copies are not repaid: 512 x 512 results of 32 terms of float64 took 1.3 times
as long."""


def is_deep(sch: Schedule, parts: Parts) -> bool:
    """True if both rows and columns are neighbours in memory, over many terms: each tile of results
    would read a few lines of every row of both operands."""
    block = found_block(sch, sch.get_block(parts.product))
    loads = sum_of_products(block)
    if loads is None or not parts.is_einsum or parts.phases or len(parts.reduce) != 1:
        return False
    if any(n.name != block.name for n in blocks_of(sch.func)):
        return False
    last = {load.indices[-1] for load in loads}
    return loads[0].buffer is not loads[1].buffer and last == {
        block.iter_vars[parts.row].var,
        block.iter_vars[parts.col].var,
    }


def in_blocks(sch: Schedule, parts: Parts, context: Context) -> Schedule:
    """Return the schedule of a product for which `is_deep` holds. Between blocks of terms, sums are
    in memory of the thread."""
    product = sch.get_block(parts.product)
    dtype = output_dtype(found_block(sch, product))
    lanes, size = context.target.lanes(dtype), bytes_of(dtype)
    depth = BLOCK_DEPTH.of(sch, 256 if size < 4 else 128)
    store = separate_store(sch, parts.product)
    rows, vectors = REGISTER_ROWS.of(sch, ROWS), TILE_VECTORS.of(sch, 2)
    rows_copy, columns_copy = _copies(sch, product, parts)
    nest = axis_loops(sch, product)
    inner = (parts.row, parts.col, parts.reduce[0])
    outer = [loop for i, loop in enumerate(nest) if i not in inner]
    row, col, terms = (nest[i] for i in inner)
    tiles = BLOCK_TILES.of(sch, 16)
    tall, tile, row = sch.split(row, factors=[None, tiles, rows])
    # A block's rows and sums take half of the second-level cache.
    room = context.target.facts.cache(2) // (2 * size * tiles * rows) - depth
    columns = min(BLOCK_COLUMNS.at_most(sch, room), constant(extent_of(sch, col)) or room)
    panels = max(-(-columns // (vectors * lanes)), 1)
    wide, panel, col = sch.split(col, factors=[None, panels, vectors * lanes])
    deep, k = sch.split(terms, factors=[None, depth])
    sch.reorder(*outer, tall, wide, deep, panel, tile, k, row, col)
    sch.reverse_compute_at(store, wide, preserve_unit_loops=True)
    for copy, around in ((columns_copy, panel), (rows_copy, deep)):
        sch.compute_at(copy, around, preserve_unit_loops=True)
        split_vector(sch, sch.get_loops(copy)[-1], lanes, unroll=True)
    init = sch.decompose_reduction(product, deep)
    for block in (product, init, store):
        split_vector(sch, sch.get_loops(block)[-1], lanes, unroll=True)
    *_, row, _, _ = sch.get_loops(product)
    sch.unroll(row)
    sch.parallel(sch.fuse(*outer, tall, wide))
    sch.compact_buffers()
    where_allowed(sch.round_up_tails)
    where_allowed(sch.round_up_vectors)
    return sch


def _copies(sch: Schedule, product: BlockRV, parts: Parts) -> list[BlockRV]:
    """The blocks that copy the operand of the rows and that of the columns."""
    made: list[BlockRV] = []
    buffers = [r.buffer for r in found_block(sch, product).reads]
    for buffer in sorted(buffers, key=lambda b: b is parts.vectors):
        at = next(i for i, r in enumerate(found_block(sch, product).reads) if r.buffer is buffer)
        made.append(sch.cache_read(product, at, "local"))
    return made
