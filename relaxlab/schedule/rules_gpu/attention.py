"""Attention: a product, a softmax over its rows, and a product with the softmaxed rows.

If the scores of a query row have a bound that fits shared memory, a block of threads works on a row
of one head. Else it works on a tile of rows, whose positions come in chunks, with a running maximum
(`fuse_reductions`): only a chunk's scores are stored, in registers (`prompt_attention`) or, where
threads cannot share the rows, in shared memory. A single row is shared by many blocks
(`decode_attention`).
"""

from __future__ import annotations

from relaxlab.ir.dtypes import bytes_of
from relaxlab.ir.facts import Facts
from relaxlab.schedule.cascade import axes_of, written
from relaxlab.schedule.error import ScheduleError
from relaxlab.schedule.intrinsics.mma import SIZE
from relaxlab.schedule.order import KEEP_ORDER
from relaxlab.schedule.rules.attention import Attention, find_attention
from relaxlab.schedule.rules.base import (
    blocks_of,
    constant,
    fitting,
    inline_producers,
    with_versions,
)
from relaxlab.schedule.rules.context import Context
from relaxlab.schedule.rules.decisions import ONLINE_SOFTMAX, POSITIONS, QUERY_ROWS
from relaxlab.schedule.rules_gpu import nested
from relaxlab.schedule.rules_gpu.decode_attention import schedule_query
from relaxlab.schedule.rules_gpu.hopper_attention import schedule_warpgroup_tiles
from relaxlab.schedule.rules_gpu.prompt_attention import SIDE as SQUARE_SIDE
from relaxlab.schedule.rules_gpu.prompt_attention import schedule_tiles
from relaxlab.schedule.rules_gpu.rows import schedule_rows
from relaxlab.schedule.rules_gpu.tensor_attention import operands_of, schedule_tensor_tiles
from relaxlab.schedule.schedule import Schedule
from relaxlab.tracing import remark

FEW_ROWS = 8
"""Queries up to which most of a tile of tensor cores would be empty."""
ROWS = 8
"""Query rows per tile: with `CHUNK` positions, the scores take 2 KB of shared memory."""
SQUARE_ROWS = 64
"""Query rows of a tile of which 16 x 16 threads have parts in registers: 4 rows by 4 positions of
scores each, and by 8 features of 128. Not measured."""
CHUNK = 64
"""Positions per chunk: two for each thread of a warp. Not measured."""


def apply(sch: Schedule, context: Context) -> Schedule | str:
    """Fits what the rule for CPUs does, if there are no other blocks."""
    found = find_attention(sch.func)
    if found is None:
        return "it has no product, softmax over its rows, and product with them"
    # Operands that are computed, such as slices of a projection, are inlined into their readers.
    inline_producers(sch, [b.name for b in found.cascade.blocks])
    found = find_attention(sch.func)
    assert found is not None
    cascade, blocks = found.cascade, blocks_of(sch.func)
    outer = len(cascade.outer)
    last = axes_of(cascade.blocks[-1])
    if len(cascade.blocks) < len(blocks) or set(last[:outer]) != set(cascade.outer):
        return f"{blocks[0].name} is no part of it, or {blocks[-1].name} is not by rows"
    # Products, scores and weights of a row, in float32.
    room = context.target.facts.shared
    fits = (constant(found.extent(cascade.axis)) or room) * 3 * 4 <= room
    rows = constant(found.extent(found.row))
    multiplied = not isinstance(operands_of(found, context.target.facts), str)
    fits = fits and not (multiplied and (rows is None or rows > FEW_ROWS))
    if sch.func.attrs.get(KEEP_ORDER) or (fits and not ONLINE_SOFTMAX.of(sch, False)):
        return _by_rows(sch, context, outer)

    def version(one: Schedule, most: int | None) -> Schedule | None:
        if most == 1:
            return _query(one, context, outer)
        return _by_tiles(one, context) if most is None else _few_queries(one, context, most)

    with_versions(
        sch, context, found.extent(found.row), [1, SIZE] if multiplied else [1], version
    )
    return sch


def _query(sch: Schedule, context: Context, outer: int) -> Schedule:
    """A version for one row."""
    try:
        return schedule_query(sch.copy(), context)
    except ScheduleError as error:
        text = f"one query has a block of threads per head: {error}"
        remark("schedule_kernels", sch.name, text, applied=False)
        return _by_rows(sch, context, outer)


def _few_queries(sch: Schedule, context: Context, most: int) -> Schedule | None:
    """A version for the queries of one warp of tensor cores, over positions in parts."""
    tiles = sch.copy()
    try:
        schedule_tensor_tiles(tiles, context.target.facts, most)
    except ScheduleError as error:
        remark("schedule_kernels", sch.name, f"few queries have no parts: {error}", applied=False)
        return None
    return tiles


def _by_rows(sch: Schedule, context: Context, outer: int) -> Schedule:
    names = [b.name for b in blocks_of(sch.func)]
    rows = sch.get_loops(sch.get_block(names[-1]))[:outer]
    for name in reversed(names[:-1]):
        sch.compute_at(sch.get_block(name), rows[-1], preserve_unit_loops=True)
    schedule_rows(sch, names, rows, context.target.facts)
    sch.compact_buffers()
    return sch


def _by_tiles(sch: Schedule, context: Context) -> Schedule:
    """Tiles in the first way that fits the GPU and the operands."""
    facts = context.target.facts
    for schedule, refused in (
        (schedule_warpgroup_tiles, "queries are not multiplied by warpgroups"),
        (schedule_tensor_tiles, "queries are not multiplied by tensor cores"),
        (_schedule_squares, "queries have no squares of threads"),
    ):
        tiles = sch.copy()
        try:
            schedule(tiles, facts)
            return tiles
        except ScheduleError as error:
            remark("schedule_kernels", sch.name, f"{refused}: {error}", applied=False)
    found = find_attention(sch.func)
    assert found is not None
    room = facts.shared
    row = QUERY_ROWS.where(lambda n: _bytes_of_tile(found, n, min(POSITIONS.candidates)) <= room)
    rows = row.at_most(sch, ROWS)
    chunk = POSITIONS.where(lambda n: _bytes_of_tile(found, rows, n) <= room).at_most(sch, CHUNK)
    found.fused(sch, rows, chunk, chunk, 1)
    return fitting(nested.apply(sch, context))


def _schedule_squares(sch: Schedule, facts: Facts) -> None:
    """Schedule tiles of which each thread has a part in registers. Raises ScheduleError where they
    do not fit."""
    found = find_attention(sch.func)
    assert found is not None
    # Weights of the values pass between threads.
    most = facts.shared // bytes_of("float32")
    fitting_rows = QUERY_ROWS.where(
        lambda n: n % SQUARE_SIDE == 0 and n * min(POSITIONS.candidates) <= most
    )
    rows = fitting_rows.at_most(sch, SQUARE_ROWS)
    # Threads add up several terms each, then across threads: of one, there is nothing to add up.
    several = POSITIONS.where(lambda n: n % SQUARE_SIDE == 0 and n > SQUARE_SIDE)
    chunk = several.where(lambda n: n * rows <= most).at_most(sch, CHUNK)
    found.fused(sch, rows, chunk, chunk, 1)
    schedule_tiles(sch, found, facts)


def _bytes_of_tile(found: Attention, rows: int, positions: int) -> int:
    """The shared memory of a tile: products, scores and weights, the sums of features so far and
    those of a chunk, and some values per row."""
    features = constant(found.extent(found.feature)) or 1
    size = bytes_of(written(found.dot).dtype)
    return rows * (3 * positions + 2 * features + 6) * size
