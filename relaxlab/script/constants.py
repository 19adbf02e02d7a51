"""Tensor constants in the script: nested lists where they are short, else compressed text.

A long constant is `R.const("…", "float32", shape=(1024, 64))`: zlib-compressed little-endian
bytes in base 85, so that a script with weights in it still runs.
"""

from __future__ import annotations

import base64
import zlib
from typing import Any

import numpy as np

from relaxlab.ir.dtypes import is_dtype, numpy_dtype

LISTED = 256  # elements


def constant_text(data: np.ndarray[Any, Any]) -> str:
    """The arguments of `R.const` for an array. TypeError for a dtype the script cannot name."""
    dtype = data.dtype.name
    if not is_dtype(dtype):
        raise TypeError(f"a constant of dtype {dtype} cannot be written in a script")
    if 0 < data.size <= LISTED and (data.size == 1 or _is_finite(data)):
        return f'{_nested(data)}, "{dtype}"'
    raw = np.ascontiguousarray(data)
    if raw.dtype.byteorder == ">":
        raw = raw.astype(raw.dtype.newbyteorder("<"))
    text = base64.b85encode(zlib.compress(raw.tobytes(), 6)).decode()
    return f'"{text}", "{dtype}", shape={data.shape}'


def _is_finite(data: np.ndarray[Any, Any]) -> bool:
    return data.dtype.kind in "biu" or bool(np.isfinite(data.astype(np.float64)).all())


def _nested(data: np.ndarray[Any, Any]) -> str:
    if data.ndim:
        return f"[{', '.join(_nested(row) for row in data)}]"
    if data.dtype.kind in "biu":
        return str(data.item())
    text = str(data)  # the shortest text that reads back as the same value of this dtype
    return text if _is_finite(data) else f'float("{text}")'


def decode_constant(text: str, dtype: str, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """The array behind compressed text. ValueError when it is damaged or of the wrong size."""
    element = numpy_dtype(dtype)
    size = element.itemsize
    for extent in shape:
        size *= extent
    try:
        unpacker = zlib.decompressobj()
        raw = unpacker.decompress(base64.b85decode(text), max(size, 1))
    except zlib.error as error:
        raise ValueError(f"the compressed constant is damaged: {error}") from error
    if len(raw) != size or unpacker.unconsumed_tail:
        raise ValueError(f"the compressed constant does not hold {size} bytes, as {shape} needs")
    return np.frombuffer(raw, element).reshape(shape)
