"""Functions of `tvm.topi` whose arguments are not those of an operator of the core."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from math import prod
from typing import Any

from relaxlab.ir import expr
from relaxlab.ir.expr import PrimExpr
from relaxlab.ops import te
from relaxlab.ops.layouts import Layout
from relaxlab.ops.shapes import simplify
from relaxlab.ops.te import Tensor
from relaxlab.tvm.topi.common import Ints, ints, op, refuse, transposed


def identity(x: Tensor) -> Any:
    """The same values."""
    return te.compute(x.shape, lambda *i: x[i], "identity")


def _reduced(cls: type[expr.BinaryOp], data: Tensor, axis: Any, keepdims: bool, first: bool) -> Any:
    ndim = len(data.shape)
    over = sorted(a % ndim for a in (range(ndim) if axis is None else ints(axis)))
    combiner = te.Combiner(
        cls.__name__.lower(),
        lambda _: (expr.const(first),),
        lambda acc, new: (cls(acc[0], new[0]),),
    )
    axes = tuple(te.reduce_axis(data.shape[a], f"k{a}") for a in over)
    kept = [a for a in range(ndim) if keepdims or a not in over]
    at = {a: axes[over.index(a)].var for a in over}

    def element(*i: PrimExpr) -> te.Reduce:
        places = dict(zip(kept, i, strict=True)) | at
        return te.Reduce(combiner, (data[tuple(places[a] for a in range(ndim))],), axes)

    shape = tuple(expr.const(1) if a in over else data.shape[a] for a in kept)
    return te.compute(shape, element, "reduced")


def all(data: Tensor, axis: Any = None, keepdims: bool = False) -> Any:  # noqa: A001 - TVM's name
    """True where all elements along axes are."""
    return _reduced(expr.And, data, axis, keepdims, first=True)


def any(data: Tensor, axis: Any = None, keepdims: bool = False) -> Any:  # noqa: A001
    """True where an element along axes is."""
    return _reduced(expr.Or, data, axis, keepdims, first=False)


def argmax(
    data: Tensor, axis: Any = None, keepdims: bool = False, select_last_index: bool = False
) -> Any:
    """The first place of the largest element along an axis, as int32."""
    return _place("argmax", data, axis, keepdims, select_last_index)


def argmin(
    data: Tensor, axis: Any = None, keepdims: bool = False, select_last_index: bool = False
) -> Any:
    """The first place of the least element along an axis, as int32."""
    return _place("argmin", data, axis, keepdims, select_last_index)


def _place(name: str, data: Tensor, axis: Any, keepdims: bool, last: bool) -> Any:
    if last:
        refuse(name, "select_last_index")
    return op("astype", op(name, data, axis=axis, keepdims=keepdims), dtype="int32")


def expand_dims(a: Tensor, axis: int, num_newaxis: int = 1) -> Any:
    """New axes of one element at a place."""
    first = axis % (len(a.shape) + 1)
    return op("expand_dims", a, axis=list(range(first, first + num_newaxis)))


def expand_like(a: Tensor, shape_like: Tensor, axis: Ints) -> Any:
    """The tensor repeated along the axes that another has in addition."""
    ndim = len(shape_like.shape)
    new = [x % ndim for x in ints(axis)]
    kept = [d for d in range(ndim) if d not in new]
    return te.compute(shape_like.shape, lambda *i: a[tuple(i[d] for d in kept)], "expand_like")


def take(
    a: Tensor, indices: Any, axis: int | None = None, batch_dims: int = 0, mode: str = "fast"
) -> Any:
    """Elements, or slices along an axis."""
    if batch_dims:
        refuse("take", "batch_dims")
    if axis is None:
        a, axis = op("reshape", a, shape=(-1,)), 0
    return op("take", a, indices, axis=axis, mode=mode)


def gather(data: Tensor, axis: int, indices: Tensor) -> Any:
    """The element of each index along an axis."""
    return op("gather_elements", data, indices, axis=axis)


def strided_slice(
    a: Tensor, begin: Any, end: Any, strides: Any = None, axes: Any = None,
    slice_mode: str = "end", assume_inbound: bool = True,
) -> Any:  # fmt: skip
    """Every element of a step from `begin` to `end`, or to `begin + end` in the mode "size"."""
    begin, end = ints(begin), ints(end)
    if slice_mode == "size":
        end = tuple(b + e for b, e in zip(begin, end, strict=True))
    over = list(range(len(begin))) if axes is None else list(ints(axes))
    step = None if strides is None else list(ints(strides))
    return op("strided_slice", a, over, list(begin), list(end), step)


def one_hot(
    indices: Tensor, on_value: Any, off_value: Any, depth: int, axis: int, dtype: str
) -> Any:
    """`on_value` at each index along a new axis, `off_value` elsewhere."""
    ndim = len(indices.shape) + 1
    at = axis % ndim
    on, off = (expr.const(getattr(v, "value", v), dtype) for v in (on_value, off_value))
    shape = (*indices.shape[:at], expr.const(depth), *indices.shape[at:])

    def element(*i: PrimExpr) -> PrimExpr:
        place = indices[(*i[:at], *i[at + 1 :])]
        return expr.Select(expr.EQ(place, expr.Cast(place.dtype, i[at])), on, off)

    return te.compute(shape, element, "one_hot")


def sequence_mask(data: Tensor, valid_length: Tensor, mask_value: float = 0, axis: int = 0) -> Any:
    """The values before the length of each sequence, `mask_value` behind it; axis 0 or 1 is that of
    the positions, the other that of the sequences."""
    fill = expr.const(mask_value, data.dtype)

    def element(*i: PrimExpr) -> PrimExpr:
        length = valid_length[(i[1 - axis],)]
        return expr.Select(expr.LT(expr.Cast(length.dtype, i[axis]), length), data[i], fill)

    return te.compute(data.shape, element, "sequence_mask")


def full(shape: Any, dtype: str, fill_value: Any) -> Any:
    """A tensor of one value."""
    return te.compute(tuple(shape), lambda *_: expr.const(fill_value, dtype), "full")


def full_like(x: Tensor, fill_value: Any) -> Any:
    """A tensor of one value, of the shape and dtype of another."""
    return full(x.shape, x.dtype, fill_value)


def arange(start: Any, stop: Any = None, step: Any = 1, dtype: str = "float32") -> Any:
    """Numbers from `start` in steps, `stop` excluded."""
    first, end = (0, start) if stop is None else (start, stop)
    return op("arange", first, end, step, dtype)


def layout_transform(array: Tensor, src_layout: str, dst_layout: str, *_: Any, **__: Any) -> Any:
    """The tensor in another layout: a lower-case letter with a number is the inner part of the axis
    of the upper-case letter."""
    letters = "".join(c for c in src_layout if c.isupper())
    source, result = Layout(src_layout, letters), Layout(dst_layout, letters)
    sizes = source.take(array.shape)
    blocks = result.blocks
    return te.compute(
        tuple(
            expr.const(size) if size else _divided(sizes[letters.index(c)], blocks.get(c, 1))
            for c, size in result.axes
        ),
        lambda *i: array[source.put(result.take(i))],
        "layout_transform",
    )


def _divided(size: PrimExpr, block: int) -> PrimExpr:
    return size if block == 1 else simplify(size // block)


def _indices_last(indices: Tensor) -> Any:
    """Indices whose first axis says which axis each is for, with that axis last."""
    return op("permute_dims", indices, axes=[*range(1, len(indices.shape)), 0])


def gather_nd(a: Tensor, indices: Tensor, batch_dims: int = 0) -> Any:
    """The elements at places whose coordinates are along the first axis of the indices."""
    if batch_dims:
        refuse("gather_nd", "batch_dims")
    return op("gather_nd", a, _indices_last(indices))


def scatter_nd(data: Tensor, indices: Tensor, updates: Tensor, mode: str) -> Any:
    """The tensor with updates at places whose coordinates are along the first axis of the
    indices."""
    return op("scatter_nd", data, _indices_last(indices), updates, mode)


def tensordot(a: Tensor, b: Tensor, axes: Any) -> Any:
    """The sum of products over pairs of axes: the last of the one and the first of the other where
    their number is given."""
    if isinstance(axes, int):
        axes = (tuple(range(-axes, 0)), tuple(range(axes)))
    left, right = ([x % len(t.shape) for x in ints(s)] for t, s in zip((a, b), axes, strict=True))
    free = [[d for d in range(len(t.shape)) if d not in s] for t, s in ((a, left), (b, right))]
    over = [te.reduce_axis(a.shape[d], f"k{d}") for d in left]

    def read(t: Tensor, summed: list[int], kept: list[int], i: tuple[PrimExpr, ...]) -> PrimExpr:
        at = dict(zip([*summed, *kept], [*(k.var for k in over), *i], strict=True))
        return t[tuple(at[d] for d in range(len(t.shape)))]

    def element(*i: PrimExpr) -> te.Reduce:
        first, second = i[: len(free[0])], i[len(free[0]) :]
        x, y = read(a, left, free[0], first), read(b, right, free[1], second)
        return te.te_sum(x * y, *over)

    shape = (*(a.shape[d] for d in free[0]), *(b.shape[d] for d in free[1]))
    return te.compute(shape, element, "tensordot")


def einsum(subscripts: str, *operand: Any) -> Any:
    """The sum of products over the subscripts that the result lacks."""
    given = operand[0] if len(operand) == 1 and isinstance(operand[0], tuple | list) else operand
    return op("einsum", tuple(given), subscripts=subscripts)


def matmul(a: Tensor, b: Tensor, transp_a: bool = False, transp_b: bool = False) -> Any:
    """The product of matrices, transposed where that is asked for."""
    return op(
        "matmul", *(transposed(t) if flag else t for t, flag in ((a, transp_a), (b, transp_b)))
    )


def trilu(data: Tensor, k: Any, upper: bool) -> Any:
    """The triangle above a diagonal, or below it."""
    return op("triu" if upper else "tril", data, k=int(getattr(k, "value", k)))


def sliding_window(data: Tensor, axis: int, window_shape: Ints, strides: Ints) -> Any:
    """The windows of the axes from `axis` on, each as axes behind the others."""
    window, step = ints(window_shape), ints(strides)
    first, ndim = axis % len(data.shape), len(data.shape)
    counts = [
        (data.shape[first + d] - w + s) // s
        for d, (w, s) in enumerate(zip(window, step, strict=True))
    ]

    def element(*i: PrimExpr) -> PrimExpr:
        starts = (p * s for p, s in zip(i[first:ndim], step, strict=True))
        return data[(*i[:first], *(p + q for p, q in zip(starts, i[ndim:], strict=True)))]

    shape = (*data.shape[:first], *counts, *map(expr.const, window))
    return te.compute(shape, element, "sliding_window")


def matrix_set_diag(data: Tensor, diagonal: Tensor, k: int = 0, align: str = "RIGHT_LEFT") -> Any:
    """The matrices with other elements on a diagonal."""
    if isinstance(k, tuple | list):
        refuse("matrix_set_diag", "range of diagonals as k")

    def element(*i: PrimExpr) -> PrimExpr:
        row, column = i[-2], i[-1]
        on = expr.EQ(column - row, expr.const(k))
        value = diagonal[(*i[:-2], row if k >= 0 else column)]
        return expr.Call(data.dtype, "if_then_else", (on, value, data[i]))

    return te.compute(data.shape, element, "matrix_set_diag")


def shape(array: Tensor, dtype: str = "int32") -> Any:
    """The dimensions as a tensor."""

    def element(i: PrimExpr) -> PrimExpr:
        sizes = [expr.Cast(dtype, s) for s in array.shape]
        pairs = list(enumerate(sizes[:-1]))
        return reduce(
            lambda r, p: expr.Select(expr.EQ(i, expr.const(p[0])), p[1], r), pairs, sizes[-1]
        )

    return te.compute((len(array.shape),), element, "shape")


def elemwise_sum(xs: Sequence[Tensor]) -> Any:
    """The sum of tensors of one shape."""
    return reduce(lambda a, b: op("add", a, b), xs)


def cumsum(
    data: Tensor, axis: int | None = None, dtype: str | None = None, exclusive: bool | None = None
) -> Any:
    """The sums of the elements up to each, itself excluded where that is asked for."""
    return op("cumsum", data, axis=axis, dtype=dtype, exclusive=bool(exclusive))


def cumprod(
    data: Tensor, axis: int | None = None, dtype: str | None = None, exclusive: bool | None = None
) -> Any:
    """The products of the elements up to each, itself excluded where that is asked for."""
    return op("cumprod", data, axis=axis, dtype=dtype, exclusive=bool(exclusive))


def sort(data: Tensor, axis: int = -1, is_ascend: Any = 1) -> Any:
    """The elements along an axis in order."""
    return op("sort", data, axis=axis, descending=not is_ascend)


def argsort(
    data: Tensor, valid_count: Any = None, axis: int = -1, is_ascend: Any = 1,
    dtype: str = "float32",
) -> Any:  # fmt: skip
    """The places of the elements along an axis in order."""
    if valid_count is not None:
        refuse("argsort", "valid_count")
    places = op("argsort", data, axis=axis, descending=not is_ascend, dtype="int32")
    return places if dtype == "int32" else op("astype", places, dtype=dtype)


def topk(
    data: Tensor, k: int = 1, axis: int = -1, ret_type: str = "both", is_ascend: bool = False,
    dtype: str = "int64",
) -> Any:  # fmt: skip
    """The largest elements along an axis, or the least, and their places."""
    return op("topk", data, k, axis, ret_type, not is_ascend, dtype)


def searchsorted(
    sorted_sequence: Tensor, values: Tensor, right: bool = False, out_dtype: str = "int64"
) -> Any:
    """The place of each value in a sequence that is in order."""
    places = op("bucketize", values, sorted_sequence, out_int32=out_dtype == "int32", right=right)
    return places if out_dtype in ("int32", "int64") else op("astype", places, dtype=out_dtype)


def tensor_size(array: Tensor, dtype: str = "int32") -> Any:
    """The number of elements, as a tensor without axes."""
    count = prod(array.shape, start=expr.const(1))
    return te.compute((), lambda: expr.Cast(dtype, count), "size")


def get_const_tuple(in_tuple: Sequence[Any]) -> tuple[Any, ...]:
    """Dimensions as Python's numbers where they are constants."""
    return tuple(getattr(v, "value", v) for v in in_tuple)
