"""Images read at places between their elements (`R.image.grid_sample`), and grids of such places
(`R.image.affine_grid`)."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

from relaxlab.ir import expr, graph
from relaxlab.ir.expr import PrimExpr
from relaxlab.ir.types import TensorType, Type
from relaxlab.ops import scalar, te
from relaxlab.ops.define import (
    TypesOf,
    attr,
    define,
    fail,
    params,
    takes,
    tensor_arg,
)
from relaxlab.ops.elementwise import in_float32
from relaxlab.ops.layouts import SPATIAL, Layout, from_plain, layout_attr, to_plain
from relaxlab.ops.resize import cubic_share, cubic_weights, shape_of_size
from relaxlab.ops.shapes import Shape, differ

Array = np.ndarray[Any, Any]

CUBIC = -0.75
"""The coefficient of the cubic convolution."""
TAPS = {"nearest": 1, "bilinear": 2, "bicubic": 4}
"""Elements that are read along each dimension, by method."""
METHODS = tuple(TAPS)
PADDINGS = ("zeros", "border", "reflection")


# --- grid_sample ------------------------------------------------------------------------------


def _layout(call: graph.Call) -> Layout:
    order = attr(call, "layout")
    dims = len(order) - 2 if isinstance(order, str) else 0
    if dims not in SPATIAL:
        raise fail(call, f"layout {order!r} is not known", "use NCW, NCHW, NCDHW, or another order")
    return layout_attr(call, "layout", f"NC{SPATIAL[dims]}")


def _sample_infer(call: graph.Call, tys: TypesOf) -> Type:
    x, grid = tensor_arg(call, tys, 0), tensor_arg(call, tys, 1)
    layout = _layout(call)
    for name, known in (("method", METHODS), ("padding_mode", PADDINGS)):
        if attr(call, name) not in known:
            text = f"{name} {attr(call, name)!r} is not known"
            raise fail(call, text, f"use one of {', '.join(known)}")
    _check_rank(call, "data", x, layout)
    if x.shape is None or grid.shape is None:
        return TensorType(None, x.dtype, layout.ndim)
    if grid.ndim < layout.ndim:
        _check_rank(call, "grid", grid, layout)
    batch, channels, *_ = layout.sizes(call, x.shape)
    return TensorType(layout.shape(call, (batch, channels, *grid.shape[2 : layout.ndim])), x.dtype)


def _check_rank(call: graph.Call, what: str, ty: TensorType, layout: Layout) -> None:
    if ty.ndim not in (-1, layout.ndim):
        raise fail(call, f"{what} must have {layout.ndim} dimensions, is {ty}")


def _sample_needs(call: graph.Call, tys: TypesOf) -> None:
    x, grid, layout = tensor_arg(call, tys, 0), tensor_arg(call, tys, 1), _layout(call)
    _check_rank(call, "grid", grid, layout)
    if x.shape is None or grid.shape is None:
        return
    batch = layout.sizes(call, x.shape)[0]
    if differ(call, batch, grid.shape[0], "the batch sizes of data and grid"):
        raise fail(call, f"there are {grid.shape[0]} grids for a batch of {batch}")
    dims = expr.const(layout.ndim - 2)
    if differ(call, grid.shape[1], dims, "the second dimension of grid and the rank of an image"):
        raise fail(call, f"grid must have {dims} coordinates in its second dimension, is {grid}")


def _sample_emit(call: graph.Call, out: TensorType, x: te.Tensor, grid: te.Tensor) -> te.Tensor:
    assert out.shape is not None
    layout = _layout(call)
    extents = layout.sizes(call, x.shape)[2:]
    method, align = attr(call, "method"), bool(attr(call, "align_corners"))
    padding = attr(call, "padding_mode")
    dtype = "float64" if x.dtype == "float64" else "float32"
    last = len(extents) - 1

    # A sum over loops: written out, bicubic samples of 3-D images would have 64 terms.
    taps = [te.reduce_axis(TAPS[method], f"k{d}") for d in range(len(extents))]

    def element(*i: PrimExpr) -> te.Reduce:
        n, c, *points = layout.take(i)
        weight: PrimExpr = expr.const(1.0, dtype)
        places: list[PrimExpr] = []
        for d, (extent, tap) in enumerate(zip(extents, taps, strict=True)):
            size = scalar.cast(extent, dtype)
            at = scalar.cast(grid[(n, expr.const(last - d), *points)], dtype)
            place = (at + 1.0) * 0.5 * (size - 1.0) if align else ((at + 1.0) * size - 1.0) * 0.5
            if method != "bicubic":
                place = _moved(place, size, padding, align)
            place, share = _tap(place, tap.var, method)
            if method == "bicubic":
                place = _moved(place, size, padding, align)
            places.append(scalar.cast(scalar.call("nearbyint", place), "int64"))
            weight = weight * share
        read = scalar.cast(x[layout.put((n, c, *places))], dtype)
        inside = scalar.within(places, extents)
        term = weight * expr.if_then_else(inside, read, expr.const(0.0, dtype))
        return te.te_sum(term, *taps)

    total = te.compute(out.shape, element, "T_grid_sample")
    if dtype == x.dtype:
        return total
    return te.compute(out.shape, lambda *i: scalar.cast(total[i], x.dtype), "T_grid_sample_cast")


def _moved(place: PrimExpr, size: PrimExpr, padding: str, align: bool) -> PrimExpr:
    """A place outside of the image moved to its border, or mirrored there."""
    if padding == "border":
        return scalar.clamp(place, expr.const(0.0, place.dtype), size - 1.0)
    if padding != "reflection":
        return place
    low = 0.0 if align else -0.5
    # A dimension of one element has the span 1, by which the place can be divided.
    span = expr.binary(expr.Max, size - 1.0, 1.0) if align else size
    offset = scalar.call("abs", place - low)
    turns = scalar.call("floor", offset / span)
    rest = offset - turns * span
    even = expr.EQ(turns - scalar.call("floor", turns * 0.5) * 2.0, expr.const(0.0, place.dtype))
    mirrored = expr.Select(even, rest + low, span - rest + low)
    return scalar.clamp(mirrored, expr.const(0.0, place.dtype), size - 1.0)


def _tap(place: PrimExpr, k: PrimExpr, method: str) -> tuple[PrimExpr, PrimExpr]:
    """The place that is read as number `k` along one dimension, and its weight."""
    one = expr.const(1.0, place.dtype)
    if method == "nearest":
        return scalar.call("nearbyint", place), one
    first = scalar.call("floor", place)
    t, number = place - first, scalar.cast(k, place.dtype)
    if method == "bilinear":
        return first + number, expr.Select(expr.EQ(k, te.ZERO), one - t, t)
    *others, weight = cubic_weights(t, CUBIC)
    for n, w in reversed(list(enumerate(others))):
        weight = expr.Select(expr.EQ(k, expr.const(n)), w, weight)
    return first + number - 1.0, weight


@in_float32
def _sample(
    data: Array, grid: Array, *, method: str = "bilinear", layout: str = "NCHW",
    padding_mode: str = "zeros", align_corners: bool = False,
) -> Array:  # fmt: skip
    letters = f"NC{SPATIAL[len(layout) - 2]}"
    x = to_plain(data, layout, letters)
    wide = np.dtype(np.float64 if x.dtype == np.float64 else np.float32)
    result = np.zeros((*x.shape[:2], *grid.shape[2:]), wide)
    for n, point in itertools.product(range(len(x)), np.ndindex(*grid.shape[2:])):
        at = grid[(n, slice(None), *point)].astype(wide)[::-1]
        result[(n, slice(None), *point)] = _read(x[n], at, method, padding_mode, align_corners)
    return from_plain(result, layout, letters).astype(data.dtype)


def _read(x: Array, at: Array, method: str, padding: str, align: bool) -> Array:
    """The channels of an image at a place from -1 to 1."""
    sizes = np.asarray(x.shape[1:], at.dtype)
    place = (at + 1) * at.dtype.type(0.5) * (sizes - 1) if align else ((at + 1) * sizes - 1) / 2
    if method != "bicubic":
        place = _inwards(place, sizes, padding, align)
    if method == "nearest":
        return _at(x, np.rint(place))
    first = np.floor(place)
    t = place - first
    steps = (0, 1) if method == "bilinear" else (-1, 0, 1, 2)
    total = np.zeros(len(x), np.float64)
    for offsets in itertools.product(steps, repeat=len(sizes)):
        far = np.abs(t - np.asarray(offsets, at.dtype))
        shares = 1 - far if method == "bilinear" else [cubic_share(float(f), CUBIC) for f in far]
        corner = first + np.asarray(offsets, at.dtype)
        if method == "bicubic":
            corner = np.rint(_inwards(corner, sizes, padding, align))
        total += math.prod(float(s) for s in shares) * _at(x, corner)
    return total


def _at(x: Array, corner: Array) -> Array:
    if any(not 0 <= c < e for c, e in zip(corner, x.shape[1:], strict=True)):
        return np.zeros(len(x), x.dtype)
    return x[(slice(None), *(int(c) for c in corner))]


def _inwards(place: Array, sizes: Array, padding: str, align: bool) -> Array:
    if padding == "reflection":
        low, span = (0, np.maximum(sizes - 1, 1)) if align else (-0.5, sizes)
        turns, rest = np.divmod(np.abs(place - low), span)
        place = np.where(turns % 2 == 0, rest, span - rest) + low
    return place if padding == "zeros" else np.clip(place, 0, sizes - 1)


define(
    "image.grid_sample",
    params(
        "data grid", method="bilinear", layout="NCHW", padding_mode="zeros", align_corners=False
    ),
    _sample_infer,
    needs=[takes("floating point", 1), _sample_needs],
    emit=_sample_emit,
    reference=_sample,
)


# --- affine_grid ------------------------------------------------------------------------------


def _grid_infer(call: graph.Call, tys: TypesOf) -> Type:
    x = tensor_arg(call, tys, 0)
    size = tys[1] if len(tys) > 1 else None
    dims = getattr(size, "ndim", -1)
    if dims not in (2, 3):
        raise fail(call, f"size must be a shape of 2 or 3 dimensions, is {size}")
    extents = shape_of_size(call, tys, dims)
    if x.ndim not in (-1, 3):
        raise fail(call, f"data must be a batch of matrices, is {x}")
    if x.shape is None:
        return TensorType(None, x.dtype, dims + 2)
    for axis, wanted in ((1, dims), (2, dims + 1)):
        if differ(call, x.shape[axis], expr.const(wanted), f"dimension {axis} of data and size"):
            raise fail(call, f"data must have matrices of {dims} x {dims + 1}, is {x}")
    if extents is None:
        return TensorType(None, x.dtype, dims + 2)
    return TensorType((x.shape[0], expr.const(dims), *extents), x.dtype)


def _grid_emit(call: graph.Call, out: TensorType, x: te.Tensor, size: Shape) -> te.Tensor:
    assert out.shape is not None
    dims, dtype = len(size), "float64" if x.dtype == "float64" else "float32"

    def coordinate(at: PrimExpr, extent: PrimExpr) -> PrimExpr:
        """From -1 to 1: between the outer elements, or between their outer edges."""
        if attr(call, "align_corners"):
            steps = scalar.cast(expr.binary(expr.Max, extent - 1, 1), dtype)
            return scalar.cast(at * 2, dtype) / steps - 1.0
        return scalar.cast(at * 2 + 1, dtype) / scalar.cast(extent, dtype) - 1.0

    def element(*i: PrimExpr) -> PrimExpr:
        n, row, *points = i
        total = scalar.cast(x[n, row, expr.const(dims)], dtype)
        for k in range(dims):  # the first column is for the last dimension
            place = coordinate(points[dims - 1 - k], size[dims - 1 - k])
            total = total + scalar.cast(x[n, row, expr.const(k)], dtype) * place
        return scalar.cast(total, x.dtype)

    return te.compute(out.shape, element, "T_affine_grid")


@in_float32
def _grid(data: Array, size: tuple[int, ...], *, align_corners: bool = True) -> Array:
    lines = [
        np.arange(e) * 2 / max(e - 1, 1) - 1 if align_corners else (np.arange(e) * 2 + 1) / e - 1
        for e in size
    ]
    places = np.meshgrid(*lines, indexing="ij")[::-1]
    homogeneous = np.stack([*places, np.ones(size)])
    return np.einsum("nij,j...->ni...", data, homogeneous).astype(data.dtype)


define(
    "image.affine_grid",
    params("data size", align_corners=True),
    _grid_infer,
    needs=[takes("floating point")],
    emit=_grid_emit,
    reference=_grid,
)
