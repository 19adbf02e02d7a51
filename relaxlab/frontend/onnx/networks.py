"""Rows of convolutions, pooling, norms and resizing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from relaxlab.frontend.emitter import Emitter, dtype_of, shape_of
from relaxlab.frontend.known import Known
from relaxlab.frontend.onnx.resize import weights_of
from relaxlab.frontend.onnx.rows import (
    array,
    axes_of,
    number,
    numbers,
    per_channel,
    rank,
    row,
    static,
)
from relaxlab.frontend.onnx.shapes import pad
from relaxlab.frontend.table import Refused
from relaxlab.ir import expr, graph
from relaxlab.ir.dtypes import is_float
from relaxlab.ir.expr import PrimExpr
from relaxlab.ops import scalar, te

# --- Windows ----------------------------------------------------------------------------------


def _pads(
    x: graph.Expr, kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int],
    pads: Any, auto_pad: str,
) -> list[tuple[Any, Any]]:  # fmt: skip
    """The padding before and behind each spatial dimension; of SAME it depends on the extent."""
    spatial = shape_of(x)[2:]
    if auto_pad in ("NOTSET", "", "VALID"):
        flat = list(pads) if pads and auto_pad != "VALID" else [0] * (2 * len(spatial))
        return list(zip(flat[: len(spatial)], flat[len(spatial) :], strict=True))
    found: list[tuple[Any, Any]] = []
    for extent, k, s, d in zip(spatial, kernel, strides, dilations, strict=True):
        span = (k - 1) * d + 1
        if s == 1:
            total: Any = span - 1
        else:
            (size,) = numbers([extent], "the extent of SAME padding with strides")
            total = max((-(-size // s) - 1) * s + span - size, 0)
        less = total // 2
        low, high = (less, total - less) if auto_pad == "SAME_UPPER" else (total - less, less)
        found.append((low, high))
    return found


def _or_ones(values: Any, count: int) -> tuple[int, ...]:
    return tuple(values) if values else (1,) * count


@row("Conv")
def conv(
    b: Emitter, x: graph.Expr, w: graph.Expr, bias: Any = None, *, auto_pad: str = "NOTSET",
    dilations: Any = None, group: int = 1, kernel_shape: Any = None, pads: Any = None,
    strides: Any = None, **_: Any,
) -> graph.Expr:  # fmt: skip
    dims = rank(x) - 2
    if dims not in (1, 2, 3):
        raise Refused(f"a convolution of {dims} spatial dimensions")
    kernel = numbers(list(shape_of(w)[2:]), "the size of the filters")
    strides, dilations = _or_ones(strides, dims), _or_ones(dilations, dims)
    each = _pads(x, kernel, strides, dilations, pads, auto_pad)
    result = getattr(b, f"conv{dims}d")(
        x, w, strides=strides, dilation=dilations, groups=group,
        padding=(*(p for p, _ in each), *(p for _, p in each)),
    )  # fmt: skip
    result = b.cast(result, dtype_of(x))
    return result if bias is None else b.add(result, per_channel(b, bias, dims + 2))


@row("ConvTranspose")
def conv_transpose(
    b: Emitter, x: graph.Expr, w: graph.Expr, bias: Any = None, *, auto_pad: str = "NOTSET",
    dilations: Any = None, group: int = 1, kernel_shape: Any = None, output_padding: Any = None,
    output_shape: Any = None, pads: Any = None, strides: Any = None, **_: Any,
) -> graph.Expr:  # fmt: skip
    dims = rank(x) - 2
    kernel = numbers(list(shape_of(w)[2:]), "the size of the filters")
    strides, dilations = _or_ones(strides, dims), _or_ones(dilations, dims)
    extra = list(output_padding) if output_padding else [0] * dims
    flat = list(pads) if pads else [0] * (2 * dims)
    each = list(zip(flat[:dims], flat[dims:], strict=True))
    if output_shape or auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        extents = numbers(list(shape_of(x)[2:]), "the extents of the data")
        wanted = list(output_shape)[-dims:] if output_shape else [
            e * s for e, s in zip(extents, strides, strict=True)
        ]  # fmt: skip
        for d in range(dims):
            span = (kernel[d] - 1) * dilations[d] + 1
            total = strides[d] * (extents[d] - 1) + extra[d] + span - wanted[d]
            if total < 0:
                extra[d], total = extra[d] - total, 0
            less = total // 2
            upper = auto_pad == "SAME_UPPER"
            each[d] = (less, total - less) if upper else (total - less, less)
    # Whole, then the margins cut off: widths that differ, and gaps behind, are all right there.
    whole = getattr(b, f"conv{dims}d_transpose")(
        x, w, strides=strides, dilation=dilations, groups=group
    )
    margins = [0, 0, *(-p for p, _ in each), 0, 0]
    margins += [e - p for (_, p), e in zip(each, extra, strict=True)]
    result = pad(b, b.cast(whole, dtype_of(x)), pads=margins)
    return result if bias is None else b.add(result, per_channel(b, bias, dims + 2))


@row("Col2Im")
@static(1, 2)
def col2im(
    b: Emitter, x: graph.Expr, image: Any, block: Any, *, dilations: Any = None, pads: Any = None,
    strides: Any = None, **_: Any,
) -> graph.Expr:  # fmt: skip
    """Windows added to the image that they are of: a transposed convolution whose filters have a
    one for each of their places."""
    extents, kernel = numbers(image, "the image"), numbers(block, "the windows")
    dims, places = len(kernel), math.prod(kernel)
    steps, gaps = _or_ones(strides, dims), _or_ones(dilations, dims)
    flat = list(pads) if pads else [0] * (2 * dims)
    spans = [(k - 1) * g + 1 for k, g in zip(kernel, gaps, strict=True)]
    whole = [e + flat[d] + flat[d + dims] for d, e in enumerate(extents)]
    counts = [(w - s) // step + 1 for w, s, step in zip(whole, spans, steps, strict=True)]
    extra = [w - s - (c - 1) * step
             for w, s, c, step in zip(whole, spans, counts, steps, strict=True)]  # fmt: skip
    batch, rows, _columns = shape_of(x)
    (channels,) = numbers([rows // places], "the channels")
    ones = np.concatenate([np.eye(places).reshape(places, 1, *kernel)] * channels)
    return conv_transpose(
        b, b.reshape(x, (batch, rows, *counts)), number(b, ones, x), dilations=gaps,
        group=channels, output_padding=extra, pads=pads, strides=steps,
    )  # fmt: skip


@row("MaxUnpool")
@static(2)
def max_unpool(
    b: Emitter, x: graph.Expr, at: graph.Expr, shape: Any = None, *, kernel_shape: Any,
    pads: Any = None, strides: Any = None, **_: Any,
) -> graph.Expr:  # fmt: skip
    """Zeros with the elements at the places that a pool took them from, counted in the image that
    has no margin, or in one of the given shape."""
    dims, steps = rank(x) - 2, _or_ones(strides, rank(x) - 2)
    flat, before = list(pads) if pads else [0] * (2 * dims), list(shape_of(x))
    for d in range(dims):
        span = kernel_shape[d] - flat[d] - flat[d + dims]
        before[2 + d] = (before[2 + d] - 1) * steps[d] + span
    count = math.prod(before[1:], start=before[0])
    zeros = b.zeros((count,), dtype=dtype_of(x))
    flat_x, flat_at = (b.reshape(t, (-1,)) for t in (x, at))
    image = b.reshape(b.scatter_elements(zeros, flat_at, flat_x, axis=0), tuple(before))
    if shape is None:
        return image
    wanted = numbers(shape, "the shape")
    grown = [w - n for w, n in zip(wanted, numbers(before, "the extents"), strict=True)]
    return pad(b, image, pads=[0] * rank(x) + grown)


def _pool_windows(
    x: graph.Expr, kernel: Any, strides: Any, dilations: Any, pads: Any, auto_pad: str, ceil: int
) -> tuple[dict[str, tuple[int, ...]], list[tuple[Any, Any]]]:
    """The windows of all dimensions, and the padding of the spatial ones; in `ceil_mode` it grows
    behind, so that the last window is whole, unless that would begin in the padding."""
    dims = rank(x) - 2
    strides, dilations = _or_ones(strides, dims), _or_ones(dilations, dims)
    each = _pads(x, kernel, strides, dilations, pads, auto_pad)
    if ceil:
        extents = numbers(list(shape_of(x)[2:]), "the extent of a pool with ceil_mode")
        for d, (low, high) in enumerate(each):
            span = (kernel[d] - 1) * dilations[d] + 1
            rest = extents[d] + low + high - span
            count = -(-rest // strides[d]) + 1
            if (count - 1) * strides[d] >= extents[d] + low:
                count -= 1
            each[d] = (low, (count - 1) * strides[d] + span - extents[d] - low)
    window = {
        "window": (1, 1, *kernel), "strides": (1, 1, *strides), "dilation": (1, 1, *dilations),
    }  # fmt: skip
    return window, each


def _flat(each: Sequence[tuple[Any, Any]]) -> tuple[PrimExpr, ...]:
    sides = ((0, 0, *(p[side] for p in each)) for side in (0, 1))
    return tuple(expr.as_expr(w) for side in sides for w in side)


@row("MaxPool")
def max_pool(
    b: Emitter, x: graph.Expr, *, kernel_shape: Any, strides: Any = None, dilations: Any = None,
    pads: Any = None, auto_pad: str = "NOTSET", ceil_mode: int = 0, storage_order: int = 0,
    outputs: int = 1, **_: Any,
) -> Any:  # fmt: skip
    window, each = _pool_windows(x, kernel_shape, strides, dilations, pads, auto_pad, ceil_mode)
    best = b.reduce_window(x, _flat(each), **window, reduction="max")
    if outputs == 1:
        return best
    options = {"window": window, "padding": each, "column_major": bool(storage_order)}
    return best, b.te(_places_of_maxima, x, name="max_places", **options)


def _places_of_maxima(
    x: te.Tensor, window: Any, padding: Any, column_major: bool
) -> te.Tensor:
    """The flat index of the first maximum of each window."""
    befores = (0, 0, *(p for p, _ in padding))
    each = list(zip(window["window"], window["strides"], window["dilation"], befores, strict=True))
    highs = (0, 0, *(p for _, p in padding))
    shape = tuple(
        (e + lo + hi - ((k - 1) * d + 1)) // s + 1
        for e, (k, s, d, lo), hi in zip(x.shape, each, highs, strict=True)
    )

    def chosen(*i: PrimExpr) -> te.Reduce:
        axes = [te.reduce_axis(k, f"k{d}") for d, (k, *_) in enumerate(each)]
        places = [
            at * s + a.var * d - lo for at, a, (_, s, d, lo) in zip(i, axes, each, strict=True)
        ]
        inside = expr.all_of(
            [c for p, e in zip(places, x.shape, strict=True)
             for c in (expr.GE(p, te.ZERO), expr.LT(p, e))]
        )  # fmt: skip
        lowest = expr.lowest(scalar.accumulator_of(x.dtype))
        value = expr.if_then_else(inside, scalar.cast(x[tuple(places)], lowest.dtype), lowest)
        order = list(range(len(places)))
        if column_major:
            order[-2:] = order[-2:][::-1]
        flat: PrimExpr = te.ZERO
        for d in order:
            flat = flat * x.shape[d] + places[d]
        return te.Reduce(te.ARGMAX, (value, flat), tuple(axes))

    _, found = te.compute_many(shape, chosen, ("T_max", "T_place"), "T_max_places")
    return te.compute(shape, lambda *i: found[i], "T_places")


@row("AveragePool")
def average_pool(
    b: Emitter, x: graph.Expr, *, kernel_shape: Any, strides: Any = None, dilations: Any = None,
    pads: Any = None, auto_pad: str = "NOTSET", ceil_mode: int = 0, count_include_pad: int = 0,
    **_: Any,
) -> graph.Expr:  # fmt: skip
    """Sums divided by the number of elements, of ones that are padded likewise; with
    `count_include_pad` the padding counts, but not what `ceil_mode` adds."""
    window, each = _pool_windows(x, kernel_shape, strides, dilations, pads, auto_pad, ceil_mode)
    total = b.reduce_window(x, _flat(each), **window, reduction="sum")
    ones = b.full((1, 1, *shape_of(x)[2:]), number(b, 1, x), dtype=dtype_of(x))
    if count_include_pad:
        stated = _pads(x, kernel_shape, _or_ones(strides, rank(x) - 2),
                       _or_ones(dilations, rank(x) - 2), pads, auto_pad)  # fmt: skip
        widths = [0, 0, *(p for p, _ in stated), 0, 0, *(p for _, p in stated)]
        ones = pad(b, ones, pads=widths, value=1.0)
        each = [(0, high - h) for (_, high), (_, h) in zip(each, stated, strict=True)]
    count = b.reduce_window(ones, _flat(each), **window, reduction="sum")
    return b.divide(total, count)


@row("LpPool")
def lp_pool(
    b: Emitter, x: graph.Expr, *, kernel_shape: Any, strides: Any = None, dilations: Any = None,
    pads: Any = None, auto_pad: str = "NOTSET", ceil_mode: int = 0, p: int = 2, **_: Any,
) -> graph.Expr:  # fmt: skip
    window, each = _pool_windows(x, kernel_shape, strides, dilations, pads, auto_pad, ceil_mode)
    powers = b.power(b.abs(x), number(b, p, x))
    total = b.reduce_window(powers, _flat(each), **window, reduction="sum")
    return b.power(total, number(b, 1 / p, total))


def _global(name: str) -> Any:
    def pooled(b: Emitter, x: graph.Expr, **_: Any) -> graph.Expr:
        return getattr(b, name)(x, axis=tuple(range(2, rank(x))), keepdims=True)

    return pooled


row("GlobalAveragePool", _global("mean"))
row("GlobalMaxPool", _global("max"))

# --- Norms ------------------------------------------------------------------------------------


@row("BatchNormalization")
def batch_norm(
    b: Emitter, x: graph.Expr, scale: Any, bias: Any, mean: Any, variance: Any, *,
    epsilon: float = 1e-5, momentum: float = 0.9, training_mode: int = 0, **_: Any,
) -> Any:  # fmt: skip
    if not training_mode:
        return b.fields(
            b.batch_norm(x, scale, bias, mean, variance, axis=1, epsilon=epsilon, training=False)
        )[0]
    axes = tuple(d for d in range(rank(x)) if d != 1)
    here, spread = b.mean(x, axis=axes), b.variance(x, axis=axes)

    def moved(old: Any, new: Any) -> Any:
        kept = b.multiply(old, number(b, momentum, old))
        return b.add(kept, b.multiply(new, number(b, 1 - momentum, new)))

    over = [per_channel(b, v, rank(x)) for v in (here, spread, scale, bias)]
    deviation = b.sqrt(b.add(over[1], number(b, epsilon, x)))
    normal = b.divide(b.subtract(x, over[0]), deviation)
    return (
        b.add(b.multiply(normal, over[2]), over[3]), moved(mean, here), moved(variance, spread),
    )  # fmt: skip


@row("InstanceNormalization")
def instance_norm(
    b: Emitter, x: graph.Expr, scale: Any, bias: Any, *, epsilon: float = 1e-5, **_: Any
) -> graph.Expr:
    axes = list(range(2, rank(x)))
    return b.instance_norm(x, scale, bias, channel_axis=1, axes=axes, epsilon=epsilon)


@row("LpNormalization")
def lp_norm(b: Emitter, x: graph.Expr, *, axis: int = -1, p: int = 2, **_: Any) -> graph.Expr:
    if p == 1:
        size = b.sum(b.abs(x), axis=axis, keepdims=True)
    else:
        size = b.sqrt(b.sum(b.square(x), axis=axis, keepdims=True))
    zero = b.equal(size, number(b, 0, size))
    return b.where(zero, number(b, 0, x), b.divide(x, size))


@row("LRN")
def local_response_norm(
    b: Emitter, x: graph.Expr, *, size: int, alpha: float = 1e-4, beta: float = 0.75,
    bias: float = 1.0, **_: Any,
) -> graph.Expr:  # fmt: skip
    ndim = rank(x)
    low, high = (size - 1) // 2, size - 1 - (size - 1) // 2
    window = [1] * ndim
    window[1] = size
    padding = [0] * (2 * ndim)
    padding[1], padding[ndim + 1] = low, high
    squares = b.reduce_window(
        b.square(x), tuple(expr.const(p) for p in padding), window=tuple(window), reduction="sum"
    )
    scale = b.add(b.multiply(squares, number(b, alpha / size, x)), number(b, bias, x))
    return b.divide(x, b.power(scale, number(b, beta, x)))


# --- Resizing ---------------------------------------------------------------------------------


@row("Resize", since=11)
@static(1, 2, 3)
def resize(
    b: Emitter, x: graph.Expr, roi: Any = None, scales: Any = None, sizes: Any = None, *,
    axes: Any = None, keep_aspect_ratio_policy: str = "stretch", **options: Any,
) -> graph.Expr:  # fmt: skip
    """Along one axis after the other, by a matrix whose rows are the weights of a new element."""
    extents = shape_of(x)
    chosen = axes_of(axes, rank(x)) or tuple(range(rank(x)))
    kept = _kept(extents, chosen, scales, sizes)
    if kept and roi is None and keep_aspect_ratio_policy == "stretch":
        rest = [i for i, axis in enumerate(chosen) if axis not in kept]
        chosen = tuple(chosen[i] for i in rest)
        scales, sizes = (
            v if v is None else Known(v.values[rest], v.dtype) for v in (scales, sizes)
        )
    before = numbers([extents[a] for a in chosen], "the extents of what is resized")
    if sizes is not None:
        after = numbers(sizes, "the sizes")
        factors = [a / e for a, e in zip(after, before, strict=True)]
        if keep_aspect_ratio_policy != "stretch":
            choose = min if keep_aspect_ratio_policy == "not_larger" else max
            factors = [choose(factors)] * len(factors)
            after = [math.floor(f * e + 0.5) for f, e in zip(factors, before, strict=True)]
    else:
        factors = array(scales, "the scales").astype("float64").tolist()
        after = [math.floor(e * f) for e, f in zip(before, factors, strict=True)]
    crop = array(roi, "the region").tolist() if roi is not None and _count(roi) else []
    dtype = dtype_of(x)
    result = b.cast(x, dtype if dtype in ("float32", "float64") else "float32")
    for i, axis in enumerate(chosen):
        region = (crop[i], crop[i + len(chosen)]) if crop else (0.0, 1.0)
        weights = weights_of(before[i], after[i], factors[i], region, **options)
        if weights is None:
            continue
        matrix, outside = weights
        result = along(b, result, axis, matrix.astype(dtype_of(result)))
        if outside.any():
            value = options.get("extrapolation_value", 0.0)
            mask = per_channel(b, b.const(outside), rank(x), axis)
            result = b.where(mask, number(b, value, result), result)
    return b.cast(result if is_float(dtype) else b.round(result), dtype)


@row("Upsample", since=7)
@row("Resize", since=10)
@static(1)
def upsample(
    b: Emitter, x: graph.Expr, factors: Any = None, *, scales: Any = None, mode: str = "nearest",
    **_: Any,
) -> graph.Expr:  # fmt: skip
    """Resizing as it was before coordinates could be chosen."""
    given = factors if factors is not None else Known.of(scales, "float32")
    options = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    return resize(b, x, None, given, mode=mode, **options)


def _kept(
    extents: Sequence[PrimExpr], chosen: Sequence[int], scales: Any, sizes: Any
) -> set[int]:
    """The axes of symbolic extents that stay as long as they are, such as that of a batch."""
    known = scales if sizes is None else sizes
    if not isinstance(known, Known):
        return set()
    pairs = zip(chosen, known.flat(), strict=True)
    same = {a for a, v in pairs if (v == 1 if sizes is None else expr.as_expr(v) == extents[a])}
    return {a for a in same if not isinstance(extents[a], expr.IntImm)}


def _count(roi: Any) -> int:
    return array(roi, "the region").size


def along(b: Emitter, x: graph.Expr, axis: int, matrix: Any) -> graph.Expr:
    """The product with a matrix along one axis."""
    ndim = rank(x)
    order = (*(d for d in range(ndim) if d != axis), axis)
    product = b.linear(b.permute_dims(x, axes=order), b.const(matrix))
    return b.permute_dims(product, axes=tuple(int(i) for i in np.argsort(order)))
