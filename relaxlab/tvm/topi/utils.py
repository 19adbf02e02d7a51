"""`tvm.topi.utils`: constants in shapes."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from relaxlab.analysis.arith import simplify as simplified
from relaxlab.ir.expr import FloatImm, IntImm, PrimExpr, Var, as_expr


def simplify(expr: Any) -> Any:
    """An expression in normal form; a list or tuple, each of its items."""
    if isinstance(expr, list | tuple):
        return type(expr)(map(simplify, expr))
    return simplified(expr) if isinstance(expr, PrimExpr) else expr


def get_const_int(expr: Any) -> int:
    """The value of an integer expression. Raises ValueError if it is no constant."""
    value = simplify(expr)
    if isinstance(value, int):
        return value
    if not isinstance(value, IntImm):
        raise ValueError(f"expected a constant integer, got {expr}")
    return value.value


def get_const_float(expr: Any) -> float:
    """The value of a floating-point expression. Raises ValueError if it is no constant."""
    if isinstance(expr, float):
        return expr
    if not isinstance(expr, FloatImm):
        raise ValueError(f"expected a constant of floating point, got {expr}")
    return expr.value


def get_const_tuple(in_tuple: Iterable[Any]) -> tuple[Any, ...]:
    """The values of integer expressions; symbols and what they are in stay as they are."""
    items = (simplify(item) for item in in_tuple)
    return tuple(item.value if isinstance(item, IntImm) else item for item in items)


def equal_const_int(expr: Any, value: int) -> bool:
    """True if an expression is a constant of that value."""
    found = simplify(expr)
    return value == (found.value if isinstance(found, IntImm) else found)


def prod(x: Iterable[Any]) -> Any:
    """The product of sizes; 1 of none."""
    return math.prod(x)


def is_empty_shape(shape: Iterable[Any]) -> bool:
    """True if a dimension is 0."""
    return any(equal_const_int(dim, 0) for dim in shape)


def is_dynamic_shape(shape: Iterable[Any]) -> bool:
    """True if a dimension is a symbol."""
    return any(isinstance(dim, Var) for dim in shape)


def ceil_div(a: Any, b: Any) -> Any:
    """The quotient, rounded up."""
    return simplify((as_expr(a) + (b - 1)) // b)
