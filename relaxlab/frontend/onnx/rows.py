"""The table of ONNX's operators, and the forms in which their operands come."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from relaxlab.frontend.emitter import Emitter, dtype_of, shape_of
from relaxlab.frontend.known import Array, Folds, Known, constant, tensor
from relaxlab.frontend.table import Refused, Table
from relaxlab.ir import expr, graph
from relaxlab.ir.expr import PrimExpr

TABLE = Table("ONNX")
"""A row for each operator: `row(b, *inputs, **attributes)`; an input that is left out is None.
Operators of other domains than ONNX's own have it before their names."""
row = TABLE.row

_STATIC: dict[Any, tuple[int, ...]] = {}
FOLDS = Folds()
"""A function for each operator that is computed on known values: arrays of numbers and
expressions."""
fold = FOLDS.fold


def static(*inputs: int) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Let a row have the inputs of these numbers as `Known` values where they are known; -1 stands
    for all."""

    def mark(fn: Callable[..., Any]) -> Callable[..., Any]:
        _STATIC[fn] = inputs
        return fn

    return mark


def operands(b: Emitter, fn: Callable[..., Any], inputs: Sequence[Any]) -> list[Any]:
    """The inputs in the form that a row takes."""
    wanted = _STATIC.get(fn, ())
    return [x if i in wanted or -1 in wanted else tensor(b, x) for i, x in enumerate(inputs)]


def ints(value: Any, what: str) -> list[Any]:
    """Integers or dimensions that have to be known. Raises Refused."""
    if isinstance(value, Known):
        return value.flat()
    if isinstance(value, list | tuple):
        return list(value)
    raise Refused(f"{what} is computed from data; give its values by `constants`")


def numbers(value: Any, what: str) -> list[int]:
    """Integers that have to be numbers. Raises Refused."""
    found = [v.value if isinstance(v, expr.IntImm) else v for v in ints(value, what)]
    if any(isinstance(v, PrimExpr) for v in found):
        raise Refused(f"{what} depends on a symbolic dimension")
    return [int(v) for v in found]


def array(value: Any, what: str) -> Array:
    """An array that has to be known. Raises Refused."""
    found = constant(value) if isinstance(value, Known) else None
    if found is None:
        raise Refused(f"{what} is computed from data; give its values by `constants`")
    return found


def axes_of(value: Any, ndim: int, what: str = "axes") -> tuple[int, ...] | None:
    """Axes counted from the front; None where none are given."""
    return None if value is None else tuple(a % ndim if ndim else a for a in numbers(value, what))


def rank(x: Any) -> int:
    """The number of dimensions of a tensor."""
    return len(shape_of(x))


def per_channel(b: Emitter, x: graph.Expr, ndim: int, axis: int = 1) -> graph.Expr:
    """A vector with dimensions of extent 1 around it, for a tensor with channels at `axis`."""
    others = tuple(d for d in range(ndim) if d != axis)
    return b.expand_dims(x, axis=others) if others else x


def number(b: Emitter, value: Any, like: graph.Expr) -> Any:
    """A constant of the dtype of a tensor."""
    return b.const(np.asarray(value), dtype_of(like))
