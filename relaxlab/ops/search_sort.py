"""Sorting and what rests on it: the largest k, medians, unique elements, searching."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from relaxlab.ir import expr, graph, loops
from relaxlab.ir.dtypes import is_float, numpy_dtype
from relaxlab.ir.expr import PrimExpr
from relaxlab.ir.row_major import product
from relaxlab.ir.types import TensorType, TupleType, Type
from relaxlab.ops import scalar, te
from relaxlab.ops.datatype import dtype_attr
from relaxlab.ops.define import (
    TypesOf,
    attr,
    axis_within,
    define,
    fail,
    normal_axes,
    normal_axis,
    number,
    one_dtype,
    params,
    takes,
    tensor_arg,
    tensor_like,
    type_of_argument,
)
from relaxlab.ops.manipulate import reshape_compute
from relaxlab.ops.radix import (
    Row,
    each,
    longest_compared,
    place_of_rank,
    rank_outputs,
    sort_by_ranks,
    sort_rows,
)
from relaxlab.ops.reduce import narrow, reduced_type
from relaxlab.ops.shapes import impossible

Array = np.ndarray[Any, Any]
Buffers = dict[te.Tensor, loops.Buffer]
Rows = tuple[expr.Var, ...]
LT, LE, GE = expr.LT, expr.LE, expr.GE
SORTED_PART = 8
"""Elements of a short row for each that is selected, up to which it is sorted: 8 of 64 float32 of
2,000 rows took 1,160 us by insertions, 580 sorted; 4 650 and 540; 4 of 100 450 and 770."""
MAX_SELECTED = 64
"""Longest `topk` that is found with a short sorted list, into which an element is inserted by
moving those after it; for more the whole row is sorted. 10 of 4096 took 2.5 ms, sorting 1100
(NOTES, *Moving and ordering data*)."""


# --- The order of a row -----------------------------------------------------------------------


def _precedes(a: PrimExpr, b: PrimExpr, descending: bool) -> PrimExpr:
    """True if `a` must come before `b`; NaN counts as the largest, as in NumPy."""
    a, b = scalar.wide(a), scalar.wide(b)
    if descending:
        a, b = b, a
    less: PrimExpr = LT(a, b)
    if is_float(a.dtype):
        less = expr.Or(less, expr.And(expr.Not(scalar.isnan(a)), scalar.isnan(b)))
    return less


def argsort_compute(x: te.Tensor, axis: int, descending: bool) -> te.Tensor:
    """The stable order of each row along `axis`, int64."""
    return _sorted_rows(x, axis, descending, as_places=True)


def sort_compute(x: te.Tensor, axis: int, descending: bool) -> te.Tensor:
    """The elements of each row along `axis` in the order of `argsort_compute`."""
    return _sorted_rows(x, axis, descending, as_places=False)


def _sorted_rows(x: te.Tensor, axis: int, descending: bool, as_places: bool) -> te.Tensor:
    """The elements of each row along `axis`, or their places, in order.

    A row that is sorted lies side by side: along other axes than the last each of its elements
    would be in another cache line.
    """
    result = sort_rows(x, axis, descending, as_places)
    if axis == x.ndim - 1:
        return result
    return te.compute(
        x.shape, lambda *i: result[(*i[:axis], *i[axis + 1 :], i[axis])], "T_sort_transposed"
    )


def _first_compute(x: te.Tensor, axis: int, count: int, descending: bool) -> te.Tensor:
    """Return the first `count` places of each row in the order of `argsort_compute`, int64: each
    element that precedes the last one so far is inserted. In random order few do; at worst it takes
    O(n count). Rows that are short for that are sorted."""
    extent = x.shape[axis]
    rows: tuple[PrimExpr, ...] = (*x.shape[:axis], *x.shape[axis + 1 :])
    short = min(longest_compared(x.dtype), SORTED_PART * count)
    size = extent.value if isinstance(extent, expr.IntImm) else None

    def body(row: Rows, buffers: Buffers) -> loops.Stmt:
        if size is not None and size <= short:
            return ordered(row, buffers)
        if size is not None:
            return inserted(row, buffers)
        fits = LE(extent, expr.const(short))
        return loops.IfThenElse(fits, ordered(row, buffers), inserted(row, buffers))

    def ordered(row: Rows, buffers: Buffers) -> loops.Stmt:
        given, kept = Row(buffers[x], row, axis), Row(buffers[named["T_first"]], row, axis)
        order, keys, ranks = (
            Row(buffers[named[name]], row, len(row)) for name in ("T_order", "T_keys", "T_ranks")
        )
        return loops.seq(
            sort_by_ranks(given, order, keys, ranks, extent, descending, as_places=True),
            *each(expr.const(count), lambda p: kept.set(p, order[p])),
        )

    def inserted(row: Rows, buffers: Buffers) -> loops.Stmt:
        keys, kept = Row(buffers[x], row, axis), Row(buffers[named["T_first"]], row, axis)
        place = buffers[named["T_place"]]
        free = loops.BufferLoad(place, row)
        p = expr.Var("p")

        def set_free(value: PrimExpr) -> loops.Stmt:
            return loops.BufferStore(place, value, row)

        def precedes(at: PrimExpr) -> PrimExpr:
            return _precedes(keys[p], keys[kept[at]], descending)

        follows = expr.if_then_else(LT(te.ZERO, free), precedes(free - 1), expr.const(False))
        move = loops.seq(kept.set(free, kept[free - 1]), set_free(free - 1))
        insert = loops.seq(
            # The last of a full list falls out: it is overwritten first.
            set_free(expr.Min(p, expr.const(count - 1))),
            loops.While(follows, move),
            kept.set(free, p),
        )
        last = expr.const(count - 1)
        is_kept = expr.if_then_else(LE(p, last), te.TRUE, precedes(last))
        return loops.For(p, te.ZERO, extent, "serial", loops.IfThenElse(is_kept, insert))

    shape = (*x.shape[:axis], expr.const(count), *x.shape[axis + 1 :])
    outputs: list[tuple[str, tuple[PrimExpr, ...], str]] = [("T_first", shape, "int64")]
    if size is None or size > short:
        outputs.append(("T_place", rows, "int64"))
    if size is None or size <= short:
        most = short if size is None else size
        outputs.append(("T_order", (*rows, expr.const(most)), "int64"))
        outputs += rank_outputs(rows, most, x.dtype)
    made = te.compute_rows(rows, outputs, [x], body, "T_first")
    named = {t.name: t for t in made}
    return made[0]


def _gathered(x: te.Tensor, order: te.Tensor, axis: int, count: PrimExpr, name: str) -> te.Tensor:
    """The first `count` elements of `x` along `axis` in the given order."""
    shape = (*x.shape[:axis], count, *x.shape[axis + 1 :])

    def element(*i: PrimExpr) -> PrimExpr:
        return x[(*i[:axis], order[i], *i[axis + 1 :])]

    return te.compute(shape, element, name)


# --- sort, argsort, topk ----------------------------------------------------------------------


def _sort_emit(call: graph.Call, out: TensorType, x: te.Tensor) -> te.Tensor:
    axis = normal_axis(call, attr(call, "axis"), x.ndim)
    return sort_compute(x, axis, attr(call, "descending"))


def _argsort_emit(call: graph.Call, out: TensorType, x: te.Tensor) -> te.Tensor:
    axis = normal_axis(call, attr(call, "axis"), x.ndim)
    order = argsort_compute(x, axis, attr(call, "descending"))
    return narrow(order, attr(call, "dtype"))


def _argsort(data: Array, axis: int = -1, descending: bool = False, dtype: str = "int32") -> Array:
    keys = data.astype(np.float32) if data.dtype.name in scalar.HALF else data
    if not descending:
        return np.argsort(keys, axis, kind="stable").astype(dtype)
    # Sorting the reversed row and reversing again keeps equal elements in their order.
    order = np.flip(np.argsort(np.flip(keys, axis), axis, kind="stable"), axis)
    return (data.shape[axis] - 1 - order).astype(dtype)


def _sort(x: Array, axis: int = -1, descending: bool = False) -> Array:
    return np.take_along_axis(x, _argsort(x, axis, descending, "int64"), axis)


define(
    "sort",
    params("x", axis=-1, descending=False),
    type_of_argument(0),
    needs=[axis_within],
    emit=_sort_emit,
    reference=_sort,
    traits=["sort_or_scan"],
)
define(
    "argsort",
    params("data", axis=-1, descending=False, dtype="int32"),
    lambda call, tys: tensor_like(tensor_arg(call, tys, 0), dtype_attr(call)),
    needs=[axis_within],
    emit=_argsort_emit,
    reference=_argsort,
    traits=["sort_or_scan"],
)


def _topk_infer(call: graph.Call, tys: TypesOf) -> Type:
    x = tensor_arg(call, tys, 0)
    axis_within(call, tys)
    k, kind = attr(call, "k"), attr(call, "ret_type")
    if kind not in ("both", "values", "indices"):
        raise fail(call, f'ret_type {kind!r} is not known: use "both", "values" or "indices"')
    if x.shape is None:
        values = TensorType(None, x.dtype, x.ndim)
    else:
        axis = normal_axis(call, attr(call, "axis"), x.ndim)
        count = number(call, "k", k, whole=True)
        if isinstance(count, expr.IntImm) and count.value < 1:
            count = x.shape[axis]
        if impossible(call, LE(count, x.shape[axis]), f"k ({count}) exceeds the extent"):
            count = x.shape[axis]  # all that there are
        values = TensorType((*x.shape[:axis], count, *x.shape[axis + 1 :]), x.dtype)
    indices = tensor_like(values, dtype_attr(call))
    return {"both": TupleType((values, indices)), "values": values, "indices": indices}[kind]


def _topk_emit(call: graph.Call, out: Type, x: te.Tensor) -> te.Tensor | tuple[te.Tensor, ...]:
    axis = normal_axis(call, attr(call, "axis"), x.ndim)
    kind = attr(call, "ret_type")
    first = out.fields[0] if isinstance(out, TupleType) else out
    assert isinstance(first, TensorType) and first.shape is not None
    shape, count = first.shape, first.shape[axis]
    # A symbolic count could be any; the list's length bounds the time of an insertion.
    if isinstance(count, expr.IntImm) and 0 < count.value <= MAX_SELECTED:
        order = _first_compute(x, axis, count.value, attr(call, "largest"))
    else:
        order = argsort_compute(x, axis, attr(call, "largest"))
    values = _gathered(x, order, axis, count, "T_topk_values")
    dtype = attr(call, "dtype")
    indices = te.compute(shape, lambda *i: scalar.cast(order[i], dtype), "T_topk_indices")
    return {"both": (values, indices), "values": values, "indices": indices}[kind]


def _topk(
    data: Array,
    k: int = 1,
    axis: int = -1,
    ret_type: str = "both",
    largest: bool = True,
    dtype: str = "int32",
) -> Any:
    count = data.shape[axis] if k == -1 else min(k, data.shape[axis])
    order = np.take(_argsort(data, axis, largest, "int64"), range(count), axis)
    values, indices = np.take_along_axis(data, order, axis), order.astype(numpy_dtype(dtype))
    return {"both": (values, indices), "values": values, "indices": indices}[ret_type]


define(
    "topk",
    params("data", k=1, axis=-1, ret_type="both", largest=True, dtype="int32"),
    _topk_infer,
    emit=_topk_emit,
    reference=_topk,
    traits=["sort_or_scan"],
)


# --- unique -----------------------------------------------------------------------------------


def _unique_infer(call: graph.Call, tys: TypesOf) -> Type:
    x = tensor_arg(call, tys, 0)
    axis = attr(call, "axis")
    ndim = 1 if axis is None else x.ndim
    if axis is not None and x.ndim >= 0:
        normal_axis(call, axis, x.ndim)
    flags = [attr(call, f"return_{n}") for n in ("index", "inverse", "counts")]
    extra = (TensorType(None, "int64", 1),) * sum(map(bool, flags))
    values = TensorType(None, x.dtype, ndim)
    return TupleType((values, *extra)) if extra else values


def _unique(
    x: Array,
    sorted: bool = True,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
    axis: int | None = None,
) -> Any:
    found = np.unique(x, return_index, return_inverse, return_counts, axis)
    if not isinstance(found, tuple):
        return found
    return (found[0], *(np.asarray(a, np.int64).reshape(-1) for a in found[1:]))


define(
    "unique",
    params(
        "x",
        sorted=True,
        return_index=False,
        return_inverse=False,
        return_counts=False,
        axis=None,
    ),
    _unique_infer,
    reference=_unique,
)


# --- median -----------------------------------------------------------------------------------


def _median_infer(call: graph.Call, tys: TypesOf) -> Type:
    x = tensor_arg(call, tys, 0)
    axis = attr(call, "axis")
    values = reduced_type(call, x, axis, x.dtype)
    shape = () if x.shape is None else x.shape
    gone = normal_axes(call, axis, x.ndim) if x.ndim >= 0 else ()
    for extent in (shape[d] for d in gone if shape):
        if impossible(call, expr.GT(extent, te.ZERO), f"{extent} elements have no median"):
            raise fail(call, "there is no median of 0 elements")
    return TupleType((values, tensor_like(values, "int64"))) if _is_one(axis) else values


def _is_one(axis: int | tuple[int, ...] | None) -> bool:
    """True for one axis, along which elements have a place, not for several or all."""
    return axis is not None and (not isinstance(axis, tuple) or len(axis) == 1)


def _median_emit(call: graph.Call, out: Type, x: te.Tensor) -> te.Tensor | tuple[te.Tensor, ...]:
    """The element at (n - 1) // 2 in sorted order, or the NaN at the end of it."""
    keep = bool(attr(call, "keepdims"))
    axes = normal_axes(call, attr(call, "axis"), x.ndim)
    if not _is_one(attr(call, "axis")):
        assert isinstance(out, TensorType) and out.shape is not None
        rows = [d for d in range(x.ndim) if d not in axes]
        flat = _flattened(x, rows, axes)
        kept = rows if keep else range(len(rows))
        values, _ = _median_along(
            flat, len(rows), out.shape, lambda i, place: (*(i[d] for d in kept), place)
        )
        return values
    (axis,) = axes
    after = axis + 1 if keep else axis
    assert isinstance(out, TupleType) and isinstance(out.fields[0], TensorType)
    assert out.fields[0].shape is not None
    return _median_along(
        x, axis, out.fields[0].shape, lambda i, place: (*i[:axis], place, *i[after:])
    )


def _flattened(x: te.Tensor, rows: Sequence[int], axes: Sequence[int]) -> te.Tensor:
    """The tensor with some axes flattened to one, the last, behind the others."""
    order = [*rows, *axes]
    dims = [x.shape[d] for d in order]
    if order != [*range(x.ndim)]:
        source, places = x, [order.index(d) for d in range(x.ndim)]
        x = te.compute(tuple(dims), lambda *i: source[tuple(i[p] for p in places)], "T_rows")
    count = len(rows)
    return reshape_compute(x, (*dims[:count], product(tuple(dims[count:]))))


def _median_along(
    x: te.Tensor,
    axis: int,
    shape: tuple[PrimExpr, ...],
    at: Callable[[tuple[PrimExpr, ...], PrimExpr], tuple[PrimExpr, ...]],
) -> tuple[te.Tensor, te.Tensor]:
    last = x.shape[axis] - 1

    def rank(nans: PrimExpr) -> PrimExpr:
        return expr.Select(expr.GT(nans, te.ZERO), last, last // 2)

    def of_row(*i: PrimExpr) -> PrimExpr:
        whole = at(i, te.ZERO)
        return found[(*whole[:axis], *whole[axis + 1 :])]

    found = place_of_rank(x, axis, rank)
    places = te.compute(shape, of_row, "T_median_index")
    return te.compute(shape, lambda *i: x[at(i, places[i])], "T_median"), places


def _median(x: Array, axis: Any = None, keepdims: bool = False) -> Any:
    axes = tuple(range(x.ndim)) if axis is None else tuple(np.atleast_1d(axis) % x.ndim)
    one = _is_one(axis)
    rows = [d for d in range(x.ndim) if d not in axes]
    sizes = [x.shape[d] for d in rows]
    values = x if one else x.transpose(*rows, *axes).reshape(*sizes, -1)
    along = axes[0] if one else len(rows)
    order = _argsort(values, along, dtype="int64")
    count = values.shape[along]
    middle, last = (np.take(order, [k], along) for k in ((count - 1) // 2, count - 1))
    if x.dtype.kind not in "iu":
        final = np.take_along_axis(values, last, along)
        middle = np.where(np.isnan(final), last, middle)
    found = np.take_along_axis(values, middle, along)
    if not one:
        kept = [1 if d in axes else n for d, n in enumerate(x.shape)]
        return found.reshape(kept if keepdims else sizes)
    pair = (found, middle)
    return pair if keepdims else tuple(np.squeeze(t, along) for t in pair)


# The lower of the two middle elements, NaN when there is one. Along one axis: (values, indices).
define(
    "median",
    params("x", axis=None, keepdims=False),
    _median_infer,
    needs=[takes("a number")],
    emit=_median_emit,
    reference=_median,
)


# --- bucketize --------------------------------------------------------------------------------


def _bucketize_infer(call: graph.Call, tys: TypesOf) -> Type:
    x, ends = tensor_arg(call, tys, 0), tensor_arg(call, tys, 1)
    if ends.ndim not in (-1, 1):
        raise fail(call, f"boundaries must have one dimension, is {ends}")
    return tensor_like(x, "int32" if attr(call, "out_int32") else "int64")


def _bucketize_emit(call: graph.Call, out: TensorType, x: te.Tensor, ends: te.Tensor) -> te.Tensor:
    """Binary search: the number of boundaries below (`right`: not above) each element. All
    elements take the same steps, without a branch, so that they advance together."""
    right, count, dtype = attr(call, "right"), ends.shape[0], out.dtype
    assert dtype is not None

    def body(at: Rows, b: Buffers) -> loops.Stmt:
        found = scalar.cast(loops.BufferLoad(b[result], at), "int64")
        value = loops.BufferLoad(b[x], at)

        def advance(by: PrimExpr, last: PrimExpr) -> loops.Stmt:
            end = loops.BufferLoad(b[ends], (last,))
            above, below = _precedes(value, end, False), _precedes(end, value, False)
            passed = expr.Not(above) if right else below
            return put(expr.Select(passed, found + by, found))

        def put(number: PrimExpr) -> loops.Stmt:
            return loops.BufferStore(b[result], scalar.cast(number, dtype), at)

        # In step s the boundaries left are count / 2**s, rounded up; half of them are compared.
        step = expr.Var("step")
        left = expr.ShiftRight(count + (expr.ShiftLeft(expr.const(1), step) - 1), step)
        half = expr.Var("half")
        halve = loops.LetStmt(half, left // 2, advance(half, found + half - 1))
        steps = 64 - scalar.cast(expr.Call("int32", "clz", (count - 1,)), "int64")
        search = loops.seq(
            loops.For(step, te.ZERO, steps, "serial", halve), advance(expr.const(1), found)
        )
        return loops.seq(put(te.ZERO), loops.IfThenElse(LT(te.ZERO, count), search))

    outputs = [("T_bucketize", x.shape, dtype)]
    (result,) = te.compute_rows(x.shape, outputs, [x, ends], body, "T_bucketize")
    return result


def _bucketize(
    input_tensor: Array, boundaries: Array, out_int32: bool = False, right: bool = False
) -> Array:
    wide = (t.astype(scalar.accumulator_of(t.dtype.name)) for t in (boundaries, input_tensor))
    found = np.searchsorted(*wide, side="right" if right else "left")
    return np.asarray(found, np.int32 if out_int32 else np.int64)


define(
    "bucketize",
    params("input_tensor boundaries", out_int32=False, right=False),
    _bucketize_infer,
    needs=[one_dtype(), takes("a number")],
    emit=_bucketize_emit,
    reference=_bucketize,
)
