"""A step that computes padding as everything else, where what is assumed of it gives the same."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from relaxlab.analysis.arith import Analyzer
from relaxlab.analysis.evaluate import CannotEvaluate, evaluate
from relaxlab.analysis.pattern_kind import PatternKind
from relaxlab.ir import expr
from relaxlab.ir.expr import PrimExpr, Var
from relaxlab.ir.loops import Buffer, BufferLoad, BufferStore, Evaluate, PrimFunc
from relaxlab.ir.node import Node, replace, rewrite, walk
from relaxlab.ir.substitute import substitute

EACH_ALONE = (PatternKind.ELEMENTWISE, PatternKind.BROADCAST, PatternKind.INJECTIVE)


def padding_computed(func: PrimFunc) -> PrimFunc:
    """The function without choices `if_then_else(padding, constant, value)` whose value is that
    constant in the padding too, by what `T.assume(not padding or A[i] == c)` says of the elements
    that it reads. Only functions that are annotated as element-wise, broadcasting or injective are
    changed: others combine elements, padding among them."""
    if func.attrs.get("op_pattern") not in EACH_ALONE:
        return func
    facts = [f for n in walk(func.body) if (f := _fact(n)) is not None]
    written = {n.buffer for n in walk(func.body) if isinstance(n, BufferStore)}
    known = [f for f in facts if f.buffer not in written]
    if not known:
        return func

    def visit(n: Node) -> Node | None:
        match n:
            case expr.Call(op="if_then_else", args=(where, constant, value)):
                return value if _same_in(where, constant, value, known) else None
            case _:
                return None

    body = rewrite(func.body, visit)
    return func if body is func.body else replace(func, body=body)


@dataclass(frozen=True, slots=True)
class _Fact:
    """Elements of a buffer at the indices `axes` are `value` where `where` holds."""

    buffer: Buffer
    axes: tuple[Var, ...]
    where: PrimExpr
    value: PrimExpr


def _fact(n: Node) -> _Fact | None:
    match n:
        case Evaluate(
            expr.Call(
                op="assume",
                args=(expr.Or(expr.Not(where), expr.EQ(BufferLoad(buffer, indices), value)),),
            )
        ):
            axes = tuple(i for i in indices if isinstance(i, Var))
            alone = len({*axes}) == len(indices) and isinstance(value, expr.IntImm | expr.FloatImm)
            return _Fact(buffer, axes, where, value) if alone else None
        case _:
            return None


def _same_in(where: PrimExpr, constant: PrimExpr, value: PrimExpr, facts: list[_Fact]) -> bool:
    """True if a value is a constant where a condition holds."""

    def element(n: Node) -> Node | None:
        if not isinstance(n, BufferLoad):
            return None
        return next(_values(n, where, facts), None)

    if not isinstance(constant, expr.IntImm | expr.FloatImm):
        return False
    known = rewrite(value, element)
    if any(isinstance(n, BufferLoad | Var) for n in walk(known)):
        return False
    try:
        return bool(evaluate(known, {}) == evaluate(constant, {}))
    except CannotEvaluate:
        return False


def _values(load: BufferLoad, where: PrimExpr, facts: list[_Fact]) -> Iterator[PrimExpr]:
    """Values that an element is known to have where a condition holds."""
    an = Analyzer()
    for fact in facts:
        if fact.buffer is load.buffer:
            there = substitute(fact.where, dict(zip(fact.axes, load.indices, strict=True)))
            if an.simplify(there) == an.simplify(where):
                yield fact.value
