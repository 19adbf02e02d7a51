"""Recognition of attention in a loop function, proved from its blocks.

Seven blocks: scores `score(queries @ keys)`, their maximum per row, weights `exp(score - maximum)`,
the weights' sum, their product with the values, and results of that product and the sum. Each axis
has a role, and all blocks use it alike.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from relaxlab.analysis.arith import Analyzer
from relaxlab.ir import expr
from relaxlab.ir.expr import PrimExpr, Var
from relaxlab.ir.loops import (
    Block,
    BlockRealize,
    Buffer,
    BufferLoad,
    BufferStore,
    For,
    PrimFunc,
    SeqStmt,
    Stmt,
)
from relaxlab.ir.node import walk
from relaxlab.ir.substitute import substitute, symbols_in
from relaxlab.schedule.error import ScheduleError
from relaxlab.schedule.order import require_reassociable
from relaxlab.schedule.ranges import ZERO
from relaxlab.schedule.rfactor import reduction_of
from relaxlab.schedule.tree import TRUE, alloc_sites, describe_block

Role = str
"""The role of an axis: one of `ROLES`, `depth` (of queries and keys) or `feature` (of values)."""
ROLES: tuple[Role, ...] = ("batch", "head", "row", "position")
"""The roles of the axes of the scores, in order."""
LOWEST = float("-inf")
_REDUCES = [True, False, True, False, True, True, False]
"""True for the reductions among product, scores, maximum, weights, sum and product (either first),
results."""


def _kinds(spatial: str, reduce: str = "") -> tuple[tuple[str, str], ...]:
    axes = (("spatial", spatial), ("reduce", reduce))
    return tuple((role, kind) for kind, roles in axes for role in roles.split())


_AXES = (
    _kinds("batch head row position", "depth"),
    _kinds("batch head row position"),
    _kinds("batch head row", "position"),
    _kinds("batch head row position"),
    _kinds("batch head row", "position"),
    _kinds("batch head row feature", "position"),
    _kinds("batch head row feature"),
)
"""Roles and kinds of the axes of the seven blocks."""


@dataclass(frozen=True, slots=True)
class Attention:
    """The blocks of attention. `roles`: of all their axes; `dims`: of the dimensions of each buffer
    written except `out`'s; `extents`: of each role; `nests`: the statements of the root block that
    hold them."""

    dot: Block
    score: Block
    top: Block
    weight: Block
    total: Block
    mix: Block
    out: Block
    roles: Mapping[Var, Role]
    dims: Mapping[Buffer, tuple[Role, ...]]
    extents: Mapping[Role, PrimExpr]
    nests: tuple[Stmt, ...]

    @property
    def blocks(self) -> tuple[Block, ...]:
        """The seven blocks."""
        return (
            self.dot, self.score, self.top, self.weight, self.total, self.mix, self.out,
        )  # fmt: skip

    def axis(self, block: Block, role: Role) -> Var:
        """The block's axis of that role."""
        return next(it.var for it in block.iter_vars if self.roles[it.var] == role)


def find_attention(func: PrimFunc) -> Attention | None:
    """Return the attention that the last seven nests of the root block compute; None if the kinds
    of their axes are not attention's. Raises ScheduleError if they are, but another condition does
    not hold."""
    nests = _last_nests(func)
    blocks = [b for b in map(_block_of, nests) if b is not None]
    if [any(it.kind == "reduce" for it in b.iter_vars) for b in blocks] != _REDUCES:
        return None
    if len(blocks[4].iter_vars) > len(blocks[5].iter_vars):  # either comes first
        blocks[4], blocks[5] = blocks[5], blocks[4]
    roles, dims = _roles(blocks)
    extents = _extents(blocks, roles)
    dot, score, top, weight, total, mix, out = blocks
    found = Attention(dot, score, top, weight, total, mix, out, roles, dims, extents, nests)
    for block in (found.dot, found.total, found.mix):
        require_reassociable("online_softmax", func, block)
    _require_softmax(found)
    _require_alone(func, found)
    return found


def _require(condition: object, block: Block, text: str) -> None:
    if not condition:
        raise ScheduleError("online_softmax", describe_block(block), text, about=(block.name,))


def _last_nests(func: PrimFunc) -> tuple[Stmt, ...]:
    root = func.body
    if not isinstance(root, BlockRealize) or not isinstance(root.block.body, SeqStmt):
        return ()
    return root.block.body.stmts[-7:]


def _block_of(nest: Stmt) -> Block | None:
    """The block of a perfect nest of plain loops, each over the whole domain of one of its axes."""
    extents: dict[PrimExpr, PrimExpr] = {}
    while isinstance(nest, For) and nest.kind == "serial" and nest.min == ZERO:
        extents[nest.loop_var] = nest.extent
        nest = nest.body
    if not isinstance(nest, BlockRealize) or nest.predicate != TRUE:
        return None
    axes = [it.dom for it in nest.block.iter_vars]
    whole = all(dom.min == ZERO for dom in axes)
    looped = [extents.pop(v, None) for v in nest.iter_values]
    return nest.block if whole and looped == [dom.extent for dom in axes] else None


def _roles(blocks: Sequence[Block]) -> tuple[dict[Var, Role], dict[Buffer, tuple[Role, ...]]]:
    """Return the roles of all axes and of the dimensions of the buffers that the blocks write. An
    axis has the role of the dimension it indexes, in all blocks; `depth` and `feature` index no
    score."""
    dot, score, *_ = blocks
    _require(len(score.iter_vars) == 4, score, "a score has a batch, a head, a row and a position")
    roles: dict[Var, Role] = {it.var: role for it, role in zip(score.iter_vars, ROLES, strict=True)}
    product = dot.writes[0].buffer
    dims = {
        n.buffer: _roles_at(n, roles, score)
        for n in walk(score.body)
        if isinstance(n, BufferLoad) and n.buffer is product
    }
    for block in blocks:
        store = block.body
        _require(isinstance(store, BufferStore), block, "the body is one store")
        assert isinstance(store, BufferStore)
        for n in walk(store):
            if isinstance(n, BufferLoad | BufferStore) and n.buffer in dims:
                for index, role in zip(n.indices, dims[n.buffer], strict=True):
                    same = isinstance(index, Var) and roles.setdefault(index, role) == role
                    _require(same, block, f"{n.buffer.name} is indexed by the block's own axes")
        for it in block.iter_vars:
            roles.setdefault(it.var, "depth" if it.kind == "reduce" else "feature")
        if block is not blocks[-1]:
            dims.setdefault(store.buffer, _roles_at(store, roles, block))
    return roles, dims


def _roles_at(
    access: BufferLoad | BufferStore, roles: Mapping[Var, Role], block: Block
) -> tuple[str, ...]:
    found = tuple(roles.get(i, "") if isinstance(i, Var) else "" for i in access.indices)
    spatial = sum(it.kind == "spatial" for it in block.iter_vars)
    own = all(found) and len(set(found)) == len(found) == spatial
    _require(own, block, f"{access.buffer.name} is indexed by the block's own axes")
    return found


def _extents(blocks: Sequence[Block], roles: Mapping[Var, Role]) -> dict[Role, PrimExpr]:
    """The extent of each role. Each block has the axes that attention's has, each of the kind and
    the extent that it is to have."""
    extents: dict[Role, PrimExpr] = {}
    for block, wanted in zip(blocks, _AXES, strict=True):
        kinds = [(roles[it.var], it.kind) for it in block.iter_vars]
        _require(sorted(kinds) == sorted(wanted), block, f"its axes are {dict(wanted)}")
        for it in block.iter_vars:
            same = extents.setdefault(roles[it.var], it.dom.extent) == it.dom.extent
            _require(same, block, f"there are as many of each {roles[it.var]} as elsewhere")
    return extents


def _require_softmax(found: Attention) -> None:
    """The bodies are those of a softmax and two products: sums are linear in the weights."""
    written = {b: b.body.buffer for b in found.blocks if isinstance(b.body, BufferStore)}
    sources = {
        found.dot: {found.dot}, found.score: {found.dot}, found.top: {found.score, found.top},
        found.weight: {found.score, found.top}, found.total: {found.weight, found.total},
        found.mix: {found.weight, found.mix}, found.out: {found.mix, found.total},
    }  # fmt: skip
    for block, allowed in sources.items():
        read = {n.buffer for n in walk(block.body) if isinstance(n, BufferLoad)}
        others = read & (set(written.values()) - {written[b] for b in allowed})
        _require(not others, block, "of the other blocks it reads what softmax's does")
    score, weight = written[found.score], written[found.weight]
    for block in (found.dot, found.top, found.total, found.mix):
        op, reduction = expr.Max if block is found.top else expr.Add, reduction_of(block)
        same = reduction is not None and reduction.op is op
        _require(same, block, f"its body accumulates by {op.__name__}")
        assert reduction is not None
        begins = isinstance(block.init, BufferStore) and block.init.value == reduction.identity
        _require(begins, block, "it begins with what changes nothing")
        value = reduction.value
        if block is found.top:
            _require(_is_load(value, score), block, "it is the maximum of the scores")
        elif block is found.total:
            _require(_is_load(value, weight), block, "it is the sum of the weights")
        elif block is found.mix:
            sides = (value.a, value.b) if isinstance(value, expr.Mul) else ()
            products = [_is_load(side, weight) for side in sides]
            _require(sorted(products) == [False, True], block, "it sums weights times values")
    _require_weights(found, score, written[found.top])


def _require_weights(found: Attention, score: Buffer, top: Buffer) -> None:
    """Raise unless weights are `exp(score - maximum)`, or zero where the score is minus infinity.
    Without that zero, rows that see no position are NaN, and so must be the quotient of two
    zeros."""
    _require(top.dtype in ("float32", "float64"), found.top, "its dtype is float32 or float64")
    assert isinstance(found.weight.body, BufferStore) and isinstance(found.out.body, BufferStore)
    value, is_select = _without_cast(found.weight.body.value), False
    match value:
        case expr.Select(expr.EQ(a, expr.FloatImm(low)), expr.FloatImm(zero), other):
            is_select = _is_load(a, score) and low == LOWEST and zero == 0
            value = other
        case _:
            pass
    match value:
        case expr.Call(_, "exp", (expr.Sub(BufferLoad(a), BufferLoad(b)),)):
            is_exp = a is score and b is top
        case _:
            is_exp = False
    _require(is_exp, found.weight, "weights are exp(score - maximum)")
    result = _without_cast(found.out.body.value)
    parts = (result.a, result.b) if isinstance(result, expr.Div) else ()
    buffers = [b.writes[0].buffer for b in (found.mix, found.total)]
    is_quotient = [_is_load(p, b) for p, b in zip(parts, buffers, strict=False)] == [True, True]
    _require(is_select or is_quotient, found.out, "a row without positions is not a number")


def _without_cast(e: PrimExpr) -> PrimExpr:
    return e.value if isinstance(e, expr.Cast) else e


def _is_load(e: PrimExpr, buffer: Buffer) -> bool:
    e = _without_cast(e)
    return isinstance(e, BufferLoad) and e.buffer is buffer


def _require_alone(func: PrimFunc, found: Attention) -> None:
    """Raise if other blocks read the intermediates of attention, or one of its own blocks reads its
    result."""
    sites, result = alloc_sites(func), found.out.writes[0].buffer
    assert isinstance(func.body, BlockRealize) and isinstance(func.body.block.body, SeqStmt)
    before = [n for s in func.body.block.body.stmts[: -len(found.nests)] for n in walk(s)]
    elsewhere = {n.buffer for n in before if isinstance(n, BufferLoad | BufferStore)}
    for block in found.blocks:
        buffer = block.writes[0].buffer
        private = buffer in sites and buffer not in elsewhere
        _require(private or block is found.out, block, f"{buffer.name} is used here alone")
        reads = any(r.buffer is result for r in block.reads)
        _require(not reads, block, f"{result.name} is not read")


def visible_positions(
    found: Attention, place: Mapping[Role, PrimExpr], last_row: PrimExpr
) -> tuple[PrimExpr, PrimExpr]:
    """Return the first position that the mask leaves visible to any of the rows from `place["row"]`
    to `last_row`, and the one after the last.

    The mask is `position <= limit(row)`, and maybe `floor(row) < position`, with bounds that do not
    fall from row to row.
    """
    score, count = found.score, found.extents["position"]
    row = found.axis(score, "row")
    limit, floor = mask_bounds(found)
    an = Analyzer.for_shapes(*symbols_in(tuple(found.extents.values())))

    def rises(bound: PrimExpr) -> bool:
        return bool(an.prove(expr.LE(bound, substitute(bound, {row: row + 1}))))

    if limit is None or not rises(limit) or (floor is not None and not rises(floor)):
        # Without the order of bounds no row is the first or the last to see a position, so all
        # positions are visited.
        return ZERO, count
    others = {found.axis(score, role): place[role] for role in ("batch", "head")}
    end = substitute(limit, {**others, row: last_row}) + 1
    stop = count if an.prove_equal(count, end) else expr.Min(count, end)
    if floor is None:
        return ZERO, stop
    return expr.Max(substitute(floor, {**others, row: place["row"]}) + 1, ZERO), stop


def mask_bounds(found: Attention) -> tuple[PrimExpr | None, PrimExpr | None]:
    """`limit` and `floor` where the scores are `select(position <= limit, score, -inf)`, or that
    with `position <= limit and floor < position`."""
    position = found.axis(found.score, "position")
    match found.score.body:
        case BufferStore(_, expr.Select(mask, _, expr.FloatImm(value))) if value == LOWEST:
            pass
        case _:
            return None, None
    limit, floor = (mask.a, mask.b) if isinstance(mask, expr.And) else (mask, None)
    match limit:
        case expr.LE(at, upper) if at == position and position not in symbols_in(upper):
            pass
        case _:
            return None, None
    match floor:
        case None:
            return upper, None
        case expr.LT(lower, at) if at == position and position not in symbols_in(lower):
            return upper, lower
        case _:
            return None, None
