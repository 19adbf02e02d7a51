"""Scalar formulas that several operators share, as expressions."""

from __future__ import annotations

import math
from collections.abc import Sequence

from relaxlab.ir import expr
from relaxlab.ir.dtypes import is_float, is_int, is_uint
from relaxlab.ir.expr import ExprLike, PrimExpr

HALF = ("float16", "bfloat16")


def call(op: str, *args: PrimExpr) -> PrimExpr:
    """An intrinsic with the dtype of its first argument."""
    return expr.Call(args[0].dtype, op, args)


def cast(value: PrimExpr, dtype: str) -> PrimExpr:
    """`value` as `dtype`; to bool, whether it differs from zero."""
    if value.dtype == dtype:
        return value
    if isinstance(value, expr.IntImm | expr.FloatImm):
        return expr.const(value.value, dtype)
    if dtype == "bool":
        return expr.NE(value, expr.const(0, value.dtype))
    return expr.Cast(dtype, value)


def wide(value: PrimExpr) -> PrimExpr:
    """Half-precision values as float32, so that only the final result is rounded."""
    return cast(value, "float32") if value.dtype in HALF else value


def accumulator_of(dtype: str) -> str:
    """The dtype in which values of `dtype` are summed."""
    return "float32" if dtype in HALF else dtype


def piecewise(index: PrimExpr, ends: Sequence[PrimExpr], values: Sequence[PrimExpr]) -> PrimExpr:
    """`values[k]` where `index` is below `ends[k]` and not below `ends[k - 1]`, found by bisection:
    the expression of several hundred pieces stays shallow."""
    if len(values) == 1:
        return values[0]
    half = len(values) // 2
    low = piecewise(index, ends[:half], values[:half])
    high = piecewise(index, ends[half:], values[half:])
    return expr.if_then_else(expr.LT(index, ends[half - 1]), low, high)


def clamp(value: PrimExpr, low: ExprLike, high: ExprLike) -> PrimExpr:
    """`value` moved into [low, high]."""
    return expr.binary(expr.Max, expr.binary(expr.Min, value, high), low)


def within(indices: Sequence[PrimExpr], extents: Sequence[PrimExpr]) -> PrimExpr:
    """True where each index is from 0 to before its extent."""
    pairs = zip(indices, extents, strict=True)
    return expr.all_of([t for i, n in pairs for t in (expr.GE(i, expr.const(0)), expr.LT(i, n))])


def isnan(value: PrimExpr) -> PrimExpr:
    """True if a float is NaN."""
    return expr.Call("bool", "isnan", (value,))


def both(a: PrimExpr, b: PrimExpr) -> PrimExpr:
    """`a and b`, without constants that are true."""
    return expr.all_of((a, b))


def integer_division(cls: type[expr.BinaryOp], a: PrimExpr, b: PrimExpr) -> PrimExpr:
    """An integer quotient or remainder that never traps: 0 for a zero divisor (as NumPy), and
    wrapping for the smallest integer divided by -1."""
    if isinstance(b, expr.IntImm) and b.value > 0:
        return expr.binary(cls, a, b)
    zero, one = expr.const(0, b.dtype), expr.const(1, b.dtype)
    bad: PrimExpr = expr.EQ(b, zero)
    if is_uint(b.dtype):
        return expr.Select(bad, zero, cls(a, expr.Select(bad, one, b)))
    minus = expr.EQ(b, expr.const(-1, b.dtype))
    safe = cls(a, expr.Select(expr.Or(bad, minus), one, b))
    quotient = cls in (expr.Div, expr.FloorDiv)
    by_minus_one: PrimExpr = expr.Sub(zero, a) if quotient else zero
    return expr.Select(bad, zero, expr.Select(minus, by_minus_one, safe))


def sign(x: PrimExpr) -> PrimExpr:
    """-1, 0 or 1; NaN for NaN, and 0.0 for -0.0."""
    zero, one = expr.const(0, x.dtype), expr.const(1, x.dtype)
    # A float neither above nor below zero is 0.0, -0.0 or NaN; its square has no sign.
    rest = x * x if is_float(x.dtype) else zero
    if is_uint(x.dtype):
        return expr.Select(expr.GT(x, zero), one, zero)
    minus = expr.const(-1, x.dtype)
    return expr.Select(expr.GT(x, zero), one, expr.Select(expr.LT(x, zero), minus, rest))


def negative(x: PrimExpr) -> PrimExpr:
    """-x; the negative of 0.0 is -0.0."""
    if is_int(x.dtype):
        return expr.Sub(expr.const(0, x.dtype), x)
    return expr.Mul(x, expr.const(-1, x.dtype))


def silu(x: PrimExpr) -> PrimExpr:
    """x * sigmoid(x)."""
    return x * call("sigmoid", x)


def gelu(x: PrimExpr) -> PrimExpr:
    """x times the cumulative distribution function of the standard normal distribution at x."""
    return x * 0.5 * (call("erf", x * math.sqrt(0.5)) + 1.0)


def gelu_tanh(x: PrimExpr) -> PrimExpr:
    """`gelu` approximated by a tanh."""
    inner = (x + x * x * x * 0.044715) * math.sqrt(2 / math.pi)
    return x * 0.5 * (call("tanh", inner) + 1.0)
