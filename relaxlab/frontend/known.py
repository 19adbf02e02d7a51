"""Values that are known while a program is imported: numbers, and dimensions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from relaxlab.frontend.emitter import Emitter
from relaxlab.ir import expr, graph
from relaxlab.ir.dtypes import bits_of, is_float, is_uint, numpy_dtype
from relaxlab.ir.expr import PrimExpr
from relaxlab.ops.define import builder as operator

Array: TypeAlias = np.ndarray[Any, Any]
Function: TypeAlias = Callable[..., Any]

MOST_KNOWN = 64
"""The elements of the largest array that is followed; shapes and indices are smaller."""


@dataclass(frozen=True, slots=True)
class Known:
    """A value known at import: numbers, and integers that are expressions of dimensions.

    `values` is an array of Python numbers and `PrimExpr`s (dtype object). Indices and sizes that
    a source computes from shapes stay symbolic this way.
    """

    values: Array
    dtype: str

    @staticmethod
    def of(value: Any, dtype: str) -> Known:
        """One number, or an array of them."""
        array = np.asarray(value)
        plain = array if array.dtype == object else np.array(array.tolist(), dtype=object)
        return Known(plain.reshape(array.shape), dtype)

    @property
    def number(self) -> Any:
        """The only value."""
        return self.values.reshape(-1)[0]

    def flat(self) -> list[Any]:
        """The values in order."""
        return list(self.values.reshape(-1))


def wrapped(value: Any, dtype: str) -> Any:
    """A number as the dtype has it: floats are rounded, integers wrap around."""
    if isinstance(value, PrimExpr):
        return value
    if dtype == "bool":
        return bool(value)
    if is_float(dtype):
        return float(numpy_dtype(dtype).type(value))
    low = 0 if is_uint(dtype) else -(1 << (bits_of(dtype) - 1))
    return (int(value) - low) % (1 << bits_of(dtype)) + low


def constant(known: Known) -> Array | None:
    """The numbers of a known value as an array; None where one is an expression of symbols."""
    values = [v.value if isinstance(v, expr.IntImm | expr.FloatImm) else v for v in known.flat()]
    if any(isinstance(v, PrimExpr) for v in values):
        return None
    return np.array(values, numpy_dtype(known.dtype)).reshape(known.values.shape)


def tensor(b: Emitter, value: Any) -> Any:
    """A `Known` value as a tensor, others as they are."""
    if not isinstance(value, Known):
        return value
    array = constant(value)
    if array is not None:
        return b.const(array)
    dims = tuple(map(expr.as_expr, value.flat()))
    whole = b.cast(b.builder.emit(operator("shape_to_tensor")(graph.ShapeExpr(dims))), value.dtype)
    return whole if value.values.shape == (len(dims),) else b.reshape(whole, value.values.shape)


def named(b: Emitter, name: str, *args: Any, **attrs: Any) -> graph.Var:
    """Bind a call of an operator whose name has a prefix, such as `grad.`."""
    return b.builder.emit(operator(name)(*args, **attrs))


class Folds(dict[str, Function]):
    """Functions on the arrays of known values by the names of what they compute; they return an
    array, or None where the result is not known."""

    def fold(self, *names: str) -> Callable[[Function], Function]:
        """Add the decorated function."""

        def add(fn: Function) -> Function:
            self.update(dict.fromkeys(names, fn))
            return fn

        return add


def elementwise(fn: Function, count: int) -> Function:
    """A function of `count` numbers or expressions as one of broadcast arrays; None where a result
    is unknown."""
    each = np.frompyfunc(fn, count, 1)

    def applied(*values: Array, **_: Any) -> Any:
        result = np.asarray(each(*values), dtype=object)
        return None if any(v is None for v in result.reshape(-1)) else result

    return applied
