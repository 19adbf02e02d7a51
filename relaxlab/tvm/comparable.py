"""Scalar expressions of which `==` builds a condition, for the functions of tensor expressions.

Everywhere else expressions compare by value. A function that `te.compute` calls may write
`i % 2 == 0`, as programs for TVM do: the indices that it is given, and what is calculated of them,
are of classes that say so. `plain` makes the core's expressions of them again.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from relaxlab.ir import expr
from relaxlab.ir.expr import PrimExpr
from relaxlab.ir.node import field_names, rewrite


class Equality(expr.EQ):
    """A comparison by `==`: a condition, and to Python true if both sides are the same."""

    __slots__ = ()

    def __bool__(self) -> bool:
        return self.a is self.b or plain(self.a) == plain(self.b)


class Inequality(expr.NE):
    """A comparison by `!=`: a condition, and to Python true unless both sides are the same."""

    __slots__ = ()

    def __bool__(self) -> bool:
        return not Equality(self.a, self.b)


class Comparable:
    """The operators of an expression of which `==` and `!=` build conditions."""

    __slots__ = ()

    def __eq__(self, other: object) -> Any:
        return _comparison(Equality, self, other)

    def __ne__(self, other: object) -> Any:
        return _comparison(Inequality, self, other)

    __hash__ = PrimExpr.__hash__  # pyright: ignore[reportAssignmentType]


def _comparison(cls: type[expr.CmpOp], a: Any, b: object) -> Any:
    if not isinstance(b, PrimExpr | int | float):
        return NotImplemented
    return cls(a, expr.as_expr(b, a.dtype))


def _calculating(name: str) -> Any:
    def calculate(self: PrimExpr, *others: Any) -> Any:
        result = getattr(PrimExpr, name)(self, *others)
        return comparable(result) if isinstance(result, PrimExpr) else result

    return calculate


for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod"):
    for _form in (f"__{_name}__", f"__r{_name}__"):
        setattr(Comparable, _form, _calculating(_form))
setattr(Comparable, "__neg__", _calculating("__neg__"))  # noqa: B010 - as the others


@cache
def _class_of(cls: type) -> type:
    return type(cls.__name__, (Comparable, cls), {"__slots__": (), "__module__": __name__})


def comparable(e: PrimExpr) -> PrimExpr:
    """The same expression, of which `==` builds a condition."""
    if isinstance(e, Comparable | expr.Var | expr.IntImm | expr.FloatImm | expr.CmpOp):
        return e
    return _class_of(type(e))(*(getattr(e, f) for f in field_names(type(e))))


class Index(Comparable, expr.Var):
    """An index of an element."""

    __slots__ = ()
    __hash__ = expr.Var.__hash__


def plain(e: PrimExpr, at: dict[expr.Var, PrimExpr] | None = None) -> Any:
    """The expression of the core's classes, with other variables where `at` has some."""
    values = at or {}

    def visit(n: Any) -> PrimExpr | None:
        if isinstance(n, expr.Var):
            return values.get(n)
        if isinstance(n, Equality):
            return expr.EQ(n.a, n.b)
        if isinstance(n, Inequality):
            return expr.NE(n.a, n.b)
        if isinstance(n, Comparable):
            core = type(n).__mro__[2]
            return core(*(getattr(n, f) for f in field_names(core)))
        return None

    return rewrite(e, visit)
