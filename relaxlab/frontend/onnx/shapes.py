"""Rows of operators on shapes, order and places."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from relaxlab.frontend.emitter import Emitter, dtype_of, shape_of
from relaxlab.frontend.known import Array, Known
from relaxlab.frontend.onnx.math import per_axis_places
from relaxlab.frontend.onnx.rows import array, axes_of, ints, number, numbers, rank, row, static
from relaxlab.frontend.table import Refused
from relaxlab.ir import expr, graph
from relaxlab.ir.dtypes import is_dtype
from relaxlab.ir.expr import PrimExpr

Dims = Sequence[Any]

# --- Shapes -----------------------------------------------------------------------------------


@row("Shape")
def shape(b: Emitter, x: graph.Expr, *, start: int = 0, end: int | None = None, **_: Any) -> Any:
    return Known.of(_objects(shape_of(x)[slice(start, end)]), "int64")


def _objects(values: Dims) -> Array:
    plain = [v.value if isinstance(v, expr.IntImm) else v for v in values]
    found = np.empty(len(plain), dtype=object)
    found[:] = plain
    return found


@row("Size")
def size(b: Emitter, x: graph.Expr, **_: Any) -> Any:
    count: Any = expr.const(1)
    for d in shape_of(x):
        count = count * d
    return Known(_objects([count]).reshape(()), "int64")


@row("Reshape")
@static(1)
def reshape(
    b: Emitter, x: graph.Expr, wanted: Any = None, *, shape: Any = None, allowzero: int = 0,
    **_: Any,
) -> graph.Expr:  # fmt: skip
    """0 stands for the extent there was, unless `allowzero`; -1 for what is left."""
    dims = ints(wanted if wanted is not None else shape, "the shape")
    before = shape_of(x)
    dims = [before[i] if _is(d, 0) and not allowzero else d for i, d in enumerate(dims)]
    return b.reshape(x, tuple(dims))


def _is(value: Any, wanted: int) -> bool:
    value = value.value if isinstance(value, expr.IntImm) else value
    return not isinstance(value, PrimExpr) and value == wanted


@row("Transpose")
def transpose(b: Emitter, x: graph.Expr, *, perm: Any = None, **_: Any) -> graph.Expr:
    return b.permute_dims(x, axes=tuple(perm) if perm is not None else None)


@row("Flatten")
def flatten(b: Emitter, x: graph.Expr, *, axis: int = 1, **_: Any) -> graph.Expr:
    dims = shape_of(x)
    first, rest = expr.const(1), expr.const(1)
    cut = axis % (len(dims) + 1) if axis >= 0 else axis % len(dims)
    for d in dims[:cut]:
        first = first * d
    for d in dims[cut:]:
        rest = rest * d
    return b.reshape(x, (first, rest))


@row("Unsqueeze")
@static(1)
def unsqueeze(b: Emitter, x: graph.Expr, chosen: Any = None, *, axes: Any = None, **_: Any) -> Any:
    given = numbers(chosen if chosen is not None else axes, "the axes")
    return b.expand_dims(x, axis=tuple(a % (rank(x) + len(given)) for a in given))


@row("Squeeze")
@static(1)
def squeeze(b: Emitter, x: graph.Expr, chosen: Any = None, *, axes: Any = None, **_: Any) -> Any:
    given = axes_of(chosen if chosen is not None else axes, rank(x))
    if given is None:
        given = tuple(d for d, e in enumerate(shape_of(x)) if _is(e, 1))
    return b.squeeze(x, axis=given) if given else x


@row("Concat")
def concat(b: Emitter, *xs: graph.Expr, axis: int = 1, **_: Any) -> graph.Expr:
    return xs[0] if len(xs) == 1 else b.concat(xs, axis=axis)


@row("Expand")
@static(1)
def expand(b: Emitter, x: graph.Expr, wanted: Any, **_: Any) -> graph.Expr:
    """To the shape that the tensor's and the given one broadcast to."""
    dims, before = ints(wanted, "the shape"), list(shape_of(x))
    longest = max(len(dims), len(before))
    dims, before = ([expr.const(1)] * (longest - len(v)) + list(v) for v in (dims, before))
    both = [o if _is(d, 1) else d for d, o in zip(dims, before, strict=True)]
    return b.broadcast_to(x, tuple(both))


@row("Tile")
@static(1)
def tile(b: Emitter, x: graph.Expr, repeats: Any, **_: Any) -> graph.Expr:
    """A copy for each repeat; of as many as a symbol says by a new dimension in front of each."""
    counts = [expr.as_expr(n) for n in ints(repeats, "the repeats")]
    if all(isinstance(n, expr.IntImm) for n in counts):
        return b.tile(x, tuple(n.value for n in counts if isinstance(n, expr.IntImm)))
    pairs = list(zip(counts, shape_of(x), strict=True))
    apart = b.reshape(x, tuple(d for _, extent in pairs for d in (1, extent)))
    whole = b.broadcast_to(apart, tuple(d for pair in pairs for d in pair))
    return b.reshape(whole, tuple(n * extent for n, extent in pairs))


@row("ConstantOfShape")
@static(0)
def constant_of_shape(b: Emitter, wanted: Any, *, value: Any = None, **_: Any) -> graph.Expr:
    fill = np.zeros(1, "float32") if value is None else value
    dims = tuple(map(expr.as_expr, ints(wanted, "the shape")))
    return b.full(dims, b.const(fill.reshape(())), dtype=fill.dtype.name)


@row("Range")
@static(-1)
def range_(b: Emitter, start: Any, limit: Any, delta: Any, **_: Any) -> graph.Expr:
    bounds = [ints(v, "the range")[0] for v in (start, limit, delta)]
    dtype = start.dtype
    if any(isinstance(v, PrimExpr) for v in bounds):
        return b.arange(*bounds, dtype=dtype)
    return b.const(np.arange(*bounds).astype(dtype))


@row("EyeLike")
def eye_like(b: Emitter, x: graph.Expr, *, k: int = 0, dtype: str | None = None, **_: Any) -> Any:
    return b.eye_like(x, k=k, dtype=dtype or dtype_of(x))


@row("OneHot")
@static(1, 2)
def one_hot(
    b: Emitter, indices: graph.Expr, depth: Any, values: Any, *, axis: int = -1, **_: Any
) -> graph.Expr:
    (extent,), (off, on) = ints(depth, "the depth"), array(values, "the values")
    extent = int(extent) if not isinstance(extent, PrimExpr) else extent
    at, ndim = b.cast(indices, "int64"), rank(indices) + 1
    axis = axis % ndim
    count = b.scalar(expr.as_expr(extent), "int64")
    at = b.where(b.less(at, number(b, 0, at)), b.add(at, count), at)
    dims = [*shape_of(indices)]
    dims.insert(axis, expr.as_expr(extent))
    places = per_axis_places(b, dims, axis)
    hot = b.equal(places, b.expand_dims(at, axis=(axis,)))
    return b.where(hot, b.const(on), b.const(off))


# --- Parts ------------------------------------------------------------------------------------


@row("Slice")
@static(1, 2, 3, 4)
def slice_(
    b: Emitter, x: graph.Expr, starts_in: Any = None, ends_in: Any = None, axes_in: Any = None,
    steps_in: Any = None, *, starts: Any = None, ends: Any = None, axes: Any = None, **_: Any,
) -> graph.Expr:  # fmt: skip
    begin = ints(starts_in if starts_in is not None else starts, "the starts")
    end = ints(ends_in if ends_in is not None else ends, "the ends")
    where = axes_in if axes_in is not None else axes
    chosen = axes_of(where, rank(x)) or tuple(range(len(begin)))
    steps = [1] * len(begin) if steps_in is None else numbers(steps_in, "the steps")
    return b.strided_slice(x, list(chosen), _bounds(begin), _bounds(end), _bounds(steps))


FAR = 2**40


def _bounds(values: Dims) -> list[PrimExpr]:
    """Bounds as expressions; those that stand for infinity within what can be added to them."""
    return [
        v if isinstance(v, PrimExpr) else expr.const(max(-FAR, min(FAR, int(v)))) for v in values
    ]


@row("Split")
@static(0, 1)
def split(
    b: Emitter, x: Any, sizes: Any = None, *, split: Any = None, axis: int = 0,
    num_outputs: int = 0, outputs: int = 1, **_: Any,
) -> Any:  # fmt: skip
    given = sizes if sizes is not None else split
    if isinstance(x, Known):
        return _known_parts(x, numbers(given, "the split") if given is not None else outputs, axis)
    axis = axis % rank(x)
    if given is not None:
        parts = ints(given, "the split")
    else:
        (extent,), count = numbers([shape_of(x)[axis]], "the extent"), num_outputs or outputs
        each = -(-extent // count)
        parts = [min(each, extent - each * i) for i in range(count)]
    start: Any = expr.const(0)
    found: list[graph.Expr] = []
    for part in parts:
        found.append(b.strided_slice(x, [axis], [start], [start + part]))
        start = start + part
    return tuple(found)


def _known_parts(x: Known, parts: Any, axis: int) -> tuple[Known, ...]:
    cuts = list(np.cumsum(parts)[:-1]) if isinstance(parts, list) else parts
    return tuple(Known(p, x.dtype) for p in np.split(x.values, cuts, axis))


@row("Pad")
@static(1, 2, 3)
def pad(
    b: Emitter, x: graph.Expr, widths: Any = None, fill: Any = None, axes: Any = None, *,
    pads: Any = None, mode: str = "constant", value: float = 0.0, **_: Any,
) -> graph.Expr:  # fmt: skip
    flat = numbers(widths if widths is not None else pads, "the pads")
    ndim = rank(x)
    chosen = axes_of(axes, ndim, "the axes") or tuple(range(ndim))
    pairs = dict.fromkeys(range(ndim), (0, 0))
    sides = zip(flat[: len(chosen)], flat[len(chosen) :], strict=True)
    pairs |= dict(zip(chosen, sides, strict=True))
    cut = [d for d, p in pairs.items() if min(p) < 0]
    x = _cropped(b, x, [(d, pairs[d]) for d in cut]) if cut else x
    margins = tuple(max(w, 0) for d in range(ndim) for w in pairs[d])
    if not any(margins):
        return x
    modes = {"constant": "constant", "reflect": "reflect", "edge": "replicate", "wrap": "circular"}
    filled = value if fill is None else array(fill, "the value").reshape(-1)[0].item()
    as_bytes = dtype_of(x) == "bool"
    x = b.cast(x, "uint8") if as_bytes else x
    options = {"pad_value": filled} if mode == "constant" else {}
    result = b.pad(x, pad_width=margins, pad_mode=modes[mode], **options)
    return b.cast(result, "bool") if as_bytes else result


def _cropped(b: Emitter, x: graph.Expr, cuts: list[tuple[int, tuple[int, int]]]) -> graph.Expr:
    axes = [d for d, _ in cuts]
    begin = [expr.const(max(-low, 0)) for _, (low, _) in cuts]
    end = [shape_of(x)[d] - max(-high, 0) for d, (_, high) in cuts]
    return b.strided_slice(x, axes, begin, end)


@row("CenterCropPad")
@static(1)
def center_crop_pad(
    b: Emitter, x: graph.Expr, wanted: Any, *, axes: Any = None, **_: Any
) -> graph.Expr:
    dims = numbers(wanted, "the shape")
    chosen = axes_of(axes, rank(x)) or tuple(range(rank(x)))
    pairs: dict[int, tuple[int, int]] = {}
    for d, extent in zip(chosen, dims, strict=True):
        (before,) = numbers([shape_of(x)[d]], "the extent")
        gap = extent - before
        low = gap // 2 if gap >= 0 else -((-gap) // 2)
        pairs[d] = (low, gap - low)
    flat = [[pairs.get(d, (0, 0))[side] for d in range(rank(x))] for side in (0, 1)]
    return pad(b, x, pads=[*flat[0], *flat[1]])


@row("DepthToSpace")
def depth_to_space(
    b: Emitter, x: graph.Expr, *, blocksize: int, mode: str = "DCR", **_: Any
) -> graph.Expr:
    n, c, h, w = shape_of(x)
    r = blocksize
    if mode == "DCR":
        parts, order = (n, r, r, c // (r * r), h, w), (0, 3, 4, 1, 5, 2)
    else:
        parts, order = (n, c // (r * r), r, r, h, w), (0, 1, 4, 2, 5, 3)
    whole = b.permute_dims(b.reshape(x, parts), axes=order)
    return b.reshape(whole, (n, c // (r * r), h * r, w * r))


@row("SpaceToDepth")
def space_to_depth(
    b: Emitter, x: graph.Expr, *, blocksize: int, mode: str = "DCR", **_: Any
) -> graph.Expr:
    n, c, h, w = shape_of(x)
    r = blocksize
    order = (0, 3, 5, 1, 2, 4) if mode == "DCR" else (0, 1, 3, 5, 2, 4)
    whole = b.permute_dims(b.reshape(x, (n, c, h // r, r, w // r, r)), axes=order)
    return b.reshape(whole, (n, c * (r * r), h // r, w // r))


@row("ReverseSequence")
def reverse_sequence(
    b: Emitter, x: graph.Expr, lengths: graph.Expr, *, batch_axis: int = 1, time_axis: int = 0,
    **_: Any,
) -> graph.Expr:  # fmt: skip
    return b.reverse_sequence(x, lengths, seq_axis=time_axis, batch_axis=batch_axis)


# --- Places -----------------------------------------------------------------------------------


@row("Gather")
def gather(b: Emitter, x: graph.Expr, at: graph.Expr, *, axis: int = 0, **_: Any) -> graph.Expr:
    extent = b.scalar(shape_of(x)[axis % rank(x)], dtype_of(at))
    at = b.where(b.less(at, number(b, 0, at)), b.add(at, extent), at)
    return b.take(x, at, axis=axis % rank(x))


@row("GatherElements")
def gather_elements(b: Emitter, x: graph.Expr, at: graph.Expr, *, axis: int = 0, **_: Any) -> Any:
    return b.gather_elements(x, at, axis=axis)


@row("GatherND")
def gather_nd(b: Emitter, x: graph.Expr, at: graph.Expr, *, batch_dims: int = 0, **_: Any) -> Any:
    return b.gather_nd(x, at, batch_dims=batch_dims)


REDUCTIONS = {"none": "update", "add": "add", "mul": "mul", "max": "max", "min": "min"}


@row("ScatterElements", "Scatter")
def scatter_elements(
    b: Emitter, x: graph.Expr, at: graph.Expr, updates: graph.Expr, *, axis: int = 0,
    reduction: str = "none", **_: Any,
) -> graph.Expr:  # fmt: skip
    return b.scatter_elements(x, at, updates, axis=axis, reduction=REDUCTIONS[reduction])


@row("ScatterND")
def scatter_nd(
    b: Emitter, x: graph.Expr, at: graph.Expr, updates: graph.Expr, *, reduction: str = "none",
    **_: Any,
) -> graph.Expr:  # fmt: skip
    return b.scatter_nd(x, at, updates, reduction=REDUCTIONS[reduction])


@row("NonZero")
def nonzero(b: Emitter, x: graph.Expr, **_: Any) -> graph.Expr:
    return b.nonzero(x)


@row("Compress")
@static(1)
def compress(b: Emitter, x: Any, condition: Any, *, axis: int | None = None, **_: Any) -> Any:
    places = np.flatnonzero(array(condition, "the condition"))
    if axis is None:
        x, axis = b.reshape(x, (-1,)), 0
    return b.take(x, b.const(places.astype("int64")), axis=axis % rank(x))


# --- Constants --------------------------------------------------------------------------------


@row("Constant")
def constant_row(
    b: Emitter, *, value: Any = None, value_float: Any = None, value_floats: Any = None,
    value_int: Any = None, value_ints: Any = None, **others: Any,
) -> Any:  # fmt: skip
    floats = value_float if value_float is not None else value_floats
    integers = value_int if value_int is not None else value_ints
    if value is not None:
        found = value
    elif floats is not None:
        found = np.asarray(floats, "float32")
    elif integers is not None:
        found = np.asarray(integers, "int64")
    else:
        raise Refused(f"a constant given as {', '.join(others) or 'nothing'}")
    return known(b, found)


def known(b: Emitter, value: Array) -> Any:
    """An array of the model: small ones are followed, others are constants."""
    if value.size > MOST_FOLLOWED or not is_dtype(value.dtype.name):
        return b.const(value)
    return Known.of(value, value.dtype.name)


MOST_FOLLOWED = 1024
"""The elements of the largest array that is known to rows: shapes, indices, bounds, scales."""


@row("Dropout")
@static(1, 2)
def dropout(
    b: Emitter, x: Any, ratio: Any = None, training: Any = None, *, outputs: int = 1, **_: Any
) -> Any:
    trains = training is not None and array(training, "training_mode").any()
    if trains and (ratio is None or array(ratio, "ratio").any()):
        raise Refused("random numbers while training")
    mask = b.full(shape_of(x), b.const(True), dtype="bool")
    return x if outputs == 1 else (x, mask)


