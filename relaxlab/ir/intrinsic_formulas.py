"""Intrinsics as expressions of others, for targets to compute in their place.

Each function takes the arguments of a call and returns the expression, or None where the call is
to stay as it is.
"""

from __future__ import annotations

from relaxlab.ir import expr
from relaxlab.ir.dtypes import bits_of, element_of, is_uint, lanes_of, with_lanes
from relaxlab.ir.expr import Call, PrimExpr, Select, Var, const

MOST_EXPONENT = 5000
"""More than any power of two that changes a number of 64 bits that is finite and not zero."""


def next_after(x: PrimExpr, y: PrimExpr) -> PrimExpr:
    """The float after `x` in the direction of `y`: floats of one sign are in the order of their
    bits."""
    a, b = Var("x", x.dtype), Var("y", y.dtype)
    kind = with_lanes(f"int{bits_of(x.dtype)}", lanes_of(x.dtype))
    rises = expr.LT(a, b)
    zero = const(0, a.dtype)
    grows = Select(expr.LT(a, zero), expr.GT(a, b), rises)
    step = Select(grows, const(1, kind), const(-1, kind))
    least = Select(rises, const(1, kind), const(1 - (1 << (bits_of(x.dtype) - 1)), kind))
    bits = Select(expr.EQ(a, zero), least, Call(kind, "reinterpret", (a,)) + step)
    moved = Select(expr.EQ(a, b), b, Call(a.dtype, "reinterpret", (bits,)))
    ordered = expr.And(expr.EQ(a, a), expr.EQ(b, b))
    return expr.Let(a, x, expr.Let(b, y, Select(ordered, moved, a + b)))


def scaled_by_power(x: PrimExpr, n: PrimExpr) -> PrimExpr | None:
    """`x` times 2 to the power of `n`, with `n` as int32, which C's function takes."""
    kind = element_of(n.dtype)
    if kind == "int32":
        return None
    if bits_of(kind) >= 32:
        n = expr.Min(n, const(MOST_EXPONENT, n.dtype))
        n = n if is_uint(kind) else expr.Max(n, const(-MOST_EXPONENT, n.dtype))
    exponent = expr.Cast(with_lanes("int32", lanes_of(n.dtype)), n)
    return Call(x.dtype, "ldexp", (x, exponent))


def fixed_point_product(x: PrimExpr, y: PrimExpr, q: PrimExpr, s: PrimExpr) -> PrimExpr:
    """The product of `x` and `y`, of which `q` bits are a fraction, times 2 to the power of `s`,
    computed in int64."""
    a, b, fraction, shift = map(_wide, (x, y, q, s))
    zero = const(0, shift.dtype)
    left = expr.binary(expr.Max, shift, zero)
    right = fraction + expr.binary(expr.Max, 0 - shift, zero)
    product = expr.binary(expr.ShiftLeft, a, left) * b
    return _rounded_shift(product, right)


def fixed_point_product_per_axis(
    x: PrimExpr, y: PrimExpr, left: PrimExpr, right: PrimExpr, q: PrimExpr, shifts: PrimExpr,
    _rounds: PrimExpr,
) -> PrimExpr:  # fmt: skip
    """The product of `x` and `y`, of which `q` bits are a fraction, times 2 to the power of
    `left`, if it `shifts`, minus `right`, computed in int64."""
    product = _wide(x) * _wide(y)
    moved = expr.binary(expr.ShiftLeft, product, _wide(left))
    condition = expr.binary(expr.NE, _wide(shifts), 0)
    return _rounded_shift(Select(condition, moved, product), _wide(q) + _wide(right))


def _wide(e: PrimExpr) -> PrimExpr:
    kind = with_lanes("int64", lanes_of(e.dtype))
    return const(e.value, kind) if isinstance(e, expr.IntImm) else expr.Cast(kind, e)


def _rounded_shift(value: PrimExpr, places: PrimExpr) -> PrimExpr:
    """`value` shifted right, halves rounded up, as int32."""
    # Not 1 << (places - 1): it would shift by -1 where `places` is 0, whose half is 0.
    half = expr.binary(
        expr.ShiftRight, expr.binary(expr.ShiftLeft, const(1, value.dtype), places), 1
    )
    total = expr.binary(expr.ShiftRight, value + half, places)
    return expr.Cast(with_lanes("int32", lanes_of(value.dtype)), total)
