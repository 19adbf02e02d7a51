"""Views, slices, joins, and tensors made of nothing."""

from __future__ import annotations

from typing import Any

from relaxlab.frontend.emitter import Emitter, Tensor, dtype_of, shape_of
from relaxlab.frontend.pytorch.rows.elementwise import as_tensor, converted, out_dtype
from relaxlab.frontend.pytorch.rows.table import row
from relaxlab.ir import expr, graph
from relaxlab.ir.dtypes import is_float
from relaxlab.ir.expr import PrimExpr
from relaxlab.ops import te

Size = Any
"""An int or a scalar expression."""


def out_shape(b: Emitter, index: int = 0) -> tuple[PrimExpr, ...]:
    """The shape of a result, as PyTorch states it."""
    stated = b.out[index]
    assert stated is not None and stated.shape is not None
    return stated.shape


# --- The same elements in another shape ---------------------------------------------------------


def reshaped(b: Emitter, x: Tensor, *_: Any, **__: Any) -> Tensor:
    """A view, whose shape is the one that PyTorch states."""
    return x if shape_of(x) == out_shape(b) else b.reshape(x, out_shape(b))


for _name in (
    "view.default _unsafe_view.default reshape.default view_copy.default flatten.using_ints "
    "unflatten.int squeeze.default squeeze.dim squeeze.dims unsqueeze.default "
    "_reshape_alias.default ravel.default squeeze_copy.dim unsqueeze_copy.default "
    "squeeze_copy.default squeeze_copy.dims"
).split():
    row(f"aten.{_name}", reshaped)


def permuted(b: Emitter, x: Tensor, axes: list[int]) -> Tensor:
    """The dimensions in another order; that of a permutation is one permutation."""
    rank = len(shape_of(x))
    axes = [a % rank for a in axes]
    match b.builder.lookup_binding(x):
        case graph.Call(graph.Op("permute_dims"), (inner, *_), attrs) if "axes" in attrs:
            x, axes = inner, [attrs["axes"][a] for a in axes]  # type: ignore[assignment]
        case _:
            pass
    return x if axes == list(range(rank)) else b.permute_dims(x, axes=axes)


@row("aten.transpose.int", "aten.transpose_copy.int", "aten.swapaxes.default")
def transpose(b: Emitter, x: Tensor, first: int, second: int) -> Tensor:
    axes = list(range(len(shape_of(x))))
    if axes:
        axes[first], axes[second] = axes[second], axes[first]
    return permuted(b, x, axes)


row("aten.permute.default", "aten.permute_copy.default", permuted)
row("aten.t.default", "aten.t_copy.default", "aten.numpy_T.default", "aten.mT.default",
    lambda b, x: transpose(b, x, -2, -1) if len(shape_of(x)) > 1 else x)  # fmt: skip


@row("aten.expand.default", "aten.expand_copy.default", "aten.broadcast_to.default")
def expand(b: Emitter, x: Tensor, size: Any, **_: Any) -> Tensor:
    return x if shape_of(x) == out_shape(b) else b.broadcast_to(x, out_shape(b))


row("aten.expand_as.default", lambda b, x, other: expand(b, x, None))
row("aten.flip.default", lambda b, x, dims: flip(b, x, dims))


def flip(b: Emitter, x: Tensor, dims: list[int]) -> Tensor:
    for d in dims if shape_of(x) else ():
        x = b.flip(x, axis=d)
    return x


@row("aten.repeat.default", "aten.tile.default")
def repeat(b: Emitter, x: Tensor, repeats: list[Size]) -> Tensor:
    """`repeats` may have more entries than the tensor dimensions, or fewer (`tile`)."""
    shape = shape_of(x)
    if all(isinstance(r, int) for r in repeats):
        counts = [1] * (len(shape) - len(repeats)) + list(repeats)
        return b.tile(x, repeats=counts) if any(r != 1 for r in counts) else reshaped(b, x)
    lead = len(out_shape(b)) - len(shape)

    def copies(x: te.Tensor) -> te.Tensor:
        def element(*i: PrimExpr) -> PrimExpr:
            return x[tuple(v % d for v, d in zip(i[lead:], shape, strict=True))]

        return te.compute(out_shape(b), element, "repeat")

    return b.te(copies, x)


# --- Parts --------------------------------------------------------------------------------------


def bounds(extent: PrimExpr, count: PrimExpr, start: Size, step: int) -> tuple[Size, Size]:
    """The first index and the end of `count` elements, counted from the front. `start` may be
    negative, or outside of the extent, as in Python."""
    first = expr.as_expr(0 if start is None else start)
    if isinstance(first, expr.IntImm) and first.value < 0:
        first = extent + first
    if isinstance(extent, expr.IntImm) and isinstance(first, expr.IntImm):
        first = expr.const(min(max(0, first.value), extent.value))
    if count == expr.const(0):
        return first, first
    return first, first + (count if step == 1 else (count - 1) * step + 1)


def inside(extent: PrimExpr, at: Size) -> PrimExpr:
    """An end of a slice counted from the front, and not outside of the dimension."""
    at = expr.as_expr(at)
    at = expr.Select(expr.LT(at, expr.const(0)), at + extent, at)
    return expr.Max(expr.const(0), expr.Min(at, extent))


def sliced(b: Emitter, x: Tensor, dim: int, start: Size, end: Size = None, step: int = 1) -> Tensor:
    """Elements from `start` on along a dimension; PyTorch states how many these are, by a symbol
    that the result defines where the ends depend on data."""
    extent, count = shape_of(x)[dim], out_shape(b)[dim]
    if not b.has_value(count):
        first, last = (inside(extent, at) for at in (start or 0, extent if end is None else end))
        return b.strided_slice(
            x, axes=[dim], begin=[first], end=[expr.Max(first, last)], strides=[step],
            assume_inbound=True,
        )  # fmt: skip
    if count == extent and step == 1:
        return x
    begin, end = bounds(extent, count, start, step)
    return b.strided_slice(
        x, axes=[dim], begin=[begin], end=[end], strides=[step], assume_inbound=True
    )


@row("aten.slice.Tensor", "aten.slice_copy.Tensor")
def slice_(
    b: Emitter, x: Tensor, dim: int = 0, start: Size = None, end: Size = None, step: int = 1
) -> Tensor:
    return sliced(b, x, dim, start, end, step)


row("aten.narrow.default", lambda b, x, dim, start, _: sliced(b, x, dim, start, None))


@row("aten.select.int", "aten.select_copy.int")
def select(b: Emitter, x: Tensor, dim: int, index: Size) -> Tensor:
    extent = shape_of(x)[dim]
    if isinstance(index, int) and index < 0:
        index = extent + index
    return b.take(x, expr.as_expr(index), axis=dim)


@row("aten.unbind.int")
def unbind(b: Emitter, x: Tensor, dim: int = 0) -> tuple[Tensor, ...]:
    return tuple(b.take(x, expr.const(i), axis=dim) for i in range(len(b.out)))


@row("aten.split_with_sizes.default", "aten.split.Tensor", "aten.chunk.default",
     "aten.split.sizes", "aten.split_with_sizes_copy.default", "aten.tensor_split.sections",
     "aten.tensor_split.indices", "aten.unsafe_split.Tensor",
     "aten.unsafe_split_with_sizes.default", "aten.unsafe_chunk.default")  # fmt: skip
def split(b: Emitter, x: Tensor, _: Any, dim: int = 0) -> tuple[Tensor, ...]:
    """The parts, of which PyTorch states the sizes."""
    parts: list[Tensor] = []
    start: PrimExpr = expr.const(0)
    for i in range(len(b.out)):
        end = start + out_shape(b, i)[dim]
        parts.append(b.strided_slice(x, axes=[dim], begin=[start], end=[end], assume_inbound=True))
        start = end
    return tuple(parts)


@row("aten.diagonal.default", "aten.diagonal_copy.default")
def diagonal(b: Emitter, x: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    rank = len(shape_of(x))
    dim1, dim2 = dim1 % rank, dim2 % rank

    def along(x: te.Tensor) -> te.Tensor:
        def element(*i: PrimExpr) -> PrimExpr:
            at = list(i[:-1])
            first, second = i[-1] - min(offset, 0), i[-1] + max(offset, 0)
            for d, v in sorted(((dim1, first), (dim2, second)), key=lambda pair: pair[0]):
                at.insert(d, v)
            return x[tuple(at)]

        return te.compute(out_shape(b), element, "diagonal")

    return b.te(along, x)


@row("aten.as_strided.default", "aten.as_strided_copy.default")
def as_strided(
    b: Emitter, x: Tensor, size: list[Size], stride: list[Size], storage_offset: Size = None
) -> Tensor:
    """Elements by their place in memory, of a tensor whose elements lie in order."""
    shape = shape_of(x)

    def elements(x: te.Tensor) -> te.Tensor:
        def element(*i: PrimExpr) -> PrimExpr:
            flat = expr.as_expr(storage_offset or 0)
            for v, s in zip(i, stride, strict=True):
                flat = flat + v * s
            at: list[PrimExpr] = []
            for d in reversed(shape):
                at.insert(0, flat % d)
                flat = flat // d
            return x[tuple(at)]

        return te.compute(out_shape(b), element, "as_strided")

    return b.te(elements, x)


@row("aten.unfold.default")
def unfold(b: Emitter, x: Tensor, dim: int, size: int, step: int) -> Tensor:
    """Windows along a dimension, as a new last one."""
    dim %= max(1, len(shape_of(x)))

    def windows(x: te.Tensor) -> te.Tensor:
        def element(*i: PrimExpr) -> PrimExpr:
            if not x.shape:
                return x[()]
            return x[(*i[:dim], i[dim] * step + i[-1], *i[dim + 1 : -1])]

        return te.compute(out_shape(b), element, "unfold")

    return b.te(windows, x)


# --- Joins --------------------------------------------------------------------------------------


@row("aten.cat.default", "aten.concat.default", "aten.concatenate.default")
def cat(b: Emitter, tensors: list[Tensor], dim: int = 0) -> Tensor:
    """The tensors one after the other; those of shape (0,) are left out, as PyTorch does."""
    nothing = (expr.const(0),)
    kept = [t for t in tensors if shape_of(t) != nothing] or tensors[:1]
    kept = [b.cast(t, out_dtype(b)) for t in kept]
    return kept[0] if len(kept) == 1 else b.concat(tuple(kept), axis=dim)


@row("aten.stack.default")
def stack(b: Emitter, tensors: list[Tensor], dim: int = 0) -> Tensor:
    return b.stack(tuple(b.cast(t, out_dtype(b)) for t in tensors), axis=dim)


# --- Padding ------------------------------------------------------------------------------------


@row("aten.constant_pad_nd.default")
def constant_pad_nd(b: Emitter, x: Tensor, pad: list[Size], value: Any = 0) -> Tensor:
    """A margin of one value; `pad` begins with the last dimension, and may be negative."""
    shape, before = shape_of(x), [0] * len(shape_of(x))
    for n in range(len(pad) // 2):
        before[-1 - n] = pad[2 * n]

    def padded(x: te.Tensor) -> te.Tensor:
        def element(*i: PrimExpr) -> PrimExpr:
            at = [v - p for v, p in zip(i, before, strict=True)]
            inside = [
                test
                for v, d, p in zip(at, shape, before, strict=True)
                if not (isinstance(p, int) and p == 0)
                for test in (expr.GE(v, expr.const(0)), expr.LT(v, d))
            ]
            ends = [
                expr.LT(v, d)
                for v, d, p, o in zip(at, shape, before, out_shape(b), strict=True)
                if isinstance(p, int) and p == 0 and o != d
            ]
            chosen = expr.all_of([*inside, *ends])
            number = expr.const(value, x.dtype)
            return expr.Call(x.dtype, "if_then_else", (chosen, x[tuple(at)], number))

        return te.compute(out_shape(b), element, "pad")

    simple = all(isinstance(p, int) and p >= 0 for p in pad)
    if simple and is_float(dtype_of(x)):
        widths = [0] * (2 * len(shape))
        for n in range(len(pad) // 2):
            at = 2 * (len(shape) - 1 - n)
            widths[at : at + 2] = pad[2 * n : 2 * n + 2]
        return b.pad(x, pad_width=widths, pad_value=float(value))
    return b.te(padded, x)


# --- Made of nothing ----------------------------------------------------------------------------


@row("aten.arange.start_step", "aten.arange.start", "aten.arange.default")
def arange(b: Emitter, *bounds: Size, dtype: str | None = None) -> Tensor:
    start, end, step = (0, *bounds, 1) if len(bounds) == 1 else (*bounds, 1)[:3]
    kind = out_dtype(b)
    if not is_float(kind) and not any(isinstance(v, float) for v in (start, end, step)):
        return b.arange(start, end, step, dtype=kind)
    wide = "float64" if kind == "float64" else "float32"

    def numbers() -> te.Tensor:
        def element(i: PrimExpr) -> PrimExpr:
            first, by = (expr.Cast(wide, expr.as_expr(v)) for v in (start, step))
            return expr.Cast(kind, first + expr.Cast(wide, i) * by)

        return te.compute(out_shape(b), element, "arange")

    return b.te(numbers)


def filled(b: Emitter, value: Any) -> Tensor:
    """A tensor of the stated type with one value everywhere."""
    dtype = out_dtype(b)
    number = converted(b, value, dtype) if isinstance(value, graph.Expr) else b.scalar(value, dtype)
    return b.full(out_shape(b), number) if out_shape(b) else number


@row("aten.new_full.default")
def new_full(b: Emitter, x: Tensor, size: list[Size], value: Any, **_: Any) -> Tensor:
    return filled(b, value)


row("aten.full.default", "aten.full_like.default", "aten.fill.Scalar",
    "aten.fill.Tensor",
    lambda b, _, value, *__, **___: filled(b, value))  # fmt: skip
for _name in "zeros zeros_like new_zeros empty empty_like new_empty empty_permuted zero".split():
    for _overload in ("default", "memory_format"):
        row(f"aten.{_name}.{_overload}", lambda b, *_, **__: filled(b, 0))
for _name in "empty_strided new_empty_strided".split():
    row(f"aten.{_name}.default", lambda b, *_, **__: filled(b, 0))
for _name in "ones ones_like new_ones".split():
    row(f"aten.{_name}.default", lambda b, *_, **__: filled(b, 1))
row("aten.scalar_tensor.default", lambda b, value, **_: filled(b, value))
row("aten.copy.default",
    lambda b, x, source, *_: expand(b, converted(b, source, dtype_of(x)), None))  # fmt: skip


@row("aten.eye.default", "aten.eye.m")
def eye(b: Emitter, n: int, m: int | None = None, **_: Any) -> Tensor:
    return b.eye(n, m, dtype=out_dtype(b))


def triangle(name: str) -> None:
    def emit(b: Emitter, x: Tensor, diagonal: int = 0) -> Tensor:
        if dtype_of(x) != "bool":
            return getattr(b, name)(x, k=diagonal)
        return b.cast(getattr(b, name)(b.cast(x, "int8"), k=diagonal), "bool")

    row(f"aten.{name}.default", emit)


triangle("tril")
triangle("triu")


@row("aten.linspace.default")
def linspace(b: Emitter, start: float, end: float, steps: int, **_: Any) -> Tensor:
    """Evenly spaced numbers, from both ends to the middle, as PyTorch computes them."""
    kind = out_dtype(b)
    step = (end - start) / (steps - 1) if steps > 1 else 0.0

    def numbers() -> te.Tensor:
        def element(i: PrimExpr) -> PrimExpr:
            def at(number: PrimExpr) -> PrimExpr:
                return expr.Cast("float64", number) * expr.const(step, "float64")

            low = expr.const(float(start), "float64") + at(i)
            high = expr.const(float(end), "float64") - at(steps - 1 - i)
            return expr.Cast(kind, expr.Select(expr.LT(i, expr.const(steps // 2)), low, high))

        return te.compute(out_shape(b), element, "linspace")

    return b.te(numbers)


@row("aten.slice_scatter.default")
def slice_scatter(
    b: Emitter,
    x: Tensor,
    source: Tensor,
    dim: int = 0,
    start: Size = None,
    end: Size = None,
    step: int = 1,
) -> Tensor:
    source = as_tensor(b, source, dtype_of(x))
    begin, stop = bounds(shape_of(x)[dim], shape_of(source)[dim], start, step)
    return b.slice_scatter(x, source, start=begin, end=stop, step=step, axis=dim)


@row("aten.select_scatter.default")
def select_scatter(b: Emitter, x: Tensor, source: Tensor, dim: int, index: Size) -> Tensor:
    shape = list(shape_of(x))
    if isinstance(index, int) and index < 0:
        index = shape[dim] + index
    shape[dim] = expr.const(1)
    one = b.reshape(b.cast(source, dtype_of(x)), tuple(shape))
    return b.slice_scatter(x, one, start=index, end=expr.as_expr(index) + 1, axis=dim)
