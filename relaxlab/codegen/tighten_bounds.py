"""End serial loops at their last useful iteration.

A split by a constant leaves `for v in 256: if c*256 + v < n: …`. Where n is small, most iterations
only test that condition. The last one that passes is known before the loop, so its extent becomes
`min(256, n - c*256)`: a loop over a symbolic extent costs what its iterations cost, however large
the factors that it was split by. Partial reductions are guarded in the value that they add, which
past the end is the identity (`X + if_then_else(c*256 + v < n, A[…], 0)`).
"""

from __future__ import annotations

from collections.abc import Mapping

from relaxlab.analysis.arith import Analyzer, wraps
from relaxlab.ir import expr
from relaxlab.ir.expr import FloatImm, IntImm, PrimExpr, Var, all_of
from relaxlab.ir.loops import BufferLoad, BufferStore, For, IfThenElse, SeqStmt, Stmt
from relaxlab.ir.node import Node, map_children, replace, rewrite, walk
from relaxlab.ir.substitute import substitute, symbols_in
from relaxlab.schedule.combiners import IDENTITY
from relaxlab.schedule.tree import conjuncts

TRUE = expr.const(True)
SHORT = 64
"""Iterations, with those of loops inside, up to which a loop of constant extent keeps it:
`hoist_guards` tests the conditions of such a tile once, which saves more than ending a few
iterations early."""


def tighten_bounds(stmt: Stmt, short: int = SHORT) -> Stmt:
    """Apply to every serial loop of a block-free statement, except to those of constant extent that
    take `short` iterations at most."""

    def visit(n: Node) -> Node:
        n = map_children(n, visit)
        return _tightened(n, short) if isinstance(n, For) and n.kind == "serial" else n

    return visit(stmt)  # type: ignore[return-value]


def _tightened(loop: For, short: int) -> For:
    extent = loop.extent
    is_short = isinstance(extent, IntImm) and _iterations(loop) <= short
    # `_end` counts from 0, in int64 as sizes are.
    if loop.min != expr.const(0) or loop.loop_var.dtype != "int64" or is_short:
        return loop
    end = end_of(loop.body, loop.loop_var, {})
    if end is None or not reads_are_fixed(end, loop.body):
        return loop
    # A bound that never ends the loop earlier would only make its extent a minimum.
    if Analyzer.for_shapes(extent, end).prove(expr.LE(extent, end)):
        return loop
    # The loop does not run below 0.
    return replace(loop, extent=expr.Min(extent, end), body=_without(loop, end))


def _without(loop: For, end: PrimExpr) -> Stmt:
    """Return the loop's body without the conditions that hold because the loop stops at `end`."""

    def holds(condition: PrimExpr) -> bool:
        return _end_of_condition(condition, loop.loop_var, {}) == end

    def rest_of(condition: PrimExpr) -> PrimExpr | None:
        parts = conjuncts(condition)
        rest = [c for c in parts if not holds(c)]
        return all_of(rest) if len(rest) < len(parts) else None

    def drop(n: Node) -> Node | None:
        match n:
            case IfThenElse(condition, then, None) if (rest := rest_of(condition)) is not None:
                return then if rest == TRUE else replace(n, condition=rest)
            case expr.Call(_, "if_then_else", (condition, value, other)) if (
                rest := rest_of(condition)
            ) is not None:
                return value if rest == TRUE else replace(n, args=(rest, value, other))
            case _:
                return None

    return rewrite(loop.body, drop)


def _iterations(s: Stmt) -> int:
    """The iterations of the longest nest of loops, unknown extents being long, vectors one."""
    match s:
        case For(_, _, extent, "serial" | "unrolled", body):
            size = extent.value if isinstance(extent, IntImm) else SHORT + 1
            return size * _iterations(body)
        case For(_, _, _, _, body):
            return _iterations(body)
        case SeqStmt(stmts):
            return max((_iterations(part) for part in stmts), default=1)
        case IfThenElse(_, then, None):
            return _iterations(then)
        case _:
            return 1


def reads_are_fixed(e: PrimExpr, body: Stmt) -> bool:
    """True if an expression reads elements of index functions alone, which nothing writes, and no
    condition in the body decides whether these elements are there."""
    loads = [n for n in walk(e) if isinstance(n, BufferLoad)]
    if any(isinstance(n, expr.Call | expr.Let) for n in walk(e)):
        return False
    if not loads:
        return True
    deciding = set(symbols_in(tuple(n.indices for n in loads)))
    return all(n.buffer.facts for n in loads) and not any(
        deciding & _outside_of_loads(part) for c in _tested(body) for part in conjuncts(c)
    )


def _tested(body: Stmt) -> list[PrimExpr]:
    """The conditions in a statement."""
    found = [n.condition for n in walk(body) if isinstance(n, IfThenElse)]
    calls = (n for n in walk(body) if isinstance(n, expr.Call) and n.op == "if_then_else")
    return [*found, *(n.args[0] for n in calls)]


def _outside_of_loads(e: PrimExpr) -> set[Var]:
    plain = rewrite(e, lambda n: expr.const(0, n.dtype) if isinstance(n, BufferLoad) else None)
    return set(symbols_in(plain))


def as_less(condition: PrimExpr) -> PrimExpr:
    """`a <= b` of integers as `a < b + 1`, any other condition as it is."""
    if isinstance(condition, expr.LE) and condition.a.dtype == "int64":
        return expr.LT(condition.a, condition.b + 1)
    return condition


def end_of(stmt: Stmt, var: Var, inner: Mapping[Var, For]) -> PrimExpr | None:
    """The value of `var` from which on the statement does nothing, None if it is not known.
    `inner`: the loops between, at whose first or last values conditions pass soonest."""
    match stmt:
        case IfThenElse(condition, then, None):
            end = _end_of_condition(condition, var, inner)
            return end_of(then, var, inner) if end is None else end
        case IfThenElse(condition, then, Stmt() as other):  # a test of whole tiles
            first = _end_of_condition(condition, var, inner) or end_of(then, var, inner)
            last = end_of(other, var, inner)
            return None if first is None or last is None else _largest([first, last])
        case For(v, _, _, _, body):
            return end_of(body, var, {**inner, v: stmt})
        case SeqStmt(stmts):
            ends = [end_of(s, var, inner) for s in stmts]
            known = [e for e in ends if e is not None]
            return _largest(known) if known and len(known) == len(ends) else None
        case BufferStore(buffer, expr.BinaryOp() as value, indices):
            sides = (value.a, value.b)
            # Only an update of the element itself leaves memory as it is when it adds the identity.
            if BufferLoad(buffer, indices) not in sides:
                return None
            for side in sides:
                match side:
                    case expr.Call(_, "if_then_else", (condition, _, other)):
                        if _is_identity(type(value), other):
                            return _end_of_condition(condition, var, inner)
                    case _:
                        pass
            return None
        case _:
            return None


def _largest(ends: list[PrimExpr]) -> PrimExpr:
    first, *rest = dict.fromkeys(ends)
    for end in rest:
        rises = Analyzer.for_shapes(first, end).prove(expr.LE(first, end))
        first = end if rises else expr.Max(first, end)
    return first


def _is_identity(op: type[expr.BinaryOp], value: PrimExpr) -> bool:
    """True if `X op value` is X."""
    identity = IDENTITY[op](value.dtype) if op in IDENTITY else None
    match value, identity:
        case IntImm(number) | FloatImm(number), IntImm(same) | FloatImm(same):
            return number == same
        case _:
            return False


def _end_of_condition(
    condition: PrimExpr, var: Var, inner: Mapping[Var, For]
) -> PrimExpr | None:
    """The value of `var` from which on the condition fails, by the first of its conjuncts that is
    `step*var + rest < bound` with a positive step."""
    if isinstance(condition, expr.And):
        end = _end_of_condition(condition.a, var, inner)
        return _end_of_condition(condition.b, var, inner) if end is None else end
    condition = as_less(condition)
    if not isinstance(condition, expr.LT) or var in symbols_in(condition.b):
        return None
    if wraps(condition.a):
        return None
    step = step_of(condition.a, var)
    # A loop variable between that may lower the index could pass the condition again later.
    if not step or any(step_of(condition.a, v) is None for v in inner):
        return None
    first = soonest(condition, inner)
    assert isinstance(first, expr.LT)
    start = substitute(first.a, {var: expr.const(0)})
    # Variables of the body, and elements that it stores, have no value yet where the loop's extent
    # is computed.
    if set(symbols_in((start, first.b))) & inner.keys() or _reads((start, first.b)):
        return None
    remaining = Analyzer().simplify(first.b - start)
    return remaining if step == 1 else Analyzer().simplify((remaining + (step - 1)) // step)


def soonest(condition: PrimExpr, inner: Mapping[Var, For]) -> PrimExpr:
    """The condition for the iteration of inner loops that passes it first: their first values in
    what is compared, and their last ones where they raise the bound."""
    condition = as_less(condition)
    first = {v: s.min for v, s in inner.items()}
    if not isinstance(condition, expr.LT):
        return substitute(condition, first)
    last = {
        v: s.min + (s.extent - 1)
        for v, s in inner.items()
        if v in symbols_in(condition.b) and isinstance(s.extent, IntImm) and step_of(condition.b, v)
    }
    return expr.LT(substitute(condition.a, first), substitute(condition.b, last))


def _reads(values: tuple[PrimExpr, ...]) -> bool:
    return any(
        isinstance(n, expr.Call | expr.Let) or (isinstance(n, BufferLoad) and not n.buffer.facts)
        for e in values for n in walk(e)
    )  # fmt: skip


def step_of(e: PrimExpr, v: Var) -> int | None:
    """Return the least increment of `e` per step of `v`: 0 if it does not depend on it; None if it
    may fall or is not linear."""
    match e:
        case Var():
            return int(e is v)
        case expr.Add(a, b):
            steps = (step_of(a, v), step_of(b, v))
            return None if steps[0] is None or steps[1] is None else steps[0] + steps[1]
        case expr.Mul(a, IntImm(factor)) if factor > 0:
            step = step_of(a, v)
            return None if step is None else step * factor
        case _:
            return None if v in symbols_in(e) else 0
