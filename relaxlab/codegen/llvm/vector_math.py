"""Elementary functions on float32 vectors, as polynomials.

A scalar is evaluated by the same polynomial as a lane, so vectorising never changes a result.
Range reductions and coefficients follow Cody and Waite and the Cephes library's published tables;
errors are a few units in the last place. Results below the smallest normal number become zero,
except those of `pow`, which is computed in float64.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from relaxlab.codegen.llvm.arithmetic import cast
from relaxlab.codegen.llvm.builder import Builder, Value
from relaxlab.codegen.llvm.formula import Formula, per_lane
from relaxlab.codegen.llvm.roots import cube_root, square_root
from relaxlab.codegen.llvm.wide_math import ROOT_OF_HALF, ROUNDING_BITS
from relaxlab.codegen.llvm.wide_math import ROUNDING as WIDE_ROUNDING
from relaxlab.ir import expr

_EXP_POLY = [1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1,
             5.0000001201e-1]  # fmt: skip


ROUNDING = 1.5 * 2.0**23
"""Added to a small number, it leaves the nearest integer in the last bits of the sum."""


_EXP_BY_FLOOR = [1.912487802133535e-3, 7.868424626703958e-3, 4.1854983955518635e-2,
                 1.6663191330887722e-1, 5.000022852007207e-1, 1.0, 1.0]  # fmt: skip
"""exp on [0, ln 2], by weighted least squares at Chebyshev points: 3e-9 off at most."""


def _exp(m: Formula, x: Value) -> Value:
    """exp(r) * 2**n with n rounded down. The power is zero or infinite where the result is beyond
    the range, and NaN times it is NaN, so no special case is left."""
    # There n is -127 and 128, whose biased exponents 0 and 255 are those of zero and infinity.
    return _exp_with_bias(m, m.bound(x, -88.0, 88.8), 127.0)


def _half_exp(m: Formula, x: Value) -> Value:
    """exp(x) / 2 of a number that is not negative: finite as long as sinh(x) is."""
    return _exp_with_bias(m, m.bound(x, 0.0, 89.6), 126.0)


def _exp_with_bias(m: Formula, x: Value, bias: float) -> Value:
    """exp(x) * 2**(bias - 127)."""
    # Adding the biased exponent here saves the addition of integers later; no conversion to
    # integers is needed (NOTES, *Row kernels*).
    # Subtracting one half and rounding to nearest rounds down, but an integer would be a tie: a
    # little less than a half keeps exp(0) = 1 exact.
    sum_ = m.add(m.fma(x, math.log2(math.e), -0.499999), ROUNDING + bias)
    # Exact: both are multiples of the last place of ROUNDING.
    n = m.sub(sum_, ROUNDING + bias)
    # ln 2 in two parts: the first has so few bits that its product with n is exact.
    r = m.fma(n, -0.693359375, x)
    r = m.fma(n, 2.12194440e-4, r)
    power = m.from_bits(m.iop(expr.ShiftLeft, m.bits(sum_), 23))
    return m.mul(m.poly(r, _EXP_BY_FLOOR), power)


def _exp2(m: Formula, x: Value) -> Value:
    """exp(r) * 2**n with n rounded to nearest and added to the exponent: exact for integers."""
    # Powers outside would not fit the exponent; the ends are chosen by the two selections below.
    low, high = -126.0, 127.99999
    clamped = m.bound(x, low, high)
    sum_ = m.add(clamped, ROUNDING)
    r = m.mul(m.sub(clamped, m.sub(sum_, ROUNDING)), math.log(2.0))
    p = m.fma(m.mul(r, r), m.poly(r, _EXP_POLY), m.add(r, 1.0))
    result = m.from_bits(m.iop(expr.Add, m.bits(p), m.iop(expr.ShiftLeft, m.bits(sum_), 23)))
    result = m.select(m.op(expr.LT, x, low), m.num(0.0), result)
    result = m.select(m.op(expr.GT, x, high), m.num(math.inf), result)
    return m.keep_nan(x, result)


def _expm1(m: Formula, x: Value) -> Value:
    """2**n * (exp(r) - 1) + (2**n - 1) with n rounded to nearest: what is small is never the
    difference of two numbers that are not."""
    # Half of the power, as 2**128 is infinite where the result may still be finite.
    c = m.bound(x, -30.0, 88.9)
    sum_ = m.fma(c, math.log2(math.e), ROUNDING + 126.0)
    n = m.sub(sum_, ROUNDING + 126.0)
    r = m.fma(n, -0.693359375, c)
    r = m.fma(n, 2.12194440e-4, r)
    less_one = m.fma(m.mul(r, r), m.poly(r, _EXP_POLY), r)
    half = m.from_bits(m.iop(expr.ShiftLeft, m.bits(sum_), 23))
    result = m.fma(half, less_one, m.sub(half, 0.5))
    return m.select(m.op(expr.EQ, x, 0.0), x, m.add(result, result))  # keeps the sign of zero


_LOG_POLY = [7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1,
             1.4249322787e-1, -1.6668057665e-1, 2.0000714765e-1, -2.4999993993e-1,
             3.3333331174e-1]  # fmt: skip


SMALLEST_NORMAL = 2.0**-126
_SQRT_HALF_BITS = 0x3F3504F3


def _log(m: Formula, x: Value) -> Value:
    is_normal = m.op(expr.GE, x, SMALLEST_NORMAL)
    usual = m.op(expr.And, is_normal, m.op(expr.LT, x, math.inf))
    return m.unless(usual, _log_of_normal(m, x), lambda: _log_of_any(m, x))


def _log_of_normal(m: Formula, x: Value, lost: Value | None = None) -> Value:
    """The logarithm of a positive normal number; `lost` is subtracted from its exponent."""
    e, f, y = _log_parts(m, x, lost)
    return m.fma(e, LN2_HIGH, m.add(f, y))


LN2_HIGH = 0.693359375
"""The logarithm of 2 in so few bits that multiples of it by an exponent are exact."""


def _log_parts(m: Formula, x: Value, lost: Value | None) -> tuple[Value, Value, Value]:
    """Return numbers e, f and y with log x = e * LN2_HIGH + f + y, the last of which is small."""
    bits = m.bits(x)
    # The mantissa is between sqrt(1/2) and sqrt(2), around 1, where the polynomial is accurate.
    exponent = m.iop(expr.ShiftRight, m.iop(expr.Sub, bits, _SQRT_HALF_BITS), 23)
    mantissa = m.from_bits(m.iop(expr.Sub, bits, m.iop(expr.ShiftLeft, exponent, 23)))
    e = cast(m.b, exponent, m.dtype)
    e = e if lost is None else m.sub(e, lost)
    f = m.sub(mantissa, 1.0)
    z = m.mul(f, f)
    y = m.mul(m.mul(m.poly(f, _LOG_POLY), f), z)
    # Small terms first; e * ln 2 in two parts, of which the larger is added exactly at the end.
    y = m.fma(e, -2.12194440e-4, y)
    return e, f, m.fma(z, -0.5, y)


def _log_of_any(m: Formula, x: Value) -> Value:
    # Denormals have no leading one for the exponent to count from: scaled up by 2^25 they do.
    tiny = m.op(expr.LT, x, SMALLEST_NORMAL)
    scaled = m.select(tiny, m.mul(x, 2.0**25), x)
    result = _log_of_normal(m, scaled, m.select(tiny, m.num(25.0), m.num(0.0)))
    result = m.select(m.op(expr.EQ, x, math.inf), m.num(math.inf), result)
    result = m.select(m.op(expr.EQ, x, 0.0), m.num(-math.inf), result)
    result = m.select(m.op(expr.LT, x, 0.0), m.num(math.nan), result)
    return m.keep_nan(x, result)


def _log1p(m: Formula, x: Value) -> Value:
    """log(u) + c / u, where u is 1 + x rounded and c what rounding lost."""
    u = m.add(x, 1.0)
    large = m.op(expr.GT, x, 1.0)
    # Exact if the smaller number is subtracted from the difference with the larger (Dekker's
    # Fast2Sum).
    lost = m.select(large, m.sub(m.num(1.0), m.sub(u, x)), m.sub(x, m.sub(u, m.num(1.0))))
    log = _log(m, u)
    result = m.add(log, m.div(lost, u))
    result = m.select(m.op(expr.EQ, m.call("fabs", log), math.inf), log, result)
    return m.select(m.op(expr.EQ, x, 0.0), x, result)  # keeps the sign of zero


def _log2(m: Formula, x: Value) -> Value:
    return m.mul(_log(m, x), math.log2(math.e))


def _log10(m: Formula, x: Value) -> Value:
    return m.mul(_log(m, x), math.log10(math.e))


def _sigmoid(m: Formula, x: Value) -> Value:
    # exp may be infinite: the quotient then is 0, as it should be.
    return m.div(m.num(1.0), m.add(_exp(m, m.sub(m.num(0.0), x)), 1.0))


_TANH_POLY = [-5.70498872745e-3, 2.06390887954e-2, -5.37397155531e-2, 1.33314422036e-1,
              -3.33332819422e-1]  # fmt: skip


def _tanh(m: Formula, x: Value) -> Value:
    a = m.call("fabs", x)
    e = _exp(m, m.add(a, a))
    large = m.sub(m.num(1.0), m.div(m.num(2.0), m.add(e, 1.0)))
    z = m.mul(a, a)
    small = m.fma(m.mul(m.poly(z, _TANH_POLY), z), a, a)
    # Near zero the quotient is close to one and the difference would lose digits; the polynomial is
    # Cephes's, good up to 0.625.
    result = m.select(m.op(expr.LT, a, 0.625), small, large)
    return m.call("copysign", result, x)


_SINH_POLY = [2.03721912945e-4, 8.33028376239e-3, 1.66667160211e-1]


def _sinh(m: Formula, x: Value) -> Value:
    a = m.call("fabs", x)
    half = _half_exp(m, a)
    # exp(-a) / 2 is a quarter of the inverse of exp(a) / 2: one exponential instead of two.
    large = m.sub(half, m.div(m.num(0.25), half))
    result = m.select(m.op(expr.LT, a, 1.0), _odd(m, _SINH_POLY, a), large)
    return m.call("copysign", result, x)


def _cosh(m: Formula, x: Value) -> Value:
    half = _half_exp(m, m.call("fabs", x))
    return m.add(half, m.div(m.num(0.25), half))


def _odd(m: Formula, coefficients: list[float], x: Value) -> Value:
    """x + x**3 * P(x**2)"""
    z = m.mul(x, x)
    return m.fma(m.mul(m.poly(z, coefficients), z), x, x)


LN2 = math.log(2.0)
HUGE = 1e4
"""Above it the square root of x*x + 1 or x*x - 1 is x in float32, and of larger x it overflows."""

_ASINH_POLY = [2.0122003309e-2, -4.2699340972e-2, 7.4847586088e-2, -1.6666288134e-1]
_ACOSH_POLY = [1.7596881071e-3, -7.5272886713e-3, 2.6454905019e-2, -1.1784741703e-1, 1.4142135263]
_ATANH_POLY = [1.81740078349e-1, 8.24370301058e-2, 1.46691431730e-1, 1.99782164500e-1,
               3.33337300303e-1]  # fmt: skip


def _log_of_sum(m: Formula, x: Value, unit: float) -> Value:
    """log(x + sqrt(x*x + unit)) of a positive number."""
    huge = m.op(expr.GT, x, HUGE)
    sum_ = m.add(x, m.call("sqrt", m.fma(x, x, unit)))
    log = _log(m, m.select(huge, x, sum_))
    return m.add(log, m.select(huge, m.num(LN2), 0.0))


def _asinh(m: Formula, x: Value) -> Value:
    a = m.call("fabs", x)
    small = m.op(expr.LT, a, 0.5)
    result = m.select(small, _odd(m, _ASINH_POLY, a), _log_of_sum(m, a, 1.0))
    return m.call("copysign", result, x)


def _acosh(m: Formula, x: Value) -> Value:
    z = m.sub(x, 1.0)
    near = m.mul(m.poly(z, _ACOSH_POLY), m.call("sqrt", z))  # NaN below 1
    return m.select(m.op(expr.LT, z, 0.5), near, _log_of_sum(m, x, -1.0))


def _atanh(m: Formula, x: Value) -> Value:
    a = m.call("fabs", x)
    log = _log(m, m.div(m.add(a, 1.0), m.sub(m.num(1.0), a)))
    result = m.select(m.op(expr.LT, a, 0.5), _odd(m, _ATANH_POLY, a), m.mul(log, 0.5))
    return m.call("copysign", result, x)


_ASIN_POLY = [4.2163199048e-2, 2.4181311049e-2, 4.5470025998e-2, 7.4953002686e-2, 1.6666752422e-1]
_HALF_PI = 1.5707963705062866, -4.371138828673793e-08
"""pi/2 as the sum of two float32."""


def _from_angle(m: Formula, count: float, x: Value) -> Value:
    """count * pi/2 - x"""
    high, low = (part * count for part in _HALF_PI)
    return m.add(m.sub(m.num(high), x), low)


def _asin_of_small(m: Formula, a: Value) -> tuple[Value, Value]:
    """Return whether a number that is not negative exceeds 0.5, and asin(a) or, where it does,
    asin(sqrt((1 - a) / 2)), which is (pi/2 - asin(a)) / 2."""
    large = m.op(expr.GT, a, 0.5)
    z = m.fma(a, -0.5, 0.5)
    return large, _odd(m, _ASIN_POLY, m.select(large, m.call("sqrt", z), a))


def _asin(m: Formula, x: Value) -> Value:
    large, part = _asin_of_small(m, m.call("fabs", x))
    result = m.select(large, _from_angle(m, 1, m.add(part, part)), part)
    return m.call("copysign", result, x)


def _acos(m: Formula, x: Value) -> Value:
    large, part = _asin_of_small(m, m.call("fabs", x))
    double = m.add(part, part)
    outer = m.select(m.op(expr.LT, x, 0.0), _from_angle(m, 2, double), double)
    return m.select(large, outer, _from_angle(m, 1, m.call("copysign", part, x)))


_ATAN_POLY = [8.05374449538e-2, -1.38776856032e-1, 1.99777106478e-1, -3.33329491539e-1]
TAN_PI_8 = math.tan(math.pi / 8)


def _atan_to_1(m: Formula, t: Value) -> Value:
    """atan(t) for 0 <= t <= 1; above tan(pi/8) as pi/4 + atan((t - 1) / (t + 1))."""
    near = m.op(expr.GT, t, TAN_PI_8)
    ratio = m.select(near, m.div(m.sub(t, 1.0), m.add(t, 1.0)), t)
    part = _odd(m, _ATAN_POLY, ratio)
    high, low = (half / 2 for half in _HALF_PI)
    return m.select(near, m.add(m.add(part, low), high), part)


def _atan(m: Formula, x: Value) -> Value:
    a = m.call("fabs", x)
    steep = m.op(expr.GT, a, 1.0)
    angle = _atan_to_1(m, m.select(steep, m.div(m.num(1.0), a), a))
    return m.call("copysign", m.select(steep, _from_angle(m, 1, angle), angle), x)


def _atan2(m: Formula, y: Value, x: Value) -> Value:
    """The angle in the first octant, mirrored at the diagonal and at the axes."""
    width, height = m.call("fabs", x), m.call("fabs", y)
    steep = m.op(expr.GT, height, width)
    low, high = m.select(steep, width, height), m.select(steep, height, width)
    # Two infinities are on the diagonal, two zeros on the axis.
    ratio = m.div(low, m.select(m.op(expr.EQ, high, 0.0), m.num(1.0), high))
    ratio = m.select(m.op(expr.EQ, low, math.inf), m.num(1.0), ratio)
    angle = _atan_to_1(m, ratio)
    angle = m.select(steep, _from_angle(m, 1, angle), angle)
    # By the sign bit, not by x < 0: atan2(0, -0.0) is pi.
    left = m.iop(expr.LT, m.bits(x), 0)
    angle = m.select(left, _from_angle(m, 2, angle), angle)
    return m.keep_nan(x, m.keep_nan(y, m.call("copysign", angle, y)))


LOG2_TERMS = 8
"""Terms of the series of log2 in (m - 1) / (m + 1), at most 0.172: 1e-13 of the sum is left out."""
EXP2_TERMS = 10
"""Terms of the series of 2**r, |r| <= 0.5: 7e-12 is left out."""
POWER_BITS = 1000.0
"""Beyond 2 to this power, or to its negative, every result is infinite or zero in float32."""


def _pow(m: Formula, x: Value, y: Value) -> Value:
    """2**(y * log2 |x|) in float64, whose digits suffice to round the result as if it were exact
    but for one in a million, with the sign and the exceptions of C99, section F.9.4.4."""
    wide = Formula(m.b, cast(m.b, x, "float64"))
    size, exponent = m.call("fabs", x), cast(m.b, y, "float64")
    log = _wide_log2(wide, cast(m.b, size, "float64"))
    # 1 to an infinite power is 1, and not the NaN that 0 times infinity is.
    bits = wide.select(wide.op(expr.EQ, log, 0.0), log, wide.mul(exponent, log))
    power = cast(m.b, _wide_exp2(wide, wide.bound(bits, -POWER_BITS, POWER_BITS)), "float32")
    whole = m.op(expr.EQ, m.call("trunc", y), y)
    half = m.mul(y, 0.5)
    odd = m.op(expr.And, whole, m.op(expr.NE, m.call("trunc", half), half))
    signed = m.select(odd, m.call("copysign", power, x), power)
    # Finite negative numbers have no other powers; a comparison with NaN is false.
    finite = m.op(expr.And, m.op(expr.LT, x, 0.0), m.op(expr.LT, size, math.inf))
    fraction = m.op(expr.And, finite, m.op(expr.NE, m.call("trunc", y), y))
    result = m.keep_nan(x, m.keep_nan(y, m.select(fraction, m.num(math.nan), signed)))
    one = m.op(expr.Or, m.op(expr.EQ, x, 1.0), m.op(expr.EQ, y, 0.0))
    return m.select(one, m.num(1.0), result)


def _wide_log2(m: Formula, x: Value) -> Value:
    """log2 of float64 numbers that are not negative and come from float32, so that none is
    subnormal: the exponent, and the series of the inverse hyperbolic tangent for the mantissa."""
    bits = m.bits(x)
    # The mantissa is in [sqrt(1/2), sqrt(2)): exponents are counted from its lower end.
    exponent = m.iop(expr.ShiftRight, m.iop(expr.Sub, bits, ROOT_OF_HALF), 52)
    mantissa = m.from_bits(m.iop(expr.Sub, bits, m.iop(expr.ShiftLeft, exponent, 52)))
    s = m.div(m.sub(mantissa, 1.0), m.add(mantissa, 1.0))
    series = [2 / LN2 / (2 * k + 1) for k in reversed(range(LOG2_TERMS))]
    whole = m.sub(m.from_bits(m.iop(expr.Add, exponent, ROUNDING_BITS)), WIDE_ROUNDING)
    log = m.fma(m.poly(m.mul(s, s), series), s, whole)
    log = m.select(m.op(expr.EQ, x, 0.0), m.num(-math.inf), log)
    return m.select(m.op(expr.EQ, x, math.inf), x, log)


def _wide_exp2(m: Formula, x: Value) -> Value:
    """2**x for float64 numbers between -1000 and 1000."""
    sum_ = m.add(x, WIDE_ROUNDING)
    r = m.sub(x, m.sub(sum_, WIDE_ROUNDING))
    series = [LN2**k / math.factorial(k) for k in reversed(range(EXP2_TERMS))]
    power = m.iop(expr.ShiftLeft, m.iop(expr.Add, m.bits(sum_), 1023), 52)
    return m.mul(m.poly(r, series), m.from_bits(power))


EXACT_QUOTIENT = 2.0**23
"""Below it a quotient that is rounded and truncated is the exact one, or one more."""


def _fmod(m: Formula, x: Value, y: Value) -> Value:
    """|x| - q*|y| with the sign of x, exact since it is rounded once and representable; negative by
    one |y| where rounding made q one more. The C library takes over for large quotients."""
    size, step = m.call("fabs", x), m.call("fabs", y)
    quotient = m.div(size, step)
    rest = m.fma(m.mul(m.call("trunc", quotient), -1.0), step, size)
    rest = m.select(m.op(expr.LT, rest, 0.0), m.add(rest, step), rest)
    usual = m.op(expr.And, m.op(expr.LT, quotient, EXACT_QUOTIENT), m.op(expr.LT, step, math.inf))
    result = m.call("copysign", rest, x)
    return m.unless(usual, result, lambda: per_lane(m.b, "fmodf", [x, y]))


# erf(x) = x * P(x^2) / Q(x^2) on [-3.92, 3.92]; the rational approximation Eigen and XLA publish
# for float32. Beyond it erf is 1 in float32, and has to be: gelu multiplies 1 + erf(x) by x. At
# `ERF_END` erf is 1 in float32 already, and what is computed a little more, so bounds suffice.
ERF_END = 3.912
_ERF_P = [-2.72614225801306e-10, 2.77068142495902e-08, -2.10102402082508e-06,
          -5.69250639462346e-05, -7.34990630326855e-04, -2.95459980854025e-03,
          -1.60960333262415e-02]  # fmt: skip
_ERF_Q = [-1.45660718464996e-05, -2.13374055278905e-04, -1.68282697438203e-03,
          -7.37332916720468e-03, -1.42647390514189e-02]  # fmt: skip


def _erf(m: Formula, x: Value) -> Value:
    c = m.bound(x, -ERF_END, ERF_END)
    z = m.mul(c, c)
    return m.bound(m.mul(c, m.div(m.poly(z, _ERF_P), m.poly(z, _ERF_Q))), -1.0, 1.0)


_ERFC_POLY = [-0.000400583202, -0.00122993556, 0.00131352863, 0.00863168947, -0.00805987697,
               -0.0542043, 0.164055347, -0.16603142, -0.0927639827, 1.27697837]  # fmt: skip
"""exp(x**2) * erfc(x) * (1 + 2 * x) of (x - 2) / (x + 2), for x in [0, 10.1]: by least squares with
weights that level the relative error, 1.3e-8 at most. The form is that of Shepherd and Laframboise
(Chebyshev approximation of (1 + 2x) exp(x^2) erfc x, 1981)."""


def _erfc(m: Formula, x: Value) -> Value:
    a = m.bound(m.call("fabs", x), 0.0, 10.1)  # beyond it the result is less than all numbers
    square = m.mul(a, a)
    # The rounding error of the square, up to a hundred times as large in its exponential.
    lost = m.fma(a, a, m.sub(m.num(-0.0), square))
    decay = _exp(m, m.sub(m.num(-0.0), square))
    decay = m.fma(m.sub(m.num(-0.0), decay), lost, decay)
    scaled = m.div(m.poly(m.div(m.sub(a, 2.0), m.add(a, 2.0)), _ERFC_POLY), m.fma(a, 2.0, 1.0))
    result = m.mul(scaled, decay)
    return m.select(m.op(expr.LT, x, 0.0), m.sub(m.num(2.0), result), result)


_LGAMMA_POLY = [1.810200276e-05, -3.859084544e-05, 2.385240394e-05, -5.281159466e-05,
                1.917694816e-04, -4.251818084e-04, 9.125809715e-04, -2.102230578e-03,
                4.99899869e-03, -1.238494528e-02, 3.296498768e-02, -1.003172745e-01,
                4.227843351e-01]  # fmt: skip
"""lgamma(2 + u) / (u * (u + 1)) on [-1, 1], by weighted least squares at Chebyshev points: 7e-9 off
at most. The zeros at 1 and 2 are the factors."""
_STIRLING_POLY = [7.08981433e-04, -2.774430594e-03, 8.333331319e-02]
"""Stirling's series for x >= 3, times x, of 1 / x**2: 7e-9 off at most."""
HALF_LOG_2PI = math.log(2 * math.pi) / 2
LARGE_GAMMA = 1e36
"""Above it the logarithm may overflow; the C library takes over."""


def _lgamma(m: Formula, x: Value) -> Value:
    """The logarithm of the gamma function of positive numbers; the C library takes over where there
    are others."""
    e, f, y = _log_parts(m, x, None)
    # The logarithm as the sum of a number and a small one, since much of its product is cancelled.
    whole = m.mul(e, LN2_HIGH)
    high = m.add(whole, f)
    low = m.add(m.add(m.sub(whole, high), f), y)
    below_1 = m.op(expr.LT, x, 1.0)  # lgamma(x) = lgamma(x + 1) - log x
    u = m.sub(x, m.select(below_1, m.num(1.0), 2.0))
    near = m.mul(m.mul(u, m.add(u, 1.0)), m.poly(u, _LGAMMA_POLY))
    near = m.add(near, m.select(below_1, m.sub(m.num(-0.0), m.add(high, low)), 0.0))
    factor, inverse = m.sub(x, 0.5), m.div(m.num(1.0), x)
    series = m.fma(m.poly(m.mul(inverse, inverse), _STIRLING_POLY), inverse, HALF_LOG_2PI)
    far = m.add(m.fma(factor, high, m.sub(m.num(-0.0), x)), m.fma(factor, low, series))
    usual = m.op(expr.And, m.op(expr.GE, x, SMALLEST_NORMAL), m.op(expr.LT, x, LARGE_GAMMA))
    result = m.select(m.op(expr.LT, x, 3.0), near, far)
    return m.unless(usual, result, lambda: per_lane(m.b, "lgammaf", [x]))


_SIN_POLY = [-1.9515295891e-4, 8.3321608736e-3, -1.6666654611e-1]
_COS_POLY = [2.443315711809948e-5, -1.388731625493765e-3, 4.166664568298827e-2]


LARGE_ANGLE = 1e5
"""Above it reducing an angle by a few multiplications loses digits; the C library takes over."""


def _reduced_angle(m: Formula, x: Value) -> tuple[Value, Value]:
    """Return n as an integer and x - n*pi/2, for the nearest n."""
    n = m.call("rint", m.mul(x, 2.0 / math.pi))
    r = m.fma(n, -1.5707963705062866, x)  # exact; pi/2 in three float32 parts
    r = m.fma(n, 4.371138828673793e-08, r)
    return m.to_int(n), m.fma(n, 1.7151245100058819e-15, r)


def _sin(m: Formula, x: Value) -> Value:
    return _sincos(m, x, 0)


def _cos(m: Formula, x: Value) -> Value:
    return _sincos(m, x, 1)


def _sincos(m: Formula, x: Value, shift: int) -> Value:
    """sin(x + shift*pi/2)"""
    n, r = _reduced_angle(m, x)
    quadrant = m.iop(expr.BitAnd, m.iop(expr.Add, n, shift), 3)
    z = m.mul(r, r)
    sine = m.fma(m.mul(m.poly(z, _SIN_POLY), z), r, r)
    cosine = m.fma(m.mul(z, z), m.poly(z, _COS_POLY), m.fma(z, -0.5, 1.0))
    odd = m.iop(expr.NE, m.iop(expr.BitAnd, quadrant, 1), 0)
    result = m.select(odd, cosine, sine)
    negative = m.iop(expr.GE, quadrant, 2)
    result = m.select(negative, m.sub(m.num(-0.0), result), result)
    if not shift:
        result = m.select(m.op(expr.EQ, x, 0.0), x, result)  # keeps the sign of zero
    return _of_small_angle(m, x, result, ("sinf", "cosf")[shift])


def _of_small_angle(m: Formula, x: Value, result: Value, symbol: str) -> Value:
    small = m.op(expr.LE, m.call("fabs", x), LARGE_ANGLE)  # false for NaN
    return m.unless(small, result, lambda: per_lane(m.b, symbol, [x]))


_TAN_POLY = [9.38540185543e-3, 3.11992232697e-3, 2.44301354525e-2, 5.34112807005e-2,
             1.33387994085e-1, 3.33331568548e-1]  # fmt: skip


def _tan(m: Formula, x: Value) -> Value:
    n, r = _reduced_angle(m, x)
    tangent = _odd(m, _TAN_POLY, r)
    is_odd = m.iop(expr.NE, m.iop(expr.BitAnd, n, 1), 0)
    result = m.select(is_odd, m.div(m.num(-1.0), tangent), tangent)
    result = m.select(m.op(expr.EQ, x, 0.0), x, result)  # keeps the sign of zero
    return _of_small_angle(m, x, result, "tanf")


def _rsqrt(m: Formula, x: Value) -> Value:
    return m.div(m.num(1.0), m.call("sqrt", x))


FLOAT32_FUNCTIONS: dict[str, Callable[..., Value]] = {
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
    "asinh": _asinh,
    "acosh": _acosh,
    "atanh": _atanh,
    "erf": _erf,
    "erfc": _erfc,
    "lgamma": _lgamma,
    "sin": _sin,
    "cos": _cos,
    "tan": _tan,
    "asin": _asin,
    "acos": _acos,
    "atan": _atan,
    "atan2": _atan2,
    "fmod": _fmod,
    "pow": _pow,
    "rsqrt": _rsqrt,
    "sqrt": square_root,
    "cbrt": cube_root,
}


def vector_function(
    b: Builder, name: str, formula: Callable[..., Value], args: Sequence[Value]
) -> Value:
    """Emit the named function of scalars or vectors, all of one dtype, by its formula."""
    lanes = max(x.lanes for x in args)
    args = [b.widen(x, lanes) for x in args]
    # Once for equal arguments: LLVM merges no two that each jump around rare cases, of which the 17
    # logarithms in the polynomials of `erfinv` took 0.7 of its time.
    key = (name, *map(b.materialise, args))
    return b.once(key, (), lambda: formula(Formula(b, args[0]), *args))
