"""Special functions, by series and polynomials that are as exact as float32."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import reduce

from relaxlab.frontend.emitter import Emitter, Tensor, dtype_of, shape_of
from relaxlab.frontend.pytorch.rows.elementwise import as_tensor, out_dtype, signbit
from relaxlab.frontend.pytorch.rows.table import row


def polynomial(b: Emitter, x: Tensor, coefficients: Sequence[float]) -> Tensor:
    """The polynomial with these coefficients, the highest power's first."""
    first, *rest = coefficients
    start = b.full(shape_of(x), b.const(first, dtype_of(x)))
    return reduce(lambda y, c: b.add(b.multiply(y, x), c), rest, start)


def special(name: str, fn: Callable[[Emitter, Tensor], Tensor]) -> None:
    """A row for a function of floats, under PyTorch's names for it."""
    row(f"aten.{name}.default", f"prims.{name}.default",
        lambda b, x: fn(b, b.cast(x, out_dtype(b))))  # fmt: skip


LANCZOS = (0.99999999999980993, 676.5203681218851, -1259.1392167224028, 771.32342877765313,
           -176.61502916214059, 12.507343278686905, -0.13857109526572012, 9.9843695780195716e-6,
           1.5056327351493116e-7)  # fmt: skip
"""The coefficients of Lanczos' approximation of the gamma function for g = 7 (P. Godfrey, 2001)."""


def lgamma(b: Emitter, x: Tensor) -> Tensor:
    """The logarithm of the absolute value of the gamma function, by Lanczos' approximation, and by
    reflection below 1/2."""
    low = b.less(x, 0.5)
    at = b.subtract(b.where(low, b.subtract(1.0, x), x), 1.0)
    terms = (b.divide(c, b.add(at, float(i))) for i, c in enumerate(LANCZOS) if i)
    total = reduce(b.add, terms, b.const(LANCZOS[0], dtype_of(x)))
    shifted = b.add(at, 7.5)
    power = b.subtract(b.multiply(b.add(at, 0.5), b.log(shifted)), shifted)
    value = b.add(b.add(power, b.log(total)), 0.5 * math.log(2 * math.pi))
    turn = b.subtract(x, b.floor(x))  # the sine of large multiples of pi would be noise
    sine = b.abs(b.sin(b.multiply(turn, math.pi)))
    reflected = b.subtract(b.subtract(math.log(math.pi), b.log(sine)), value)
    return b.where(b.isinf(x), b.abs(x), b.where(low, reflected, value))


special("lgamma", lgamma)


def digamma(b: Emitter, x: Tensor) -> Tensor:
    """The derivative of `lgamma`: by its recurrence to above 6, there by its asymptotic series, and
    by reflection below 1/2."""
    low = b.less(x, 0.5)
    at = b.where(low, b.subtract(1.0, x), x)
    before = reduce(b.add, (b.divide(1.0, b.add(at, float(i))) for i in range(6)))
    at = b.add(at, 6.0)
    inverse = b.divide(1.0, b.multiply(at, at))
    series = polynomial(b, inverse, (-1 / 252, 1 / 120, -1 / 12, 0.0))
    value = b.add(b.subtract(b.log(at), b.divide(0.5, at)), series)
    value = b.subtract(value, before)
    turn = b.multiply(b.subtract(x, b.floor(x)), math.pi)
    reflected = b.subtract(value, b.divide(math.pi, b.tan(turn)))
    return b.where(low, reflected, value)


ERFC = (0.17087277, -0.82215223, 1.48851587, -1.13520398, 0.27886807, -0.18628806, 0.09678418,
        0.37409196, 1.00002368, -1.26551223)  # fmt: skip
"""Chebyshev fit of log(erfc(x) exp(x^2) / t) in t = 1 / (1 + x / 2), with a relative error of
1.2e-7 (W. Press et al., Numerical Recipes, section 6.2)."""


def erfcx_of_positive(b: Emitter, x: Tensor, exponent: Tensor) -> Tensor:
    """`exp(exponent) * erfc(x) * exp(x * x)` for x from 0 on."""
    t = b.divide(1.0, b.add(b.multiply(x, 0.5), 1.0))
    return b.multiply(t, b.exp(b.add(exponent, polynomial(b, t, ERFC))))


def erfc(b: Emitter, x: Tensor) -> Tensor:
    """1 - erf(x), relatively exact where it is small."""
    size = b.abs(x)
    tail = erfcx_of_positive(b, size, b.negative(b.multiply(size, size)))
    return b.where(b.less(x, 0.5), b.subtract(1.0, b.erf(x)), tail)


def erfcx(b: Emitter, x: Tensor) -> Tensor:
    """`exp(x * x) * erfc(x)`."""
    size = b.abs(x)
    tail = erfcx_of_positive(b, size, b.multiply(size, 0.0))
    grown = b.multiply(b.exp(b.multiply(x, x)), 2.0)
    return b.where(b.less(x, 0.0), b.subtract(grown, tail), tail)


special("digamma", digamma)
special("erfc", erfc)
special("erfcx", erfcx)

ERFINV_NEAR = (2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087,
               -0.00125372503, -0.00417768164, 0.246640727, 1.50140941)  # fmt: skip
ERFINV_FAR = (-0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773,
              -0.0076224613, 0.00943887047, 1.00167406, 2.83297682)  # fmt: skip
"""M. Giles, Approximating the erfinv function, GPU Computing Gems (2012), single precision."""


def erfinv(b: Emitter, x: Tensor) -> Tensor:
    """The inverse of erf."""
    w = b.negative(b.log(b.multiply(b.subtract(1.0, x), b.add(x, 1.0))))
    near = polynomial(b, b.subtract(w, 2.5), ERFINV_NEAR)
    far = polynomial(b, b.subtract(b.sqrt(w), 3.0), ERFINV_FAR)
    value = b.multiply(b.where(b.less(w, 5.0), near, far), x)
    end = b.multiply(x, float("inf"))
    return b.where(b.equal(b.abs(x), 1.0), end, value)


row("aten.erfinv.default", "prims.erf_inv.default",
    lambda b, x: erfinv(b, b.cast(x, out_dtype(b))))  # fmt: skip


@row("aten.hypot.default", "prims.hypot.default")
def hypot(b: Emitter, x: Tensor, y: Tensor) -> Tensor:
    """The square root of the sum of squares, which are taken of numbers up to 1."""
    x, y = b.abs(as_tensor(b, x, out_dtype(b))), b.abs(as_tensor(b, y, out_dtype(b)))
    large, small = b.maximum(x, y), b.minimum(x, y)
    usual = b.logical_and(b.greater(large, 0.0), b.isfinite(large))
    ratio = b.divide(small, b.where(usual, large, 1.0))
    return b.multiply(large, b.sqrt(b.add(b.multiply(ratio, ratio), 1.0)))


row("prims.signbit.default", signbit)


@row("aten.copysign.Tensor", "aten.copysign.Scalar")
def copysign(b: Emitter, x: Tensor, y: Tensor) -> Tensor:
    dtype = out_dtype(b)
    x, y = as_tensor(b, x, dtype), as_tensor(b, y, dtype)
    size = b.abs(x)
    return b.where(signbit(b, y), b.negative(size), size)
