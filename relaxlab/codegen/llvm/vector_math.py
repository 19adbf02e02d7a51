"""Elementary functions on float32 vectors, as polynomials.

A scalar is evaluated by the same polynomial as a lane, so vectorising never changes a result.
Range reductions and coefficients follow Cody and Waite and the Cephes library's published tables;
errors are a few units in the last place. Results below the smallest normal number become zero.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from relaxlab.codegen.llvm.arithmetic import binary, cast
from relaxlab.codegen.llvm.builder import Builder, Value, float_value, int_value, llvm_type, mangle
from relaxlab.ir import expr
from relaxlab.ir.dtypes import element_of, with_lanes


def per_lane(b: Builder, symbol: str, args: list[Value]) -> Value:
    """A scalar C function on each lane."""
    lanes = max(a.lanes for a in args)
    dtype = with_lanes(element_of(args[0].dtype), lanes)
    elem = llvm_type(element_of(dtype))
    args = [b.widen(a, lanes) for a in args]
    if lanes == 1:
        return Value(dtype, b.call(symbol, elem, [(elem, a.text or "") for a in args]))
    result = "poison"
    for i in range(lanes):
        scalars = [b.emit(f"extractelement {a.ty} {a.text}, i64 {i}") for a in args]
        one = b.call(symbol, elem, [(elem, t) for t in scalars])
        result = b.emit(f"insertelement {llvm_type(dtype)} {result}, {elem} {one}, i64 {i}")
    return Value(dtype, result)


class _Math:
    """Arithmetic on one vector shape, for writing formulas."""

    def __init__(self, b: Builder, x: Value) -> None:
        self.b, self.lanes, self.dtype = b, x.lanes, x.dtype
        self.itype = with_lanes("int32", x.lanes)

    def num(self, c: float) -> Value:
        return self.b.widen(float_value(c, "float32"), self.lanes)

    def int(self, c: int) -> Value:
        return self.b.widen(int_value(c, "int32"), self.lanes)

    def op(self, cls: type[Any], x: Value, y: Value | float) -> Value:
        return binary(self.b, cls, x, y if isinstance(y, Value) else self.num(y))

    def add(self, x: Value, y: Value | float) -> Value:
        return self.op(expr.Add, x, y)

    def sub(self, x: Value, y: Value | float) -> Value:
        return self.op(expr.Sub, x, y)

    def mul(self, x: Value, y: Value | float) -> Value:
        return self.op(expr.Mul, x, y)

    def div(self, x: Value, y: Value | float) -> Value:
        return self.op(expr.Div, x, y)

    def fma(self, x: Value, y: Value | float, z: Value | float) -> Value:
        args = [v if isinstance(v, Value) else self.num(v) for v in (x, y, z)]
        return self.call("fma", *args)

    def call(self, name: str, *args: Value) -> Value:
        pairs = [(v.ty, v.text or "") for v in args]
        text = self.b.call(f"llvm.{name}.{mangle(self.dtype)}", args[0].ty, pairs)
        return Value(self.dtype, text)

    def poly(self, x: Value, coefficients: list[float]) -> Value:
        """Horner's rule, highest power first."""
        acc = self.num(coefficients[0])
        for c in coefficients[1:]:
            acc = self.fma(acc, x, c)
        return acc

    def select(self, cond: Value, x: Value, y: Value | float) -> Value:
        other = y if isinstance(y, Value) else self.num(y)
        text = self.b.emit(
            f"select {cond.ty} {cond.text}, {x.ty} {x.text}, {other.ty} {other.text}"
        )
        return Value(x.dtype, text)

    def bits(self, x: Value) -> Value:
        text = self.b.emit(f"bitcast {x.ty} {x.text} to {llvm_type(self.itype)}")
        return Value(self.itype, text)

    def from_bits(self, x: Value) -> Value:
        text = self.b.emit(f"bitcast {x.ty} {x.text} to {llvm_type(self.dtype)}")
        return Value(self.dtype, text)

    def to_int(self, x: Value) -> Value:
        return cast(self.b, x, self.itype)

    def iop(self, cls: type[Any], x: Value, y: Value | int) -> Value:
        return binary(self.b, cls, x, y if isinstance(y, Value) else self.int(y))

    def bound(self, x: Value, lo: float, hi: float) -> Value:
        """Between bounds; NaN stays NaN."""
        x = self.select(self.op(expr.LT, x, lo), self.num(lo), x)
        return self.select(self.op(expr.GT, x, hi), self.num(hi), x)

    def keep_nan(self, x: Value, y: Value) -> Value:
        nan = self.b.emit(f"fcmp uno {x.ty} {x.text}, {x.text}")
        return self.select(Value(with_lanes("bool", self.lanes), nan), x, y)


_EXP_POLY = [1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1,
             5.0000001201e-1]  # fmt: skip


ROUNDING = 1.5 * 2.0**23
"""Added to a small number, it leaves the nearest integer in the last bits of the sum."""


_EXP_BY_FLOOR = [1.912487802133535e-3, 7.868424626703958e-3, 4.1854983955518635e-2,
                 1.6663191330887722e-1, 5.000022852007207e-1, 1.0, 1.0]  # fmt: skip
"""exp on [0, ln 2], by weighted least squares at Chebyshev points: 3e-9 off at most."""


def _exp(m: _Math, x: Value) -> Value:
    """exp(r) * 2**n with n rounded down. The power is zero or infinite where the result is beyond
    the range, and NaN times it is NaN, so no special case is left."""
    # There n is -127 and 128, whose biased exponents 0 and 255 are those of zero and infinity.
    x = m.bound(x, -88.0, 88.8)
    # Adding the biased exponent here saves the addition of integers later; no conversion to
    # integers is needed (NOTES, *Row kernels*).
    # Subtracting one half and rounding to nearest rounds down, but an integer would be a tie: a
    # little less than a half keeps exp(0) = 1 exact.
    sum_ = m.add(m.fma(x, math.log2(math.e), -0.499999), ROUNDING + 127.0)
    n = m.sub(sum_, ROUNDING + 127.0)
    # ln 2 in two parts: the first has so few bits that its product with n is exact.
    r = m.fma(n, -0.693359375, x)
    r = m.fma(n, 2.12194440e-4, r)
    power = m.from_bits(m.iop(expr.ShiftLeft, m.bits(sum_), 23))
    return m.mul(m.poly(r, _EXP_BY_FLOOR), power)


def _exp2(m: _Math, x: Value) -> Value:
    """exp(r) * 2**n with n rounded to nearest and added to the exponent: exact for integers."""
    low, high = -126.0, 127.99999
    clamped = m.bound(x, low, high)
    sum_ = m.add(clamped, ROUNDING)
    r = m.mul(m.sub(clamped, m.sub(sum_, ROUNDING)), math.log(2.0))
    p = m.fma(m.mul(r, r), m.poly(r, _EXP_POLY), m.add(r, 1.0))
    result = m.from_bits(m.iop(expr.Add, m.bits(p), m.iop(expr.ShiftLeft, m.bits(sum_), 23)))
    result = m.select(m.op(expr.LT, x, low), m.num(0.0), result)
    result = m.select(m.op(expr.GT, x, high), m.num(math.inf), result)
    return m.keep_nan(x, result)


_LOG_POLY = [7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1,
             1.4249322787e-1, -1.6668057665e-1, 2.0000714765e-1, -2.4999993993e-1,
             3.3333331174e-1]  # fmt: skip


def _log(m: _Math, x: Value) -> Value:
    tiny = m.op(expr.LT, x, 1.17549435e-38)
    scaled = m.select(tiny, m.mul(x, 2.0**25), x)  # denormals
    bits = m.bits(scaled)
    exponent = m.iop(expr.Sub, m.iop(expr.ShiftRight, bits, 23), 126)
    mantissa_bits = m.iop(expr.BitOr, m.iop(expr.BitAnd, bits, 0x007FFFFF), 0x3F000000)
    f = m.from_bits(mantissa_bits)
    e = cast(m.b, exponent, m.dtype)
    e = m.select(tiny, m.sub(e, 25.0), e)
    # The mantissa moves to [sqrt(1/2), sqrt(2)), around 1, where the polynomial is accurate.
    low = m.op(expr.LT, f, math.sqrt(0.5))
    e = m.select(low, m.sub(e, 1.0), e)
    f = m.sub(m.select(low, m.add(f, f), f), 1.0)
    z = m.mul(f, f)
    y = m.mul(m.mul(m.poly(f, _LOG_POLY), f), z)
    y = m.fma(e, -2.12194440e-4, y)
    y = m.fma(z, -0.5, y)
    result = m.fma(e, 0.693359375, m.add(f, y))
    result = m.select(m.op(expr.EQ, x, math.inf), m.num(math.inf), result)
    result = m.select(m.op(expr.EQ, x, 0.0), m.num(-math.inf), result)
    result = m.select(m.op(expr.LT, x, 0.0), m.num(math.nan), result)
    return m.keep_nan(x, result)


def _log2(m: _Math, x: Value) -> Value:
    return m.mul(_log(m, x), math.log2(math.e))


def _log10(m: _Math, x: Value) -> Value:
    return m.mul(_log(m, x), math.log10(math.e))


def _sigmoid(m: _Math, x: Value) -> Value:
    return m.div(m.num(1.0), m.add(_exp(m, m.sub(m.num(0.0), x)), 1.0))


_TANH_POLY = [-5.70498872745e-3, 2.06390887954e-2, -5.37397155531e-2, 1.33314422036e-1,
              -3.33332819422e-1]  # fmt: skip


def _tanh(m: _Math, x: Value) -> Value:
    a = m.call("fabs", x)
    e = _exp(m, m.add(a, a))
    large = m.sub(m.num(1.0), m.div(m.num(2.0), m.add(e, 1.0)))
    z = m.mul(a, a)
    small = m.fma(m.mul(m.poly(z, _TANH_POLY), z), a, a)
    # Near zero the quotient is close to one and the difference would lose digits; the polynomial is
    # Cephes's, good up to 0.625.
    result = m.select(m.op(expr.LT, a, 0.625), small, large)
    return m.call("copysign", result, x)


# erf(x) = x * P(x^2) / Q(x^2) on [-3.92, 3.92]; the rational approximation Eigen and XLA publish
# for float32. Beyond it erf is 1 in float32, and has to be: gelu multiplies 1 + erf(x) by x. At
# `ERF_END` erf is 1 in float32 already, and what is computed a little more, so bounds suffice.
ERF_END = 3.912
_ERF_P = [-2.72614225801306e-10, 2.77068142495902e-08, -2.10102402082508e-06,
          -5.69250639462346e-05, -7.34990630326855e-04, -2.95459980854025e-03,
          -1.60960333262415e-02]  # fmt: skip
_ERF_Q = [-1.45660718464996e-05, -2.13374055278905e-04, -1.68282697438203e-03,
          -7.37332916720468e-03, -1.42647390514189e-02]  # fmt: skip


def _erf(m: _Math, x: Value) -> Value:
    c = m.bound(x, -ERF_END, ERF_END)
    z = m.mul(c, c)
    return m.bound(m.mul(c, m.div(m.poly(z, _ERF_P), m.poly(z, _ERF_Q))), -1.0, 1.0)


_SIN_POLY = [-1.9515295891e-4, 8.3321608736e-3, -1.6666654611e-1]
_COS_POLY = [2.443315711809948e-5, -1.388731625493765e-3, 4.166664568298827e-2]


LARGE_ANGLE = 1e5
"""Above it reducing an angle by a few multiplications loses digits; the C library takes over."""


def _sincos(m: _Math, x: Value, shift: int) -> Value:
    """sin(x + shift*pi/2)"""
    n = m.call("rint", m.mul(x, 2.0 / math.pi))
    r = m.fma(n, -1.5707963705062866, x)  # exact; pi/2 in three float32 parts
    r = m.fma(n, 4.371138828673793e-08, r)
    r = m.fma(n, 1.7151245100058819e-15, r)
    quadrant = m.iop(expr.BitAnd, m.iop(expr.Add, m.to_int(n), shift), 3)
    z = m.mul(r, r)
    sine = m.fma(m.mul(m.poly(z, _SIN_POLY), z), r, r)
    cosine = m.fma(m.mul(z, z), m.poly(z, _COS_POLY), m.fma(z, -0.5, 1.0))
    odd = m.iop(expr.NE, m.iop(expr.BitAnd, quadrant, 1), 0)
    result = m.select(odd, cosine, sine)
    negative = m.iop(expr.GE, quadrant, 2)
    result = m.select(negative, m.sub(m.num(-0.0), result), result)
    if not shift:
        result = m.select(m.op(expr.EQ, x, 0.0), x, result)  # keeps the sign of zero
    small = m.op(expr.LE, m.call("fabs", x), LARGE_ANGLE)  # false for NaN
    return _unless(m, small, result, lambda: per_lane(m.b, ("sinf", "cosf")[shift], [x]))


def _unless(m: _Math, usual: Value, result: Value, other: Callable[[], Value]) -> Value:
    """`result` in the lanes where `usual` holds; `other` is only computed if some lane needs it."""
    b, text = m.b, usual.text
    if m.lanes > 1:
        bits = b.emit(f"bitcast {usual.ty} {text} to i{m.lanes}")
        text = b.emit(f"icmp eq i{m.lanes} {bits}, -1")
    rare, done, before = b.label("rare"), b.label("done"), b.block
    b.branch(text or "", done, rare)
    b.place(rare)
    chosen = m.select(usual, result, other())
    after = b.block
    b.jump(done)
    b.place(done)
    phi = f"phi {result.ty} [ {result.text}, %{before} ], [ {chosen.text}, %{after} ]"
    return Value(m.dtype, b.emit(phi))


def _rsqrt(m: _Math, x: Value) -> Value:
    return m.div(m.num(1.0), m.call("sqrt", x))


FLOAT32_FUNCTIONS: dict[str, Callable[[_Math, Value], Value]] = {
    "exp": _exp,
    "exp2": _exp2,
    "log": _log,
    "log2": _log2,
    "log10": _log10,
    "sigmoid": _sigmoid,
    "tanh": _tanh,
    "erf": _erf,
    "sin": lambda m, x: _sincos(m, x, 0),
    "cos": lambda m, x: _sincos(m, x, 1),
    "rsqrt": _rsqrt,
}


def float32_function(b: Builder, name: str, x: Value) -> Value:
    """Emit the named function of a float32 scalar or vector."""
    return FLOAT32_FUNCTIONS[name](_Math(b, x), x)
