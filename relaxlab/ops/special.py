"""Special functions that no library of C has, and bits as another dtype."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import NormalDist
from typing import Any, TypeAlias

import numpy as np

from relaxlab.ir import expr, graph
from relaxlab.ir.dtypes import bits_of, numpy_dtype
from relaxlab.ir.expr import PrimExpr
from relaxlab.ir.op_table import REQUIRED
from relaxlab.ir.types import TensorType, Type
from relaxlab.ops import scalar, te
from relaxlab.ops.datatype import required_dtype
from relaxlab.ops.define import TypesOf, attr, define, fail, params, tensor_arg, tensor_like
from relaxlab.ops.elementwise import unary

Array: TypeAlias = np.ndarray[Any, Any]

# --- The inverse of erf -----------------------------------------------------------------------

CENTRAL = (2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087,
           -0.00125372503, -0.00417768164, 0.246640727, 1.50140941)  # fmt: skip
TAIL = (-0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773,
        -0.0076224613, 0.00943887047, 1.00167406, 2.83297682)  # fmt: skip
"""The polynomials of M. Giles, Approximating the erfinv function (2010), in single precision: of
`w - 2.5` and of `sqrt(w) - 3`, where w is -log(1 - x * x)."""


def _polynomial(coefficients: Sequence[float], x: PrimExpr) -> PrimExpr:
    value = expr.const(coefficients[0], x.dtype)
    for c in coefficients[1:]:
        value = value * x + c
    return value


def _erfinv(x: PrimExpr) -> PrimExpr:
    """Giles' approximation; in double precision improved by two steps of Newton's method."""
    one = expr.const(1.0, x.dtype)
    w = scalar.negative(scalar.call("log1p", scalar.negative(x * x)))
    central = _polynomial(CENTRAL, w - 2.5)
    tail = _polynomial(TAIL, scalar.call("sqrt", w) - 3.0)
    value = x * expr.Select(expr.LT(w, expr.const(5.0, x.dtype)), central, tail)
    for _ in range(2 if x.dtype == "float64" else 0):
        slope = scalar.call("exp", value * value) * (math.sqrt(math.pi) / 2)
        value = value - (scalar.call("erf", value) - x) * slope
    at_end = expr.EQ(scalar.call("abs", x), one)
    return expr.Select(at_end, x * expr.const(math.inf, x.dtype), value)


def _erfinv_of(x: float) -> float:
    if not -1 < x < 1:
        return math.copysign(math.inf, x) if abs(x) == 1 else math.nan
    value = NormalDist().inv_cdf(min(max((1 + x) / 2, 1e-300), 1 - 2**-53)) / math.sqrt(2)
    for _ in range(2):
        value -= (math.erf(value) - x) * math.exp(value * value) * math.sqrt(math.pi) / 2
    return value


def _by_number(fn: Callable[[float], float]) -> Callable[[Array], Array]:
    """A function of float64 numbers on arrays."""
    return lambda x: np.asarray(np.frompyfunc(fn, 1, 1)(np.asarray(x, np.float64)), x.dtype)


unary("erfinv", _erfinv, _by_number(_erfinv_of), "floating point")


# --- The digamma function ---------------------------------------------------------------------

STEPS = 10
SERIES = (1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132)
"""B(2k) / (2k) of the asymptotic series log(x) - 1 / (2x) - sum of B(2k) / (2k x^2k)."""


def _digamma(x: PrimExpr) -> PrimExpr:
    """The asymptotic series at `STEPS` more, by psi(x) = psi(x + 1) - 1 / x; below 1/2 by the
    reflection psi(1 - x) = psi(x) + pi / tan(pi * x)."""
    zero, one = expr.const(0.0, x.dtype), expr.const(1.0, x.dtype)
    reflected = expr.LT(x, expr.const(0.5, x.dtype))
    start = expr.Select(reflected, one - x, x)
    below: PrimExpr = one / start
    for step in range(1, STEPS):
        below = below + one / (start + float(step))
    far = start + float(STEPS)
    square = one / (far * far)
    series = _polynomial(SERIES[::-1], square) * square
    value = scalar.call("log", far) - one / (far * 2.0) - series - below
    fraction = x - scalar.call("nearbyint", x)
    other = value - expr.const(math.pi, x.dtype) / scalar.call("tan", fraction * math.pi)
    pole = expr.And(expr.LE(x, zero), expr.EQ(fraction, zero))
    value = expr.Select(reflected, other, value)
    return expr.Select(pole, expr.const(math.nan, x.dtype), value)


def _digamma_of(x: float) -> float:
    if math.isnan(x) or x == -math.inf or (x <= 0 and x == math.floor(x)):
        return math.nan
    if x == math.inf:
        return x
    if x < 0:
        return _digamma_of(1 - x) - math.pi / math.tan(math.pi * (x - round(x)))
    below = 0.0
    while x < 20:
        below, x = below + 1 / x, x + 1
    series = sum(c / x ** (2 * k + 2) for k, c in enumerate(SERIES))
    return math.log(x) - 1 / (2 * x) - series - below


unary("digamma", _digamma, _by_number(_digamma_of), "floating point")

# --- Bits -------------------------------------------------------------------------------------


def _bitcast_infer(call: graph.Call, tys: TypesOf) -> Type:
    x, dtype = tensor_arg(call, tys, 0), required_dtype(call)
    if "bool" in (x.dtype, dtype):
        raise fail(call, "a bool has no bits of its own", "convert it with R.astype")
    if x.dtype is not None and bits_of(x.dtype) != bits_of(dtype):
        raise fail(call, f"{x.dtype} and {dtype} have different numbers of bits")
    return tensor_like(x, dtype)


def _bitcast_emit(call: graph.Call, out: TensorType, x: te.Tensor) -> te.Tensor:
    dtype = attr(call, "dtype")
    if dtype == x.dtype:
        return te.compute(x.shape, lambda *i: x[i], "T_bitcast")
    return te.compute(x.shape, lambda *i: expr.Call(dtype, "reinterpret", (x[i],)), "T_bitcast")


define(
    "bitcast",
    params("x", dtype=REQUIRED),
    _bitcast_infer,
    emit=_bitcast_emit,
    reference=lambda x, dtype: np.ascontiguousarray(x).view(numpy_dtype(dtype)).reshape(x.shape),
    traits=["elementwise"],
)
