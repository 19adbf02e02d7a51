"""Arrays at the border of the executors: dtypes, uninitialised memory, checks of arguments."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from relaxlab.ir.dtypes import bytes_of, lanes_of, numpy_dtype
from relaxlab.ir.errors import UserError, kind_of
from relaxlab.runtime.interchange import viewed

Array = np.ndarray[Any, Any]


class ExecutionError(UserError):
    """A program stopped: a run-time check failed, an access left its buffer, a function is missing.
    The message names the function, the value, the expected and the actual size."""


class OutOfMemory(ExecutionError, MemoryError):
    """There is no memory for a value; the message has its name and its size in bytes."""

    @classmethod
    def of(cls, what: str, shape: Sequence[int], dtype: str) -> OutOfMemory:
        """The error for an array."""
        size = math.prod(shape) * bytes_of(dtype)
        return cls(
            f"there is no memory for the {size:,} bytes of {what}, {dtype} of shape {tuple(shape)}"
        )


def dtype_name(array: Array | np.generic) -> str:
    """The IR's name of an array's dtype. Raises ExecutionError for one the IR does not have.

    >>> dtype_name(np.zeros(2, "float32"))
    'float32'
    """
    name = array.dtype.name
    try:
        known = np.dtype(numpy_dtype(name)) == array.dtype
    except (ValueError, TypeError):
        known = False
    if not known or lanes_of(name) != 1:
        raise ExecutionError(f"arrays of dtype {array.dtype} are not supported")
    return name


def uninitialised(shape: Sequence[int], dtype: str) -> Array:
    """A new array filled with values that show up when read before written: NaN, or 0x5A bytes.

    `dtype` is an IR dtype of one lane. Raises ExecutionError for a negative dimension.
    """
    if any(d < 0 for d in shape):
        raise ExecutionError(f"cannot allocate an array of shape {tuple(shape)}")
    kind = numpy_dtype(dtype)
    if kind.kind == "b":
        return np.ones(shape, kind)
    if kind.kind in "iu":
        pattern = np.frombuffer(b"\x5a" * kind.itemsize, kind)[0]
        return np.full(shape, pattern, kind)
    return np.full(shape, np.nan, kind)


def as_array(value: Any) -> Array:
    """`value` (array, scalar, or anything with DLPack or the array protocol) as an array, without
    a copy where possible. Python floats become float32 and ints int64, the IR's defaults."""
    if isinstance(value, np.ndarray):
        return value
    if isinstance(value, bool):
        return np.asarray(value)
    if isinstance(value, float):
        return np.asarray(value, "float32")
    if isinstance(value, int):
        return np.asarray(value, "int64")
    if hasattr(value, "__dlpack__"):
        return viewed(value)
    try:
        array = np.asarray(value)
    except ValueError as error:  # a list of lists of different lengths
        raise ExecutionError(f"{kind_of(value)} is no array: {error}") from None
    if array.dtype == object:
        raise ExecutionError(f"{kind_of(value)} is no array of numbers")
    return array


def apart(result: Any, given: Any) -> Any:
    """The result of a function, with copies of the arrays in it that may share memory with those
    given to it; either may be nested tuples."""
    if isinstance(result, tuple):
        return tuple(apart(r, given) for r in result)  # type: ignore[reportUnknownVariableType]
    shares = isinstance(result, np.ndarray) and any(_shares(result, g) for g in given)
    return result.copy() if shares else result


def _shares(array: Array, other: Any) -> bool:
    if isinstance(other, tuple):
        return any(_shares(array, o) for o in other)  # type: ignore[reportUnknownVariableType]
    return isinstance(other, np.ndarray) and np.may_share_memory(array, other)
