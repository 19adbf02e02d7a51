"""Data types as strings, in NumPy's and TVM's spelling: `float32`, `int64`, `uint8x64`."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

SMALL_FLOATS = (
    "float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz", "float8_e4m3fn", "float8_e4m3fnuz",
    "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu", "float6_e2m3fn", "float6_e3m2fn",
    "float4_e2m1fn",
)  # fmt: skip
"""Floats of 8 bits and fewer, which programs name and the interpreter computes with; no machine
code does."""
_SCALAR = re.compile(
    r"(?:bool|handle|void|bfloat16|float(?:16|32|64)|u?int(?:1|4|8|16|32|64)|"
    rf"{'|'.join(SMALL_FLOATS)})(?:x(\d+))?"
)


def is_dtype(text: str) -> bool:
    """True if `text` names a data type, vector types such as `float32x16` included."""
    return _SCALAR.fullmatch(text) is not None


def is_compiled(dtype: str) -> bool:
    """True for a data type that machine code computes with."""
    return is_dtype(dtype) and element_of(dtype) not in SMALL_FLOATS


@cache
def lanes_of(dtype: str) -> int:
    """Number of lanes: 1 for a scalar type."""
    m = _SCALAR.fullmatch(dtype)
    if m is None:
        raise ValueError(f"unknown dtype {dtype!r}; write for example 'float32' or 'int8x64'")
    return int(m.group(1) or 1)


@cache
def element_of(dtype: str) -> str:
    """The scalar type of one lane."""
    return dtype.partition("x")[0]


@cache
def with_lanes(dtype: str, lanes: int) -> str:
    """The vector type with `lanes` lanes of `dtype`'s element type."""
    base = element_of(dtype)
    return base if lanes == 1 else f"{base}x{lanes}"


@cache
def bits_of(dtype: str) -> int:
    """Bits of one element: 8 for bool, as it is stored."""
    base = element_of(dtype)
    if base == "bool":
        return 8
    if base in ("handle",):
        return 64
    return int(re.sub(r"\D", "", base.partition("_")[0]) or 0)


@cache
def bytes_of(dtype: str) -> int:
    """Bytes one stored element of `dtype` takes (all lanes)."""
    return (bits_of(dtype) * lanes_of(dtype) + 7) // 8


@cache
def is_float(dtype: str) -> bool:
    """True if the elements are floating point."""
    return element_of(dtype).startswith(("float", "bfloat"))


@cache
def is_uint(dtype: str) -> bool:
    """True if the elements are unsigned integers."""
    return element_of(dtype).startswith("uint")


@cache
def is_int(dtype: str) -> bool:
    """True if the elements are integers, signed or not (bool is not)."""
    return element_of(dtype).startswith(("int", "uint"))


@cache
def integer_range(dtype: str) -> tuple[int, int]:
    """The smallest and the largest value of an integer type."""
    bits = bits_of(dtype)
    return (0, (1 << bits) - 1) if is_uint(dtype) else (-(1 << bits - 1), (1 << bits - 1) - 1)


def converted(value: Any, dtype: Any) -> Any:
    """Return an array or a number of NumPy as another NumPy dtype, as `expr.Cast` says: a float
    becomes an integer towards zero, the nearest one that the type has, and NaN becomes 0."""
    import numpy as np

    array = np.asarray(value)
    kind = array.dtype.kind
    if dtype.kind not in "iu" or kind in "biu" or not is_float(array.dtype.name):
        return array.astype(dtype)[()]
    low, high = integer_range(dtype.name)
    wide = array.astype("float64")  # which holds all of its values
    past = wide >= high + 1
    result = np.where(past | ~(wide >= low), 0, wide).astype(dtype)
    result[past], result[wide < low] = high, low
    return result[()]


@cache
def numpy_dtype(dtype: str) -> Any:
    """The NumPy dtype of one element; bfloat16 and floats of few bits come from ml_dtypes."""
    import numpy as np

    base = element_of(dtype)
    if base == "bfloat16" or base in SMALL_FLOATS:
        import ml_dtypes

        return np.dtype(getattr(ml_dtypes, base))
    return np.dtype(base)
