"""Regions of images in windows of a fixed number (`R.vision.roi_align`, `R.vision.roi_pool`). The
result of a region whose image the batch does not have is 0."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from relaxlab.ir import expr, graph, loops
from relaxlab.ir.expr import PrimExpr
from relaxlab.ir.op_table import REQUIRED
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
from relaxlab.ops.layouts import from_plain, layout_attr, per_dimension, to_plain
from relaxlab.ops.resize import require_image
from relaxlab.ops.shapes import differ

Array = np.ndarray[Any, Any]
Rows = tuple[expr.Var, ...]
Buffers = dict[te.Tensor, loops.Buffer]

HALF, ONE = expr.const(0.5), expr.const(1.0)
NEEDS = (takes("a number"), takes("floating point", 1))


def _infer(call: graph.Call, tys: TypesOf) -> Type:
    """One result per region, whose five numbers are an image's and the corners x1, y1, x2, y2."""
    x, rois = tensor_arg(call, tys, 0), tensor_arg(call, tys, 1)
    layout = layout_attr(call, "layout", "NCHW")
    size = [expr.const(p) for p in per_dimension(call, "pooled_size", 2, 1)]
    if x.ndim not in (-1, layout.ndim):
        raise fail(call, f"data must have {layout.ndim} dimensions, is {x}")
    if rois.ndim not in (-1, 2):
        raise fail(call, f"rois must have two dimensions, is {rois}")
    if rois.shape is not None:
        five = expr.const(5)
        if differ(call, rois.shape[1], five, "the last dimension of rois and the numbers of one"):
            raise fail(call, f"rois must have 5 numbers each, is {rois}")
    if x.shape is None or rois.shape is None:
        return TensorType(None, x.dtype, layout.ndim)
    _, channels, *extents = layout.sizes(call, x.shape)
    require_image(call, extents)
    return TensorType(layout.shape(call, (rois.shape[0], channels, *size)), x.dtype)


def _align_infer(call: graph.Call, tys: TypesOf) -> Type:
    if attr(call, "mode") not in ("avg", "max"):
        raise fail(call, f"mode {attr(call, 'mode')!r} is not known", 'use "avg" or "max"')
    return _infer(call, tys)


def _corners(
    rois: loops.Buffer, r: PrimExpr, scale: float, dtype: str = "float32"
) -> tuple[PrimExpr, ...]:
    """x1, y1, x2 and y2 of a region in elements of the image."""

    def corner(k: int) -> PrimExpr:
        value = loops.BufferLoad(rois, (r, expr.const(k)))
        return scalar.cast(value, dtype) * expr.const(float(scale), dtype)

    return tuple(corner(k) for k in (1, 2, 3, 4))


def _image(rois: loops.Buffer, r: PrimExpr) -> PrimExpr:
    return scalar.cast(loops.BufferLoad(rois, (r, te.ZERO)), "int64")


# --- roi_align --------------------------------------------------------------------------------


def _align_emit(call: graph.Call, out: TensorType, x: te.Tensor, rois: te.Tensor) -> te.Tensor:
    """The mean or the greatest of points of each window, interpolated between elements."""
    assert out.shape is not None and out.dtype is not None
    layout = layout_attr(call, "layout", "NCHW")
    images, _, height, width = layout.sizes(call, x.shape)
    rows, columns = per_dimension(call, "pooled_size", 2, 1)
    mean = attr(call, "mode") == "avg"
    wide = "float64" if x.dtype == "float64" else "float32"

    def body(row: Rows, b: Buffers) -> loops.Stmt:
        r, c, i, j = layout.take(row)
        x1, y1, x2, y2 = _corners(b[rois], r, attr(call, "spatial_scale"), wide)
        tall, high, y_count = _window(call, y1, y2, rows, i)
        broad, left, x_count = _window(call, x1, x2, columns, j)
        p, q = expr.Var("p"), expr.Var("q")

        def point(first: PrimExpr, size: PrimExpr, at: PrimExpr, count: PrimExpr) -> PrimExpr:
            steps = scalar.cast(at, wide) + expr.const(0.5, wide)
            return first + steps * size / scalar.cast(count, wide)

        def read(y: PrimExpr, z: PrimExpr) -> PrimExpr:
            image = _image(b[rois], r)
            known = scalar.within((image, y, z), (images, height, width))
            value = scalar.cast(loops.BufferLoad(b[x], layout.put((image, c, y, z))), wide)
            return expr.if_then_else(known, value, expr.const(0.0, wide))

        value = _between(read, point(high, tall, p, y_count), point(left, broad, q, x_count),
                         height, width)  # fmt: skip
        so_far = loops.BufferLoad(b[total], row)
        first = expr.And(expr.EQ(p, te.ZERO), expr.EQ(q, te.ZERO))
        larger = expr.Select(first, value, expr.binary(expr.Max, so_far, value))
        add = loops.BufferStore(b[total], so_far + value if mean else larger, row)
        walk = loops.For(p, te.ZERO, y_count, "serial",
                         loops.For(q, te.ZERO, x_count, "serial", add))  # fmt: skip
        points = expr.binary(expr.Max, y_count * x_count, 1)
        divide = loops.BufferStore(b[total], so_far / scalar.cast(points, wide), row)
        clear = loops.BufferStore(b[total], expr.const(0.0, wide), row)
        return loops.seq(clear, walk, divide) if mean else loops.seq(clear, walk)

    outputs = [("T_roi_align", out.shape, wide)]
    (total,) = te.compute_rows(out.shape, outputs, [x, rois], body, "T_roi_align")
    dtype = out.dtype
    return te.compute(out.shape, lambda *i: scalar.cast(total[i], dtype), "T_roi_align")


def _window(
    call: graph.Call, low: PrimExpr, high: PrimExpr, count: int, at: PrimExpr
) -> tuple[PrimExpr, PrimExpr, PrimExpr]:
    """The size of a window along a dimension, where it begins, and how many points it has."""
    extent = high - low
    if not attr(call, "aligned"):
        extent = expr.binary(expr.Max, extent, expr.const(1.0, low.dtype))
    size = extent / expr.const(float(count), low.dtype)
    first = low + scalar.cast(at, low.dtype) * size
    ratio = attr(call, "sample_ratio")
    points = scalar.cast(scalar.call("ceil", size), "int64")
    return size, first, expr.const(ratio) if ratio > 0 else expr.binary(expr.Max, points, 0)


def _between(read: Any, y: PrimExpr, x: PrimExpr, height: PrimExpr, width: PrimExpr) -> PrimExpr:
    """The value at a point; 0 for one that is more than an element outside of the image."""
    dtype = y.dtype
    zero, one = expr.const(0.0, dtype), expr.const(1.0, dtype)

    def along(at: PrimExpr, extent: PrimExpr) -> tuple[PrimExpr, PrimExpr, PrimExpr]:
        last = scalar.cast(extent - 1, dtype)
        inside = scalar.clamp(at, zero, last)
        low = scalar.cast(scalar.call("floor", inside), "int64")
        part = inside - scalar.cast(low, dtype)
        return low, expr.binary(expr.Min, low + 1, extent - 1), part

    y0, y1, t = along(y, height)
    x0, x1, u = along(x, width)
    upper = read(y0, x0) * (one - u) + read(y0, x1) * u
    lower = read(y1, x0) * (one - u) + read(y1, x1) * u
    near: list[PrimExpr] = [
        test
        for at, extent in ((y, height), (x, width))
        for test in (expr.GE(at, expr.const(-1.0, dtype)), expr.LE(at, scalar.cast(extent, dtype)))
    ]
    value = upper * (one - t) + lower * t
    return expr.if_then_else(expr.all_of(near), value, zero)


def _align(
    data: Array, rois: Array, *, pooled_size: Any, spatial_scale: float, sample_ratio: int = -1,
    aligned: bool = False, layout: str = "NCHW", mode: str = "avg",
) -> Array:  # fmt: skip
    real = np.float64 if data.dtype == np.float64 else np.float32
    x, regions = to_plain(data, layout, "NCHW"), rois.astype(real)
    rows, columns = _pair(pooled_size)
    result = np.zeros((len(rois), x.shape[1], rows, columns), real)
    one = real(1)
    for r, (image, *corners) in enumerate(regions):
        if not 0 <= int(image) < len(x):
            continue
        x1, y1, x2, y2 = (c * real(spatial_scale) for c in corners)
        tall, wide = y2 - y1, x2 - x1
        if not aligned:
            tall, wide = max(tall, one), max(wide, one)
        tall, wide = tall / real(rows), wide / real(columns)
        counts = [sample_ratio if sample_ratio > 0 else max(math.ceil(s), 0) for s in (tall, wide)]
        for i, j in np.ndindex(rows, columns):
            first = y1 + real(i) * tall, x1 + real(j) * wide
            points = [
                _interpolated(x[int(image)], *(
                    f + (real(p) + real(0.5)) * s / real(n)
                    for f, p, s, n in zip(first, at, (tall, wide), counts, strict=True)
                ))
                for at in np.ndindex(*counts)
            ]  # fmt: skip
            if points:
                result[r, :, i, j] = (np.mean if mode == "avg" else np.max)(points, axis=0)
    return from_plain(result, layout, "NCHW").astype(data.dtype)


def _interpolated(x: Array, *at: float) -> Array:
    extents = x.shape[1:]
    if any(a < -1 or a > e for a, e in zip(at, extents, strict=True)):
        return np.zeros(len(x), np.float32)
    y, z = (min(max(a, np.float32(0)), np.float32(e - 1)) for a, e in zip(at, extents, strict=True))
    y0, z0 = int(y), int(z)
    y1, z1 = min(y0 + 1, extents[0] - 1), min(z0 + 1, extents[1] - 1)
    t, u = y - y0, z - z0
    upper = x[:, y0, z0] * (1 - u) + x[:, y0, z1] * u
    return upper * (1 - t) + (x[:, y1, z0] * (1 - u) + x[:, y1, z1] * u) * t


def _pair(size: Any) -> tuple[int, int]:
    items = size if isinstance(size, tuple | list) else (size,)
    return (items[0], items[-1])


define(
    "vision.roi_align",
    params("data rois", pooled_size=REQUIRED, spatial_scale=REQUIRED, sample_ratio=-1,
           aligned=False, layout="NCHW", mode="avg"),
    _align_infer,
    needs=NEEDS,
    emit=_align_emit,
    reference=in_float32(_align),
)  # fmt: skip


# --- roi_pool ---------------------------------------------------------------------------------


def _pool_emit(call: graph.Call, out: TensorType, x: te.Tensor, rois: te.Tensor) -> te.Tensor:
    """The greatest element of each window, 0 where it has none."""
    assert out.shape is not None and out.dtype is not None
    layout = layout_attr(call, "layout", "NCHW")
    images, _, height, width = layout.sizes(call, x.shape)
    rows, columns = per_dimension(call, "pooled_size", 2, 1)
    wide = scalar.accumulator_of(out.dtype)

    def body(row: Rows, b: Buffers) -> loops.Stmt:
        r, c, i, j = layout.take(row)
        x1, y1, x2, y2 = _corners(b[rois], r, attr(call, "spatial_scale"))
        top, bottom = _span(y1, y2, rows, i, height)
        left, right = _span(x1, x2, columns, j, width)
        p, q = expr.Var("p"), expr.Var("q")
        image = _image(b[rois], r)
        known = scalar.within((image,), (images,))
        read = loops.BufferLoad(b[x], layout.put((image, c, top + p, left + q)))
        value = expr.if_then_else(known, scalar.cast(read, wide), expr.lowest(wide))
        so_far = loops.BufferLoad(b[best], row)
        store = loops.BufferStore(b[best], expr.binary(expr.Max, so_far, value), row)
        walk = loops.For(p, te.ZERO, bottom - top, "serial",
                         loops.For(q, te.ZERO, right - left, "serial", store))  # fmt: skip
        some = expr.all_of([known, expr.GT(bottom, top), expr.GT(right, left)])
        nothing = expr.Select(some, expr.lowest(wide), expr.const(0, wide))
        first = loops.BufferStore(b[best], nothing, row)
        return loops.seq(first, walk)

    outputs = [("T_roi_pool", out.shape, wide)]
    (best,) = te.compute_rows(out.shape, outputs, [x, rois], body, "T_roi_pool")
    dtype = out.dtype
    return te.compute(out.shape, lambda *i: scalar.cast(best[i], dtype), "T_roi_pool")


def _span(
    low: PrimExpr, high: PrimExpr, count: int, at: PrimExpr, extent: PrimExpr
) -> tuple[PrimExpr, PrimExpr]:
    """The first element of a window along a dimension, and the first behind it, which is not
    before it."""
    first, last = (scalar.call("floor", e + HALF) for e in (low, high))
    size = expr.binary(expr.Max, last - first + ONE, ONE) / expr.const(float(count))
    begin = scalar.call("floor", scalar.cast(at, "float32") * size) + first
    end = scalar.call("ceil", (scalar.cast(at, "float32") + ONE) * size) + first
    limit = scalar.cast(extent, "float32")
    start = scalar.cast(scalar.clamp(begin, expr.const(0.0), limit), "int64")
    stop = scalar.cast(scalar.clamp(end, expr.const(0.0), limit), "int64")
    return start, expr.binary(expr.Max, stop, start)


def _pool(
    data: Array, rois: Array, *, pooled_size: Any, spatial_scale: float, layout: str = "NCHW"
) -> Array:
    x, regions = to_plain(data, layout, "NCHW"), rois.astype(np.float32)
    size = _pair(pooled_size)
    result = np.zeros((len(rois), x.shape[1], *size), data.dtype)
    for r, (image, *corners) in enumerate(regions):
        if not 0 <= int(image) < len(x):
            continue
        x1, y1, x2, y2 = (
            np.floor(c * np.float32(spatial_scale) + np.float32(0.5)) for c in corners
        )
        for at in np.ndindex(*size):
            window: list[slice] = []
            for k, low, high, n, e in zip(at, (y1, x1), (y2, x2), size, x.shape[2:], strict=True):
                step = max(high - low + np.float32(1), np.float32(1)) / np.float32(n)
                begin = np.floor(np.float32(k) * step) + low
                end = np.ceil((np.float32(k) + np.float32(1)) * step) + low
                window.append(slice(*(int(min(max(v, 0), e)) for v in (begin, end))))
            part = x[(int(image), slice(None), *window)]
            if part.size:
                result[(r, slice(None), *at)] = part.max((1, 2))
    return from_plain(result, layout, "NCHW")


define(
    "vision.roi_pool",
    params("data rois", pooled_size=REQUIRED, spatial_scale=REQUIRED, layout="NCHW"),
    _infer,
    needs=NEEDS,
    emit=_pool_emit,
    reference=_pool,
)
