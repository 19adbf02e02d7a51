"""Pooling (`R.nn.max_pool2d`, ...) and its gradients (`R.grad.max_pool2d_backward`)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from relaxlab.ir import expr, graph
from relaxlab.ir.dtypes import is_int, is_uint
from relaxlab.ir.expr import PrimExpr
from relaxlab.ir.types import TensorType, Type
from relaxlab.ops import scalar, te
from relaxlab.ops.define import (
    TypesOf,
    attr,
    define,
    fail,
    one_dtype,
    params,
    takes,
    tensor_arg,
    type_of_argument,
)
from relaxlab.ops.elementwise import in_float32
from relaxlab.ops.layouts import (
    SPATIAL,
    Layout,
    Window,
    from_plain,
    layout_attr,
    paddings,
    pads_of,
    per_dimension,
    spatial_rank,
    to_plain,
    tuple_of,
)
from relaxlab.ops.reduce import narrow
from relaxlab.ops.shapes import (
    ONE,
    Shape,
    at_most,
    differ,
    impossible,
    prove,
    prove_equal,
    require_window,
    simplify,
)

Array = np.ndarray[Any, Any]
Indices = tuple[PrimExpr, ...]


# --- Windows ----------------------------------------------------------------------------------


def _layouts(call: graph.Call, dims: int) -> tuple[Layout, Layout]:
    data = layout_attr(call, "layout", f"NC{SPATIAL[dims]}")
    return data, layout_attr(call, "out_layout", f"NC{SPATIAL[dims]}", data)


def _windows(call: graph.Call, dims: int) -> tuple[Window, ...]:
    sizes = per_dimension(call, "pool_size", dims, 1)
    strides = per_dimension(call, "strides", dims, 1)
    dilations = per_dimension(call, "dilation", dims, 1)
    rows = zip(sizes, strides, dilations, paddings(call, dims), strict=True)
    return tuple(Window(expr.const(k), s, d, a, b) for k, s, d, (a, b) in rows)


def _pooled_extent(call: graph.Call, extent: PrimExpr, w: Window) -> PrimExpr:
    """With `ceil_mode` the last window may reach past the padding, but must start before it."""
    rest = simplify(extent + (w.before + w.after) - w.span)
    if not attr(call, "ceil_mode"):
        require_window(call, extent, rest, w.stride, f"window's {w.span}")
        return simplify(rest // w.stride + 1)
    beyond = simplify(rest + (w.stride - 1))
    require_window(call, extent, beyond, w.stride, f"window's {w.span} by a stride or more")
    reaching = simplify(beyond // w.stride + 1)
    starting = simplify((extent + (w.before - 1)) // w.stride + 1)
    if prove(expr.GE(w.span, expr.const(w.after + w.stride))) is True:
        return reaching  # whose last window starts at the last element at the latest
    return at_most(reaching, starting)


def _pool_infer(call: graph.Call, tys: TypesOf, dims: int) -> Type:
    return _pooled_type(call, tensor_arg(call, tys, 0), dims)


def _pooled_type(call: graph.Call, x: TensorType, dims: int) -> TensorType:
    data, result = _layouts(call, dims)
    windows = _windows(call, dims)
    if x.ndim not in (-1, data.ndim):
        raise fail(call, f"data must have {data.ndim} dimensions, is {x}")
    if x.shape is None:
        return TensorType(None, x.dtype, result.ndim)
    batch, channels, *extents = data.sizes(call, x.shape)
    spatial = [_pooled_extent(call, e, w) for e, w in zip(extents, windows, strict=True)]
    return TensorType(result.shape(call, (batch, channels, *spatial)), x.dtype)


def _inside(
    call: graph.Call, places: list[PrimExpr], extents: list[PrimExpr], windows: tuple[Window, ...]
) -> PrimExpr:
    """True if a place read by a window lies in the tensor."""
    conditions: list[PrimExpr] = []
    for at, e, w in zip(places, extents, windows, strict=True):
        conditions += [expr.GE(at, te.ZERO)] if w.before else []
        conditions += [expr.LT(at, e)] if w.after or attr(call, "ceil_mode") else []
    return expr.all_of(conditions)


def _taps(windows: tuple[Window, ...]) -> tuple[te.Axis, ...]:
    return tuple(te.reduce_axis(w.size, f"k{d}") for d, w in enumerate(windows))


def _reads(spatial: list[PrimExpr], taps: tuple[te.Axis, ...], windows: tuple[Window, ...]):
    return [w.reads(s, k.var) for s, k, w in zip(spatial, taps, windows, strict=True)]


def _pool_compute(
    call: graph.Call,
    shape: Shape,
    x: te.Tensor,
    dims: int,
    combine: Callable[..., te.Reduce],
    fill: PrimExpr,
    name: str,
) -> te.Tensor:
    """`combine` over the elements of each window that lie in the tensor."""
    data, result = _layouts(call, dims)
    _, _, *extents = data.sizes(call, x.shape)
    windows = _windows(call, dims)
    taps = _taps(windows)

    def element(*i: PrimExpr) -> te.Reduce:
        n, c, *spatial = result.take(i)
        places = _reads(spatial, taps, windows)
        inside = _inside(call, places, extents, windows)
        value = scalar.cast(x[data.put((n, c, *places))], fill.dtype)
        if inside != te.TRUE:
            value = expr.if_then_else(inside, value, fill)
        return combine(value, *taps)

    return te.compute(shape, element, name)


def _max_emit(call: graph.Call, out: TensorType, x: te.Tensor, dims: int) -> te.Tensor:
    assert out.shape is not None
    lowest = expr.lowest(scalar.accumulator_of(x.dtype))
    name = f"T_max_pool{dims}d"
    return narrow(_pool_compute(call, out.shape, x, dims, te.te_max, lowest, name), x.dtype)


def _window_count(
    call: graph.Call, spatial: list[PrimExpr], extents: list[PrimExpr], windows: tuple[Window, ...]
) -> PrimExpr:
    """Return the divisor of a window's sum: with `count_include_pad` its elements in the padded
    tensor, else those in the tensor itself; at least 1."""
    count: PrimExpr = ONE
    for s, e, w in zip(spatial, extents, windows, strict=True):
        count = count * _count(call, s, e, w)
    return count


def _count(call: graph.Call, s: PrimExpr, e: PrimExpr, w: Window) -> PrimExpr:
    include = attr(call, "count_include_pad")
    whole = not attr(call, "ceil_mode") and (include or not w.padded)
    if whole:
        return w.size
    first = w.reads(s, te.ZERO)
    low, high = (-w.before, e + w.after) if include else (0, e)
    skipped = expr.binary(expr.Max, (expr.const(low) - first + (w.dilation - 1)) // w.dilation, 0)
    end = expr.binary(expr.Min, (high - first + (w.dilation - 1)) // w.dilation, w.size)
    return expr.binary(expr.Max, end - skipped, 1)


def _sum_dtype(dtype: str) -> str:
    """The dtype of the sums of windows: the mean of integers, rounded towards zero, fits theirs."""
    if is_int(dtype):
        return "uint64" if is_uint(dtype) else "int64"
    return scalar.accumulator_of(dtype)


def _avg_emit(call: graph.Call, out: TensorType, x: te.Tensor, dims: int) -> te.Tensor:
    assert out.shape is not None
    data, result = _layouts(call, dims)
    _, _, *extents = data.sizes(call, x.shape)
    wide = _sum_dtype(x.dtype)
    total = _pool_compute(call, out.shape, x, dims, te.te_sum, expr.const(0, wide), "T_pool_sum")

    def element(*i: PrimExpr) -> PrimExpr:
        _, _, *spatial = result.take(i)
        count = _window_count(call, spatial, extents, _windows(call, dims))
        return scalar.cast(expr.Div(total[i], scalar.cast(count, total.dtype)), x.dtype)

    return te.compute(out.shape, element, f"T_avg_pool{dims}d")


# --- In NumPy ---------------------------------------------------------------------------------


def _pool_places(x: Array, attrs: dict[str, Any]) -> list[list[tuple[list[int], int]]]:
    """Per spatial dimension and output: the places in the tensor, and the divisor's factor."""
    dims = x.ndim - 2
    sizes, strides, dilations = (
        tuple_of(attrs.get(n, 1), dims) for n in ("pool_size", "strides", "dilation")
    )
    pads = pads_of(attrs.get("padding", 0), dims)
    result: list[list[tuple[list[int], int]]] = []
    for e, k, s, d, (a, b) in zip(x.shape[2:], sizes, strides, dilations, pads, strict=True):
        rest = e + a + b - (k - 1) * d - 1
        outputs = rest // s + 1
        if attrs.get("ceil_mode", False):
            outputs = min(math.ceil(rest / s), (e + a - 1) // s) + 1
        rows: list[tuple[list[int], int]] = []
        for o in range(outputs):
            at = [o * s - a + i * d for i in range(k)]
            inside = [p for p in at if 0 <= p < e]
            counted = [p for p in at if -a <= p < e + b]
            rows.append((inside, max(len(counted if attrs["count_include_pad"] else inside), 1)))
        result.append(rows)
    return result


def _pool_reference(combine: Callable[[Array, int], Any], include: bool) -> Callable[..., Array]:
    def reference(data: Array, **attrs: Any) -> Array:
        letters = f"NC{SPATIAL[spatial_rank(data, attrs.get('layout'))]}"
        x = to_plain(data, attrs.get("layout"), letters)
        attrs = {"count_include_pad": include, **attrs}
        places = _pool_places(x, attrs)
        y = np.empty((*x.shape[:2], *map(len, places)), x.dtype)
        for o in itertools.product(*(range(len(p)) for p in places)):
            rows = [p[i] for p, i in zip(places, o, strict=True)]
            window = x[np.ix_(range(x.shape[0]), range(x.shape[1]), *(r for r, _ in rows))]
            flat = window.reshape(*x.shape[:2], math.prod(len(r) for r, _ in rows))
            y[(..., *o)] = combine(flat, math.prod(n for _, n in rows))
        return from_plain(y, attrs.get("out_layout") or attrs.get("layout"), letters)

    return in_float32(reference)


def _maximum(window: Array, _: int) -> Any:
    return window.max(-1, initial=expr.lowest(window.dtype.name).value)  # type: ignore[attr-defined]


def _average(window: Array, count: int) -> Any:
    """The mean; of integers it is rounded towards zero."""
    if window.dtype.kind == "f":
        return window.sum(-1) / window.dtype.type(count)
    total = window.sum(-1, dtype=np.uint64 if window.dtype.kind == "u" else np.int64)
    rounded_up = (total < 0) & (total % total.dtype.type(count) != 0)
    return total // total.dtype.type(count) + rounded_up.astype(total.dtype)


# --- Adaptive ---------------------------------------------------------------------------------


def _adaptive_sizes(call: graph.Call, extents: list[PrimExpr]) -> list[PrimExpr]:
    if attr(call, "output_size") is None:
        return extents
    return [expr.const(v) for v in per_dimension(call, "output_size", len(extents), 1)]


def _adaptive_infer(call: graph.Call, tys: TypesOf, dims: int) -> Type:
    x = tensor_arg(call, tys, 0)
    data, result = _layouts(call, dims)
    if x.ndim not in (-1, data.ndim):
        raise fail(call, f"data must have {data.ndim} dimensions, is {x}")
    if x.shape is None:
        _adaptive_sizes(call, [te.ZERO] * dims)
        return TensorType(None, x.dtype, result.ndim)
    batch, channels, *extents = data.sizes(call, x.shape)
    for e in extents:
        if impossible(call, expr.GT(e, te.ZERO), f"the extent {e} must be at least 1"):
            raise fail(call, f"a spatial dimension is {e}")
    sizes = _adaptive_sizes(call, extents)
    return TensorType(result.shape(call, (batch, channels, *sizes)), x.dtype)


def _adaptive_emit(call: graph.Call, out: TensorType, x: te.Tensor, dims: int) -> te.Tensor:
    """Output o is the mean of the inputs from floor(o * e / n) to ceil((o + 1) * e / n)."""
    assert out.shape is not None
    data, result = _layouts(call, dims)
    _, _, *extents = data.sizes(call, x.shape)
    sizes = _adaptive_sizes(call, extents)
    wide = _sum_dtype(x.dtype)
    even = [prove_equal(e % n, te.ZERO) is True for e, n in zip(extents, sizes, strict=True)]
    taps = tuple(
        te.reduce_axis(simplify(e // n if whole else (e - 1) // n + 2), f"k{d}")
        for d, (e, n, whole) in enumerate(zip(extents, sizes, even, strict=True))
    )

    def bounds(spatial: list[PrimExpr]) -> list[tuple[PrimExpr, PrimExpr]]:
        # The start of the only output is 0: what it reads are neighbours, as of a plain mean.
        rows = zip(spatial, extents, sizes, strict=True)
        return [
            (te.ZERO, e) if n == ONE else ((o * e) // n, ((o + 1) * e + (n - 1)) // n)
            for o, e, n in rows
        ]

    def element(*i: PrimExpr) -> te.Reduce:
        batch, channel, *spatial = result.take(i)
        ends = bounds(spatial)
        places = [start + k.var for (start, _), k in zip(ends, taps, strict=True)]
        value = scalar.cast(x[data.put((batch, channel, *places))], wide)
        rows = zip(places, ends, even, strict=True)
        inside = expr.all_of([expr.LT(p, end) for p, (_, end), whole in rows if not whole])
        if inside != te.TRUE:
            value = expr.if_then_else(inside, value, expr.const(0, value.dtype))
        return te.te_sum(value, *taps)

    total = te.compute(out.shape, element, "T_pool_sum")

    def mean(*i: PrimExpr) -> PrimExpr:
        _, _, *spatial = result.take(i)
        count: PrimExpr = ONE
        for start, end in bounds(spatial):
            count = count * (end - start)
        return scalar.cast(expr.Div(total[i], scalar.cast(count, total.dtype)), x.dtype)

    return te.compute(out.shape, mean, f"T_adaptive_avg_pool{dims}d")


def _adaptive_reference(
    data: Array,
    output_size: Any = None,
    layout: str | None = None,
    out_layout: str | None = None,
) -> Array:
    dims = spatial_rank(data, layout)
    letters = f"NC{SPATIAL[dims]}"
    x = to_plain(data, layout, letters)
    sizes = x.shape[2:] if output_size is None else tuple_of(output_size, dims)
    y = np.empty((*x.shape[:2], *sizes), x.dtype)
    for o in itertools.product(*map(range, sizes)):
        rows = zip(o, x.shape[2:], sizes, strict=True)
        cut = [slice(i * e // n, -(-(i + 1) * e // n)) for i, e, n in rows]
        part = x[(..., *cut)]
        count = math.prod(part.shape[2:])
        y[(..., *o)] = _average(part.reshape(*x.shape[:2], count), count)
    return from_plain(y, out_layout or layout, letters)


# --- Gradients --------------------------------------------------------------------------------


def _backward_needs(call: graph.Call, tys: TypesOf) -> None:
    grad, x = tensor_arg(call, tys, 0), tensor_arg(call, tys, 1)
    pooled = _pooled_type(call, x, 2)
    if -1 not in (grad.ndim, pooled.ndim) and grad.ndim != pooled.ndim:
        raise fail(call, f"output_grad is {grad}, pooling gives {pooled}")
    if pooled.shape is not None and grad.shape is not None:
        for a, b in zip(pooled.shape, grad.shape, strict=True):
            if differ(call, a, b, "the extents of output_grad and of the pooled data"):
                raise fail(call, f"output_grad is {grad}, pooling gives {pooled}")


def _gathered(
    call: graph.Call,
    out: TensorType,
    grad: te.Tensor,
    share: Callable[[Indices, Indices], PrimExpr],
    name: str,
) -> te.Tensor:
    """For each input the sum of `share(window, input)` over the windows that hold it."""
    assert out.shape is not None and out.dtype is not None
    data, result = _layouts(call, 2)
    _, _, *counts = result.sizes(call, grad.shape)
    windows = _windows(call, 2)
    # Only the elements of one phase of a window meet an input.
    taps = tuple(te.reduce_axis(w.terms, f"k{d}") for d, w in enumerate(windows))

    def element(*i: PrimExpr) -> te.Reduce:
        n, c, *spatial = data.take(i)
        at: list[PrimExpr] = []
        hit: list[PrimExpr] = []
        for s, t, w, count in zip(spatial, taps, windows, counts, strict=True):
            place = s + w.before
            phase, last = w.meeting(place)
            at.append(last - t.var * w.step)
            hit += [expr.GE(at[-1], te.ZERO), expr.LT(at[-1], count)]
            hit += [] if w.divisor == 1 else [expr.EQ(place % w.divisor, te.ZERO)]
            hit += [expr.LT(phase + t.var * w.phases, w.size)]
        value = share(result.put((n, c, *at)), i)
        return te.te_sum(
            expr.if_then_else(expr.all_of(hit), value, expr.const(0, value.dtype)), *taps
        )

    return narrow(te.compute(out.shape, element, name), out.dtype)


def _avg_backward_emit(
    call: graph.Call, out: TensorType, grad: te.Tensor, x: te.Tensor
) -> te.Tensor:
    data, result = _layouts(call, 2)
    _, _, *extents = data.sizes(call, x.shape)

    def share(window: Indices, _at: Indices) -> PrimExpr:
        _, _, *spatial = result.take(window)
        value = scalar.wide(grad[window])
        count = _window_count(call, spatial, extents, _windows(call, 2))
        return expr.Div(value, scalar.cast(count, value.dtype))

    return _gathered(call, out, grad, share, "T_avg_pool2d_backward")


def _max_backward_emit(
    call: graph.Call, out: TensorType, grad: te.Tensor, x: te.Tensor
) -> te.Tensor:
    """The first of the largest elements of each window gets its gradient."""
    data, result = _layouts(call, 2)
    _, _, height, width = data.sizes(call, x.shape)
    windows = _windows(call, 2)
    taps = _taps(windows)

    def best(*i: PrimExpr) -> te.Reduce:
        n, c, *spatial = result.take(i)
        y, z = _reads(spatial, taps, windows)
        inside = _inside(call, [y, z], [height, width], windows)
        value = scalar.wide(x[data.put((n, c, y, z))])
        value = expr.if_then_else(inside, value, expr.lowest(value.dtype))
        place = expr.Select(inside, y * width + z, expr.highest("int64"))
        return te.Reduce(te.ARGMAX, (value, place), taps)

    _, places = te.compute_many(grad.shape, best, ("T_best", "T_best_place"), "T_best")

    def share(window: Indices, at: Indices) -> PrimExpr:
        _, _, y, z = data.take(at)
        value = scalar.wide(grad[window])
        zero = expr.const(0, value.dtype)
        return expr.Select(expr.EQ(places[window], y * width + z), value, zero)

    return _gathered(call, out, grad, share, "T_max_pool2d_backward")


def _backward_reference(maximum: bool) -> Callable[..., Array]:
    def reference(output_grad: Array, data: Array, **attrs: Any) -> Array:
        layout = attrs.get("layout")
        x = to_plain(data, layout, "NCHW")
        grad = to_plain(output_grad, attrs.get("out_layout") or layout, "NCHW")
        result = np.zeros_like(x)
        rows, columns = _pool_places(x, {"count_include_pad": False, **attrs})
        for (i, (ys, a)), (j, (zs, b)) in itertools.product(enumerate(rows), enumerate(columns)):
            for n, c in np.ndindex(*x.shape[:2]):
                if not maximum:
                    result[n, c][np.ix_(ys, zs)] += grad[n, c, i, j] / x.dtype.type(a * b)
                elif ys and zs:
                    best = np.unravel_index(x[n, c][np.ix_(ys, zs)].argmax(), (len(ys), len(zs)))
                    result[n, c, ys[best[0]], zs[best[1]]] += grad[n, c, i, j]
        return from_plain(result, layout, "NCHW")

    return in_float32(reference)


def _define(dims: int) -> None:
    layout: dict[str, Any] = {"layout": f"NC{SPATIAL[dims]}", "out_layout": None}
    window: dict[str, Any] = {"pool_size": 1, "strides": 1, "padding": 0, "dilation": 1}
    window["ceil_mode"] = False
    include = dims != 2  # as in TVM
    define(
        f"nn.max_pool{dims}d",
        params("data", **window, count_include_pad=False, **layout),
        partial(_pool_infer, dims=dims),
        needs=[takes("a number")],
        emit=partial(_max_emit, dims=dims),
        reference=_pool_reference(_maximum, False),
    )
    define(
        f"nn.avg_pool{dims}d",
        params("data", **window, count_include_pad=include, **layout),
        partial(_pool_infer, dims=dims),
        needs=[takes("a number")],
        emit=partial(_avg_emit, dims=dims),
        reference=_pool_reference(_average, include),
    )
    define(
        f"nn.adaptive_avg_pool{dims}d",
        params("data", output_size=None, **layout),
        partial(_adaptive_infer, dims=dims),
        needs=[takes("a number")],
        emit=partial(_adaptive_emit, dims=dims),
        reference=in_float32(_adaptive_reference),
    )
    for name, emit in (("max", _max_backward_emit), ("avg", _avg_backward_emit)) * (dims == 2):
        define(
            f"grad.{name}_pool2d_backward",
            params(
                "output_grad data",
                pool_size=(1, 1),
                strides=(1, 1),
                padding=(0, 0, 0, 0),
                dilation=(1, 1),
                ceil_mode=False,
                count_include_pad=False,
                **layout,
            ),
            type_of_argument(1),
            needs=[one_dtype(), takes("floating point", 1), _backward_needs],
            emit=emit,
            reference=_backward_reference(name == "max"),
        )


for _dims in SPATIAL:
    _define(_dims)
