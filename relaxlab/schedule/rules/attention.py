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
from relaxlab.ir.loops import PrimFunc
from relaxlab.ir.target import Target
from relaxlab.schedule.attention_pattern import Attention, find_attention
from relaxlab.schedule.compact import compact_buffers
from relaxlab.schedule.online_softmax import online_softmax, tile_of
from relaxlab.schedule.rules import fallback
from relaxlab.schedule.rules.base import constant, found_block
from relaxlab.schedule.rules.nested import schedule_tiles
from relaxlab.schedule.rules.rows import apply as rows_apply
from relaxlab.schedule.rules.versions import guarded_versions, with_upper_bound
from relaxlab.schedule.schedule import Schedule

ROWS = 8
"""Query rows per tile: with two vectors of positions 16 accumulators. Tiles of 12 rows changed
nothing, tiles of 6 lost a tenth (NOTES, *Attention: where its time goes*)."""
CHUNK = 512
"""Positions per chunk: the scores of a tile take 16 KB, half of a first-level cache. Chunks of 64
lose 7 %, 256 to 1024 are alike (NOTES, *Attention without a bound on its length*)."""
MOST_FEATURES = 1056
"""Features, and depth of scores, up to which there is a version for symbols: no model's heads have
more. The sums of a tile take 33 KB each; rows are 66 cache lines apart, so that the first lines of
all rows are not in one set of the first-level cache, as they would be 64 apart."""


def apply(func: PrimFunc, target: Target) -> PrimFunc | None:
    """Fits what `find_attention` proves to be attention, however many positions there are."""
    found = find_attention(func)
    if found is None:
        return None
    widths = [found.extents[role] for role in ("depth", "feature")]
    symbols = [v for v in dict.fromkeys(widths) if isinstance(v, Var)]
    if not symbols:
        return _for_rows(func, found, target)

    def version(func: PrimFunc, most: int | None) -> PrimFunc:
        if most is None:
            return fallback.apply(func, target)
        for symbol in symbols:
            func = with_upper_bound(func, symbol, most)
        return _for_rows(func, found, target)

    return guarded_versions(func, reduce(expr.Max, symbols), [MOST_FEATURES], version)


def _for_rows(func: PrimFunc, found: Attention, target: Target) -> PrimFunc:
    """A version for one row and one for more."""
    count, positions = found.extents["row"], found.extents["position"]

    def version(func: PrimFunc, most: int | None) -> PrimFunc:
        # Alone, a row has one position to look at: vectors of positions would be empty.
        alone = rows_apply(func, target) if most == 1 and count == positions else None
        return alone or _schedule(func, target, most or ROWS)

    return guarded_versions(func, count, [1], version)


def _schedule(func: PrimFunc, target: Target, rows: int) -> PrimFunc:
    lanes = target.lanes("float32")
    found = find_attention(func)
    # A single row reads each key once; tiles read them once per tile, which repays packing.
    if found is not None and rows > 1:
        func = _with_packed_keys(func, found, lanes)
        found = find_attention(func)
    assert found is not None
    # Independent accumulators hide the latency of an addition: eight rows of two vectors, or one
    # row of four.
    multiple = (2 if rows > 1 else 4) * lanes
    width = _feature_multiple(found, lanes)
    sch = Schedule(online_softmax(func, found, rows, CHUNK, multiple, width))
    _product_into_scores(sch, found, multiple)
    schedule_tiles(sch, found_block(sch, sch.get_block(tile_of(found))), target)
    return compact_buffers(sch.func)


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


def _with_packed_keys(func: PrimFunc, found: Attention, lanes: int) -> PrimFunc:
    """Keys whose positions are rows apart are copied first, with a vector of positions side by
    side, feature by feature: every tile of queries makes vectors of positions."""
    position, depth = (found.axis(found.dot, role) for role in ("position", "depth"))
    reads = [[r.min for r in region.region] for region in found.dot.reads]
    number = next((i for i, at in enumerate(reads) if position in at and at[-1] == depth), None)
    if number is None:
        return func
    p = reads[number].index(position)
    others = [i for i in range(len(reads[number]) - 1) if i != p]

    def packed(*a: PrimExpr) -> tuple[PrimExpr, ...]:
        return (*(a[i] for i in others), a[p] // lanes, a[-1], a[p] % lanes)

    sch = Schedule(func)
    copy = sch.cache_read(sch.get_block(found.dot.name), number, "global")
    sch.transform_layout(copy, ("write", 0), packed)
    nest = sch.get_loops(copy)
    vector, lane = sch.split(nest[p], factors=[None, lanes])
    outer = [*(nest[i] for i in others), vector]
    sch.reorder(*outer, nest[-1], lane)
    sch.vectorize(lane)
    sch.parallel(sch.fuse(*outer))
    return sch.func
