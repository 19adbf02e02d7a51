"""Reductions over sliding windows of all dimensions, and the gradient of maxima over windows."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from relaxlab.ir import expr, graph, types
from relaxlab.ir.expr import PrimExpr
from relaxlab.ir.op_table import REQUIRED
from relaxlab.ir.types import TensorType, Type
from relaxlab.ops import scalar, te
from relaxlab.ops.define import (
    TypesOf,
    attr,
    common_dtype,
    define,
    fail,
    params,
    require_dtype,
    tensor_arg,
)
from relaxlab.ops.elementwise import in_float32
from relaxlab.ops.reduce import narrow
from relaxlab.ops.shapes import differ, impossible, simplify

Array: TypeAlias = np.ndarray[Any, Any]
Indices: TypeAlias = tuple[PrimExpr, ...]

REDUCTIONS: dict[str, tuple[te.Combiner, Any]] = {
    "sum": (te.SUM, np.add),
    "prod": (te.PROD, np.multiply),
    "max": (te.MAX, np.maximum),
    "min": (te.MIN, np.minimum),
}


@dataclass(frozen=True, slots=True)
class Sliding:
    """Windows along one dimension: element `k` of window `o` is at o * stride + k * dilation -
    before. Negative padding leaves elements out."""

    size: int
    stride: int
    dilation: int
    before: PrimExpr
    after: PrimExpr

    @property
    def span(self) -> int:
        """The extent from the first to the last element, both included."""
        return (self.size - 1) * self.dilation + 1

    def inside(self, place: PrimExpr, extent: PrimExpr) -> list[PrimExpr]:
        """The conditions under which a place is in the tensor; those that always hold left out."""
        low, high = (isinstance(p, expr.IntImm) and p.value <= 0 for p in (self.before, self.after))
        conditions: list[PrimExpr] = [] if low else [expr.GE(place, te.ZERO)]
        return conditions if high else [*conditions, expr.LT(place, extent)]


def _sliding(call: graph.Call, ndim: int, padding: Indices) -> tuple[Sliding, ...]:
    window = _numbers(call, "window", ndim, None)
    strides = _numbers(call, "strides", ndim, 1)
    dilation = _numbers(call, "dilation", ndim, 1)
    if len(padding) != 2 * ndim:
        raise fail(call, f"padding has {len(padding)} widths; {ndim} dimensions have {2 * ndim}")
    pads = zip(padding[:ndim], padding[ndim:], strict=True)
    rows = zip(window, strides, dilation, pads, strict=True)
    return tuple(Sliding(k, s, d, a, b) for k, s, d, (a, b) in rows)


def _numbers(call: graph.Call, name: str, ndim: int, default: int | None) -> tuple[int, ...]:
    given = attr(call, name)
    if given is None and default is not None:
        return (default,) * ndim
    if isinstance(given, tuple) and len(given) == ndim:
        sizes = tuple(v for v in given if isinstance(v, int) and v > 0)
        if len(sizes) == ndim:
            return sizes
    raise fail(call, f"{name} must be {ndim} positive numbers, is {given!r}")


def _padding(call: graph.Call, tys: TypesOf, index: int) -> Indices:
    ty = tys[index] if index < len(tys) else None
    if not isinstance(ty, types.ShapeType) or ty.values is None:
        raise fail(call, f"padding must be a shape of known values, is {ty}")
    return ty.values


def _extent(call: graph.Call, extent: PrimExpr, w: Sliding) -> PrimExpr:
    rest = simplify(extent + w.before + w.after - w.span)
    claim = f"the padded extent of {extent} is smaller than the window's {w.span}"
    if impossible(call, expr.GE(rest, expr.const(-w.stride)), claim):
        raise fail(call, claim)
    return simplify(rest // w.stride + 1)


# --- reduce_window ----------------------------------------------------------------------------


def _infer(call: graph.Call, tys: TypesOf) -> Type:
    x, padding = tensor_arg(call, tys, 0), _padding(call, tys, 1)
    require_dtype(call, x, "a number")
    if attr(call, "reduction") not in REDUCTIONS:
        raise fail(call, f"reduction must be one of {', '.join(REDUCTIONS)}")
    if x.shape is None:
        return TensorType(None, x.dtype, x.ndim)
    windows = _sliding(call, x.ndim, padding)
    return TensorType(
        tuple(_extent(call, e, w) for e, w in zip(x.shape, windows, strict=True)), x.dtype
    )


def _taps(windows: Sequence[Sliding]) -> tuple[list[PrimExpr], tuple[te.Axis, ...]]:
    """The place within the window per dimension, and the axes over those of several elements."""
    axes = [te.reduce_axis(w.size, f"k{d}") if w.size > 1 else None for d, w in enumerate(windows)]
    return [te.ZERO if a is None else a.var for a in axes], tuple(a for a in axes if a is not None)


def _read(
    x: te.Tensor, i: Indices, taps: list[PrimExpr], windows: Sequence[Sliding], fill: PrimExpr
) -> PrimExpr:
    """The element `taps` of window `i`, in the dtype of `fill`, which stands for padding."""
    places = [
        o * w.stride + k * w.dilation - w.before for o, k, w in zip(i, taps, windows, strict=True)
    ]
    each = zip(places, x.shape, windows, strict=True)
    inside = expr.all_of([c for p, e, w in each for c in w.inside(p, e)])
    value = scalar.cast(x[tuple(places)], fill.dtype)
    return value if inside == te.TRUE else expr.if_then_else(inside, value, fill)


def _emit(call: graph.Call, out: TensorType, x: te.Tensor, padding: Indices) -> te.Tensor:
    assert out.shape is not None
    windows = _sliding(call, x.ndim, padding)
    combiner, _ = REDUCTIONS[attr(call, "reduction")]
    (fill,) = combiner.identity((scalar.accumulator_of(x.dtype),))

    def element(*i: PrimExpr) -> PrimExpr | te.Reduce:
        taps, axes = _taps(windows)
        value = _read(x, i, taps, windows, fill)
        return te.Reduce(combiner, (value,), axes) if axes else value

    return narrow(te.compute(out.shape, element, "T_reduce_window"), x.dtype)


def _places(
    extent: int, size: int, stride: int, dilation: int, before: int, after: int
) -> list[list[int]]:
    """Per window the places in the tensor."""
    count = (extent + before + after - (size - 1) * dilation - 1) // stride + 1
    rows = ([o * stride - before + k * dilation for k in range(size)] for o in range(count))
    return [[p for p in row if 0 <= p < extent] for row in rows]


def _windows_of(
    x: Array, padding: tuple[int, ...], window: Any, strides: Any, dilation: Any
) -> list[list[list[int]]]:
    ones = (1,) * x.ndim
    rows = zip(
        x.shape, window, strides or ones, dilation or ones,
        padding[: x.ndim], padding[x.ndim :], strict=True,
    )  # fmt: skip
    return [_places(*row) for row in rows]


def _reference(
    x: Array, padding: tuple[int, ...], window: Any, strides: Any = None, dilation: Any = None,
    reduction: str = "max",
) -> Array:  # fmt: skip
    combiner, ufunc = REDUCTIONS[reduction]
    (start,) = combiner.identity((x.dtype.name,))
    assert isinstance(start, expr.IntImm | expr.FloatImm)
    places = _windows_of(x, padding, window, strides, dilation)
    result = np.full([len(p) for p in places], start.value, x.dtype)
    for at in np.ndindex(*result.shape):
        part = x[np.ix_(*(rows[i] for rows, i in zip(places, at, strict=True)))]
        result[at] = ufunc.reduce(part.reshape(-1), initial=start.value, dtype=x.dtype)
    return result


# padding: the widths before the dimensions, then those behind; negative ones leave elements out.
define(
    "reduce_window",
    params("x padding", window=REQUIRED, strides=None, dilation=None, reduction="max"),
    _infer,
    emit=_emit,
    reference=in_float32(_reference),
)


# --- The gradient of maxima over windows --------------------------------------------------------


def _backward_infer(call: graph.Call, tys: TypesOf) -> Type:
    grad, x = tensor_arg(call, tys, 0), tensor_arg(call, tys, 1)
    common_dtype(call, grad, x)
    require_dtype(call, x, "floating point", 1)
    padding = _padding(call, tys, 2)
    if x.shape is None or grad.shape is None:
        return x
    windows = _sliding(call, x.ndim, padding)
    for d, (e, w) in enumerate(zip(x.shape, windows, strict=True)):
        if grad.ndim != x.ndim or differ(call, grad.shape[d], _extent(call, e, w), "the windows"):
            raise fail(call, f"the gradient {grad} is not of the shape of the windows of {x}")
    return x


def _backward_emit(
    call: graph.Call, out: TensorType, grad: te.Tensor, x: te.Tensor, padding: Indices
) -> te.Tensor:
    """First the place of each window's first maximum within the window, then, per element, the
    sum of the gradients of the windows whose maximum it is."""
    windows = _sliding(call, x.ndim, padding)
    dtype = scalar.accumulator_of(x.dtype)
    lowest = expr.lowest(dtype)

    def flat(taps: Sequence[PrimExpr]) -> PrimExpr:
        place: PrimExpr = te.ZERO
        for k, w in zip(taps, windows, strict=True):
            place = place * w.size + k
        return place

    def best(*i: PrimExpr) -> te.Reduce:
        taps, axes = _taps(windows)
        return te.Reduce(te.ARGMAX, (_read(x, i, taps, windows, lowest), flat(taps)), axes)

    _, chosen = te.compute_many(grad.shape, best, ("T_max", "T_place"), "T_window_argmax")

    def element(*i: PrimExpr) -> te.Reduce:
        taps, axes = _taps(windows)
        places: list[PrimExpr] = []
        conditions: list[PrimExpr] = []
        for at, k, w, count in zip(i, taps, windows, grad.shape, strict=True):
            start = at + w.before - k * w.dilation
            places.append(start // w.stride)
            conditions += [expr.GE(start, te.ZERO), expr.LT(places[-1], count)]
            conditions += [expr.EQ(start % w.stride, te.ZERO)] if w.stride > 1 else []
        mine = expr.EQ(chosen[tuple(places)], flat(taps))
        value = expr.if_then_else(mine, scalar.cast(grad[tuple(places)], dtype), _zero(dtype))
        inside = expr.if_then_else(expr.all_of(conditions), value, _zero(dtype))
        return te.te_sum(inside, *axes)

    return narrow(te.compute(x.shape, element, "T_window_grad"), x.dtype)


def _zero(dtype: str) -> PrimExpr:
    return expr.const(0, dtype)


def _backward(
    output_grad: Array, data: Array, padding: tuple[int, ...], window: Any, strides: Any = None,
    dilation: Any = None,
) -> Array:  # fmt: skip
    places = _windows_of(data, padding, window, strides, dilation)
    result = np.zeros_like(data)
    for at in np.ndindex(*output_grad.shape):
        points = list(itertools.product(*(rows[i] for rows, i in zip(places, at, strict=True))))
        if points:
            result[points[int(np.argmax([data[p] for p in points]))]] += output_grad[at]
    return result


define(
    "grad.reduce_window_max_backward",
    params("output_grad data padding", window=REQUIRED, strides=None, dilation=None),
    _backward_infer,
    emit=_backward_emit,
    reference=in_float32(_backward),
)
