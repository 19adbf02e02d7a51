"""Rearranging by index arithmetic: grids, layouts, pixel shuffling, undoing a broadcast."""

from __future__ import annotations

from typing import Any

import numpy as np

from relaxlab.analysis.evaluate import evaluate
from relaxlab.analysis.index_map import IndexMap, NotInvertible
from relaxlab.ir import expr, graph
from relaxlab.ir.errors import counted
from relaxlab.ir.expr import PrimExpr
from relaxlab.ir.op_table import REQUIRED, VIEW
from relaxlab.ir.row_major import product
from relaxlab.ir.substitute import symbols_in
from relaxlab.ir.types import TensorType, TupleType, Type
from relaxlab.ops import scalar, te
from relaxlab.ops.define import (
    TypesOf,
    attr,
    common_dtype,
    define,
    fail,
    normal_axis,
    params,
    require_dtype,
    takes,
    tensor_arg,
    tensor_tuple_arg,
)
from relaxlab.ops.elementwise import in_float32
from relaxlab.ops.manipulate import reshape_compute, shape_arg
from relaxlab.ops.reduce import narrow
from relaxlab.ops.shapes import (
    ONE,
    Shape,
    differ,
    impossible,
    prove_equal,
    show,
    simplify,
    stated,
)

Array = np.ndarray[Any, Any]


# --- batch_flatten ----------------------------------------------------------------------------


def _batch_flatten_infer(call: graph.Call, tys: TypesOf) -> Type:
    x = tensor_arg(call, tys, 0)
    if x.ndim in (0, 1):
        raise fail(call, f"data must have at least two dimensions, is {x}")
    if x.shape is None:
        return TensorType(None, x.dtype, 2)
    return TensorType((x.shape[0], product(x.shape[1:])), x.dtype)


def _batch_flatten_emit(call: graph.Call, out: TensorType, x: te.Tensor) -> te.Tensor:
    assert out.shape is not None
    return reshape_compute(x, out.shape)


define(
    "nn.batch_flatten",
    params("data"),
    _batch_flatten_infer,
    emit=_batch_flatten_emit,
    reference=lambda data: data.reshape(data.shape[0], int(np.prod(data.shape[1:]))),
    traits=VIEW,
)


# --- meshgrid ---------------------------------------------------------------------------------


def _meshgrid_infer(call: graph.Call, tys: TypesOf) -> Type:
    fields = tensor_tuple_arg(call, tys, 0)
    dtype, indexing = common_dtype(call, *fields), attr(call, "indexing")
    if indexing not in ("ij", "xy"):
        raise fail(call, f'indexing {indexing!r} is not known: use "ij" or "xy"')
    for f in fields:
        if f.ndim not in (-1, 0, 1):
            raise fail(call, f"takes tensors of at most one dimension, got {f}")
    if any(f.shape is None for f in fields):
        return TupleType((TensorType(None, dtype, len(fields)),) * len(fields))
    dims = [f.shape[0] if f.shape else ONE for f in fields]
    if indexing == "xy":
        dims[:2] = reversed(dims[:2])
    return TupleType((TensorType(tuple(dims), dtype),) * len(fields))


def _meshgrid_emit(
    call: graph.Call, out: TupleType, xs: tuple[te.Tensor, ...]
) -> tuple[te.Tensor, ...]:
    shape = out.fields[0].shape  # type: ignore[union-attr]
    swapped = attr(call, "indexing") == "xy"

    def grid(x: te.Tensor, place: int) -> te.Tensor:
        along = 1 - place if swapped and place < 2 and len(xs) > 1 else place
        return te.compute(shape, lambda *i: x[(i[along],) * x.ndim], "T_meshgrid")

    return tuple(grid(x, place) for place, x in enumerate(xs))


def _meshgrid(tensors: tuple[Array, ...], indexing: Any = "ij") -> tuple[Array, ...]:
    return tuple(np.asarray(g) for g in np.meshgrid(*tensors, indexing=indexing))


define(
    "meshgrid",
    params("tensors", indexing="ij"),
    _meshgrid_infer,
    emit=_meshgrid_emit,
    reference=_meshgrid,
)


# --- reverse_sequence -------------------------------------------------------------------------


def _reverse_infer(call: graph.Call, tys: TypesOf) -> Type:
    x, lengths = tensor_arg(call, tys, 0), tensor_arg(call, tys, 1)
    require_dtype(call, lengths, "integer", 1)
    if lengths.ndim not in (-1, 1):
        raise fail(call, f"seq_lengths must have one dimension, is {lengths}")
    if x.ndim < 0:
        return x
    _, batch = (normal_axis(call, attr(call, n), x.ndim, n) for n in ("seq_axis", "batch_axis"))
    if x.shape is not None and lengths.shape is not None:
        count = lengths.shape[0]
        if differ(call, x.shape[batch], count, "the batch size and the number of lengths"):
            raise fail(call, f"there are {count} lengths for a batch of {x.shape[batch]}")
    return x


def _reverse_needs(call: graph.Call, tys: TypesOf) -> None:
    x = tensor_arg(call, tys, 0)
    seq, batch = (attr(call, name) for name in ("seq_axis", "batch_axis"))
    if x.ndim >= 0 and normal_axis(call, seq, x.ndim) == normal_axis(call, batch, x.ndim):
        raise fail(call, f"seq_axis and batch_axis are both {seq % x.ndim}")


def _reverse_emit(call: graph.Call, out: TensorType, x: te.Tensor, lengths: te.Tensor) -> te.Tensor:
    """The first `seq_lengths[b]` elements in reverse, the others where they are."""
    seq, batch = (normal_axis(call, attr(call, n), x.ndim) for n in ("seq_axis", "batch_axis"))

    def element(*i: PrimExpr) -> PrimExpr:
        length = expr.binary(expr.Min, scalar.cast(lengths[i[batch]], "int64"), x.shape[seq])
        place = expr.Select(expr.LT(i[seq], length), length - 1 - i[seq], i[seq])
        return x[(*i[:seq], place, *i[seq + 1 :])]

    return te.compute(x.shape, element, "T_reverse_sequence")


def _reverse(data: Array, seq_lengths: Array, seq_axis: int = 1, batch_axis: int = 0) -> Array:
    moved = np.moveaxis(data, (batch_axis, seq_axis), (0, 1)).copy()
    for row, length in zip(moved, seq_lengths, strict=True):
        length = min(max(int(length), 0), len(row))
        row[:length] = row[:length][::-1].copy()
    return np.ascontiguousarray(np.moveaxis(moved, (0, 1), (batch_axis, seq_axis)))


define(
    "reverse_sequence",
    params("data seq_lengths", seq_axis=1, batch_axis=0),
    _reverse_infer,
    needs=[_reverse_needs],
    emit=_reverse_emit,
    reference=_reverse,
)


# --- pixel_shuffle ----------------------------------------------------------------------------


def _shuffle_infer(call: graph.Call, tys: TypesOf) -> Type:
    x, r = tensor_arg(call, tys, 0), attr(call, "upscale_factor")
    if not isinstance(r, int) or r < 1:
        raise fail(call, f"upscale_factor must be at least 1, is {r}")
    if 0 <= x.ndim < 3:
        raise fail(call, f"data must have at least three dimensions, is {x}")
    if x.shape is None:
        return x
    *batch, channels, height, width = x.shape
    claim = f"{channels} channels do not divide into squares of {r * r}"
    if impossible(call, expr.EQ(channels % (r * r), te.ZERO), claim):
        raise fail(call, claim)
    fewer = simplify(channels // (r * r))
    return TensorType((*batch, fewer, height * r, width * r), x.dtype)


def _shuffle_emit(call: graph.Call, out: TensorType, x: te.Tensor) -> te.Tensor:
    assert out.shape is not None
    r = attr(call, "upscale_factor")

    def element(*i: PrimExpr) -> PrimExpr:
        *batch, c, h, w = i
        return x[(*batch, c * (r * r) + h % r * r + w % r, h // r, w // r)]

    return te.compute(out.shape, element, "T_pixel_shuffle")


def _shuffle(data: Array, upscale_factor: int) -> Array:
    r = upscale_factor
    *batch, c, h, w = data.shape
    split = data.reshape(*batch, c // (r * r), r, r, h, w)
    moved = np.moveaxis(split, (-4, -3), (-3, -1))
    return np.ascontiguousarray(moved).reshape(*batch, c // (r * r), h * r, w * r)


define(
    "nn.pixel_shuffle",
    params("data", upscale_factor=REQUIRED),
    _shuffle_infer,
    emit=_shuffle_emit,
    reference=_shuffle,
)


# --- collapse_sum_to, collapse_sum_like -------------------------------------------------------


def _collapsed(call: graph.Call, x: TensorType, target: Shape | None, ndim: int) -> TensorType:
    if target is None:
        return TensorType(None, x.dtype, ndim)
    if 0 <= x.ndim < len(target):
        raise fail(call, f"{x} has fewer dimensions than {show(target)}")
    if x.shape is not None:
        for a, b in zip(reversed(x.shape), reversed(target), strict=False):
            if impossible(call, expr.Or(expr.EQ(a, b), expr.EQ(b, ONE)), f"{b} must be 1 or {a}"):
                raise fail(
                    call, f"{show(x.shape)} cannot be summed to {show(target)}: {a} against {b}"
                )
    return TensorType(target, x.dtype)


def _to_infer(call: graph.Call, tys: TypesOf) -> Type:
    shape = shape_arg(call, tys, 1)
    x = tensor_arg(call, tys, 0)
    return _collapsed(call, x, shape.values, shape.ndim)


def _like_infer(call: graph.Call, tys: TypesOf) -> Type:
    x, target = tensor_arg(call, tys, 0), tensor_arg(call, tys, 1)
    return _collapsed(call, x, target.shape, target.ndim)


def _collapse_emit(call: graph.Call, out: TensorType, x: te.Tensor, *_: Any) -> te.Tensor:
    """The sum over the dimensions that the result lacks or has as 1. Where that depends on the
    symbols the number of summands is extent // result, and all but one index is 0."""
    assert out.shape is not None
    lead = x.ndim - len(out.shape)
    target: tuple[PrimExpr | None, ...] = (*(None,) * lead, *out.shape)
    axes: dict[int, te.Axis] = {}
    for d, (have, want) in enumerate(zip(x.shape, target, strict=True)):
        if want is None or (want == ONE and have != ONE):
            axes[d] = te.reduce_axis(have, f"r{d}")
        elif prove_equal(have, want) is not True:
            axes[d] = te.reduce_axis(have // expr.binary(expr.Max, want, 1), f"r{d}")

    def element(*i: PrimExpr) -> PrimExpr | te.Reduce:
        places: list[PrimExpr] = []
        for d, want in enumerate(target):
            rest = te.ZERO if want is None or want == ONE else i[d - lead]
            places.append(rest + axes[d].var if d in axes else i[d - lead])
        value = scalar.wide(x[tuple(places)])
        return te.te_sum(value, *axes.values()) if axes else value

    return narrow(te.compute(out.shape, element, "T_collapse_sum"), x.dtype)


def _collapse(data: Array, shape: tuple[int, ...]) -> Array:
    lead = data.ndim - len(shape)
    result = data.sum(tuple(range(lead)), dtype=data.dtype)
    pairs = enumerate(zip(result.shape, shape, strict=True))
    ones = tuple(d for d, (have, want) in pairs if want == 1 and have != 1)
    return np.asarray(result.sum(ones, keepdims=True, dtype=data.dtype))


define(
    "collapse_sum_to",
    params("data shape"),
    _to_infer,
    needs=[takes("a number")],
    emit=_collapse_emit,
    reference=lambda data, shape: in_float32(lambda x: _collapse(x, shape))(data),
)
define(
    "collapse_sum_like",
    params("data collapse_target"),
    _like_infer,
    needs=[takes("a number")],
    emit=_collapse_emit,
    reference=lambda data, target: in_float32(lambda x: _collapse(x, target.shape))(data),
)


# --- layout_transform -------------------------------------------------------------------------


def _inverse(call: graph.Call, shape: Shape) -> tuple[IndexMap, Shape, PrimExpr | None]:
    """The map back, the new shape, and which new elements hold nothing."""
    try:
        return _map(call).inverse_with_padding(shape)
    except (NotInvertible, ValueError) as error:
        raise fail(
            call,
            f"index_map must give every element of {show(shape)} a place of its own: {error}",
        ) from None


def _map(call: graph.Call) -> IndexMap:
    index_map = attr(call, "index_map")
    if not isinstance(index_map, IndexMap):
        raise fail(
            call,
            f"index_map must be an index map, is {index_map!r}",
            "write T.index_map(lambda i, j: (j, i))",
        )
    others = set(symbols_in(index_map.final_indices)) - set(index_map.initial_indices)
    if others:
        raise fail(call, f"index_map {index_map} uses {', '.join(sorted(map(str, others)))}")
    return index_map


def _layout_infer(call: graph.Call, tys: TypesOf) -> Type:
    x, index_map = stated(tensor_arg(call, tys, 0)), _map(call)
    count = len(index_map.initial_indices)
    if x.ndim not in (-1, count):
        raise fail(call, f"index_map takes {counted(count, 'index', 'indices')}, the tensor is {x}")
    if x.shape is None:
        return TensorType(None, x.dtype, len(index_map.final_indices))
    _, shape, padding = _inverse(call, x.shape)
    if padding is not None and attr(call, "pad_value") is None:
        raise fail(
            call,
            f"{show(x.shape)} does not fill {show(shape)}",
            "say with pad_value what the other elements are",
        )
    return TensorType(shape, x.dtype)


def _layout_emit(call: graph.Call, out: TensorType, x: te.Tensor) -> te.Tensor:
    assert out.shape is not None
    back, _, padding = _inverse(call, x.shape)
    fill = attr(call, "pad_value")

    def element(*i: PrimExpr) -> PrimExpr:
        *places, empty = IndexMap(
            back.initial_indices, (*back.final_indices, te.ZERO if padding is None else padding)
        ).apply(i)
        value = x[tuple(places)]
        if padding is None:
            return value
        return expr.if_then_else(empty, scalar.cast(expr.as_expr(fill), x.dtype), value)

    return te.compute(out.shape, element, "T_layout_transform")


def _layout(x: Array, index_map: IndexMap, pad_value: float | None = None, **_: Any) -> Array:
    places = dict(zip(index_map.initial_indices, np.indices(x.shape), strict=True))
    at = [np.broadcast_to(evaluate(e, places), x.shape) for e in index_map.final_indices]
    dims = index_map.map_shape(tuple(map(expr.const, x.shape)))
    result = np.full([evaluate(d, {}) for d in dims], pad_value or 0, x.dtype)
    result[tuple(at)] = x
    return result


define(
    "layout_transform",
    params(
        "x", index_map=REQUIRED, pad_value=None, axis_separators=None, input_axis_separators=None
    ),
    _layout_infer,
    emit=_layout_emit,
    reference=_layout,
)
