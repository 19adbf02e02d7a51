"""The intrinsic functions that a scalar `Call` may name, a row each.

A row holds all that the script language, the analyses, the interpreter and the code generators know
of an intrinsic, but for the emission of those that are more than a call of one library function:
`codegen/llvm/vector_math.py` has polynomials for float32, `codegen/llvm/wide_math.py` for float64,
`codegen/llvm/expressions.py` and the `dialect.py` of each language of GPUs their special cases.
`tests/ir/test_intrinsics.py` asserts that each target either has a row or says why it has none.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np

from relaxlab.ir.dtypes import element_of, is_float, is_int
from relaxlab.ir.expr import Call, ExprLike, PrimExpr, Select, as_expr, const
from relaxlab.ir.intrinsic_formulas import (
    MOST_EXPONENT,
    fixed_point_product,
    fixed_point_product_per_axis,
    next_after,
    scaled_by_power,
)
from relaxlab.ir.node import walk
from relaxlab.ir.tvm_intrinsics import INTERPRETED, tvm_rows

Meaning: TypeAlias = Callable[..., Any]
"""A function of the NumPy dtype of the result and the values of the arguments: NumPy scalars, or
arrays whose last axis runs over the lanes of a vector. Floating-point functions are evaluated in
float64 and rounded once."""
Slopes: TypeAlias = "ExprLike | tuple[ExprLike | None, ...]"
Derivative: TypeAlias = (
    Callable[[PrimExpr, PrimExpr], Slopes]
    | Callable[[PrimExpr, PrimExpr, PrimExpr], Slopes]
    | Callable[[PrimExpr, PrimExpr, PrimExpr, PrimExpr], Slopes]
)
"""A function of the arguments and of the result, all scalar expressions: the derivatives of the
result by each argument, or by the only one; None where it is zero or does not exist."""


_KINDS: dict[str, tuple[str, Callable[[str], bool]]] = {
    "i": ("an integer", is_int), "b": ("an integer or a bool", lambda d: is_int(d) or d == "bool"),
    "f": ("a float", is_float),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Intrinsic:
    """An intrinsic function.

    doc:     what it computes, of `x`, `y` and `z`.
    arity:   of its arguments; -1 takes any number.
    result:  where the result's dtype comes from: `same` as all arguments, the `first`, `second` or
             `last` argument, `given` by whoever builds the call, or the dtype itself.
    kinds:   of the arguments, a letter each: `i` for an integer, `b` for an integer or a bool, `f`
             for a float; any where there is none.
    floats:  True for a function of fractions: a literal integer in `T.exp(1)` becomes a float.
    flops:   floating-point operations per lane, as `analysis.costs` counts them; moves, tests and
             operations on bits are none.
    costly:  True where a result is rather stored than computed again: it takes as long as a dozen
             additions or more (`exp` has 16 instructions, NOTES, *Chains that memory bounds*).
    pure:    False if a call does more than return a value.
    meaning: the function in NumPy; None where an executor has to know more than values.
    derivative: its derivatives, or the reason why there are none; calls that do more than return a
             value need neither.
    formula: the expression that targets compute in place of a call; None where there is none.
    c:       the function of C's library, with an `f` behind it for float32. CUDA has the same.
    llvm:    LLVM's intrinsic of floating-point numbers, without `llvm.`.
    cuda, wgsl: CUDA's and WGSL's functions of float32 where they are others than C's; those of
             WGSL that have a type in their names are in `codegen/wgsl/prelude.py`.
    absent:  targets (`interpreter`, `llvm`, `cuda`, `wgsl`) that do not have it, with the reason.
    """

    name: str
    doc: str
    arity: int = 1
    result: str = "same"
    kinds: str = ""
    floats: bool = False
    flops: int = 1
    costly: bool = False
    pure: bool = True
    meaning: Meaning | None = None
    derivative: Derivative | str = ""
    formula: Callable[..., PrimExpr | None] | None = None
    c: str = ""
    llvm: str = ""
    cuda: str = ""
    wgsl: str = ""
    absent: Mapping[str, str] = field(default_factory=dict[str, str])

    def dtype(self, args: Sequence[PrimExpr]) -> str | None:
        """The result's dtype; None where the arguments do not decide it."""
        if self.result not in ("same", "first", "second", "last", "given"):
            return self.result
        place = {"second": 1, "last": -1}.get(self.result, 0)
        if self.result == "given" or len(args) <= max(place, 0):
            return None
        return args[place].dtype

    def problem(self, args: Sequence[PrimExpr]) -> str | None:
        """The reason why these cannot be the arguments of a call; None if they can."""
        if self.arity not in (-1, len(args)):
            return f"{self.name} takes {self.arity} operands, not {len(args)}"
        for a, kind in zip(args, self.kinds, strict=False):
            wanted, fits = _KINDS[kind]
            if not fits(element_of(a.dtype)):
                return f"{self.name} takes {wanted}, not {a}, which is {a.dtype}"
        return None

    def derivatives(
        self, args: Sequence[PrimExpr], result: PrimExpr
    ) -> tuple[PrimExpr | None, ...]:
        """The derivatives of the result of a call by each of its arguments. Raises ValueError where
        there are none."""
        if isinstance(self.derivative, str):
            raise ValueError(f"{self.name} has no derivatives: {self.derivative}")
        slopes: Callable[..., Slopes] = self.derivative
        found = slopes(*args, result)
        each = found if isinstance(found, tuple) else (found,)
        return tuple(None if d is None else as_expr(d, result.dtype) for d in each)


def rounded(fn: Callable[..., Any]) -> Meaning:
    """A NumPy function of floats, evaluated in float64 and rounded once."""

    def meaning(dtype: Any, *args: Any) -> Any:
        return fn(*[np.asarray(a, np.float64) for a in args]).astype(dtype)[()]

    return meaning


def _exact(fn: Callable[..., Any]) -> Meaning:
    def meaning(dtype: Any, *args: Any) -> Any:
        result: Any = np.asarray(fn(*args))
        return result.astype(dtype)[()]

    return meaning


def _erf(x: Any) -> Any:
    return np.asarray(np.frompyfunc(math.erf, 1, 1)(x), np.float64)


def _erfc(x: Any) -> Any:
    return np.asarray(np.frompyfunc(math.erfc, 1, 1)(x), np.float64)


def _lgamma_of(x: float) -> float:
    if x == -math.inf or (x <= 0 and x == math.floor(x)):
        return math.inf  # a pole, where Python raises
    return math.lgamma(x)


def _lgamma(x: Any) -> Any:
    return np.asarray(np.frompyfunc(_lgamma_of, 1, 1)(x), np.float64)


def _exp10(x: Any) -> Any:
    return np.power(10.0, x)


def _rsqrt(x: Any) -> Any:
    return 1.0 / np.sqrt(x)


def _sigmoid(x: Any) -> Any:
    return np.exp(-np.logaddexp(0.0, -x))


def _round_half_away(x: Any) -> Any:
    # 0.49999999999999994 + 0.5 rounds up to 1, so compare the fraction instead of adding.
    whole: Any = np.trunc(x)
    return whole + np.where(np.abs(x - whole) >= 0.5, np.sign(x), -0.0)  # -0.0 + -0.0 is -0.0


def _popcount(x: Any) -> Any:
    bits: Any = np.asarray(x)  # NumPy counts the bits of the absolute value
    return np.bitwise_count(bits.astype(f"u{bits.dtype.itemsize}"))


def _leading_zeros(x: Any) -> Any:
    bits: Any = np.asarray(x)
    width = 8 * bits.dtype.itemsize
    bits = bits.astype(f"u{bits.dtype.itemsize}")
    for step in (1, 2, 4, 8, 16, 32):
        bits = bits | (bits >> min(step, width - 1))  # all bits below the first one
    return width - np.bitwise_count(bits).astype(np.int32)


def _next_after(dtype: Any, x: Any, y: Any) -> Any:
    a, b = np.asarray(x, dtype), np.asarray(y, dtype)
    return np.where(a == b, b, np.nextafter(a, b))[()]  # NumPy keeps the sign of a float16 zero


def _ldexp(dtype: Any, x: Any, n: Any) -> Any:
    exponent = np.clip(np.asarray(n), -MOST_EXPONENT, MOST_EXPONENT).astype(np.int32)
    return np.ldexp(np.asarray(x, np.float64), exponent).astype(dtype)[()]


def _fixed_point(dtype: Any, x: Any, y: Any, q: Any, s: Any) -> Any:
    left, right = np.maximum(s, 0), np.maximum(np.negative(s, dtype=np.int64), 0)
    return _fixed_point_per_axis(dtype, np.int64(x) << left, y, 0, right, q, 0, 1)


def _fixed_point_per_axis(
    dtype: Any, x: Any, y: Any, left: Any, right: Any, q: Any, shifts: Any, _rounds: Any
) -> Any:
    numbers = (np.asarray(v, np.int64) for v in (x, y, left, right, q))
    a, b, up, down, fraction = numbers
    product, places = (a * b) << np.where(shifts, up, 0), fraction + down
    half = (np.int64(1) << places) >> 1
    return ((product + half) >> places).astype(dtype)[()]


def _pow(dtype: Any, base: Any, exponent: Any) -> Any:
    if np.dtype(dtype).kind in "iu":
        return np.power(base, exponent).astype(dtype)
    return rounded(np.power)(dtype, base, exponent)


def _multiply_add(a: Any, b: Any, c: Any) -> Any:
    return a * b + c


def _fma_once(a: float, b: float, c: float) -> float:
    if not (math.isfinite(a) and math.isfinite(b) and math.isfinite(c)):
        return a * b + c
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    if exact == 0:
        return a * b + c
    try:
        return float(exact)
    except OverflowError:
        return math.inf if exact > 0 else -math.inf


def _fma(dtype: Any, a: Any, b: Any, c: Any) -> Any:
    if np.dtype(dtype).kind in "iu":
        return (a * b + c).astype(dtype)
    if np.dtype(dtype) == np.float64:
        return np.asarray(np.frompyfunc(_fma_once, 3, 1)(a, b, c), np.float64)[()]
    # The product of two floats of at most 24 bits is exact in float64.
    return rounded(_multiply_add)(dtype, a, b, c)


def _reinterpret(dtype: Any, value: Any) -> Any:
    array = np.ascontiguousarray(value)
    if array.dtype.itemsize == np.dtype(dtype).itemsize:
        return array.view(dtype).reshape(np.shape(value))[()]
    lanes = np.atleast_1d(array).view(dtype)
    return lanes[0] if lanes.shape == (1,) else lanes


def _fold(fn: Callable[..., Any]) -> Meaning:
    """The lanes of a vector combined from first to last, rounded at each step."""

    def combined(dtype: Any, value: Any) -> Any:
        lanes = np.asarray(value).astype(dtype)
        result = lanes[0]
        for lane in lanes[1:]:
            result = fn(result, lane)
        return result

    return combined


def _shuffle(dtype: Any, x: Any, y: Any, *lanes: Any) -> Any:
    return np.concatenate([x, y])[[int(n) for n in lanes]].astype(dtype)


def _shuffle_all(dtype: Any, count: Any, *args: Any) -> Any:
    parts, lanes = args[: int(count)], [int(n) for n in args[int(count) :]]
    joined = np.concatenate([np.atleast_1d(p) for p in parts])[lanes].astype(dtype)
    return joined if len(lanes) > 1 else joined[0]


def _call(name: str, *args: PrimExpr) -> PrimExpr:
    return Call(args[0].dtype, name, args)


def _gaussian(x: PrimExpr, r: PrimExpr) -> PrimExpr:
    """The derivative of the error function."""
    return 2 / math.sqrt(math.pi) * _call("exp", -(x * x))


def _atan2_by(y: PrimExpr, x: PrimExpr, r: PrimExpr) -> tuple[PrimExpr, PrimExpr]:
    square = y * y + x * x
    return x / square, -(y / square)


def _sign(x: PrimExpr, r: PrimExpr) -> PrimExpr:
    return Select(x < 0, const(-1, x.dtype), const(1, x.dtype))


def _copysign_by(x: PrimExpr, y: PrimExpr, r: PrimExpr) -> tuple[PrimExpr, None]:
    same, turned = const(1, r.dtype), const(-1, r.dtype)
    return Select(x < 0, Select(r < 0, same, turned), Select(r < 0, turned, same)), None


def no_slope(*values: PrimExpr) -> tuple[None, ...]:
    """The derivatives of a function that is constant between its jumps."""
    return (None,) * (len(values) - 1)


def _function(
    name: str, doc: str, fn: Callable[..., Any], derivative: Derivative, *, c: str | None = None,
    cuda: str = "", wgsl: str = "", llvm: str = "", arity: int = 1,
) -> Intrinsic:  # fmt: skip
    """The row of a costly function of fractions; C's function has its name unless `c` is given."""
    return Intrinsic(
        name, doc, arity, floats=True, costly=True, meaning=rounded(fn), derivative=derivative,
        c=name if c is None else c, cuda=cuda, wgsl=wgsl, llvm=llvm,
    )  # fmt: skip


def _library(
    name: str, doc: str, fn: Callable[..., Any], derivative: Derivative | str, arity: int = 1
) -> Intrinsic:
    """The row of a costly function that only libraries have."""
    return Intrinsic(
        name, doc, arity, floats=True, costly=True, meaning=rounded(fn), derivative=derivative,
        c=name,
        absent={"wgsl": "WGSL has no such function"},
    )  # fmt: skip


def _rounding(
    name: str, doc: str, fn: Callable[..., Any], c: str = "", wgsl: str = "",
    derivative: Derivative = no_slope,
) -> Intrinsic:  # fmt: skip
    """The row of a function of floats that is an instruction; C's and LLVM's have its name, or
    `c`."""
    return Intrinsic(
        name, doc, meaning=rounded(fn), derivative=derivative, c=c or name, llvm=c or name,
        wgsl=wgsl,
    )  # fmt: skip


def _test(name: str, doc: str, fn: Callable[..., Any]) -> Intrinsic:
    return Intrinsic(name, doc, result="bool", flops=0, meaning=_exact(fn), derivative=no_slope)


def _lanes(kind: str, doc: str, fn: Callable[..., Any]) -> Intrinsic:
    text = f"{doc} of a vector, by `T.call_intrin`."
    return Intrinsic(
        f"vector_reduce_{kind}", text, result="given", meaning=_fold(fn), derivative=_OF_LANES,
        absent=_NO_VECTORS,
    )  # fmt: skip


_OF_LANES = "the derivatives by the lanes of a vector are no scalar expressions"
_OF_BITS = "a function of bits, which have no derivatives"
_OF_NAMES = "a function that only its name is known of"
_GPUS = ("cuda", "wgsl")
_NO_VECTORS: dict[str, str] = {gpu: "a thread of a GPU has no vectors" for gpu in _GPUS}
_ON_CPUS: dict[str, str] = {gpu: "an instruction or a function of a CPU" for gpu in _GPUS}
_NO_WIDE = {"wgsl": "WGSL has no integers of 64 bits"}
_NO_BLOCKS = {"llvm": "loops of a CPU are no threads of a block"}
_APPROXIMATE = {
    "llvm": "an approximation of NVIDIA's GPUs",
    "wgsl": "an approximation of NVIDIA's GPUs",
}
_SIDE_BY_SIDE = {
    **_NO_BLOCKS,
    "interpreter": "threads run one after the other; the SIMT interpreter has it",
    "wgsl": "not every GPU of WebGPU has subgroups",
}
_WARPS = {
    "llvm": "an instruction of NVIDIA's GPUs",
    "wgsl": "an instruction of NVIDIA's GPUs",
    "interpreter": "threads run one after the other, tensor intrinsics as what they describe",
}

_OF_TVM: dict[str, str] = dict.fromkeys(
    ("interpreter", "llvm", *_GPUS), "works on structures of TVM; a meaning can be registered"
)
_OF_TVM_BUT: dict[str, str] = dict.fromkeys(
    ("llvm", *_GPUS), "is for the passes of TVM; the interpreter has it"
)

INTRINSICS: dict[str, Intrinsic] = {
    i.name: i
    for i in (
        *(Intrinsic(name, doc, -1, dtype, flops=0, pure=False,
                    absent=_OF_TVM_BUT if name in INTERPRETED else _OF_TVM)
          for name, doc, dtype in tvm_rows()),
        _function("exp", "The exponential.", np.exp, lambda x, r: r),
        _function("exp2", "2 to the power of `x`.", np.exp2, lambda x, r: math.log(2) * r),
        _function("exp10", "10 to the power of `x`.", _exp10,
                  lambda x, r: math.log(10) * r, wgsl="exp10_f32"),
        Intrinsic("fast_exp", "The exponential, in float32, by the approximation of a GPU: off by "
                  "one part in a million where `x` is above -16; 0 below -88.", costly=True,
                  meaning=rounded(np.exp), derivative=lambda x, r: r, absent=_APPROXIMATE),
        Intrinsic("fast_divide", "`x / y` in float32, off by two units in the last place; 0 where "
                  "`y` is above 2 to the power of 126.", 2, meaning=rounded(np.divide),
                  derivative=lambda x, y, r: (1 / y, -(r / y)), absent=_APPROXIMATE),
        _function("log", "The natural logarithm.", np.log, lambda x, r: 1 / x),
        _function("log2", "The logarithm to base 2.", np.log2, lambda x, r: 1 / (math.log(2) * x)),
        _function("log10", "The logarithm to base 10.", np.log10,
                  lambda x, r: 1 / (math.log(10) * x), wgsl="log10_f32"),
        _function("log1p", "The natural logarithm of `1 + x`.", np.log1p,
                  lambda x, r: 1 / (x + 1), wgsl="log1p_f32"),
        _function("sqrt", "The square root.", np.sqrt, lambda x, r: 0.5 / r, llvm="sqrt"),
        _function("rsqrt", "One divided by the square root.", _rsqrt,
                  lambda x, r: -0.5 * (r / x), c="", cuda="rsqrt", wgsl="inverseSqrt"),
        _function("sin", "The sine.", np.sin, lambda x, r: _call("cos", x)),
        _function("cos", "The cosine.", np.cos, lambda x, r: -_call("sin", x)),
        _function("tan", "The tangent.", np.tan, lambda x, r: r * r + 1),
        _function("asin", "The inverse sine.", np.arcsin,
                  lambda x, r: _call("rsqrt", 1 - x * x), wgsl="arcsine_f32"),
        _function("acos", "The inverse cosine.", np.arccos,
                  lambda x, r: -_call("rsqrt", 1 - x * x), wgsl="arccosine_f32"),
        _function("atan", "The inverse tangent.", np.arctan, lambda x, r: 1 / (x * x + 1)),
        _function("sinh", "The hyperbolic sine.", np.sinh, lambda x, r: _call("cosh", x)),
        _function("cosh", "The hyperbolic cosine.", np.cosh, lambda x, r: _call("sinh", x)),
        _function("tanh", "The hyperbolic tangent.", np.tanh, lambda x, r: 1 - r * r),
        _function("asinh", "The inverse hyperbolic sine.", np.arcsinh,
                  lambda x, r: _call("rsqrt", x * x + 1)),
        _function("acosh", "The inverse hyperbolic cosine.", np.arccosh,
                  lambda x, r: _call("rsqrt", x * x - 1)),
        _function("atanh", "The inverse hyperbolic tangent.", np.arctanh,
                  lambda x, r: 1 / (1 - x * x)),
        _function("erf", "The error function.", _erf, _gaussian, wgsl="erf_f32"),
        _library("erfc", "One minus the error function, exact for large `x`.", _erfc,
                  lambda x, r: -_gaussian(x, r)),
        _library("expm1", "The exponential minus one, exact for small `x`.", np.expm1,
                  lambda x, r: r + 1),
        _library("lgamma", "The logarithm of the absolute value of the gamma function.", _lgamma,
                  "the digamma function is none of these"),
        _library("cbrt", "The cube root.", np.cbrt, lambda x, r: r / (3 * x)),
        _library("hypot", "The distance of the point (x, y) from the origin.", np.hypot,
                 lambda x, y, r: (x / r, y / r), 2),
        _function("sigmoid", "The logistic function `1 / (1 + exp(-x))`.", _sigmoid,
                  lambda x, r: r * (1 - r), c="",
                  wgsl="sigmoid_f32"),
        _function("atan2", "The angle of the point (y, x), in radians.", np.arctan2,
                  _atan2_by, arity=2),
        _function("fmod", "The remainder of floating-point division: it has the sign of `x`.",
                  np.fmod, lambda x, y, r: (1, -_call("trunc", x / y)), wgsl="fmod_f32", arity=2),
        Intrinsic("pow", "`x` to the power of `y`.", 2, costly=True, meaning=_pow,
                  derivative=lambda x, y, r: (y * _call("pow", x, y - 1), r * _call("log", x)),
                  c="pow"),
        Intrinsic("fma", "`x * y + z` with one rounding.", 3, flops=2, meaning=_fma,
                  derivative=lambda x, y, z, r: (y, x, 1), c="fma"),
        _rounding("floor", "The largest integer that is not above `x`.", np.floor),
        _rounding("ceil", "The smallest integer that is not below `x`.", np.ceil),
        _rounding("round", "The nearest integer; halves go away from zero.", _round_half_away,
                  wgsl="round_half_away_f32"),
        _rounding("trunc", "`x` rounded toward zero.", np.trunc),
        _rounding("nearbyint", "The nearest integer; halves go to the even neighbour.", np.rint,
                  "rint", wgsl="round"),
        _rounding("fabs", "The absolute value.", np.abs, derivative=_sign),
        Intrinsic("copysign", "The size of `x` with the sign of `y`, a zero or NaN too.", 2,
                  flops=0, meaning=rounded(np.copysign), derivative=_copysign_by, c="copysign",
                  llvm="copysign", absent={"wgsl": "WGSL does not keep the sign of every zero"}),
        Intrinsic("nextafter", "The next float after `x` in the direction of `y`.", 2, kinds="ff",
                  flops=0, meaning=_next_after, derivative=lambda x, y, r: (1, None),
                  formula=next_after, absent={"wgsl": "WGSL may take the smallest numbers for 0"}),
        Intrinsic("ldexp", "`x` times 2 to the power of the integer `y`.", 2, "first", "fi",
                  floats=True, costly=True, meaning=_ldexp, formula=scaled_by_power,
                  derivative=lambda x, y, r: (_call("ldexp", const(1, x.dtype), y), None),
                  c="ldexp", absent={"wgsl": "WGSL has exponents of up to 128 only"}),
        Intrinsic("abs", "The absolute value.", meaning=_exact(np.abs), derivative=_sign),
        Intrinsic("bitwise_not", "The bitwise complement; `~x` means the same.", kinds="b",
                  flops=0,
                  meaning=_exact(np.invert), derivative=_OF_BITS),
        Intrinsic("popcount", "The number of bits that are 1.", kinds="b", flops=0,
                  meaning=_exact(_popcount), derivative=_OF_BITS),
        Intrinsic("clz", "The number of bits before the first that is 1, of 0 all, as int32.",
                  1, "int32", "i", flops=0, meaning=_exact(_leading_zeros), derivative=_OF_BITS),
        Intrinsic("q_multiply_shift", "The product of the integers `x` and `y`, of which `z` bits "
                  "are a fraction, times 2 to the power of the fourth argument: in int64, halves "
                  "rounded up, as int32.", 4, "int32", "iiii", flops=0, meaning=_fixed_point,
                  derivative=_OF_BITS, formula=fixed_point_product, absent=_NO_WIDE),
        Intrinsic("q_multiply_shift_per_axis", "The product of the integers `x` and `y`, shifted "
                  "left by `z` and right by the fourth argument and the bits of the fraction, "
                  "which follow, then whether to shift left; the last argument means nothing. In "
                  "int64, halves rounded up, as int32.", 7, "int32", "iiiiibb", flops=0,
                  meaning=_fixed_point_per_axis, derivative=_OF_BITS,
                  formula=fixed_point_product_per_axis, absent=_NO_WIDE),
        _test("isnan", "True for NaN.", np.isnan),
        _test("isinf", "True for an infinity.", np.isinf),
        _test("isfinite", "True for neither an infinity nor NaN.", np.isfinite),
        Intrinsic("if_then_else", "`y` where the condition `x` holds, else `z`: only the chosen "
                  "one is evaluated.", 3, "last", flops=0, derivative=lambda x, y, z, r: (
                      None, Select(x, const(1, r.dtype), const(0, r.dtype)),
                      Select(x, const(0, r.dtype), const(1, r.dtype)))),
        Intrinsic("likely", "The same condition, said to hold nearly always.", flops=0,
                  derivative="a condition is no number"),
        Intrinsic("reinterpret", "The same bits as another dtype.", result="given", flops=0,
                  meaning=_reinterpret, derivative=_OF_BITS),
        _lanes("add", "The sum of the lanes", np.add),
        _lanes("mul", "The product of the lanes", np.multiply),
        _lanes("max", "The largest lane", np.maximum),
        _lanes("min", "The smallest lane", np.minimum),
        Intrinsic("vector_shuffle", "The lanes of two vectors, those of `x` before those of `y`, "
                  "whose constant numbers follow, by `T.call_intrin`.", -1, "given", flops=0,
                  meaning=_shuffle, derivative=_OF_LANES, absent=_NO_VECTORS),
        Intrinsic("shuffle", "The lanes of several vectors or scalars, as many as the first "
                  "argument says, whose constant numbers follow; `T.Shuffle` writes it.", -1,
                  "given", flops=0, meaning=_shuffle_all, derivative=_OF_LANES,
                  absent={**_NO_VECTORS, "llvm": "`vector_shuffle` is the instruction"}),
        # llvm_intrin(StringImm name, args…), call_extern(StringImm symbol, args…); see BY_NAME
        Intrinsic("llvm_intrin", "A call of an LLVM intrinsic; `T.call_llvm_intrin` writes it.", -1,
                  "given", derivative=_OF_NAMES, absent=_ON_CPUS),
        Intrinsic("call_extern", "A call of a C function of that name.", -1, "given", pure=False,
                  absent=_ON_CPUS),
        Intrinsic("call_pure_extern", "A call of a C function that returns a value alone.", -1,
                  "given", derivative=_OF_NAMES, absent=_ON_CPUS),
        Intrinsic("address_of", "The address of an element, as a handle.", result="handle",
                  derivative="an address is no number", absent=_ON_CPUS),
        Intrinsic("prefetch", "A hint that the cache line at a handle will be read.",
                  result="given", flops=0, pure=False),
        Intrinsic("tvm_storage_sync", "A barrier of the threads of a GPU block.", result="int32",
                  flops=0, pure=False, absent=_NO_BLOCKS),
        Intrinsic("warp_shuffle_xor", "The value in the lane of the warp whose number is one's own "
                  "xor the mask.", 2, "first", flops=0, pure=False, absent=_SIDE_BY_SIDE),
        Intrinsic("dp4a_u8s8", "Adds the products of four unsigned bytes at `y` and four signed "
                  "ones at `z` to the int32 at `x`; sums wrap around.", 3, "void", flops=0,
                  pure=False, absent=_WARPS),
        # From `ldmatrix` on, of the lanes of a warp together.
        Intrinsic("cp_async", "A copy of `z` bytes, 4, 8 or 16, from main memory at `y` to shared "
                  "memory at `x`, which the thread does not wait for.", 3, "void", flops=0,
                  pure=False, absent=_WARPS),
        Intrinsic("cp_async_commit", "The end of a group of a thread's asynchronous copies.", 0,
                  "void", flops=0, pure=False, absent=_WARPS),
        Intrinsic("cp_async_wait", "Waits until at most `x` groups of a thread's asynchronous "
                  "copies, the last ones, are under way.", 1, "void", flops=0, pure=False,
                  absent=_WARPS),
        Intrinsic("ldmatrix", "Four 8 x 8 matrices of 16-bit elements from shared memory: lane l "
                  "gives at `y` the address of row l % 8 of matrix l // 8, and gets at `x` the "
                  "elements 2 * (l % 4) and 2 * (l % 4) + 1 of row l // 4 of each.", 2, "void",
                  flops=0, pure=False, absent=_WARPS),
        Intrinsic("ldmatrix_trans", "As `ldmatrix`, of the transposed matrices.", 2, "void",
                  flops=0, pure=False, absent=_WARPS),
        Intrinsic("mma_m16n8k16", "At `x`, a 16 x 8 tile of float32, plus the product of a 16 x 16 "
                  "and a 16 x 8 tile at `y` and `z`, in the layout of PTX's mma.sync: 4, 8 and 4 "
                  "elements of each lane.", 3, "void", flops=128, pure=False, absent=_WARPS),
        # Instructions of sm_90a.
        Intrinsic("mbarrier_init", "Makes a barrier of `y` arrivals of an element of uint64 at `x` "
                  "in shared memory.", 2, "void", flops=0, pure=False, absent=_WARPS),
        Intrinsic("mbarrier_fence", "Makes barriers that were initialised known to asynchronous "
                  "copies.", 0, "void", flops=0, pure=False, absent=_WARPS),
        Intrinsic("mbarrier_arrive", "An arrival at the barrier at `x`.", 1, "void", flops=0,
                  pure=False, absent=_WARPS),
        Intrinsic("mbarrier_expect", "An arrival at the barrier at `x`, whose phase ends when `y` "
                  "more bytes were copied, too.", 2, "void", flops=0, pure=False, absent=_WARPS),
        Intrinsic("mbarrier_wait", "Waits for the end of the last phase of parity `y` of the "
                  "barrier at `x`.", 2, "void", flops=0, pure=False, absent=_WARPS),
        Intrinsic("tma_load", "A copy to shared memory, at the first argument, of a box of an "
                  "array in main memory, from the element at the second one on, of the extents "
                  "that follow; the barrier at the last argument counts its bytes. The box is "
                  "rows of 128 bytes, whose 16-byte parts are swizzled, and has zeros outside of "
                  "the array.", -1, "void", flops=0, pure=False, absent=_WARPS),
        Intrinsic("wgmma_fence", "Lets tensor instructions of a warpgroup use registers and shared "
                  "memory that were written before.", 0, "void", flops=0, pure=False,
                  absent=_WARPS),
        Intrinsic("wgmma", "Adds to a tile of float32 of 64 rows, in the registers of 128 threads "
                  "from that at the first argument on, the product of two tiles, at the next ones: "
                  "swizzled in shared memory, the left one in registers or there. Then come the "
                  "number of columns, 1 if the right tile is row by row, the bytes from 64 columns "
                  "to the next ones in it, and 0 if the sums begin here. The warpgroup does not "
                  "wait for it.", -1, "void", flops=0,
                  pure=False, absent=_WARPS),
        Intrinsic("wgmma_commit", "The end of a group of a warpgroup's tensor instructions.", 0,
                  "void", flops=0, pure=False, absent=_WARPS),
        Intrinsic("wgmma_wait", "Waits until at most `x` groups of a warpgroup's tensor "
                  "instructions, the last ones, are under way.", 1, "void", flops=0, pure=False,
                  absent=_WARPS),
        Intrinsic("setmaxnreg_inc", "Raises the registers of each thread of a warpgroup to `x`.", 1,
                  "void", flops=0, pure=False, absent=_WARPS),
        Intrinsic("setmaxnreg_dec", "Lowers the registers of each thread of a warpgroup to `x`.", 1,
                  "void", flops=0, pure=False, absent=_WARPS),
    )
}  # fmt: skip

NAMED = {
    spelling: row.name
    for row in INTRINSICS.values() if row.c
    for spelling in (row.c, f"{row.c}f", f"llvm.{row.c}", f"llvm.{row.name}")
}  # fmt: skip
"""The intrinsics that are the functions of C and LLVM of these names, LLVM's without types."""


def has_effect(e: PrimExpr) -> bool:
    """True if an expression has a call that does more than return a value, or may."""
    return any(
        isinstance(n, Call) and (n.op not in INTRINSICS or not INTRINSICS[n.op].pure)
        for n in walk(e)
    )


BY_NAME = frozenset({"llvm_intrin", "call_extern", "call_pure_extern"})
"""Calls whose first argument is the name of what is called."""


def has_unknown_effect(e: PrimExpr) -> bool:
    """True if an expression is a call of a C function that may do more than return a value, and
    gets no address. One that gets addresses touches what its block declares."""
    if not isinstance(e, Call) or e.op != "call_extern":
        return False
    return not any(a.dtype == "handle" for a in e.args[1:])
