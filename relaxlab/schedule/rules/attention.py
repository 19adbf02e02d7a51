"""Attention: a product, a softmax over its rows, and a product with the softmaxed rows.

A tile of query rows of one head is a unit of work for a thread. Its positions come in chunks, with
a running maximum (`fuse_reductions`): a chunk's scores stay in the thread's own memory from the
first product through the softmax to the second product, so nothing of size rows x positions is
ever kept. Scores are made a vector of positions at a time, and results a vector of features.

A single query whose keys are rows of features needs no copy of them: scores are dot products along
these rows. The rows of its tile are the heads that read the same keys, which are loaded once. Where
that leaves few tiles, threads share the positions of a tile in parts, each with a running maximum,
sum and mix of its own, which are combined at the end (Flash-Decoding, 2023).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial, reduce
from math import prod

from relaxlab.ir import expr
from relaxlab.ir.expr import PrimExpr, Var
from relaxlab.ir.loops import Block, PrimFunc
from relaxlab.ir.node import Node, rewrite
from relaxlab.ir.substitute import symbols_in
from relaxlab.schedule.cascade import Cascade, axes_of, find_cascade, loads_in, written
from relaxlab.schedule.error import ScheduleError
from relaxlab.schedule.reduction_tile import cuts_of
from relaxlab.schedule.rules import fallback
from relaxlab.schedule.rules.attention_lanes import Lanes
from relaxlab.schedule.rules.base import (
    attempted,
    block_loops,
    blocks_behind,
    blocks_of,
    constant,
    extent_of,
    fitting,
    found_block,
    inline_producers,
    sum_of_products,
    vectorize_inner,
    where_allowed,
    with_versions,
)
from relaxlab.schedule.rules.context import Context
from relaxlab.schedule.rules.decisions import (
    CHUNK,
    COPY_OPERAND,
    HEADS_APART,
    POSITION_PARTS,
    REGISTER_ROWS,
    SHARED_HEADS,
    VECTORS_AT_ONCE,
)
from relaxlab.schedule.rules.nested import schedule_tiles
from relaxlab.schedule.rules.rows import apply as rows_apply
from relaxlab.schedule.schedule import BlockRV, LoopRV, Schedule

MIN_TILES = 3
"""Tiles of heads that there are at least: three keep two threads busy for three quarters of the
time, and memory all of it (NOTES, *Attention of one query*)."""
MIN_SHARES = 8
"""Tiles of one query, or parts of them, that there are at least: as many for each of two, four or
eight threads. Of three tiles, one of two threads has two (NOTES, *Attention of one query*)."""
MOST_FEATURES = 1056
"""Features, and depth of scores, up to which there is a version for symbols: no model's heads have
more. The sums of a tile take 33 KB each; rows are 66 cache lines apart, so that the first lines of
all rows are not in one set of the first-level cache, as they would be 64 apart."""


@dataclass(frozen=True, slots=True)
class Attention:
    """A cascade of reductions whose terms are made of a product inside it, and one of which has an
    axis of its own. `dot`: the product; `score`: the block that reads it; `row`: an outer
    axis that the keys, its operand along the shared axis, do not have."""

    cascade: Cascade
    dot: Block
    score: Block
    row: Var

    @property
    def depth(self) -> Var:
        """The axis of the product's sums."""
        return axes_of(self.dot, "reduce")[0]

    @property
    def feature(self) -> Var:
        """The axis of the values that is no axis of the scores."""
        return self.cascade.further[-1]

    def extent(self, axis: Var) -> PrimExpr:
        """The extent of an axis."""
        return self.cascade.extents[axis]

    @property
    def keys_by_rows(self) -> int | None:
        """The number of the product's operand whose neighbours in memory are terms of its sums,
        and whose positions are rows apart; None where there is none."""
        reads = [[r.min for r in region.region] for region in self.dot.reads]
        fitting = (n for n, at in enumerate(reads)
                   if self.cascade.axis in at and at[-1] == self.depth)  # fmt: skip
        return next(fitting, None)

    def over_heads(
        self, sch: Schedule, tiles: int, most: int | None = None
    ) -> tuple[Attention, int]:
        """The attention with another axis as rows, neighbours along which read the same keys and
        values, and how many are a tile, by default `most`: heads, where keys are indexed by
        `head // group`; there are at least so many tiles. Itself and 1 where there is no such axis.
        """
        for axis in reversed(self.cascade.outer):
            group, count = _sharing(self.cascade, axis), constant(self.extent(axis))
            if group is None or count is None or count % group:
                continue
            fitting = SHARED_HEADS.where(lambda n, group=group: group % n == 0)
            several = max(1, count // tiles)
            return replace(self, row=axis), fitting.at_most(sch, min(several, most or several))
        return self, 1

    def fused(
        self, sch: Schedule, rows: int, chunk: int, multiple: int, width: int,
        parts: int = 1, workers: int = 1, *, whole: bool = False, cuts: str | None = None,
    ) -> BlockRV:  # fmt: skip
        """Compute it in one pass over the positions; returns the block of the tiles."""
        first = self.cascade.reductions[0]
        at = axes_of(first).index(self.row)
        block = sch.get_block(first.name)
        sizes = rows, chunk, multiple, width, parts, workers
        return sch.fuse_reductions(block, at, *sizes, whole=whole, cuts=cuts)


def _sharing(cascade: Cascade, axis: Var) -> int | None:
    """Return the number of neighbours along an outer axis for which the same elements are read
    along the shared axis: `n` where the axis is only in indices `axis // n`; None without any."""
    sizes: set[int] = set()

    def visit(n: Node) -> Node | None:
        match n:
            case expr.FloorDiv(at, expr.IntImm(size)) if at == axis:
                sizes.add(size)
                return expr.const(0)
            case _:
                return None

    loads = [n for b in cascade.blocks for n in loads_in(b.body) if n.buffer not in cascade.dims]
    indices = [n.indices for n in loads if cascade.axis in symbols_in(n.indices)]
    if any(axis in symbols_in(tuple(rewrite(i, visit) for i in at)) for at in indices):
        return None
    return sizes.pop() if len(sizes) == 1 else None


def find_attention(func: PrimFunc) -> Attention | None:
    """Return the attention that a function computes; None if there is none. Raises ScheduleError
    where there is a cascade of reductions that cannot be fused."""
    cascade = find_cascade(func)
    if cascade is None or not cascade.further:
        return None
    # Over a single position nothing is reduced, and the keys' indices do not depend on it.
    if constant(cascade.extents[cascade.axis]) == 1:
        return None
    for dot in cascade.inside:
        scores = [b for b in cascade.inside if b is not dot and written(dot) in
                  {n.buffer for n in loads_in(b.body)}]  # fmt: skip
        operands = sum_of_products(dot) or ()
        keys = [x for x in operands if cascade.axis in symbols_in(x.indices)]
        rows = [a for a in cascade.outer if a not in symbols_in(tuple(x.indices for x in keys))]
        if len(scores) == len(keys) == len(axes_of(dot, "reduce")) == 1 and rows:
            return Attention(cascade, dot, scores[0], rows[-1])
    return None


def apply(sch: Schedule, context: Context) -> Schedule | str:
    """Fits a softmax over what a product makes, and the product with it, over any number of axes
    and any number of positions."""
    found = find_attention(sch.func)
    if found is None:
        return "it has no product, softmax over its rows, and product with them"
    symbols = [a for a in map(found.extent, (found.depth, found.feature)) if isinstance(a, Var)]
    symbols = list(dict.fromkeys(symbols))
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
    count, positions = found.extent(found.row), found.extent(found.cascade.axis)

    def version(sch: Schedule, most: int | None) -> Schedule:
        # Alone, a row has one position to look at: vectors of positions would be empty.
        alone = attempted(rows_apply, sch, context) if most == 1 and count == positions else None
        # With two vectors of positions 16 accumulators. Tiles of 12 rows changed nothing, tiles of
        # 6 lost a tenth (NOTES, *Attention: where its time goes*).
        cut = attempted(_of_sequences, sch, context) if most is None else None
        return alone or cut or _schedule(sch, context, most or REGISTER_ROWS.of(sch, 8))

    with_versions(sch, context, count, [1], version)
    return sch


def _of_sequences(sch: Schedule, context: Context) -> Schedule | str:
    """Rows that an index function cuts into sequences: no tile has rows of two."""
    found = find_attention(sch.func)
    assert found is not None
    cuts = cuts_of(sch.func, found.extent(found.row))
    if not cuts or found.keys_by_rows is None:
        return "no index function cuts its rows, or keys are no rows of features"
    inline_producers(sch, [b.name for b in found.cascade.blocks])
    found = find_attention(sch.func)
    assert found is not None
    operands = enumerate(sum_of_products(found.dot) or ())
    queries = next(n for n, x in operands if found.cascade.axis not in symbols_in(x.indices))
    own = Lanes(context, found.dot, queries, tuple(b.name for b in found.cascade.inside))
    lanes = context.target.lanes("float32")
    chunk, width = CHUNK.at_most(sch, 256), _feature_multiple(found, lanes)
    tile = found.fused(sch, lanes, chunk, 1, width, cuts=cuts[0].name)
    own.turn(sch)
    # The heads of a sequence one after the other: its rows are in the second-level cache then.
    *outside, piece, tiles = sch.get_loops(tile)
    sch.reorder(piece, *outside, tiles)
    schedule_tiles(sch, found_block(sch, tile), context, own=own.schedule)
    sch.compact_buffers()
    return sch


def _schedule(sch: Schedule, context: Context, rows: int) -> Schedule:
    lanes = context.target.lanes("float32")
    found = find_attention(sch.func)
    assert found is not None
    keep = [b.name for b in found.cascade.blocks]
    # A single row reads each key once; tiles read them once per tile, which repays packing.
    packed = _pack_keys(sch, found, lanes) if COPY_OPERAND.of(sch, rows > 1) else None
    shared: list[LoopRV] = []
    if packed is not None:
        # Vectors first: a block in plain loops would be one of those that are fused, and queries,
        # keys and values may be the same tensor.
        shared = packed.in_vectors(sch, lanes)
        keep.append(found_block(sch, packed.copy).name)
    # What else is computed before, such as slices of a cache, is read where it is.
    inline_producers(sch, keep)
    found = find_attention(sch.func)
    assert found is not None
    # Independent accumulators hide the latency of an addition: eight rows of two vectors, or one
    # row of four.
    multiple = VECTORS_AT_ONCE.of(sch, 2 if rows > 1 else 4) * lanes
    parts = 1
    if rows == 1:
        # Of keys in blocks, tiles of heads took 0.9 to 1.25 times as long as one head after the
        # other.
        if found.keys_by_rows is not None:
            # Threads share out tiles: of one or two, most threads would have none.
            found, rows = found.over_heads(sch, MIN_TILES)
        parts = _parts(sch, found, rows)
    # The scores of a tile take 16 KB, half of a first-level cache. Chunks of 64 lose 7 %, 256 to
    # 1024 are alike (NOTES, *Attention without a bound on its length*). Parts take chunks in turns.
    chunk = CHUNK.at_most(sch, 512 if parts == 1 else multiple)
    tile = found.fused(sch, rows, chunk, multiple, _feature_multiple(found, lanes), parts)
    _product_into_scores(sch, found, multiple)
    around = None
    if packed is not None:
        around = _heads_apart(sch, found, packed.copy, tile)
        shared = shared if around is None else packed.in_vectors(sch, lanes)
        sch.parallel(sch.fuse(*shared))
    schedule_tiles(sch, found_block(sch, tile), context, around)
    if parts > 1:
        _combine(sch, tile, lanes)
    sch.compact_buffers()
    return sch


def _parts(sch: Schedule, found: Attention, rows: int) -> int:
    """Decide on the parts of the positions of one query, in tiles of `rows` heads: as many as make
    `MIN_SHARES` of the tiles. One where the number of tiles is not constant, and where something
    else is computed from the parts than rows of features."""
    cascade, last = found.cascade, found.cascade.blocks[-1]
    axes = axes_of(last)
    by_features = set(axes[:-1]) == set(cascade.outer) and axes[-1] == found.feature
    counts = [constant(found.extent(a)) for a in cascade.outer]
    alone = len(blocks_of(sch.func)) == len(cascade.blocks)
    if not (alone and by_features and last in cascade.results) or None in counts:
        return 1
    tiles = max(1, prod(n or 0 for n in counts) // rows)
    enough = next(n for n in POSITION_PARTS.candidates if n * tiles >= MIN_SHARES)
    return POSITION_PARTS.of(sch, enough)


def _combine(sch: Schedule, tile: BlockRV, lanes: int) -> None:
    """Combine the results of the parts of each row, a vector of features at a time."""
    *makers, last = blocks_behind(sch, tile)
    *rows, feature = sch.get_loops(last)
    for rv in reversed(makers):
        sch.compute_at(rv, rows[-1], preserve_unit_loops=True)
        sch.set_scope(rv, 0, "local")
        (*_, own), parts = block_loops(sch, rv)
        if constant(extent_of(sch, own)) == 1:
            continue
        sch.reorder(*parts, own)
        # A block without a reduction, such as a quotient before an activation, has no parts.
        first = [sch.decompose_reduction(rv, parts[0])] if parts else []
        for one in (*first, rv):
            vectorize_inner(sch, sch.get_loops(one)[-1], lanes)
    vectorize_inner(sch, feature, lanes)


def _feature_multiple(found: Attention, lanes: int) -> int:
    """Return the multiple to which the features of a tile are rounded up: two vectors if their
    number is unknown. With the rows of a tile these are as many independent accumulators as an
    addition has cycles of latency."""
    return lanes if constant(found.extent(found.feature)) is not None else 2 * lanes


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


@dataclass(frozen=True, slots=True)
class _Packed:
    """Keys with a vector of positions side by side, feature by feature. `copy`: the block that
    makes them; `position`: the number of its axis of positions."""

    copy: BlockRV
    position: int

    def in_vectors(self, sch: Schedule, lanes: int) -> list[LoopRV]:
        """Make vectors of positions; returns the loops around one, which threads may share out."""
        nest = sch.get_loops(self.copy)[-len(found_block(sch, self.copy).iter_vars) :]
        vector, lane = sch.split(nest[self.position], factors=[None, lanes])
        outer = [x for i, x in enumerate(nest[:-1]) if i != self.position]
        sch.reorder(*outer, vector, nest[-1], lane)
        sch.vectorize(lane)
        return [*outer, vector]


def _pack_keys(sch: Schedule, found: Attention, lanes: int) -> _Packed | None:
    """Keys whose positions are rows apart are copied first, with a vector of positions side by
    side, feature by feature: every tile of queries makes vectors of positions. None if there are no
    such keys."""
    number = found.keys_by_rows
    if number is None:
        return None
    at = [r.min for r in found.dot.reads[number].region]
    p = at.index(found.cascade.axis)
    others = [i for i in range(len(at) - 1) if i != p]

    def packed(*a: PrimExpr) -> tuple[PrimExpr, ...]:
        return (*(a[i] for i in others), a[p] // lanes, a[-1], a[p] % lanes)

    keys = found.dot.reads[number].buffer
    makers = [b.name for b in blocks_of(sch.func) if b.writes[0].buffer is keys]
    if makers:
        copy = sch.get_block(makers[-1])
    else:
        copy = sch.cache_read(sch.get_block(found.dot.name), number, "global")
    # Lanes without a position are zero: of other numbers, which may be denormal, scores take up to
    # 50 times as long.
    where_allowed(partial(sch.pad_axis, copy, p, lanes))
    sch.transform_layout(copy, ("write", 0), packed)
    return _Packed(copy, p)


def _heads_apart(
    sch: Schedule, found: Attention, copy: BlockRV, tile: BlockRV
) -> LoopRV | None:
    """Copy the keys of one head after the other, if that is decided. Returns the loop over heads,
    which then is around the copy and the tiles; None where the keys of all are copied first."""
    cascade, made = found.cascade, found_block(sch, copy).writes[0].buffer
    read = symbols_in(next(r.region for r in found.dot.reads if r.buffer is made))
    heads = [a for a in cascade.outer if a in read and constant(found.extent(a)) != 1]
    # Sequences behind each other have many rows: a copy of all their keys takes as much memory as
    # an activation does.
    ragged = any(b.facts for b in sch.func.buffers)
    if not heads or not HEADS_APART.of(sch, ragged):
        return None
    nest = sch.get_loops(tile)
    head = nest.pop(cascade.outer.index(heads[-1]))
    group = _sharing(cascade, heads[-1])
    if group is not None:
        head, shared = sch.split(head, factors=[None, group])
        nest.append(shared)
    sch.reorder(head, *nest)
    try:
        sch.compute_at(copy, head, preserve_unit_loops=True)
    except ScheduleError:  # something else reads these keys, too
        return None
    return head
