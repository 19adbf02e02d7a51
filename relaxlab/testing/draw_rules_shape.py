"""Rules that draw calls of operators which move, join, cut, gather and scatter elements."""

from __future__ import annotations

import math
from typing import Any

from relaxlab.analysis.index_map import IndexMap
from relaxlab.ir import expr, graph
from relaxlab.ir.dtypes import is_uint
from relaxlab.ops.define import builder
from relaxlab.testing.draw import ELEMENTS, FLOATS, INTS, Draw, Refused, dtype_of, shape_of
from relaxlab.testing.draw_rules import ANYTHING, NARROW, rule, shape_expr

REDUCTIONS = ("update", "add", "mul", "max", "min", "mean")


# --- The order and number of dimensions -------------------------------------------------------


@rule("reshape")
def _reshape(d: Draw, op: str) -> graph.Call:
    """Neighbouring dimensions joined, split where a number divides, or left to -1."""
    x = d.x(kinds=ANYTHING)
    dims: list[expr.ExprLike] = list(shape_of(x))
    for _ in range(d.rng.randint(1, 2)):
        at = d.rng.randint(0, len(dims))
        if d.chance(0.5) and at + 1 < len(dims):
            a, b = map(expr.as_expr, dims[at : at + 2])
            dims[at : at + 2] = [a * b]
        elif at < len(dims) and isinstance(extent := dims[at], expr.IntImm) and extent.value:
            part = d.choice([n for n in range(1, 9) if extent.value % n == 0])
            dims[at : at + 1] = [expr.const(part), expr.const(extent.value // part)]
        else:
            dims.insert(at, expr.const(1))
    if dims and d.chance(0.3) and d.count(shape_of(x)):
        dims[d.rng.randrange(len(dims))] = expr.const(-1)
    return builder(op)(x, shape_expr(*dims))


@rule("flatten")
def _flatten(d: Draw, op: str) -> graph.Call:
    return builder(op)(d.x(kinds=ANYTHING))


@rule("nn.batch_flatten")
def _batch_flatten(d: Draw, op: str) -> graph.Call:
    return builder(op)(d.x((2, 4), kinds=ANYTHING))


@rule("expand_dims")
def _expand_dims(d: Draw, op: str) -> graph.Call:
    x = d.x((0, 3), kinds=ANYTHING)
    ndim = len(shape_of(x))
    axis = d.axis(ndim + 1)
    if d.chance(0.4):
        first, second = d.rng.sample(range(ndim + 2), 2)
        return builder(op)(x, axis=(first, second - ndim - 2))
    return builder(op)(x, axis=axis)


@rule("squeeze")
def _squeeze(d: Draw, op: str) -> graph.Call:
    shape = list(d.shape(d.rng.randint(0, 3)))
    ones = sorted(d.rng.sample(range(len(shape) + 1), d.rng.randint(1, len(shape) + 1)))
    for at in ones:
        shape.insert(at, expr.const(1))
    x = d.new(shape, d.dtype(ANYTHING))
    known = all(isinstance(e, expr.IntImm) for e in shape)
    if known and d.chance(0.3):
        return builder(op)(x)
    axes = tuple(a - len(shape) if d.flag() else a for a in ones)
    return builder(op)(x, axis=axes if d.flag() else axes[0])


@rule("permute_dims")
def _permute(d: Draw, op: str) -> graph.Call:
    x = d.x(kinds=ANYTHING)
    ndim = len(shape_of(x))
    return builder(op)(x, **d.some(axes=d.axes(ndim, ndim)))


@rule("broadcast_to")
def _broadcast_to(d: Draw, op: str) -> graph.Call:
    full = d.new(d.shape(d.rng.randint(0, 4)), d.dtype(ANYTHING))
    return builder(op)(d.broadcastable(full), shape_expr(*shape_of(full)))


@rule("collapse_sum_to", "collapse_sum_like")
def _collapse(d: Draw, op: str) -> graph.Call:
    x = d.x(kinds=("float", "float", "int32", "int64"))
    target = d.broadcastable(x)
    if op == "collapse_sum_like":
        return builder(op)(x, target)
    return builder(op)(x, shape_expr(*shape_of(target)))


@rule("flip")
def _flip(d: Draw, op: str) -> graph.Call:
    x = d.x((1, 4), kinds=ANYTHING)
    ndim = len(shape_of(x))
    return builder(op)(x, axis=d.axes(ndim) if d.flag() else d.axis(ndim))


@rule("tile")
def _tile(d: Draw, op: str) -> graph.Call:
    x = d.x((0, 3), kinds=ANYTHING, most=ELEMENTS // 16)
    repeats = tuple(d.rng.choice((1, 2, 3)) for _ in range(d.rng.randint(1, 4)))
    return builder(op)(x, repeats=repeats[0] if d.chance(0.3) else repeats)


@rule("repeat")
def _repeat(d: Draw, op: str) -> graph.Call:
    x = d.x((1, 3), kinds=ANYTHING, most=ELEMENTS // 4)
    repeats = d.choice((0, 1, 2, 3, 5))
    return builder(op)(x, repeats=repeats, **d.some(axis=d.axis(len(shape_of(x)))))


@rule("nn.pixel_shuffle")
def _shuffle(d: Draw, op: str) -> graph.Call:
    r = d.choice((1, 2, 3))
    lead = d.shape(d.rng.randint(0, 1))
    dims = (*lead, d.small() * (r * r), *d.shape(2, 2000))
    return builder(op)(d.new(dims, d.dtype(ANYTHING)), upscale_factor=r)


@rule("meshgrid")
def _meshgrid(d: Draw, op: str) -> graph.Call:
    dtype = d.dtype(ANYTHING)
    grids = [d.new(d.shape(d.rng.choice((0, 1, 1, 1)), 60), dtype)
             for _ in range(d.rng.randint(1, 3))]  # fmt: skip
    return builder(op)(graph.Tuple(tuple(grids)), **d.some(indexing=d.choice(("ij", "xy"))))


@rule("reverse_sequence")
def _reverse(d: Draw, op: str) -> graph.Call:
    x = d.x((2, 4), kinds=ANYTHING)
    ndim = len(shape_of(x))
    seq, batch = d.rng.sample(range(ndim), 2)
    lengths = d.indices((shape_of(x)[batch],), shape_of(x)[seq], beyond=1)
    return builder(op)(x, lengths, seq_axis=seq - ndim if d.flag() else seq, batch_axis=batch)


@rule("layout_transform")
def _layout(d: Draw, op: str) -> graph.Call:
    """Another order, tiles of either dimension whose last ones are filled up, one of three
    dimensions split, all joined."""
    rows, columns = d.dim(), d.choice((4, 6, 8))
    dtype = d.dtype(NARROW)
    x = d.new((rows, columns), dtype)
    separators = d.some(
        axis_separators=d.choice(((), (1,))), input_axis_separators=d.choice(((), (1,)))
    )
    pad = d.choice((2.0, -0.5) if dtype in FLOATS else (0, 2))
    match d.rng.randrange(5):
        case 0:
            return builder(op)(x, index_map=IndexMap.of(lambda i, j: (j, i)), **separators)
        case 1:
            tiled = IndexMap.of(lambda i, j: (j // 4, i, j % 4))
            return builder(op)(x, index_map=tiled, pad_value=pad)
        case 2:
            size = d.choice((2, 3, 16))
            tiled = IndexMap.of(lambda i, j: (i // size, j, i % size))
            return builder(op)(x, index_map=tiled, pad_value=pad)
        case 3:
            x = d.new(d.shape(3, 4000), dtype)
            tiled = IndexMap.of(lambda i, j, k: (k, j // 4, i, j % 4))
            return builder(op)(x, index_map=tiled, pad_value=pad)
        case _:
            joined = IndexMap.of(lambda i, j: (i * columns + j,))
            return builder(op)(x, index_map=joined)


# --- Joining and cutting ----------------------------------------------------------------------


@rule("concat")
def _concat(d: Draw, op: str) -> graph.Call:
    x = d.x((1, 3), kinds=ANYTHING, most=ELEMENTS // 4)
    shape = shape_of(x)
    axis = d.axis(len(shape))
    parts = [x]
    for _ in range(d.rng.randint(0, 3)):
        dims = list(shape)
        dims[axis] = d.dim() if d.count(shape) < 2000 else dims[axis]
        parts.append(x if d.chance(0.2) else d.new(dims, dtype_of(x)))
    d.rng.shuffle(parts)
    attrs: dict[str, Any] = {} if len(shape) == 1 and d.flag() else {"axis": axis}
    return builder(op)(graph.Tuple(tuple(parts)), **attrs)


@rule("stack")
def _stack(d: Draw, op: str) -> graph.Call:
    x = d.x((0, 3), kinds=ANYTHING, most=ELEMENTS // 4)
    parts = [x, *(d.like(x) for _ in range(d.rng.randint(0, 3)))]
    return builder(op)(graph.Tuple(tuple(parts)), **d.some(axis=d.axis(len(shape_of(x)) + 1)))


@rule("split")
def _split(d: Draw, op: str) -> graph.Call:
    x = d.x((1, 3), kinds=ANYTHING)
    axis = d.axis(len(shape_of(x)))
    size = d.size(shape_of(x)[axis])
    where = d.choice((1, 2, 3, 4))
    if d.chance(0.5):
        where = tuple(sorted(d.rng.randint(0, size) for _ in range(d.rng.randint(1, 3))))
    return builder(op)(x, indices_or_sections=where, axis=axis)


@rule("strided_slice")
def _slice(d: Draw, op: str) -> graph.Call:
    x = d.x((1, 4), kinds=ANYTHING)
    shape = shape_of(x)
    axes = d.axes(len(shape))
    begin: list[int] = []
    end: list[expr.ExprLike] = []
    strides: list[int] = []
    for a in axes:
        size = d.size(shape[a])
        stride = d.choice((1, 1, 2, 3, -1, -2))
        first, last = d.rng.randint(-size - 2, size + 2), d.rng.randint(-size - 2, size + 2)
        if stride > 0 and d.chance(0.6):
            first, last = sorted((abs(first), abs(last)))
        strides.append(stride)
        begin.append(first)
        end.append(shape[a] if stride > 0 and d.chance(0.3) else last)
    attrs: dict[str, Any] = {}
    if any(s != 1 for s in strides) or d.flag():
        attrs["strides"] = tuple(strides)
    inside = (isinstance(shape[a], expr.IntImm) and 0 <= f <= d.size(expr.as_expr(e))
              <= d.size(shape[a]) for a, f, e in zip(axes, begin, end, strict=True))  # fmt: skip
    if all(s == 1 for s in strides) and all(inside):
        attrs |= d.some(assume_inbound=d.flag())
    return builder(op)(x, axes=axes, begin=tuple(begin), end=tuple(end), **attrs)


@rule("slice_scatter")
def _slice_scatter(d: Draw, op: str) -> graph.Call:
    size = d.choice((1, 3, 8, 17, 64))
    shape = list(d.shape(d.rng.randint(1, 3), 4000))
    at = d.rng.randrange(len(shape))
    shape[at] = expr.const(size)
    start, step = d.rng.randint(0, size), d.choice((1, 1, 2, 3))
    end = d.rng.randint(start, size + 2)
    count = max(0, math.ceil((min(end, size) - start) / step))
    x = d.new(shape, d.dtype(ANYTHING))
    shape[at] = expr.const(count)
    attrs: dict[str, Any] = d.some(step=step) if step == 1 else {"step": step}
    axis = at - len(shape) if d.flag() else at
    return builder(op)(x, d.new(shape, dtype_of(x)), start=start, end=end, axis=axis, **attrs)


@rule("nn.pad")
def _pad(d: Draw, op: str) -> graph.Call:
    x = d.x((1, 4), kinds=NARROW, most=ELEMENTS // 8)
    mode = d.choice(("constant", "constant", "reflect", "replicate", "circular"))
    widths: list[int] = []
    for extent in shape_of(x):
        size = d.size(extent)
        most = {"constant": 9, "replicate": 5 if size else 0, "reflect": max(size - 1, 0),
                "circular": size}[mode]  # fmt: skip
        widths += [d.rng.choice((0, d.rng.randint(0, min(most, 9)))) for _ in range(2)]
    value = d.choice((0, 1, 3)) if dtype_of(x) in INTS else d.choice((0.0, -1.5))
    return builder(op)(x, pad_width=tuple(widths), **d.some(pad_value=value), pad_mode=mode)


# --- Gathering --------------------------------------------------------------------------------


def _filled(d: Draw, extent: expr.PrimExpr) -> expr.PrimExpr:
    if not d.size(extent):
        raise Refused  # nothing can be read from an empty dimension
    return extent


@rule("take")
def _take(d: Draw, op: str) -> graph.Call:
    mode = d.choice(("fast", "clip", "wrap", "nan"))
    x = d.x((1, 3), kinds=("float",) if mode == "nan" else ANYTHING, most=ELEMENTS // 8)
    axis = d.axis(len(shape_of(x)))
    extent = _filled(d, shape_of(x)[axis])
    where = d.shape(d.rng.randint(0, 2), 60)
    far = mode != "fast" and d.flag()
    at: graph.Expr = d.indices(where, extent, negative=far, beyond=3 * far)
    if d.chance(0.1):
        at = graph.PrimValue(extent - 1)
    attrs: dict[str, Any] = d.some(mode=mode) if mode == "fast" else {"mode": mode}
    return builder(op)(x, at, axis=None if len(shape_of(x)) == 1 and d.flag() else axis, **attrs)


@rule("gather_elements")
def _gather_elements(d: Draw, op: str) -> graph.Call:
    x = d.x((1, 3), kinds=ANYTHING)
    shape = list(shape_of(x))
    axis = d.axis(len(shape))
    extent = _filled(d, shape[axis])
    shape[axis] = d.small()
    return builder(op)(x, d.indices(shape, extent, negative=True), axis=axis)


@rule("gather_nd")
def _gather_nd(d: Draw, op: str) -> graph.Call:
    batch = d.rng.randint(0, 1)
    x = d.x((batch + 1, 4), kinds=ANYTHING)
    shape = shape_of(x)
    depth = d.rng.randint(1, min(2, len(shape) - batch))
    if any(not d.size(e) for e in shape):
        raise Refused
    where = (*shape[:batch], *d.shape(d.rng.randint(0, 1), 50), depth)
    at = d.indices(where, *shape[batch : batch + depth], negative=True)
    return builder(op)(x, at, batch_dims=batch)


def _places(d: Draw, x: graph.Var, count: int) -> tuple[graph.Tuple, tuple[expr.PrimExpr, ...]]:
    """Index tensors for the first `count` dimensions, and the shape that they have."""
    where = d.shape(d.rng.randint(1, 2), 60)
    found: list[graph.Expr] = []
    for extent in shape_of(x)[:count]:
        found.append(d.indices(where, _filled(d, extent), negative=True))
    return graph.Tuple(tuple(found)), where


@rule("index_tensor")
def _index_tensor(d: Draw, op: str) -> graph.Call:
    x = d.x((1, 3), kinds=ANYTHING)
    return builder(op)(x, _places(d, x, d.rng.randint(1, len(shape_of(x))))[0])


@rule("one_hot")
def _one_hot(d: Draw, op: str) -> graph.Call:
    depth = d.choice((1, 5, 16, 33))
    at = d.new(d.shape(d.rng.randint(0, 2), 3000), d.choice(("int32", "int64")), -1, depth)
    dtype = d.dtype(NARROW)
    axis = d.axis(len(shape_of(at)) + 1)
    return builder(op)(at, d.new((), dtype), d.new((), dtype), depth=depth, **d.some(axis=axis))


# --- Scattering -------------------------------------------------------------------------------


def _reduction(d: Draw, dtype: str) -> dict[str, Any]:
    return d.some(reduction="update" if dtype == "bool" else d.choice(REDUCTIONS))


@rule("scatter_elements")
def _scatter_elements(d: Draw, op: str) -> graph.Call:
    x = d.x((1, 3), kinds=ANYTHING, most=4000)
    shape = list(shape_of(x))
    axis = d.axis(len(shape))
    extent = _filled(d, shape[axis])
    shape[axis] = d.small()
    at = d.indices(shape, extent, negative=True)
    new = d.new(shape, dtype_of(x))
    return builder(op)(x, at, new, axis=axis, **_reduction(d, dtype_of(x)))


@rule("scatter_nd")
def _scatter_nd(d: Draw, op: str) -> graph.Call:
    x = d.x((1, 3), kinds=ANYTHING, most=4000)
    shape = shape_of(x)
    depth = d.rng.randint(1, min(2, len(shape)))
    named = [_filled(d, e) for e in shape[:depth]]
    where = d.shape(d.rng.randint(0, 2), 50)
    at = d.indices((*where, depth), *named, negative=True)
    new = d.new((*where, *shape[depth:]), dtype_of(x))
    return builder(op)(x, at, new, **_reduction(d, dtype_of(x)))


@rule("index_put")
def _index_put(d: Draw, op: str) -> graph.Call:
    x = d.x((1, 3), kinds=(*NARROW, "bool"), most=4000)
    count = d.rng.randint(1, len(shape_of(x)))
    at, where = _places(d, x, count)
    wanted = d.new((*where, *shape_of(x)[count:]), dtype_of(x))
    attrs: dict[str, Any] = {} if dtype_of(x) == "bool" else d.some(accumulate=d.flag())
    return builder(op)(x, at, d.broadcastable(wanted), **attrs)


@rule("grad.take_backward")
def _take_backward(d: Draw, op: str) -> graph.Call:
    x = d.x((1, 3), most=4000)
    shape = shape_of(x)
    axis = d.axis(len(shape))
    extent = _filled(d, shape[axis])
    where = d.shape(d.rng.randint(0, 2), 60)
    at = d.indices(where, extent)
    place = axis % len(shape)
    grad = d.new((*shape[:place], *where, *shape[place + 1 :]), dtype_of(x))
    return builder(op)(grad, x, at, axis=None if len(shape) == 1 and d.flag() else axis)


# --- Shapes that data decide, shapes as values, devices -----------------------------------------


@rule("unique")
def _unique(d: Draw, op: str) -> graph.Call:
    x = d.x((1, 2), kinds=("int32", "int8", "float"), exact=True, most=4000)
    flags = {f"return_{name}": d.flag() for name in ("index", "inverse", "counts")}
    axis = d.choice((None, d.axis(len(shape_of(x)))))
    if axis is not None and not d.count(shape_of(x)):
        raise Refused
    attrs = d.some(**flags, sorted=d.flag())
    return builder(op)(x, **attrs, axis=axis)


@rule("nonzero")
def _nonzero(d: Draw, op: str) -> graph.Call:
    return builder(op)(d.x((1, 3), kinds=("int32", "bool", "float"), exact=True, most=4000))


@rule("dynamic_strided_slice")
def _dynamic_slice(d: Draw, op: str) -> graph.Call:
    x = d.x((1, 3), kinds=ANYTHING)
    count = (len(shape_of(x)),)
    bounds = [d.new(count, "int64", -9, 9) for _ in range(2)]
    return builder(op)(x, *bounds, d.new(count, "int64", values=(1, 2, -1, 3)))


@rule("shape_of")
def _shape_of(d: Draw, op: str) -> graph.Call:
    return builder(op)(d.x())


@rule("shape_to_tensor")
def _shape_to_tensor(d: Draw, op: str) -> graph.Call:
    return builder(op)(shape_expr(*(d.dim() for _ in range(d.rng.randint(0, 3)))))


@rule("tensor_to_shape")
def _tensor_to_shape(d: Draw, op: str) -> graph.Call:
    return builder(op)(d.new((d.rng.randint(1, 3),), "int64", 0, 9))


@rule("hint_on_device", "to_vdevice")
def _device(d: Draw, op: str) -> graph.Call:
    attrs = {"dst_vdevice": d.choice(("cpu", "llvm", "cpu:0"))}
    if op == "hint_on_device":
        attrs["memory_scope"] = d.choice(("global", "local"))
    return builder(op)(d.x(kinds=ANYTHING), **d.some(**attrs))


@rule("builtin.stop_lift_params", "memory.ensure_zero_offset")
def _same(d: Draw, op: str) -> graph.Call:
    return builder(op)(d.x(kinds=ANYTHING))


@rule("memory.view")
def _view(d: Draw, op: str) -> graph.Call:
    """The dimensions in another order, of integers at times as those with the other sign."""
    x = d.x(kinds=(*FLOATS, *INTS))
    dims = list(shape_of(x))
    d.rng.shuffle(dims)
    dtype = dtype_of(x)
    if dtype not in INTS or d.chance(0.5):
        return builder(op)(x, shape_expr(*dims))
    other = dtype.removeprefix("u") if is_uint(dtype) else f"u{dtype}"
    return builder(op)(x, shape_expr(*dims), graph.DataTypeImm(other))
