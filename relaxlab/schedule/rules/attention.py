"""Attention: a product, a softmax over its rows, and a product with the softmaxed rows.

A tile of query rows of one head is a unit of work for a thread. Its positions come in chunks, with
a running maximum (`online_softmax`): a chunk's scores stay in the thread's own memory from the
first product through the softmax to the second product, so nothing of size rows x positions is
ever kept. Scores are made a vector of positions at a time, and results a vector of features.
"""

from __future__ import annotations

from functools import reduce

from relaxlab.ir import expr
from relaxlab.ir.expr import PrimExpr, Var
from relaxlab.schedule.attention_pattern import Attention, find_attention
from relaxlab.schedule.rules import fallback
from relaxlab.schedule.rules.base import (
    attempted,
    blocks_of,
    constant,
    fitting,
    found_block,
    inline_producers,
    with_versions,
)
from relaxlab.schedule.rules.context import Context
from relaxlab.schedule.rules.decisions import (
    CHUNK,
    COPY_OPERAND,
    REGISTER_ROWS,
    VECTORS_AT_ONCE,
)
from relaxlab.schedule.rules.nested import schedule_tiles
from relaxlab.schedule.rules.rows import apply as rows_apply
from relaxlab.schedule.schedule import Schedule

MOST_FEATURES = 1056
"""Features, and depth of scores, up to which there is a version for symbols: no model's heads have
more. The sums of a tile take 33 KB each; rows are 66 cache lines apart, so that the first lines of
all rows are not in one set of the first-level cache, as they would be 64 apart."""


def apply(sch: Schedule, context: Context) -> Schedule | str:
    """Fits what `find_attention` proves to be attention, however many positions there are."""
    found = find_attention(sch.func)
    if found is None:
        return "its last blocks are not a product, a softmax over its rows, and a product"
    widths = [found.extents[role] for role in ("depth", "feature")]
    symbols = [v for v in dict.fromkeys(widths) if isinstance(v, Var)]
    if not symbols:
        return _for_rows(sch, found, context)

    def version(sch: Schedule, most: int | None) -> Schedule:
        if most is None:
            return fitting(fallback.apply(sch, context))
        for symbol in symbols:
            sch.declare_upper_bound(symbol, most)
        return _for_rows(sch, found, context)

    with_versions(sch, context, reduce(expr.Max, symbols), [MOST_FEATURES], version)
    return sch


def _for_rows(sch: Schedule, found: Attention, context: Context) -> Schedule:
    """A version for one row and one for more."""
    count, positions = found.extents["row"], found.extents["position"]

    def version(sch: Schedule, most: int | None) -> Schedule:
        # Alone, a row has one position to look at: vectors of positions would be empty.
        alone = attempted(rows_apply, sch, context) if most == 1 and count == positions else None
        # With two vectors of positions 16 accumulators. Tiles of 12 rows changed nothing, tiles of
        # 6 lost a tenth (NOTES, *Attention: where its time goes*).
        return alone or _schedule(sch, context, most or REGISTER_ROWS.of(sch, 8))

    with_versions(sch, context, count, [1], version)
    return sch


def _schedule(sch: Schedule, context: Context, rows: int) -> Schedule:
    lanes = context.target.lanes("float32")
    found = find_attention(sch.func)
    assert found is not None
    keep = [b.name for b in found.blocks]
    # A single row reads each key once; tiles read them once per tile, which repays packing.
    if COPY_OPERAND.of(sch, rows > 1):
        keep += _pack_keys(sch, found, lanes)
    # What else is computed before, such as slices of a cache, is read where it is.
    inline_producers(sch, keep)
    found = find_attention(sch.func)
    assert found is not None
    # Independent accumulators hide the latency of an addition: eight rows of two vectors, or one
    # row of four.
    multiple = VECTORS_AT_ONCE.of(sch, 2 if rows > 1 else 4) * lanes
    # The scores of a tile take 16 KB, half of a first-level cache. Chunks of 64 lose 7 %, 256 to
    # 1024 are alike (NOTES, *Attention without a bound on its length*).
    chunk = CHUNK.of(sch, 512)
    tile = sch.online_softmax(rows, chunk, multiple, _feature_multiple(found, lanes))
    _product_into_scores(sch, found, multiple)
    schedule_tiles(sch, found_block(sch, tile), context)
    sch.compact_buffers()
    return sch


def _feature_multiple(found: Attention, lanes: int) -> int:
    """Return the multiple to which the features of a tile are rounded up: two vectors if their
    number is unknown. With the rows of a tile these are as many independent accumulators as an
    addition has cycles of latency."""
    return lanes if constant(found.extents["feature"]) is not None else 2 * lanes


def _product_into_scores(sch: Schedule, found: Attention, multiple: int) -> None:
    """Scores are made in steps of some vectors of positions, from products in registers."""
    score = sch.get_block(found.score.name)
    row, position = sch.get_loops(score)
    step, position = sch.split(position, factors=[None, multiple])
    sch.reorder(step, row, position)
    sch.unroll(row)
    # Products in registers right where scores are made from them: 300 GFLOP/s became 320 (NOTES,
    # *Attention without a bound on its length*).
    sch.compute_at(sch.get_block(found.dot.name), step, preserve_unit_loops=True)


def _pack_keys(sch: Schedule, found: Attention, lanes: int) -> list[str]:
    """Keys whose positions are rows apart are copied first, with a vector of positions side by
    side, feature by feature: every tile of queries makes vectors of positions. Returns the name of
    the block that copies, or that makes the keys, if there are such keys."""
    position, depth = (found.axis(found.dot, role) for role in ("position", "depth"))
    reads = [[r.min for r in region.region] for region in found.dot.reads]
    number = next((i for i, at in enumerate(reads) if position in at and at[-1] == depth), None)
    if number is None:
        return []
    p = reads[number].index(position)
    others = [i for i in range(len(reads[number]) - 1) if i != p]

    def packed(*a: PrimExpr) -> tuple[PrimExpr, ...]:
        return (*(a[i] for i in others), a[p] // lanes, a[-1], a[p] % lanes)

    keys = found.dot.reads[number].buffer
    makers = [b.name for b in blocks_of(sch.func) if b.writes[0].buffer is keys]
    if makers:
        copy = sch.get_block(makers[-1])
    else:
        copy = sch.cache_read(sch.get_block(found.dot.name), number, "global")
    sch.transform_layout(copy, ("write", 0), packed)
    nest = sch.get_loops(copy)
    vector, lane = sch.split(nest[p], factors=[None, lanes])
    outer = [*(nest[i] for i in others), vector]
    sch.reorder(*outer, nest[-1], lane)
    sch.vectorize(lane)
    sch.parallel(sch.fuse(*outer))
    return [found_block(sch, copy).name]
