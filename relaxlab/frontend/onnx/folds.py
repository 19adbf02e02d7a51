"""Operators on values that are known while a model is imported: shapes and what is computed of
them."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from relaxlab.analysis.arith import Analyzer
from relaxlab.frontend.known import Array, elementwise
from relaxlab.frontend.onnx.rows import fold
from relaxlab.ir import expr
from relaxlab.ir.dtypes import is_float
from relaxlab.ir.expr import PrimExpr


def _plain(value: Any) -> Any:
    return value.value if isinstance(value, expr.IntImm | expr.FloatImm) else value


def _symbolic(*values: Any) -> bool:
    return any(isinstance(v, PrimExpr) for v in values)


def _binary(fn: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    return elementwise(lambda a, b: _plain(fn(a, b)), 2)


fold("Add")(_binary(operator.add))
fold("Sub")(_binary(operator.sub))
fold("Mul")(_binary(operator.mul))
fold("Neg")(elementwise(lambda a: _plain(-a), 1))


def _quotient(a: Any, b: Any) -> Any:
    """Rounded toward zero for integers, which is down where neither is negative."""
    if not _symbolic(a, b):
        if isinstance(a, float) or isinstance(b, float):
            return a / b if b else None
        return (abs(a) // abs(b)) * (1 if (a < 0) == (b < 0) else -1) if b else None
    if _symbolic(b) or b <= 0:
        return None
    positive = expr.GE(expr.as_expr(a), expr.const(0))
    if Analyzer.for_shapes(positive).prove(positive) is True:
        return a // b
    below = expr.binary(expr.Max, -a, 0) // b
    return expr.binary(expr.Max, a, 0) // b - below


fold("Div")(elementwise(_quotient, 2))


def _mod(a: Any, b: Any) -> Any:
    return None if _symbolic(b) or not b else _plain(a % b)


@fold("Mod")
def _modulo(a: Array, b: Array, fmod: int = 0, **_: Any) -> Any:
    return None if fmod else elementwise(_mod, 2)(a, b)


def _extreme(cls: type[expr.BinaryOp], numbers: Callable[..., Any]) -> Callable[..., Any]:
    def chosen(a: Any, b: Any) -> Any:
        if not _symbolic(a, b):
            return numbers(a, b)
        return _plain(expr.binary(cls, expr.as_expr(a), expr.as_expr(b)))

    return lambda *values, **_: _reduce(elementwise(chosen, 2), values)


def _reduce(fn: Callable[..., Any], values: tuple[Array, ...]) -> Any:
    result: Any = values[0]
    for v in values[1:]:
        result = None if result is None else fn(result, v)
    return result


fold("Max")(_extreme(expr.Max, max))
fold("Min")(_extreme(expr.Min, min))


def _compared(cls: type[expr.BinaryOp], numbers: Callable[..., Any]) -> Callable[..., Any]:
    def compared(a: Any, b: Any) -> Any:
        if not _symbolic(a, b):
            return bool(numbers(a, b))
        condition = cls(expr.as_expr(a), expr.as_expr(b))
        return Analyzer.for_shapes(condition).prove(condition)

    return elementwise(compared, 2)


for _name, _cls, _numbers in (
    ("Equal", expr.EQ, operator.eq), ("Less", expr.LT, operator.lt),
    ("LessOrEqual", expr.LE, operator.le), ("Greater", expr.GT, operator.gt),
    ("GreaterOrEqual", expr.GE, operator.ge),
):  # fmt: skip
    fold(_name)(_compared(_cls, _numbers))
fold("And")(elementwise(lambda a, b: bool(a and b), 2))
fold("Or")(elementwise(lambda a, b: bool(a or b), 2))
fold("Not")(elementwise(lambda a: not a, 1))
fold("Where")(elementwise(lambda c, a, b: None if _symbolic(c) else a if c else b, 3))


def _each_number(fn: Callable[[Any], Any]) -> Callable[..., Any]:
    return elementwise(lambda a: None if _symbolic(a) else fn(a), 1)


fold("Floor")(_each_number(np.floor))
fold("Ceil")(_each_number(np.ceil))
fold("Sqrt")(_each_number(lambda a: None if a < 0 else np.sqrt(a)))
fold("Abs")(_each_number(abs))


@fold("Identity")
def _identity(x: Array, **_: Any) -> Any:
    return x


@fold("Cast", "CastLike")
def _cast(x: Array, *_like: Array, dtype: str, **_: Any) -> Any:
    symbolic = _symbolic(*x.reshape(-1))
    if symbolic and not dtype.startswith("int"):
        return None
    if not (is_float(dtype) or dtype in ("int32", "int64", "bool")):
        return None
    whole = dtype.startswith("int")
    if whole and not symbolic and not all(np.isfinite(float(v)) for v in x.reshape(-1)):
        return None
    return elementwise(lambda a: a if _symbolic(a) else int(a) if whole else a, 1)(x)


def _ints(values: Array) -> list[int] | None:
    flat = [_plain(v) for v in values.reshape(-1)]
    return None if _symbolic(*flat) else [int(v) for v in flat]


@fold("Gather")
def _gather(x: Array, at: Array, axis: int = 0, **_: Any) -> Any:
    places = _ints(at)
    return None if places is None else np.take(x, np.reshape(places, at.shape).astype(int), axis)


@fold("Concat")
def _concat(*xs: Array, axis: int, **_: Any) -> Any:
    return np.concatenate(xs, axis)


@fold("Unsqueeze")
def _unsqueeze(x: Array, chosen: Array | None = None, axes: Any = None, **_: Any) -> Any:
    return np.expand_dims(x, tuple(axes if chosen is None else _ints(chosen) or ()))


@fold("Squeeze")
def _squeeze(x: Array, chosen: Array | None = None, axes: Any = None, **_: Any) -> Any:
    given = axes if chosen is None else _ints(chosen)
    return np.squeeze(x, None if given is None else tuple(given))


@fold("Slice")
def _slice(
    x: Array, starts_in: Any = None, ends_in: Any = None, axes_in: Any = None, steps_in: Any = None,
    *, starts: Any = None, ends: Any = None, axes: Any = None, **_: Any,
) -> Any:  # fmt: skip
    given = [
        attr if values is None else _ints(values)
        for values, attr in (
            (starts_in, starts), (ends_in, ends), (axes_in, axes), (steps_in, None)
        )  # fmt: skip
    ]
    begin, end, chosen, steps = given
    if begin is None or end is None:
        return None
    where = chosen or range(len(begin))
    slices = [slice(None)] * x.ndim
    for a, start, stop, step in zip(where, begin, end, steps or [1] * len(begin), strict=True):
        slices[a] = slice(start, None if step < 0 and stop < -x.shape[a] else stop, step)
    return x[tuple(slices)]


@fold("Reshape")
def _reshape(x: Array, wanted: Any = None, *, shape: Any = None, **_: Any) -> Any:
    dims = shape if wanted is None else _ints(wanted)
    return None if dims is None or 0 in dims else x.reshape(list(dims))


@fold("Transpose")
def _transpose(x: Array, perm: Any = None, **_: Any) -> Any:
    return np.transpose(x, perm)


@fold("Expand")
def _expand(x: Array, wanted: Array, **_: Any) -> Any:
    dims = _ints(wanted)
    return None if dims is None else x * np.ones(dims, dtype=int)


@fold("Tile")
def _tile(x: Array, repeats: Array, **_: Any) -> Any:
    counts = _ints(repeats)
    return None if counts is None else np.tile(x, counts)


@fold("ConstantOfShape")
def _constant_of_shape(wanted: Array, value: Any = None, **_: Any) -> Any:
    dims = _ints(wanted)
    if dims is None or np.prod(dims, initial=1) > 1024:
        return None
    return np.full(dims, 0.0 if value is None else value.reshape(-1)[0].item(), dtype=object)


@fold("Range")
def _range(start: Array, limit: Array, delta: Array, **_: Any) -> Any:
    bounds = [_plain(v.reshape(-1)[0]) for v in (start, limit, delta)]
    if _symbolic(*bounds):
        return None
    values = np.arange(*bounds)
    return None if values.size > 1024 else np.array(values.tolist(), dtype=object)


def _reduced(fn: Callable[..., Any]) -> Callable[..., Any]:
    def reduced(
        x: Array, chosen: Array | None = None, *, axes: Any = None, keepdims: int = 1,
        noop_with_empty_axes: int = 0, **_: Any,
    ) -> Any:  # fmt: skip
        given = axes if chosen is None else _ints(chosen)
        if not given and noop_with_empty_axes:
            return x
        result = x
        for a in sorted((v % max(x.ndim, 1) for v in given or range(x.ndim)), reverse=True):
            result = np.asarray(fn(result, axis=a, keepdims=bool(keepdims)), dtype=object)
        return result

    return reduced


fold("ReduceSum")(_reduced(np.sum))
fold("ReduceProd")(_reduced(np.prod))
