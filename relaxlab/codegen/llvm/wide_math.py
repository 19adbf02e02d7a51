"""Elementary functions on float64 vectors, in the places of the C library's, which are called lane
by lane.

Ranges are reduced as for float32; what is left are Taylor series, summed until what they leave out
is below a tenth of a unit in the last place. Errors are a few units. Where a formula has no digits
left, or its result is subnormal, the C library takes over.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from relaxlab.codegen.llvm.builder import Value
from relaxlab.codegen.llvm.formula import Formula, per_lane
from relaxlab.codegen.llvm.roots import cube_root
from relaxlab.ir import expr

LN2, LN2_REST = math.log(2.0), 2.319046813846299558e-17
"""The logarithm of 2, and what the first leaves of it."""
ROUNDING, ROUNDING_BITS = 1.5 * 2.0**52, 0x4338 << 48
"""Added to a small number, it leaves the nearest integer in the last bits of the sum; its bits."""
BIAS, FRACTION = 1023, 52
"""The number that is added to exponents, and the bits behind them."""
ROOT_OF_HALF = 0x3FE6A09E667F3BCD
"""The bits of the square root of 1/2."""
SMALLEST_NORMAL = 2.0**-1022
LARGE = 700.0
"""Up to it exponentials are normal numbers, and so are their inverses."""
LARGE_ANGLE = 1e5
"""Above it the C library reduces angles."""
LOG2_E = 1.4426950408889634, 2.0355273740931033e-17
"""Parts of the binary logarithm of e."""
LOG10_2 = 0.30102999566406652, -8.5323443170571066e-14
"""Parts of the decimal logarithm of 2, the first in so few bits that its multiples are exact."""
HALF_PI = 1.5707963267948966, 6.123233995736766e-17, -1.4973849048591833e-33
"""Parts of half of pi."""
_EXPM1 = [1 / math.factorial(k) for k in range(13, 1, -1)]
"""The series of (exp(r) - 1 - r) / r**2, |r| <= ln 2 / 2."""
_LOG = [2 / (2 * k + 1) for k in range(10, 0, -1)]
"""The series of (log(1 + f) - 2 s) / s**3 in s**2, where s = f / (2 + f), and 1 + f lies between
the roots of 1/2 and 2."""
_SIN = [(-1) ** k / math.factorial(2 * k + 1) for k in range(8, 0, -1)]
_COS = [(-1) ** k / math.factorial(2 * k) for k in range(8, 1, -1)]


def _power_of_two(m: Formula, exponent: Value) -> Value:
    return m.from_bits(m.iop(expr.ShiftLeft, m.iop(expr.Add, exponent, BIAS), FRACTION))


def _whole(m: Formula, x: Value) -> tuple[Value, Value]:
    """The nearest integer, as a number and as an integer."""
    sum_ = m.add(x, ROUNDING)
    return m.sub(sum_, ROUNDING), m.iop(expr.Sub, m.bits(sum_), ROUNDING_BITS)


def _sum(m: Formula, large: Value, small: Value) -> tuple[Value, Value]:
    """A sum and what its rounding lost, of which the first is the larger or zero (Dekker's
    Fast2Sum)."""
    total = m.add(large, small)
    return total, m.add(m.sub(large, total), small)


def _reduced(m: Formula, x: Value) -> tuple[Value, Value, Value]:
    """Return n, r and y with exp(x) = 2**n * (1 + r + y) for the nearest n to x / ln 2, an integer;
    the last is small."""
    n, count = _whole(m, m.mul(x, math.log2(math.e)))
    # The difference is exact: both numbers are multiples of its last place.
    r, lost = _sum(m, m.fma(n, -LN2, x), m.mul(n, -LN2_REST))
    return count, r, _beyond(m, r, lost)


def _beyond(m: Formula, r: Value, lost: Value) -> Value:
    """exp(r + lost) - 1 - r"""
    return m.fma(m.mul(r, r), m.poly(r, _EXPM1), lost)


def _scaled(m: Formula, x: Value, exponent: Value) -> Value:
    """x * 2**exponent in two steps: a power of its own would be infinite where the product is not
    yet, and zero where the product is subnormal."""
    half = m.iop(expr.ShiftRight, exponent, 1)
    once = m.mul(x, _power_of_two(m, half))
    return m.mul(once, _power_of_two(m, m.iop(expr.Sub, exponent, half)))


def _exp(m: Formula, x: Value) -> Value:
    n, r, y = _reduced(m, m.bound(x, -746.0, 710.0))
    return _scaled(m, m.add(m.add(r, y), 1.0), n)


def _exp2(m: Formula, x: Value) -> Value:
    x = m.bound(x, -1076.0, 1025.0)
    n, count = _whole(m, x)
    part = m.sub(x, n)
    r = m.mul(part, LN2)
    lost = m.fma(part, LN2_REST, m.fma(part, LN2, m.negative(r)))
    return _scaled(m, m.add(m.add(r, _beyond(m, r, lost)), 1.0), count)


def _expm1(m: Formula, x: Value) -> Value:
    """2**n * (exp(r) - 1) + (2**n - 1): what is small is never the difference of two numbers that
    are not."""
    n, r, y = _reduced(m, m.bound(x, -50.0, 710.0))
    half = _power_of_two(m, m.iop(expr.Sub, n, 1))
    total, lost = _sum(m, m.sub(half, 0.5), m.mul(half, r))
    result = m.add(total, m.fma(half, y, lost))
    return m.select(m.op(expr.EQ, x, 0.0), x, m.add(result, result))  # keeps the sign of zero


def _sigmoid(m: Formula, x: Value) -> Value:
    e, one = _exp(m, m.negative(x)), m.num(1.0)
    result = _quotient(m, (one, m.num(0.0)), _plus(m, e, 1.0))
    # exp may be infinite: the quotient then is 0, as it should be.
    finite = m.op(expr.LT, e, math.inf)
    return m.unless(finite, result, lambda: m.div(one, m.add(e, 1.0)))


def _tanh(m: Formula, x: Value) -> Value:
    size = m.call("fabs", x)
    e = _expm1(m, m.bound(m.add(size, size), 0.0, 50.0))
    result = _quotient(m, (e, m.num(0.0)), _plus(m, e, 2.0))
    return m.call("copysign", result, x)


def _plus(m: Formula, x: Value, y: float) -> tuple[Value, Value]:
    """The sum of two positive numbers and what its rounding lost."""
    larger = m.op(expr.GT, x, y)
    return _sum(m, m.select(larger, x, y), m.select(larger, m.num(y), x))


def _quotient(m: Formula, over: Sequence[Value], under: Sequence[Value]) -> Value:
    """The quotient of sums whose second terms are small: what the first quotient leaves is divided
    in turn."""
    inverse = m.div(m.num(1.0), under[0])
    quotient = m.mul(over[0], inverse)
    minus = m.negative(quotient)
    rest = m.add(m.fma(minus, under[0], over[0]), m.fma(minus, under[1], over[1]))
    return m.fma(rest, inverse, quotient)


def _sinh(m: Formula, x: Value) -> Value:
    size = m.call("fabs", x)
    e = _expm1(m, m.bound(size, 0.0, LARGE))
    result = m.mul(m.add(e, _quotient(m, (e, m.num(0.0)), _plus(m, e, 1.0))), 0.5)
    return _unless_large(m, "sinh", size, m.call("copysign", result, x), x)


def _cosh(m: Formula, x: Value) -> Value:
    size = m.call("fabs", x)
    half = m.mul(_exp(m, size), 0.5)
    return _unless_large(m, "cosh", size, m.add(half, m.div(m.num(0.25), half)), x)


def _unless_large(
    m: Formula, symbol: str, size: Value, result: Value, x: Value, most: float = LARGE
) -> Value:
    small = m.op(expr.LE, size, most)  # false for NaN
    return m.unless(small, result, lambda: per_lane(m.b, symbol, [x]))


def _log_parts(m: Formula, x: Value) -> tuple[Value, Value, Value]:
    """Return e, f and y with x = 2**e * (1 + f) and log(1 + f) = f + y, for normal numbers."""
    bits = m.bits(x)
    exponent = m.iop(expr.ShiftRight, m.iop(expr.Sub, bits, ROOT_OF_HALF), FRACTION)
    mantissa = m.from_bits(m.iop(expr.Sub, bits, m.iop(expr.ShiftLeft, exponent, FRACTION)))
    e = m.sub(m.from_bits(m.iop(expr.Add, exponent, ROUNDING_BITS)), ROUNDING)
    f = m.sub(mantissa, 1.0)
    s = m.div(f, m.add(f, 2.0))
    z = m.mul(s, s)
    # 2 s is f - s f, of which the square of f takes the place: s f = f**2 / 2 - s f**2 / 2.
    half = m.mul(m.mul(f, f), 0.5)
    y = m.sub(m.mul(s, m.fma(z, m.poly(z, _LOG), half)), half)
    return e, f, y


def _if_normal(m: Formula, symbol: str, x: Value, result: Value) -> Value:
    usual = m.op(expr.And, m.op(expr.GE, x, SMALLEST_NORMAL), m.op(expr.LT, x, math.inf))
    return m.unless(usual, result, lambda: per_lane(m.b, symbol, [x]))


def _log(m: Formula, x: Value) -> Value:
    return _if_normal(m, "log", x, _log_and(m, x, m.num(0.0)))


def _log_and(m: Formula, x: Value, more: Value) -> Value:
    """The logarithm of a normal number, and a little more."""
    e, f, y = _log_parts(m, x)
    return m.fma(e, LN2, m.add(f, m.add(m.fma(e, LN2_REST, y), more)))


def _log2(m: Formula, x: Value) -> Value:
    e, f, y = _log_parts(m, x)
    log, lost = _sum(m, f, y)
    part = m.mul(log, LOG2_E[0])
    lost = m.fma(lost, LOG2_E[0], m.fma(log, LOG2_E[0], m.negative(part)))
    total, rest = _sum(m, e, part)
    rest = m.add(rest, m.fma(log, LOG2_E[1], lost))
    return _if_normal(m, "log2", x, m.add(total, rest))


def _log10(m: Formula, x: Value) -> Value:
    e, f, y = _log_parts(m, x)
    rest = m.fma(e, LOG10_2[1], m.mul(m.add(f, y), math.log10(math.e)))
    return _if_normal(m, "log10", x, m.fma(e, LOG10_2[0], rest))


def _log1p(m: Formula, x: Value) -> Value:
    """log(u) + c / u, where u is 1 + x rounded and c what rounding lost."""
    u = m.add(x, 1.0)
    large = m.op(expr.GT, x, 1.0)
    lost = m.select(large, m.sub(m.num(1.0), m.sub(u, x)), m.sub(x, m.sub(u, m.num(1.0))))
    result = _if_normal(m, "log", u, _log_and(m, u, m.div(lost, u)))
    return m.select(m.op(expr.EQ, x, 0.0), x, result)  # keeps the sign of zero


def _atanh(m: Formula, x: Value) -> Value:
    size = m.call("fabs", x)
    log = _log1p(m, m.div(m.add(size, size), m.sub(m.num(1.0), size)))
    return m.call("copysign", m.mul(log, 0.5), x)


def _reduced_angle(m: Formula, x: Value) -> tuple[Value, tuple[Value, Value], tuple[Value, Value]]:
    """Return n as an integer, and the sine and cosine of x - n pi / 2 for the nearest n, each in
    two parts."""
    n, count = _whole(m, m.mul(x, 2.0 / math.pi))
    # The difference is exact: both numbers are multiples of its last place.
    first = m.fma(n, -HALF_PI[0], x)
    second = m.mul(n, -HALF_PI[1])
    x, lost = _sum(m, first, second)
    lost = m.add(lost, m.fma(n, -HALF_PI[1], m.negative(second)))
    lost = m.fma(n, -HALF_PI[2], lost)
    z = m.mul(x, x)
    half = m.mul(z, 0.5)
    sine = m.fma(m.mul(m.poly(z, _SIN), z), x, m.fma(m.negative(half), lost, lost))
    cosine, rest = _sum(m, m.num(1.0), m.negative(half))
    # The rounding error of the square matters, too, where the cosine is less than one.
    squared = m.fma(m.fma(x, x, m.negative(z)), -0.5, rest)
    rest = m.fma(m.mul(z, z), m.poly(z, _COS), m.fma(m.negative(x), lost, squared))
    return count, (x, sine), (cosine, rest)


def _sin(m: Formula, x: Value) -> Value:
    return _sincos(m, x, 0)


def _cos(m: Formula, x: Value) -> Value:
    return _sincos(m, x, 1)


def _sincos(m: Formula, x: Value, shift: int) -> Value:
    """sin(x + shift*pi/2)"""
    n, sine, cosine = _reduced_angle(m, x)
    n = m.iop(expr.Add, n, shift)
    odd = m.iop(expr.NE, m.iop(expr.BitAnd, n, 1), 0)
    result = m.select(odd, m.add(*cosine), m.add(*sine))
    negative = m.iop(expr.NE, m.iop(expr.BitAnd, n, 2), 0)
    result = m.select(negative, m.negative(result), result)
    if not shift:
        result = m.select(m.op(expr.EQ, x, 0.0), x, result)  # keeps the sign of zero
    return _unless_large(m, ("sin", "cos")[shift], m.call("fabs", x), result, x, LARGE_ANGLE)


def _tan(m: Formula, x: Value) -> Value:
    n, sine, cosine = _reduced_angle(m, x)
    odd = m.iop(expr.NE, m.iop(expr.BitAnd, n, 1), 0)
    sine, cosine = _sum(m, *sine), _sum(m, *cosine)
    over = [m.select(odd, m.negative(c), s) for s, c in zip(sine, cosine, strict=True)]
    under = [m.select(odd, s, c) for s, c in zip(sine, cosine, strict=True)]
    result = m.select(m.op(expr.EQ, x, 0.0), x, _quotient(m, over, under))
    return _unless_large(m, "tan", m.call("fabs", x), result, x, LARGE_ANGLE)


FLOAT64_FUNCTIONS: dict[str, Callable[..., Value]] = {
    "exp": _exp,
    "exp2": _exp2,
    "expm1": _expm1,
    "log": _log,
    "log2": _log2,
    "log10": _log10,
    "log1p": _log1p,
    "sigmoid": _sigmoid,
    "sinh": _sinh,
    "cosh": _cosh,
    "tanh": _tanh,
    "atanh": _atanh,
    "sin": _sin,
    "cos": _cos,
    "tan": _tan,
    "cbrt": cube_root,
}
