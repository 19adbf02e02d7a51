"""The meaning of each intrinsic in NumPy: one row per name of `relaxlab.ir.intrinsics`.

A row takes the NumPy dtype of the result and the argument values, which are NumPy scalars or arrays
(vector lanes are the last axis). Floating-point functions are evaluated in float64 and rounded
once. `if_then_else`, `likely`, `address_of` and hints are part of the interpreter itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from relaxlab.ir.dtypes import numpy_dtype
from relaxlab.runtime.arrays import ExecutionError

Meaning = Callable[..., Any]


def _dot_bytes(dtype: Any, total: Any, a: Any, b: Any) -> Any:
    """Return each int32 lane of `total` plus the dot product of four uint8 of `a` with four int8 of
    `b` (Intel's VPDPBUSD, Arm's USDOT)."""
    left = np.ascontiguousarray(a).view(np.uint8).reshape(-1, 4).astype(np.int32)
    right = np.ascontiguousarray(b).view(np.int8).reshape(-1, 4).astype(np.int32)
    return (total + (left * right).sum(1, dtype=np.int32)).astype(dtype)


def _multiply_bytes(dtype: Any, a: Any, b: Any) -> Any:
    """Return, per 16 bits, the sum of two products of a uint8 of `a` and an int8 of `b`, saturated
    to int16 (Intel's VPMADDUBSW)."""
    left = np.ascontiguousarray(a).view(np.uint8).reshape(-1, 2).astype(np.int32)
    right = np.ascontiguousarray(b).view(np.int8).reshape(-1, 2).astype(np.int32)
    return np.clip((left * right).sum(1), -(1 << 15), (1 << 15) - 1).astype(dtype)


def _add_pairs(dtype: Any, a: Any, b: Any) -> Any:
    """Return, per 32 bits, the sum of two products of int16 (Intel's VPMADDWD)."""
    left, right = (np.ascontiguousarray(x).view(np.int16).astype(np.int32) for x in (a, b))
    return (left * right).reshape(-1, 2).sum(1, dtype=np.int32).astype(dtype)


def _dot_pairs(dtype: Any, total: Any, a: Any, b: Any) -> Any:
    """Return each float32 lane of `total` plus the dot product of two bfloat16 of `a` with two of
    `b` (Intel's VDPBF16PS): the second products first, sums rounded in float32."""
    bfloat16 = numpy_dtype("bfloat16")
    left, right = (
        np.ascontiguousarray(x).view(bfloat16).reshape(-1, 2).astype(np.float32) for x in (a, b)
    )
    product = left * right
    return (total + product[:, 1] + product[:, 0]).astype(dtype)


_EXTERNAL: dict[str, Meaning] = {
    **{f"llvm.x86.avx512.vpdpbusd.{bits}": _dot_bytes for bits in (128, 256, 512)},
    "llvm.aarch64.neon.usdot.v4i32.v16i8": _dot_bytes,
    "llvm.x86.avx512bf16.dpbf16ps.512": _dot_pairs,
    "llvm.x86.avx2.pmadd.ub.sw": _multiply_bytes,
    "llvm.x86.avx512.pmaddubs.w.512": _multiply_bytes,
    "llvm.x86.avx2.pmadd.wd": _add_pairs,
    "llvm.x86.avx512.pmaddw.d.512": _add_pairs,
}


def register_intrinsic_meaning(name: str, fn: Meaning) -> None:
    """Register a Python function that computes the target instruction or C function `name`.

    `fn(result_dtype, *values)` gets the NumPy dtype of one lane of the result and NumPy scalars or
    arrays (last axis: lanes; addresses as `Pointer`), and returns the result. Raises ValueError
    when `name` already has a different meaning.
    """
    if _EXTERNAL.get(name, fn) is not fn:
        raise ValueError(f"{name!r} already has a meaning")
    _EXTERNAL[name] = fn


def external_meaning(name: str) -> Meaning:
    """The registered meaning of a target instruction or C function."""
    if name not in _EXTERNAL:
        raise ExecutionError(
            f"the interpreter does not know what {name!r} computes; tell it with "
            f"register_intrinsic_meaning({name!r}, fn)"
        )
    return _EXTERNAL[name]


class Pointer:
    """The address of element `index` of `array` (`address_of`)."""

    __slots__ = ("array", "index")

    def __init__(self, array: np.ndarray[Any, Any], index: tuple[int, ...]) -> None:
        self.array = array
        self.index = index

    def flat(self) -> np.ndarray[Any, Any]:
        """The elements from the address to the end of the array, as a writable view.

        Raises ExecutionError when the array is not contiguous.
        """
        if not self.array.flags.c_contiguous:
            raise ExecutionError("address_of an array that is not contiguous")
        start = int(np.ravel_multi_index(self.index, self.array.shape)) if self.index else 0
        return self.array.reshape(-1)[start:]


def _rounded(fn: Callable[..., Any]) -> Meaning:
    return lambda dtype, *args: fn(*[np.asarray(a, np.float64) for a in args]).astype(dtype)[()]


def _elementwise(fn: Callable[..., Any]) -> Meaning:
    ufunc = np.frompyfunc(fn, 1, 1)
    return _rounded(lambda x: np.asarray(ufunc(x), np.float64))


def _exact(fn: Callable[..., Any]) -> Meaning:
    return lambda dtype, *args: np.asarray(fn(*args)).astype(dtype)[()]


def _sigmoid(x: Any) -> Any:
    return np.exp(-np.logaddexp(0.0, -x))


def _round_half_away(x: Any) -> Any:
    # 0.49999999999999994 + 0.5 rounds up to 1, so compare the fraction instead of adding.
    whole = np.trunc(x)
    return np.where(np.abs(x - whole) >= 0.5, whole + np.sign(x), whole)


def _popcount(x: Any) -> Any:
    bits = np.asarray(x)  # NumPy counts the bits of the absolute value
    return np.bitwise_count(bits.astype(f"u{bits.dtype.itemsize}"))


def _pow(dtype: Any, base: Any, exponent: Any) -> Any:
    if np.dtype(dtype).kind in "iu":
        return np.power(base, exponent).astype(dtype)
    return _rounded(np.power)(dtype, base, exponent)


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
    return _rounded(lambda x, y, z: x * y + z)(dtype, a, b, c)


def _reinterpret(dtype: Any, value: Any) -> Any:
    array = np.ascontiguousarray(value)
    if array.dtype.itemsize == np.dtype(dtype).itemsize:
        return array.view(dtype).reshape(np.shape(value))[()]
    lanes = np.atleast_1d(array).view(dtype)
    return lanes[0] if lanes.shape == (1,) else lanes


_TO_FLOAT: dict[str, Callable[..., Any]] = {
    "exp": np.exp, "exp2": np.exp2, "log": np.log, "log2": np.log2, "log10": np.log10,
    "log1p": np.log1p, "sqrt": np.sqrt, "sin": np.sin, "cos": np.cos, "tan": np.tan,
    "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "sinh": np.sinh, "cosh": np.cosh,
    "tanh": np.tanh, "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh,
    "atan2": np.arctan2, "fmod": np.fmod, "floor": np.floor, "ceil": np.ceil, "trunc": np.trunc,
    "nearbyint": np.rint, "fabs": np.abs, "round": _round_half_away, "sigmoid": _sigmoid,
    "exp10": lambda x: np.power(10.0, x), "rsqrt": lambda x: 1.0 / np.sqrt(x),
}  # fmt: skip

MEANINGS: dict[str, Meaning] = {
    **{name: _rounded(fn) for name, fn in _TO_FLOAT.items()},
    "erf": _elementwise(math.erf),
    "pow": _pow,
    "fma": _fma,
    "abs": _exact(np.abs),
    "bitwise_not": _exact(np.invert),
    "popcount": _exact(_popcount),
    "isnan": _exact(np.isnan),
    "isinf": _exact(np.isinf),
    "isfinite": _exact(np.isfinite),
    "reinterpret": _reinterpret,
    "vector_reduce_add": lambda dtype, v: _fold(np.add, dtype, v),
    "vector_reduce_mul": lambda dtype, v: _fold(np.multiply, dtype, v),
    "vector_reduce_max": lambda dtype, v: _fold(np.maximum, dtype, v),
    "vector_reduce_min": lambda dtype, v: _fold(np.minimum, dtype, v),
    "llvm_intrin": lambda dtype, name, *args: external_meaning(name)(dtype, *args),
    "call_extern": lambda dtype, name, *args: external_meaning(name)(dtype, *args),
}


def _fold(fn: Callable[..., Any], dtype: Any, value: Any) -> Any:
    """Combine the lanes from first to last, rounding at each step."""
    lanes = np.asarray(value).astype(dtype)
    result = lanes[0]
    for lane in lanes[1:]:
        result = fn(result, lane)
    return result
