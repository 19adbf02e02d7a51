"""A step that parts loops: the iterations in which conditions hold, those before and after."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from relaxlab.analysis.arith import Analyzer, wraps
from relaxlab.codegen.steps.hoist import defined_in
from relaxlab.ir import expr
from relaxlab.ir.expr import IntImm, PrimExpr, Var, all_of
from relaxlab.ir.loops import BufferLoad, For, IfThenElse, PrimFunc, Range, Stmt, seq
from relaxlab.ir.node import Node, children, map_children, replace, rewrite, walk
from relaxlab.ir.substitute import substitute
from relaxlab.schedule.ranges import ONE, ZERO, loop_env, shape_analyzer, span_of
from relaxlab.schedule.tree import all_blocks, conjuncts, vars_in, with_fresh_binders

HINT = "pragma_loop_partition_hint"
"""The annotation of a loop of constant extent that is to be partitioned, too."""


def loops_partitioned(func: PrimFunc, constant: bool = False) -> PrimFunc:
    """The function, without blocks, in which a serial loop with conditions that hold from one of
    its iterations to another is three loops, of which that in the middle does not test them. Loops
    of a constant extent stay one, unless `constant` is set or they have a hint."""
    if any(b.name != "root" and (b.iter_vars or b.init) for b in all_blocks(func)):
        raise ValueError("partition loops without blocks: take them away by LowerOpaqueBlock")
    an = shape_analyzer(func)

    def visit(n: Node) -> Node:
        if not isinstance(n, For):
            return map_children(n, visit)
        wanted = constant or bool(n.annotations.get(HINT)) or not isinstance(n.extent, IntImm)
        parts = _parts(n, an) if wanted and n.kind == "serial" else None
        return inside(n) if parts is None else seq(*map(part, parts))

    def part(n: For) -> Stmt:
        body = substitute(n.body, {n.loop_var: n.min})
        return visit(body) if n.extent == ONE else inside(n)  # type: ignore[return-value]

    def inside(n: For) -> Stmt:
        with an.scope():
            an.bind_range(n.loop_var, Range(n.min, n.extent))
            return map_children(n, visit)

    return visit(func)  # type: ignore[return-value]


@dataclass
class _Middle:
    """The iterations from `low` to before `high`, in which conditions hold."""

    low: PrimExpr
    high: PrimExpr
    conditions: list[PrimExpr] = field(default_factory=list[PrimExpr])


def _parts(loop: For, an: Analyzer) -> list[For] | None:
    """The loops in place of one, None if it has no conditions that divide its iterations."""
    var, end = loop.loop_var, an.simplify(loop.min + loop.extent)
    middle, defined = _Middle(loop.min, end), set(defined_in(loop))
    for condition, inner in _conditions(loop):
        found = _iterations(condition, var, inner, an)
        if found is None or any(e is not None and vars_in(e) & defined for e in found):
            continue
        low, high = middle.low, middle.high
        if found[0] is not None:
            low = _clamped(found[0], low, high, an)
        if found[1] is not None:
            high = _clamped(found[1], low, high, an)
        if not an.prove(high <= low):
            middle = _Middle(low, high, [*middle.conditions, condition])
    if middle.low == loop.min and middle.high == end:
        return None
    bounds = (loop.min, middle.low, middle.high, end)
    made: list[For] = []
    for k, (start, stop) in enumerate(zip(bounds, bounds[1:], strict=False)):
        extent = an.simplify(stop - start)
        if an.prove(extent <= ZERO):
            continue
        body = _holding(loop.body, middle.conditions) if k == 1 else loop.body
        made.append(_over(loop, start, extent, body))
    return made


def _clamped(value: PrimExpr, low: PrimExpr, high: PrimExpr, an: Analyzer) -> PrimExpr:
    """A value between two others."""
    above = value if an.prove(low <= value) else low if an.prove(value <= low) else None
    value = expr.binary(expr.Max, value, low) if above is None else above
    below = value if an.prove(value <= high) else high if an.prove(high <= value) else None
    return an.simplify(expr.binary(expr.Min, value, high) if below is None else below)


def _over(loop: For, start: PrimExpr, extent: PrimExpr, body: Stmt) -> For:
    """A copy of a loop over some of its iterations, counted from 0."""
    var = Var(loop.loop_var.name)
    value = var if start == ZERO else var + start
    body = with_fresh_binders(substitute(body, {loop.loop_var: value}))
    notes = loop.annotations.with_(**{HINT: None})
    return replace(loop, loop_var=var, min=ZERO, extent=extent, body=body, annotations=notes)


def _conditions(loop: For) -> Iterator[tuple[PrimExpr, tuple[For, ...]]]:
    """The conditions in a loop that depend on its variable, and the loops between that and them."""

    def visit(n: Node, inner: tuple[For, ...]) -> Iterator[tuple[PrimExpr, tuple[For, ...]]]:
        match n:
            case IfThenElse(condition) | expr.Call(_, "if_then_else", (condition, *_)):
                for part in _terms(condition):
                    if loop.loop_var in vars_in(part):
                        yield part, inner
            case _:
                pass
        for c in children(n):
            yield from visit(c, (*inner, n) if isinstance(n, For) else inner)

    yield from visit(loop.body, ())


def _terms(condition: PrimExpr) -> list[PrimExpr]:
    """The operands of a conjunction, also of one that is said to be likely."""
    if isinstance(condition, expr.Call) and condition.op == "likely":
        return _terms(condition.args[0])
    return [t for c in conjuncts(condition) for t in ([c] if c == condition else _terms(c))]


def _iterations(
    condition: PrimExpr, var: Var, inner: tuple[For, ...], an: Analyzer
) -> tuple[PrimExpr | None, PrimExpr | None] | None:
    """The iteration from which on, and that before which, a condition holds whatever the inner
    loops are at; None if it is not known, or they are no iterations in a row."""
    match condition:
        case expr.LT(a, b):
            least = b - a - 1
        case expr.LE(a, b):
            least = b - a
        case expr.GT(a, b):
            least = a - b - 1
        case expr.GE(a, b):
            least = a - b
        case _:
            return None
    reads = any(isinstance(n, BufferLoad | expr.Call | expr.Let) for n in walk(condition))
    if least.dtype != "int64" or reads or wraps(least):
        return None
    linear = an.linear_in(least, (var,))
    if linear is None or not isinstance(linear[0], IntImm):
        return None
    factor, rest = linear[0].value, linear[1]
    span = span_of(rest, loop_env(inner, an), an)
    if span is None or not factor or var in vars_in(span.lo):
        return None
    if factor > 0:
        return an.simplify(-1 * (span.lo // factor)), None
    return None, an.simplify(span.lo // -factor + 1)


def _holding(body: Stmt, conditions: list[PrimExpr]) -> Stmt:
    """A statement in which conditions hold."""

    def rest(condition: PrimExpr) -> PrimExpr | None:
        """The rest of a condition, None if nothing is left, and it holds."""
        terms = _terms(condition)
        left = [c for c in terms if c not in conditions]
        if len(left) == len(terms) > 0:
            return condition
        return all_of(left) if left else None

    def visit(n: Node) -> Node | None:
        match n:
            case IfThenElse(condition, then, other):
                left = rest(condition)
                return then if left is None else IfThenElse(left, then, other, span=n.span)
            case expr.Call(_, "if_then_else", (condition, value, other)):
                left = rest(condition)
                return value if left is None else replace(n, args=(left, value, other))
            case _:
                return None

    return rewrite(body, visit)
