"""Convolutions of one, two and three dimensions and their transposes (`R.nn.conv2d`, ...)."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from relaxlab.ir import expr, graph
from relaxlab.ir.dtypes import numpy_dtype
from relaxlab.ir.expr import PrimExpr
from relaxlab.ir.types import TensorType, Type
from relaxlab.ops import scalar, te
from relaxlab.ops.datatype import dtype_attr
from relaxlab.ops.define import (
    TypesOf,
    attr,
    define,
    fail,
    first_dtype,
    numbers,
    one_dtype,
    params,
    tensor_arg,
)
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
from relaxlab.ops.shapes import Shape, differ, impossible, prove, require_window, simplify

Array = np.ndarray[Any, Any]
Indices = tuple[PrimExpr, ...]


# --- What both directions share ---------------------------------------------------------------


def _layouts(call: graph.Call, dims: int) -> tuple[Layout, Layout, Layout]:
    """Return the layouts of data, kernel and result; the kernel's letters are (O, I, spatial)."""
    spatial = SPATIAL[dims]
    data = layout_attr(call, "data_layout", f"NC{spatial}")
    kernel = layout_attr(call, "kernel_layout", f"OI{spatial}")
    return data, kernel, layout_attr(call, "out_layout", f"NC{spatial}", data)


def _windows(call: graph.Call, kernel: Shape) -> tuple[Window, ...]:
    """One window for each spatial extent of the kernel."""
    strides = per_dimension(call, "strides", len(kernel), 1)
    dilations = per_dimension(call, "dilation", len(kernel), 1)
    pads = paddings(call, len(kernel))
    rows = zip(kernel, strides, dilations, pads, strict=True)
    return tuple(Window(k, s, d, before, after) for k, s, d, (before, after) in rows)


def _groups(call: graph.Call) -> int:
    groups = attr(call, "groups")
    if not isinstance(groups, int) or groups < 1:
        raise fail(call, f"groups must be at least 1, is {groups}")
    return groups


def _in_groups(call: graph.Call, channels: PrimExpr, what: str) -> PrimExpr:
    """The channels of one group. Raises when they do not divide."""
    groups = _groups(call)
    if groups == 1:
        return channels
    remainder = expr.EQ(expr.binary(expr.FloorMod, channels, groups), te.ZERO)
    if impossible(call, remainder, f"{channels} {what} do not divide into {groups} groups"):
        raise fail(call, f"{channels} {what} do not divide into {groups} groups")
    return simplify(channels // groups)


def _operands(
    call: graph.Call, tys: TypesOf, dims: int
) -> tuple[TensorType, TensorType, str | None]:
    """Data, kernel and the result's dtype; checks ranks, dtypes and attributes."""
    x, w = tensor_arg(call, tys, 0), tensor_arg(call, tys, 1)
    data, kernel, _ = _layouts(call, dims)
    for name, t, layout in (("data", x, data), ("weight", w, kernel)):
        if t.ndim not in (-1, layout.ndim):
            raise fail(call, f"{name} must have {layout.ndim} dimensions, is {t}")
    dtype = dtype_attr(call, "out_dtype") or first_dtype(call, x, w)
    _windows(call, (te.ZERO,) * dims)
    _groups(call)
    return x, w, dtype


def _weighted_sum(
    shape: Shape, term: Callable[..., tuple[PrimExpr, PrimExpr, tuple[te.Axis, ...]]],
    out_dtype: str, name: str,
) -> te.Tensor:  # fmt: skip
    """The tensor whose elements are sums of products, in float32 for halves. `term(*indices)` has
    both factors and the axes of a sum."""
    wide = scalar.accumulator_of(out_dtype)

    def element(*i: PrimExpr) -> te.Reduce:
        a, b, axes = term(*i)
        return te.te_sum(expr.Mul(scalar.cast(a, wide), scalar.cast(b, wide)), *axes)

    return narrow(te.compute(shape, element, name), out_dtype)


def _kernel_axes(kernel: Sequence[PrimExpr]) -> tuple[te.Axis, ...]:
    return tuple(te.reduce_axis(e, f"k{d}") for d, e in enumerate(kernel))


# --- Convolution ------------------------------------------------------------------------------


def _conv_infer(call: graph.Call, tys: TypesOf, dims: int) -> Type:
    x, w, dtype = _operands(call, tys, dims)
    data, kernel, result = _layouts(call, dims)
    if x.shape is None or w.shape is None:
        return TensorType(None, dtype, result.ndim)
    batch, channels, *extents = data.sizes(call, x.shape)
    outputs, inputs, *sizes = kernel.sizes(call, w.shape)
    if differ(call, _in_groups(call, channels, "channels"), inputs, "the channels per group"):
        raise fail(
            call,
            f"data has {channels} channels in {_groups(call)} groups, weight takes {inputs} each",
        )
    _in_groups(call, outputs, "output channels")
    spatial = [
        _conv_extent(call, e, window)
        for e, window in zip(extents, _windows(call, tuple(sizes)), strict=True)
    ]
    return TensorType(result.shape(call, (batch, outputs, *spatial)), dtype)


def _conv_extent(call: graph.Call, extent: PrimExpr, w: Window) -> PrimExpr:
    rest = simplify(extent + (w.before + w.after) - w.span)
    require_window(call, extent, rest, w.stride, f"kernel's {w.span}")
    return simplify(rest // w.stride + 1)


def padded(
    x: te.Tensor,
    layout: Layout,
    before: Sequence[PrimExpr],
    after: Sequence[PrimExpr],
    fill: PrimExpr,
    name: str,
) -> te.Tensor:
    """`x` with `fill` before and after its spatial dimensions; `x` itself where there is nothing to
    add."""
    if {*before, *after} == {te.ZERO}:
        return x
    before, after = (
        [simplify(n) for n in layout.put((te.ZERO, te.ZERO, *pads))] for pads in (before, after)
    )
    shape = tuple(simplify(e + (a + b)) for e, a, b in zip(x.shape, before, after, strict=True))

    def element(*i: PrimExpr) -> PrimExpr:
        inside: list[PrimExpr] = []
        for v, e, a, b in zip(i, x.shape, before, after, strict=True):
            inside += [] if a == te.ZERO else [expr.LE(a, v)]
            inside += [] if b == te.ZERO else [expr.LT(v, e + a)]
        value = x[tuple(v - a for v, a in zip(i, before, strict=True))]
        return expr.if_then_else(expr.all_of(inside), value, fill)

    return te.compute(shape, element, name)


def _conv_emit(
    call: graph.Call, out: TensorType, x: te.Tensor, w: te.Tensor, dims: int
) -> te.Tensor:
    assert out.shape is not None and out.dtype is not None
    data, kernel, result = _layouts(call, dims)
    outputs, inputs, *sizes = kernel.sizes(call, w.shape)
    windows = _windows(call, tuple(sizes))
    before, after = zip(*paddings(call, dims), strict=True)
    before, after = ([expr.const(n) for n in pads] for pads in (before, after))
    source = padded(x, data, before, after, expr.const(0, x.dtype), "pad_temp")
    steps = [window.stride for window in windows]
    # Places between the windows are left out first: then those that are read lie side by side, and
    # are one axis of a product. 256 to 512 channels of 56 x 56 with stride 2 took twice the time.
    if {*sizes} == {expr.const(1)} and {*steps} != {1}:
        batch, channels, *_ = data.sizes(call, source.shape)
        shape = data.shape(call, (batch, channels, *result.sizes(call, out.shape)[2:]))
        source, steps = _every(source, data, shape, steps), [1] * dims
    groups = _groups(call)
    c, taps = te.reduce_axis(inputs, "c"), _kernel_axes(tuple(sizes))

    def term(*i: PrimExpr) -> tuple[PrimExpr, PrimExpr, tuple[te.Axis, ...]]:
        n, o, *spatial = result.take(i)
        # Not `o // (outputs // groups)`, the same number: that outputs are not zero is known where
        # there is one, so that code tests no divisor for each load.
        channel = c.var if groups == 1 else simplify(o * groups // outputs) * inputs + c.var
        at = [
            s * step + k.var * window.dilation
            for s, step, k, window in zip(spatial, steps, taps, windows, strict=True)
        ]
        places = kernel.put((o, c.var, *(k.var for k in taps)))
        return source[data.put((n, channel, *at))], w[places], (c, *taps)

    return _weighted_sum(out.shape, term, out.dtype, f"T_conv{dims}d")


def _every(x: te.Tensor, layout: Layout, shape: Shape, steps: Sequence[int]) -> te.Tensor:
    """The tensor of this shape with every so-many-th place of each spatial dimension of `x`."""

    def element(*i: PrimExpr) -> PrimExpr:
        n, c, *spatial = layout.take(i)
        return x[layout.put((n, c, *(v * s for v, s in zip(spatial, steps, strict=True))))]

    return te.compute(shape, element, "T_every")


def _slid(x: Array, starts: tuple[int, ...], strides: Any, counts: Any) -> Array:
    """Every stride-th element of the trailing dimensions from `starts`, `counts` of them."""
    cut = tuple(
        slice(a, a + max(s * (n - 1) + 1, 0), s)
        for a, s, n in zip(starts, strides, counts, strict=True)
    )
    return x[(..., *cut)]


def _wide_pair(data: Array, weight: Array, out_dtype: str | None) -> tuple[Array, Array, Any]:
    out = numpy_dtype(out_dtype) if out_dtype else data.dtype
    wide = np.dtype(scalar.accumulator_of(out.name))
    return data.astype(wide), weight.astype(wide), out


def _conv_reference(
    data: Array,
    weight: Array,
    strides: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    data_layout: str | None = None,
    kernel_layout: str | None = None,
    out_layout: str | None = None,
    out_dtype: str | None = None,
) -> Array:
    """One matrix product per group and element of the kernel."""
    dims = spatial_rank(data, data_layout)
    letters, kernel = f"NC{SPATIAL[dims]}", f"OI{SPATIAL[dims]}"
    x, w, out = _wide_pair(data, weight, out_dtype)
    x, w = to_plain(x, data_layout, letters), to_plain(w, kernel_layout, kernel)
    x = np.pad(x, [(0, 0), (0, 0), *pads_of(padding, dims)])
    strides, dilation = tuple_of(strides, dims), tuple_of(dilation, dims)
    rows = zip(x.shape[2:], w.shape[2:], strides, dilation, strict=True)
    counts = [(e - (k - 1) * d - 1) // s + 1 for e, k, s, d in rows]
    x = x.reshape(x.shape[0], groups, x.shape[1] // groups, *x.shape[2:])
    w = w.reshape(groups, w.shape[0] // groups, *w.shape[1:])
    y = np.zeros((x.shape[0], groups, w.shape[1], *counts), x.dtype)
    for k in itertools.product(*map(range, w.shape[3:])):
        starts = tuple(i * d for i, d in zip(k, dilation, strict=True))
        part = _slid(x, starts, strides, counts)
        y += np.einsum("ngc...,goc->ngo...", part, w[(..., *k)])
    y = y.reshape(y.shape[0], y.shape[1] * y.shape[2], *counts)
    return from_plain(y, out_layout or data_layout, letters).astype(out)


# --- Transposed convolution -------------------------------------------------------------------


def _transpose_infer(call: graph.Call, tys: TypesOf, dims: int) -> Type:
    x, w, dtype = _operands(call, tys, dims)
    extra = per_dimension(call, "output_padding", dims, 0)
    windows = _windows(call, (te.ZERO,) * dims)
    for more, window in zip(extra, windows, strict=True):
        if more >= max(window.stride, window.dilation):
            raise fail(call, f"output_padding {more} must be less than the stride or the dilation")
    data, kernel, result = _layouts(call, dims)
    if x.shape is None or w.shape is None:
        return TensorType(None, dtype, result.ndim)
    batch, channels, *extents = data.sizes(call, x.shape)
    outputs, inputs, *sizes = kernel.sizes(call, w.shape)
    if differ(call, channels, inputs, "the channels of data and weight"):
        raise fail(call, f"data has {channels} channels, weight takes {inputs}")
    _in_groups(call, channels, "channels")
    spatial: list[PrimExpr] = []
    for e, window, more in zip(extents, _windows(call, tuple(sizes)), extra, strict=True):
        length = (e - 1) * window.stride + window.span - (window.before + window.after) + more
        spatial.append(simplify(length))
        if impossible(call, expr.GE(spatial[-1], te.ZERO), f"nothing is left of {e} elements"):
            raise fail(call, f"padding {attr(call, 'padding')} leaves nothing of {e} elements")
    channels_out = expr.binary(expr.Mul, outputs, _groups(call))
    return TensorType(result.shape(call, (batch, channels_out, *spatial)), dtype)


def _transpose_emit(
    call: graph.Call, out: TensorType, x: te.Tensor, w: te.Tensor, dims: int
) -> te.Tensor:
    """Convolutions with stride 1, one for each phase: the elements of the kernel that are whole
    strides apart meet the same places of the result, and no others do.

    Element k of the kernel adds input i to place i * stride + k * dilation. With g the greatest
    common divisor of both and k = phase + t * (stride // g), that is
    (i + t * (dilation // g)) * stride + phase * dilation: of one phase, a convolution over t whose
    results are `stride` apart.
    """
    assert out.shape is not None and out.dtype is not None
    data, kernel, result = _layouts(call, dims)
    batch, channels, *extents = data.sizes(call, x.shape)
    outputs, _, *sizes = kernel.sizes(call, w.shape)
    windows = _windows(call, tuple(sizes))
    per_group = _in_groups(call, channels, "channels")
    one = _groups(call) == 1
    phases = [window.phases for window in windows]
    # Zeros are stored around the input, so that the sums have no conditions.
    reach = [simplify((window.terms - 1) * window.step) for window in windows]
    source = padded(x, data, reach, reach, expr.const(0, x.dtype), "pad_temp")
    c = te.reduce_axis(per_group, "c")
    places = [simplify(e + r) for e, r in zip(extents, reach, strict=True)]
    results = result.sizes(call, out.shape)[2:]
    met = [_met(*row) for row in zip(windows, places, results, strict=True)]
    first, counts = [f for f, _ in met], [n for _, n in met]

    def term(*i: PrimExpr) -> tuple[PrimExpr, PrimExpr, tuple[te.Axis, ...]]:
        n, o, *rest = i
        phase, at = rest[:dims], rest[dims:]
        channel = c.var if one else o // outputs * per_group + c.var
        taps = _kernel_axes([w.terms_of(p) for w, p in zip(windows, phase, strict=True)])
        rows = zip(at, first, reach, taps, windows, strict=True)
        read = [v + (f + r) - t.var * window.step for v, f, r, t, window in rows]
        element = [v + t.var * p for v, t, p in zip(phase, taps, phases, strict=True)]
        weight = w[kernel.put((o if one else o % outputs, channel, *element))]
        return source[data.put((n, channel, *read))], weight, (c, *taps)

    name = f"T_conv{dims}d_transpose"
    channels_out = expr.binary(expr.Mul, outputs, _groups(call))
    shape = (batch, channels_out, *(expr.const(w.phases_with_terms) for w in windows), *counts)
    sums = _weighted_sum(shape, term, out.dtype, name)

    def spread(*i: PrimExpr) -> PrimExpr:
        n, o, *spatial = result.take(i)
        phase, at, hit = _meeting(spatial, windows, places)
        value = sums[(n, o, *phase, *(v - f for v, f in zip(at, first, strict=True)))]
        return expr.if_then_else(expr.all_of(hit), value, expr.const(0, sums.dtype))

    return te.compute(out.shape, spread, f"{name}_spread")


def _met(window: Window, places: PrimExpr, results: PrimExpr) -> tuple[int, PrimExpr]:
    """The first of the places of sums that meets a result in any phase, and the number of places up
    to the last one that does; all of them where the end is not known to be among them."""
    end = simplify((results + (window.before - 1)) // window.stride + 1)
    if not prove(expr.LE(end, places)):
        return 0, places
    ahead = max(n * window.dilation for n in range(window.phases)) - window.before
    first = max(0, -(ahead // window.stride))
    return first, simplify(end - first)


def _meeting(
    spatial: Sequence[PrimExpr], windows: Sequence[Window], places: Sequence[PrimExpr]
) -> tuple[Indices, Indices, list[PrimExpr]]:
    """The phase that meets each place of the result, where its sums are, and the conditions under
    which it has any: phases without elements have none."""
    phase: list[PrimExpr] = []
    at: list[PrimExpr] = []
    hit: list[PrimExpr] = []
    for s, window, extent in zip(spatial, windows, places, strict=True):
        place = s + window.before
        meeting, output = window.meeting(place)
        phase.append(meeting)
        at.append(output)
        hit += [] if window.divisor == 1 else [expr.EQ(place % window.divisor, te.ZERO)]
        hit += [] if window.has_all_phases else [expr.LT(meeting, window.size)]
        hit += [expr.GE(output, te.ZERO), expr.LT(output, extent)]
    return tuple(phase), tuple(at), hit


def _transpose_reference(
    data: Array,
    weight: Array,
    strides: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    data_layout: str | None = None,
    kernel_layout: str | None = None,
    out_layout: str | None = None,
    out_dtype: str | None = None,
) -> Array:
    """Each input element adds its kernel to the result; the padding is cut off at the end."""
    dims = spatial_rank(data, data_layout)
    letters, kernel = f"NC{SPATIAL[dims]}", f"OI{SPATIAL[dims]}"
    x, w, out = _wide_pair(data, weight, out_dtype)
    x = to_plain(x, data_layout, letters)
    w = to_plain(w, kernel_layout or f"IO{SPATIAL[dims]}", kernel)
    strides, dilation = tuple_of(strides, dims), tuple_of(dilation, dims)
    rows = zip(x.shape[2:], w.shape[2:], strides, dilation, strict=True)
    full = [(e - 1) * s + (k - 1) * d + 1 for e, k, s, d in rows]
    pads, more = pads_of(padding, dims), tuple_of(output_padding, dims)
    x = x.reshape(x.shape[0], groups, x.shape[1] // groups, *x.shape[2:])
    w = w.reshape(w.shape[0], groups, w.shape[1] // groups, *w.shape[2:])
    extents = [f + m for f, m in zip(full, more, strict=True)]
    y = np.zeros((x.shape[0], groups, w.shape[0], *extents), x.dtype)
    for k in itertools.product(*map(range, w.shape[3:])):
        starts = tuple(i * d for i, d in zip(k, dilation, strict=True))
        part = np.einsum("ngc...,ogc->ngo...", x, w[(..., *k)])
        _slid(y, starts, strides, x.shape[3:])[...] += part
    y = y.reshape(y.shape[0], y.shape[1] * y.shape[2], *extents)
    cut = [slice(a, e - b) for e, (a, b) in zip(extents, pads, strict=True)]
    y = y[(..., *cut)]
    return from_plain(y, out_layout or data_layout, letters).astype(out)


def _define(dims: int) -> None:
    letters = SPATIAL[dims]
    window: dict[str, Any] = {"strides": 1, "padding": 0}
    rest: dict[str, Any] = {"dilation": 1, "groups": 1, "data_layout": f"NC{letters}"}
    results: dict[str, Any] = {"out_layout": None, "out_dtype": None}
    define(
        f"nn.conv{dims}d",
        params("data weight", **window, **rest, kernel_layout=f"OI{letters}", **results),
        partial(_conv_infer, dims=dims),
        needs=[one_dtype(), numbers],
        emit=partial(_conv_emit, dims=dims),
        reference=_conv_reference,
        traits=["product"],
    )
    define(
        f"nn.conv{dims}d_transpose",
        params(
            "data weight",
            **window,
            output_padding=0,
            **rest,
            kernel_layout=f"IO{letters}",
            **results,
        ),
        partial(_transpose_infer, dims=dims),
        needs=[one_dtype(), numbers],
        emit=partial(_transpose_emit, dims=dims),
        reference=_transpose_reference,
        traits=["product"],
    )


for _dims in SPATIAL:
    _define(_dims)
