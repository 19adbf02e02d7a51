"""Reading a tensor at the places that other tensors name (`gather_nd`, `index_tensor`)."""

from __future__ import annotations

from typing import Any

import numpy as np

from relaxlab.ir import expr, graph
from relaxlab.ir.expr import PrimExpr
from relaxlab.ir.types import TensorType, Type
from relaxlab.ops import scalar, te
from relaxlab.ops.define import (
    TypesOf,
    attr,
    define,
    fail,
    params,
    require_dtype,
    tensor_arg,
    tensor_tuple_arg,
)
from relaxlab.ops.index import places_in, wrapped_index
from relaxlab.ops.shapes import (
    Shape,
    broadcast_index,
    broadcast_types,
    differ,
    require_elements,
    show,
)

Array = np.ndarray[Any, Any]
Indices = tuple[PrimExpr, ...]


# --- gather_nd --------------------------------------------------------------------------------


def depth_of(call: graph.Call, indices: TensorType) -> int:
    """Return the number of dimensions that each row of `indices` names: its last extent, -1 where
    that is not known."""
    require_dtype(call, indices, "integer", 1)
    if indices.ndim == 0:
        raise fail(call, "indices must have at least one dimension")
    if indices.shape is None:
        return -1
    depth = indices.shape[-1]
    return depth.value if isinstance(depth, expr.IntImm) else -1


def needs_depth(call: graph.Call, tys: TypesOf) -> None:
    """Require the number of dimensions that each row of the indices names."""
    at = tensor_arg(call, tys, 1)
    if at.shape and depth_of(call, at) < 0:
        last = at.shape[-1]
        raise fail(call, f"the last dimension of indices must be a constant, is {last}")


def _gather_infer(call: graph.Call, tys: TypesOf) -> Type:
    x, at = tensor_arg(call, tys, 0), tensor_arg(call, tys, 1)
    depth, batch = depth_of(call, at), attr(call, "batch_dims")
    if not isinstance(batch, int) or batch < 0:
        raise fail(call, f"batch_dims must be at least 0, is {batch}")
    if at.ndim > 0 and batch > at.ndim - 1:
        raise fail(call, f"batch_dims {batch} must be less than the dimensions of {at}")
    if depth < 0 or x.ndim < 0:
        return TensorType(None, x.dtype)
    ndim = at.ndim - 1 + x.ndim - depth - batch
    if batch > at.ndim - 1 or batch + depth > x.ndim:
        raise fail(call, f"{batch} batch dimensions and {depth} named ones do not fit {x} and {at}")
    if x.shape is None or at.shape is None:
        return TensorType(None, x.dtype, ndim)
    for a, b in zip(x.shape[:batch], at.shape[:batch], strict=True):
        if differ(call, a, b, "the batch dimensions of data and indices"):
            raise fail(call, f"the batch dimensions of {show(x.shape)} and {show(at.shape)} differ")
    result = (*at.shape[:-1], *x.shape[batch + depth :])
    require_elements(call, x.shape[batch : batch + depth], result)
    return TensorType(result, x.dtype)


def _gather_emit(call: graph.Call, out: TensorType, x: te.Tensor, at: te.Tensor) -> te.Tensor:
    assert out.shape is not None
    batch, points = attr(call, "batch_dims"), at.ndim - 1
    depth = depth_of(call, TensorType(at.shape, at.dtype))

    def element(*i: PrimExpr) -> PrimExpr:
        named = [
            wrapped_index(
                scalar.cast(at[(*i[:points], expr.const(d))], "int64"), x.shape[batch + d]
            )
            for d in range(depth)
        ]
        return x[(*i[:batch], *named, *i[points:])]

    return te.compute(out.shape, element, "T_gather_nd")


def _gather(data: Array, indices: Array, batch_dims: int = 0) -> Array:
    lead = np.indices(indices.shape[:-1])[:batch_dims]
    extents = data.shape[batch_dims:]
    named = [places_in(a, n) for a, n in zip(np.moveaxis(indices, -1, 0), extents, strict=False)]
    return np.asarray(data[(*lead, *named)])


# indices: (batch…, points…, depth); the last dimension names a place in the dimensions of data
# after the batch. Negative places count from the end; outside of the data the nearest is read.
define(
    "gather_nd",
    params("data indices", batch_dims=0),
    _gather_infer,
    needs=[needs_depth],
    emit=_gather_emit,
    reference=_gather,
)


# --- index_tensor -----------------------------------------------------------------------------


def index_fields(
    call: graph.Call, x: TensorType, tys: TypesOf, index: int
) -> tuple[TensorType, ...]:
    """The types of a tuple of index tensors, one for each of the first dimensions of `x`."""
    fields = tensor_tuple_arg(call, tys, index)
    for f in fields:
        require_dtype(call, f, "integer", index)
    if 0 <= x.ndim < len(fields):
        raise fail(call, f"{len(fields)} index tensors for a tensor of {x.ndim} dimensions")
    return fields


def named_points(call: graph.Call, x: TensorType, tys: TypesOf) -> tuple[TensorType, int]:
    """The broadcast type of the tuple of index tensors, and how many they are."""
    fields = index_fields(call, x, tys, 1)
    return broadcast_types(call, None, *fields), len(fields)


def places_at(
    ats: tuple[te.Tensor, ...], i: Indices, points: Shape, extents: Shape
) -> list[PrimExpr]:
    """The place that each index tensor names at the point `i`, negative ones from the end."""
    return [
        wrapped_index(scalar.cast(at[broadcast_index(i, at.shape, points)], "int64"), extent)
        for at, extent in zip(ats, extents, strict=False)
    ]


def _index_infer(call: graph.Call, tys: TypesOf) -> Type:
    x = tensor_arg(call, tys, 0)
    points, depth = named_points(call, x, tys)
    if x.ndim < 0 or points.ndim < 0:
        return TensorType(None, x.dtype)
    if x.shape is None or points.shape is None:
        return TensorType(None, x.dtype, points.ndim + x.ndim - depth)
    result = (*points.shape, *x.shape[depth:])
    require_elements(call, x.shape[:depth], result)
    return TensorType(result, x.dtype)


def _index_emit(
    call: graph.Call, out: TensorType, x: te.Tensor, ats: tuple[te.Tensor, ...]
) -> te.Tensor:
    assert out.shape is not None
    count = len(out.shape) - (x.ndim - len(ats))
    points = out.shape[:count]

    def element(*i: PrimExpr) -> PrimExpr:
        return x[(*places_at(ats, i[:count], points, x.shape), *i[count:])]

    return te.compute(out.shape, element, "T_index_tensor")


def _index(data: Array, indices: tuple[Array, ...]) -> Array:
    places = (places_in(a, n) for a, n in zip(indices, data.shape, strict=False))
    return np.asarray(data[tuple(places)])


define(
    "index_tensor",
    params("data indices"),
    _index_infer,
    emit=_index_emit,
    reference=_index,
)
