"""Online softmax: attention in one pass over the positions, with a running maximum.

Attention as it is lowered is seven blocks, each over all rows and positions: the product of queries
and keys, scores, their maximum per row, weights `exp(score - maximum)`, their sum, their product
with the values, and results made of the last two. `online_softmax` cuts the rows into tiles and the
positions into chunks, and needs no more memory than a chunk's scores, however many positions:

    for each tile of rows:
        top, total, mix = lowest, 0, 0
        for each chunk of positions:
            score = queries @ keys of the chunk, scaled and masked
            fade = exp(top - max(top, max(score)))
            top = max(top, max(score))
            weight = exp(score - top)
            total = total * fade + sum(weight)
            mix = mix * fade + weight @ values of the chunk
        result of mix and total

What was summed is weighted anew whenever the maximum grows: `exp(x - old) * exp(old - new)` is
`exp(x - new)`. Sources: online softmax (Milakov and Gimelshein, 2018), FlashAttention (Dao et al.,
2022), whose chunks of positions a causal mask or a window hides from all rows are left out, too.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from relaxlab.analysis.arith import Analyzer
from relaxlab.analysis.regions import access_regions
from relaxlab.ir import expr, loops
from relaxlab.ir.expr import PrimExpr, Var
from relaxlab.ir.loops import (
    Block,
    BlockRealize,
    Buffer,
    BufferLoad,
    BufferStore,
    For,
    IterKind,
    IterVar,
    PrimFunc,
    Range,
    SeqStmt,
    Stmt,
)
from relaxlab.ir.node import Node, replace, rewrite, walk
from relaxlab.ir.substitute import symbols_in
from relaxlab.schedule.attention_pattern import (
    LOWEST,
    Attention,
    Role,
    find_attention,
    mask_bounds,
    visible_positions,
)
from relaxlab.schedule.error import ScheduleError
from relaxlab.schedule.ranges import ZERO, bind_stmt, shape_analyzer
from relaxlab.schedule.rfactor import reduction_of
from relaxlab.schedule.tree import TRUE, describe_block, fresh_block_name

INSIDE: tuple[Role, ...] = ("row", "position", "feature")
"""Roles of the dimensions of a tile's buffers, in order."""
_ROW: Mapping[Role, IterKind] = {"row": "spatial"}
_FEATURES: Mapping[Role, IterKind] = {"row": "spatial", "feature": "spatial"}

Local = Mapping[Role, Var]
"""The axes of a block inside the tile, by role."""
Body = Callable[[Local], tuple[Stmt, Stmt | None]]


@dataclass(frozen=True, slots=True)
class _Tile:
    """The place of a tile. `place`: the batch, the head and the first row; `extents`: the number of
    each role inside; `start`: the first position of the chunk, of which `exact` exist and are seen
    by some row; `private`: the tile's buffers, by those of the function that they replace;
    `analyzer` knows the ranges of all axes outside."""

    found: Attention
    place: Mapping[Role, PrimExpr]
    extents: Mapping[Role, PrimExpr]
    start: PrimExpr
    exact: PrimExpr
    private: Mapping[Buffer, Buffer]
    analyzer: Analyzer

    def moved(self, s: Stmt, local: Local, private: Mapping[Buffer, Buffer]) -> Stmt:
        """Return the statement of a block for the tile's rows and the chunk's positions. Rows past
        the end are computed from the last row."""
        extents, roles = self.found.extents, self.found.roles
        values: dict[Role, PrimExpr] = {**self.place, **local}
        if "row" in local:
            # Clamping instead of a guard on each row: guarded rows would keep the sums of the last
            # tile in memory (NOTES, *The last tile*). Their results are not stored.
            row = self.place["row"] + local["row"]
            values["row"] = expr.Min(row, extents["row"] - 1)
        if "position" in local:
            values["position"] = self.start + local["position"]

        def visit(n: Node) -> Node | None:
            match n:
                case Var() if n in roles:
                    return values[roles[n]]
                case BufferLoad(b) | BufferStore(b) if b in private:
                    at = tuple(local[r] for r in INSIDE if r in self.found.dims[b])
                    return replace(n, buffer=private[b], indices=at)
                case _:
                    return None

        return rewrite(s, visit)

    def block(
        self, name: str, kinds: Mapping[Role, IterKind], body: Body, *, exact: bool = False
    ) -> Stmt:
        """A block over axes of the given roles and kinds, in loops of its own."""
        extents = {**self.extents, "position": self.exact} if exact else self.extents
        local = {role: Var(f"v{role[0]}") for role in kinds}
        axes = tuple(IterVar(local[r], Range(ZERO, extents[r]), kind) for r, kind in kinds.items())
        does, init = body(local)
        return _nest(_with_regions(Block(name, axes, (), (), does, init), self.analyzer))

    def step(self, block: Block, new: Buffer | None = None, *, exact: bool = False) -> Stmt:
        """Return a block of the function for one chunk; `new` replaces the buffer that it
        accumulates in."""
        inside = (it for it in block.iter_vars if self.found.roles[it.var] not in ("batch", "head"))
        kinds: dict[Role, IterKind] = {self.found.roles[it.var]: it.kind for it in inside}
        own = block.writes[0].buffer
        private = {**self.private, own: new or self.private[own]}

        def body(local: Local) -> tuple[Stmt, Stmt | None]:
            init = None if block.init is None else self.moved(block.init, local, private)
            return self.moved(block.body, local, private), init

        name = block.name if new is None else new.name
        return self.block(name, kinds, body, exact=exact)


def _with_regions(block: Block, an: Analyzer) -> Block:
    with an.scope():
        bind_stmt(an, block)
        reads, writes = access_regions(block, an)
    return replace(block, reads=reads, writes=writes)


def _nest(block: Block) -> Stmt:
    """The block in loops over its axes."""
    values = [Var(it.var.name.removeprefix("v")) for it in block.iter_vars]
    nest: Stmt = BlockRealize(tuple(values), TRUE, block)
    for value, it in reversed(list(zip(values, block.iter_vars, strict=True))):
        nest = For(value, it.dom.min, it.dom.extent, "serial", nest)
    return nest


def online_softmax(
    func: PrimFunc, rows: int, chunk: int, multiple: int, feature_multiple: int = 1
) -> tuple[PrimFunc, str]:
    """Return `func`, whose last blocks are attention, in tiles of `rows` rows, and the name of the
    block of the tiles. Raises ScheduleError for other blocks.

    A tile takes the positions in chunks of `chunk`, the last of them rounded up to a multiple of
    `multiple`, which divides `chunk`. The tiles are one block over batches,
    heads and tiles, with private buffers of constant sizes; inside, the chunks are a block with one
    axis of kind scan. Results differ from those of `func` by rounding: sums have another order. The
    features of a tile are rounded up to a multiple of `feature_multiple`.
    """
    found = find_attention(func)
    if found is None:
        raise ScheduleError(
            "online_softmax", "the function",
            "its last blocks are a product, a softmax over its rows, and a product with these",
        )  # fmt: skip
    if rows < 1 or multiple < 1 or chunk < 1 or feature_multiple < 1 or chunk % multiple:
        raise ScheduleError(
            "online_softmax", describe_block(found.dot),
            f"{rows} rows, chunks of {chunk}, {multiple} and {feature_multiple} are positive, and "
            f"chunks are multiples of {multiple}",
        )  # fmt: skip
    batch, head, tile, chunk_number = (Var(f"v{n}") for n in ("batch", "head", "tile", "chunk"))
    place: dict[Role, PrimExpr] = {"batch": batch, "head": head, "row": tile * rows}
    last_row = expr.Min(place["row"] + (rows - 1), found.extents["row"] - 1)
    first, stop = visible_positions(found, place, last_row)
    # Chunks start at a multiple, so that vectors of positions are loaded from whole blocks of keys.
    first = first // multiple * multiple
    start = first + chunk_number * chunk
    count = expr.Min(expr.const(chunk // multiple), _ceildiv(stop - start, multiple)) * multiple
    width = _padded_features(found, feature_multiple)
    most = shape_analyzer(func).upper_bound(width)
    extents = {**found.extents, "row": expr.const(rows), "position": count, "feature": width}
    room = width if most is None else expr.const(most)
    sizes = {**extents, "position": expr.const(chunk), "feature": room}
    private = {b: _private(found, b, sizes) for b in found.dims}
    outer = (
        _axis(batch, found.extents["batch"], "spatial"),
        _axis(head, found.extents["head"], "spatial"),
        _axis(tile, _ceildiv(found.extents["row"], rows), "spatial"),
    )
    chunks = _axis(chunk_number, _ceildiv(stop - first, chunk), "scan")
    an = shape_analyzer(func)
    for axis in (*outer, chunks):
        an.bind_range(axis.var, axis.dom)
    exact = expr.Min(expr.const(chunk), stop - start)
    tiles = _Tile(_guarded(found, width), place, extents, start, exact, private, an)
    new, body = _chunk(tiles)
    step = _with_regions(Block(f"{found.out.name}_chunk", (chunks,), (), (), body), an)
    inside = loops.seq(_start(tiles), _nest(step), _results(tiles))
    name = fresh_block_name(func, f"{found.out.name}_tile")
    block = Block(name, outer, (), (), inside, alloc_buffers=(*private.values(), *new))
    return _replaced(func, found, _nest(_with_regions(block, an))), name


def _ceildiv(a: PrimExpr, b: int) -> PrimExpr:
    return (a + (b - 1)) // b


def _padded_features(found: Attention, multiple: int) -> PrimExpr:
    count = found.extents["feature"]
    if isinstance(count, expr.IntImm):
        return expr.const(-(-count.value // multiple) * multiple)
    return count if multiple == 1 else _ceildiv(count, multiple) * multiple


def _axis(var: Var, extent: PrimExpr, kind: IterKind) -> IterVar:
    return IterVar(var, Range(ZERO, extent), kind)


def _private(found: Attention, buffer: Buffer, sizes: Mapping[Role, PrimExpr]) -> Buffer:
    shape = tuple(sizes[r] for r in INSIDE if r in found.dims[buffer])
    return Buffer(buffer.name, shape, buffer.dtype, scope="local")


def _sums(tile: _Tile) -> tuple[Buffer, Buffer, Buffer]:
    """The running maximum, the sum and the mix."""
    found = tile.found
    top, total, mix = (
        tile.private[b.writes[0].buffer] for b in (found.top, found.total, found.mix)
    )
    return top, total, mix


def _start(tile: _Tile) -> Stmt:
    """Return the initialisation: sums are zero and the maximum is the lowest finite number, so that
    a score of minus infinity less the maximum is minus infinity."""
    top, total, mix = _sums(tile)
    lowest = expr.FloatImm(float(np.finfo(top.dtype).min), top.dtype)

    def rows(local: Local) -> tuple[Stmt, None]:
        at, zero = (local["row"],), expr.const(0, total.dtype)
        return loops.seq(BufferStore(top, lowest, at), BufferStore(total, zero, at)), None

    def features(local: Local) -> tuple[Stmt, None]:
        at = (local["row"], local["feature"])
        return BufferStore(mix, expr.const(0, mix.dtype), at), None

    begin = f"{tile.found.total.name}_init", f"{tile.found.mix.name}_init"
    return loops.seq(tile.block(begin[0], _ROW, rows), tile.block(begin[1], _FEATURES, features))


def _chunk(tile: _Tile) -> tuple[tuple[Buffer, ...], Stmt]:
    """Return the buffers and the statement that update the running maximum, the sum and the product
    by one chunk."""
    # The steps of the chunk write to buffers of their own: the old maximum is needed for the factor
    # by which the sums shrink, and the running sums are multiplied before they grow.
    top, total, mix = _sums(tile)
    new_top, new_total, new_mix = (replace(b, name=f"new_{b.name}") for b in (top, total, mix))
    fade = replace(top, name=f"{top.name}_fade")

    def grown(local: Local) -> tuple[Stmt, None]:
        at = (local["row"],)
        before = BufferLoad(top, at)
        after = expr.Max(before, BufferLoad(new_top, at))
        factor = expr.Call(fade.dtype, "exp", (before - after,))
        return loops.seq(BufferStore(fade, factor, at), BufferStore(top, after, at)), None

    def faded(sums: Buffer, new: Buffer) -> Body:
        def body(local: Local) -> tuple[Stmt, None]:
            at = tuple(local.values())
            factor: PrimExpr = BufferLoad(fade, (local["row"],))
            if fade.dtype != sums.dtype:
                factor = expr.Cast(sums.dtype, factor)
            value = BufferLoad(sums, at) * factor + BufferLoad(new, at)
            return BufferStore(sums, value, at), None

        return body

    found = tile.found
    return (new_top, new_total, new_mix, fade), loops.seq(
        tile.step(found.dot),
        tile.step(found.score),
        tile.step(found.top, new_top),
        tile.block(found.top.name, _ROW, grown),
        tile.step(found.weight),
        tile.step(found.total, new_total),
        tile.block(found.total.name, _ROW, faded(total, new_total)),
        # The values are read for positions that exist only: a weight of zero times whatever is
        # behind the end of memory may be NaN.
        tile.step(found.mix, new_mix, exact=True),
        tile.block(found.mix.name, _FEATURES, faded(mix, new_mix)),
    )


def _results(tile: _Tile) -> Stmt:
    """The results of the rows and features that exist."""
    out, extents = tile.found.out, tile.found.extents

    def body(local: Local) -> tuple[Stmt, None]:
        exists = expr.LT(tile.place["row"] + local["row"], extents["row"])
        if tile.extents["feature"] != extents["feature"]:
            exists = expr.And(exists, expr.LT(local["feature"], extents["feature"]))
        return loops.IfThenElse(exists, tile.moved(out.body, local, tile.private)), None

    return tile.block(out.name, _FEATURES, body)


def _guarded(found: Attention, width: PrimExpr) -> Attention:
    """Products and scores that may be asked for positions that do not exist, or for `width`
    features where there are fewer: they read nothing that is not there, and such a score is minus
    infinity."""
    mix = found.mix if width == found.extents["feature"] else _guarded_mix(found)
    return dataclasses.replace(
        found, dot=_guarded_product(found), score=_guarded_score(found), mix=mix
    )


def _guarded_mix(found: Attention) -> Block:
    """The product with the values, those of features that do not exist being zero."""
    feature, made = found.axis(found.mix, "feature"), found.mix.writes[0].buffer
    exists = expr.LT(feature, found.extents["feature"])

    def visit(n: Node) -> Node | None:
        if isinstance(n, BufferLoad) and n.buffer is not made and feature in symbols_in(n.indices):
            return expr.Call(n.dtype, "if_then_else", (exists, n, expr.const(0, n.dtype)))
        return None

    return replace(found.mix, body=rewrite(found.mix.body, visit))


def _guarded_product(found: Attention) -> Block:
    """Keys in blocks of positions are read from the last block instead."""
    block, position = found.dot, found.axis(found.dot, "position")
    count = found.extents["position"]
    product = block.writes[0].buffer
    loads = [n for n in walk(block.body) if isinstance(n, BufferLoad) and n.buffer is not product]
    if all(_is_blocked(n, position) for n in loads):

        def visit(n: Node) -> Node | None:
            match n:
                case expr.FloorDiv(at, size) if at == position:
                    # Reading the last block again costs less than a condition for each vector of
                    # positions.
                    return expr.Min(n, (count - 1) // size)
                case _:
                    return None

        return replace(block, body=rewrite(block.body, visit))
    reduction = reduction_of(block)
    assert reduction is not None
    exists = expr.LT(position, count)
    zero = expr.const(0, reduction.value.dtype)
    value = expr.Call(zero.dtype, "if_then_else", (exists, reduction.value, zero))
    so_far = BufferLoad(reduction.buffer, reduction.indices)
    return replace(block, body=replace(block.body, value=reduction.combined(so_far, value)))


def _is_blocked(load: BufferLoad, position: Var) -> bool:
    """True if positions index the load in blocks of a constant size, all of which are there."""
    sizes: set[PrimExpr] = set()
    for index, dim in zip(load.indices, load.buffer.shape, strict=True):
        match index:
            case expr.FloorDiv(at, expr.IntImm() as size) if at == position:
                sizes.add(size)
            case expr.FloorMod(at, expr.IntImm() as size) if at == position:
                sizes.add(size)
                if dim != size:
                    return False
            case _:
                if position in symbols_in(index):
                    return False
    return len(sizes) <= 1


def _guarded_score(found: Attention) -> Block:
    block, position = found.score, found.axis(found.score, "position")
    count, product = found.extents["position"], found.dot.writes[0].buffer
    limit, _ = mask_bounds(found)
    an = Analyzer.for_shapes(*symbols_in(tuple(found.extents.values())))
    an.bind_range(found.axis(block, "row"), Range(ZERO, found.extents["row"]))
    masked = limit is not None and an.prove(expr.LT(limit, count))
    loads = [n for n in walk(block.body) if isinstance(n, BufferLoad) and n.buffer is not product]
    # The mask already hides every position beyond the end, and the score reads no other array
    # there, so a second condition would only cost instructions.
    if masked and not any(position in symbols_in(n.indices) for n in loads):
        return block
    assert isinstance(block.body, BufferStore)
    value = block.body.value
    nothing = expr.const(LOWEST, value.dtype)
    value = expr.Call(value.dtype, "if_then_else", (expr.LT(position, count), value, nothing))
    return replace(block, body=replace(block.body, value=value))


def _replaced(func: PrimFunc, found: Attention, new: Stmt) -> PrimFunc:
    """`func` with the nests of the attention, the last of its root block, replaced."""
    root = func.body
    assert isinstance(root, BlockRealize) and isinstance(root.block.body, SeqStmt)
    before = root.block.body.stmts[: -len(found.nests)]
    kept = tuple(b for b in root.block.alloc_buffers if b not in found.dims)
    block = replace(root.block, body=loops.seq(*before, new), alloc_buffers=kept)
    return replace(func, body=replace(root, block=block))
