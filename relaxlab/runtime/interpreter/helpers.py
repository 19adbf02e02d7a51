"""The few functions that the text of an interpreted loop function calls."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from relaxlab.ir.dtypes import converted, is_float
from relaxlab.ir.expr import BinaryOp
from relaxlab.ir.loops import Buffer
from relaxlab.runtime.arrays import Array, ExecutionError, uninitialised
from relaxlab.runtime.interpreter.intrinsics import Pointer
from relaxlab.runtime.interpreter.threads import Fork, Meeting, own_memory, side_by_side


@dataclass(frozen=True, slots=True)
class Place:
    """The place of an access: its buffer, the block in words, and how many leading dimensions of
    the array number the iterations."""

    buffer: Buffer
    block: str
    lead: int


def _check(array: Array, where: Place, indices: tuple[Any, ...]) -> None:
    for axis, (index, extent) in enumerate(zip(indices, array.shape, strict=True)):
        if isinstance(index, np.ndarray):
            if index.size and (index.min() < 0 or index.max() >= extent):
                bad = index[(index < 0) | (index >= extent)].flat[0]
                _outside(array, where, axis, bad)
        elif not 0 <= index < extent:
            _outside(array, where, axis, index)


def _outside(array: Array, where: Place, axis: int, index: Any) -> None:
    raise ExecutionError(
        f"index {index} of dimension {axis - where.lead} of {where.buffer.name} is outside its "
        f"extent {array.shape[axis]} (shape {array.shape[where.lead :]}), {where.block}"
    )


def _read(array: Array, where: Place, *indices: Any) -> Any:
    _check(array, where, indices)
    return array[indices]


def _write(value: Any, array: Array, where: Place, *indices: Any) -> None:
    _check(array, where, indices)
    array[indices] = value


def _address(array: Array, where: Place, *indices: Any) -> Pointer:
    _check(array, where, indices)
    return Pointer(array, tuple(int(i) for i in indices))


def _view(array: Array, where: str, ndim: int, *bounds: tuple[Any, Any]) -> Array:
    for axis, ((lo, extent), size) in enumerate(zip(bounds, array.shape, strict=True)):
        if lo < 0 or lo + extent > size:
            raise ExecutionError(
                f"region [{lo}, {lo + extent}) of dimension {axis} of {where} "
                f"is outside its extent {size}"
            )
    lead = len(bounds) - ndim
    if any(extent != 1 for _, extent in bounds[:lead]):
        raise ExecutionError(f"a view of {ndim} dimensions of {where} drops extents other than 1")
    view = array[(*(slice(lo, lo + extent) for lo, extent in bounds), ...)]  # never a copy
    return view[(*(0,) * lead, ...)]


def _offset(view: Array, source: Array) -> int:
    start = view.__array_interface__["data"][0] - source.__array_interface__["data"][0]
    return start // source.itemsize


def _allocate(shape: tuple[Any, ...], dtype: str) -> Array:
    # A negative dimension, as n - 2 is for n = 1, stands for no elements.
    return uninitialised([max(int(d), 0) for d in shape], dtype)


def _axis(extent: Any, depth: int) -> Array:
    """The numbers of all iterations, along an axis before the `depth` axes in use."""
    values = np.arange(max(0, int(extent)), dtype=np.asarray(extent).dtype)
    return values.reshape((-1,) + (1,) * depth)


def _counting(lo: Any, extent: Any) -> Iterator[Any]:
    return map(np.asarray(extent).dtype.type, range(int(lo), int(lo) + int(extent)))


def _points(mask: Array, *axes: Array) -> list[Array]:
    """The values of `axes` at the points where `mask` holds, as one-dimensional arrays."""
    mask, *axes_there = np.broadcast_arrays(mask, *axes)
    return [a[mask] for a in axes_there]


def _lazily(
    dtype: Any, mask: Array, yes: Callable[..., Any], no: Callable[..., Any], *axes: Array
) -> Array:
    mask, *axes_there = np.broadcast_arrays(mask, *axes)
    result = np.empty(mask.shape, dtype)
    for where, side in ((mask, yes), (~mask, no)):
        if where.any():
            result[where] = side(*[a[where] for a in axes_there])
    return result


def _pick(condition: Any, yes: Any, no: Any) -> Any:
    return np.where(condition, yes, no)[()]


def _nonzero(a: Any, divisor: Any) -> None:
    # `np.all` takes 3 us for a scalar, whose truth takes 0.1.
    nonzero = divisor.all() if isinstance(divisor, np.ndarray) else divisor
    if not nonzero and np.broadcast(a, divisor).size:
        raise ExecutionError("integer division by zero")


def _div(a: Any, b: Any) -> Any:
    _nonzero(a, b)
    return (a - np.fmod(a, b)) // b


def _mod(a: Any, b: Any) -> Any:
    _nonzero(a, b)
    return np.fmod(a, b)


def _floordiv(a: Any, b: Any) -> Any:
    _nonzero(a, b)
    return a // b


def _floormod(a: Any, b: Any) -> Any:
    _nonzero(a, b)
    return a % b


def _claim(condition: Any, message: str, *values: Any) -> None:
    if np.all(condition):
        return
    if values:  # those of the first point where the condition fails
        holds, *shown = np.broadcast_arrays(condition, *values)
        first = np.argmin(holds)
        message = message.format(*(v.flat[first] for v in shown))
    raise ExecutionError(f"assertion failed: {message}")


def _ramp(base: Any, stride: Any, lanes: int) -> Array:
    return base + stride * np.arange(lanes, dtype=np.asarray(base).dtype)


NAMES: dict[str, Any] = {
    "read": _read, "write": _write, "address": _address, "view": _view, "offset": _offset,
    "allocate": _allocate, "axis": _axis, "counting": _counting, "points": _points,
    "lazily": _lazily, "pick": _pick, "cast": converted, "truncdiv": _div, "truncmod": _mod,
    "floordiv": _floordiv, "floormod": _floormod, "claim": _claim, "ramp": _ramp,
    "lanes": lambda value, count: np.repeat(value, count),
    "float_truncdiv": lambda a, b: a / b, "float_truncmod": np.fmod,
    "float_floordiv": np.floor_divide, "float_floormod": np.mod,
    "minimum": np.minimum, "maximum": np.maximum, "logical_not": np.logical_not,
    "logical_and": np.logical_and, "logical_or": np.logical_or,
    "fork": Fork, "meeting": Meeting, "side_by_side": side_by_side, "own": own_memory,
    "table": dict, "__builtins__": {},
}  # fmt: skip


def division(e: BinaryOp) -> str:
    """The name in `NAMES` of a quotient or remainder; for integers its divisor is not zero."""
    return ("float_" if is_float(e.dtype) else "") + e.row.function
