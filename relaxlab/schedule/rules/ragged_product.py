"""Register tiles of products whose loops are not equally long: of batches of matrices of different
sizes, of scores and sums of values of sequences, of triangular matrices.

As in `contraction`, a tile is rows by vectors of columns, sums are in registers, and the operand
with the columns is packed: each block of terms and columns of it is copied once for all rows, into
memory of the thread that stays in its cache. Between blocks of terms, sums are in the result. What
lies beyond the end of a row, above a diagonal or in another sequence is guarded tile by tile.
"""

from __future__ import annotations

from relaxlab.ir.loops import Buffer
from relaxlab.schedule.error import ScheduleError
from relaxlab.schedule.rules.base import (
    constant,
    extent_of,
    found_block,
    output_dtype,
    sum_of_products,
    where_allowed,
)
from relaxlab.schedule.rules.context import Context
from relaxlab.schedule.rules.decisions import (
    BLOCK_COLUMNS,
    BLOCK_DEPTH,
    COLUMN_VECTORS,
    REGISTER_ROWS,
)
from relaxlab.schedule.schedule import BlockRV, LoopRV, Schedule

BLOCK_ROWS = 32
"""Tiles of rows that share a copy of a block of the packed operand where there are no matrices for
threads to share: 256 rows, for which copying is a hundredth of the work."""


def schedule_product(
    sch: Schedule, rv: BlockRV, loops: tuple[LoopRV, LoopRV, LoopRV], packed: Buffer,
    outside: list[LoopRV], context: Context,
) -> None:  # fmt: skip
    """Schedule a sum of products in tiles. loops: over rows, over columns, over terms; packed: the
    operand that the columns index; outside: the other loops over results. Raises ScheduleError
    where a step is refused."""
    if sum_of_products(found_block(sch, rv)) is None:
        raise ScheduleError("pack", "block", "the block is a sum of products of two loads")
    row, column, terms = loops
    facts, lanes = context.target.facts, context.target.lanes(output_dtype(found_block(sch, rv)))
    # Two vectors of columns for each row, which take half of the registers.
    rows = tile_width(sch, row, REGISTER_ROWS.of(sch, facts.vector_registers // 4))
    around: list[LoopRV] = []
    if outside:
        tile, row = sch.split(row, factors=[None, rows])
    else:  # threads share blocks of rows: one matrix may have few columns
        tall, tile, row = sch.split(row, factors=[None, BLOCK_ROWS, rows])
        around.append(tall)
    # The terms of all rows of a block end where those of its last row do.
    for loop in (row, tile):
        where_allowed(lambda loop=loop: sch.rectangularize(terms, loop))
    width = tile_width(sch, column, COLUMN_VECTORS.of(sch, 2) * lanes)
    most = max(BLOCK_COLUMNS.of(sch, 128) // width, 1)
    size = constant(extent_of(sch, column))
    tiles = most if size is None else min(most, -(-size // width))
    block, part, column = sch.split(column, factors=[None, tiles, width])
    around.append(block)
    depth = BLOCK_DEPTH.of(sch, 256)
    if (constant(extent_of(sch, terms)) or depth + 1) > depth:
        deep, terms = sch.split(terms, factors=[None, depth])
        around.append(deep)
    sch.reorder(*outside, *around, tile, part, terms, row, column)
    others = sch.privatize(rv, part)
    reads = [r.buffer for r in found_block(sch, rv).reads]
    copy = sch.pack(rv, reads.index(packed), around[-1])
    sch.vectorize(sch.get_loops(copy)[-1])
    for one in (rv, *others):
        *_, inner_row, inner_column = sch.get_loops(one)
        sch.vectorize(inner_column)
        sch.unroll(inner_row)


def tile_width(sch: Schedule, loop: LoopRV, most: int) -> int:
    """The iterations of a tile along a loop: a power of two where all of them are fewer."""
    size = constant(extent_of(sch, loop))
    return most if size is None or size >= most else 1 << (max(1, size) - 1).bit_length()
