"""Reading tensors at chosen places."""

from __future__ import annotations

from typing import Any

import numpy as np

from relaxlab.ir import expr, graph
from relaxlab.ir.expr import PrimExpr
from relaxlab.ir.op_table import REQUIRED
from relaxlab.ir.types import PrimType, TensorType, Type
from relaxlab.ops import scalar, te
from relaxlab.ops.define import (
    Arg,
    TypesOf,
    attr,
    define,
    fail,
    normal_axes,
    normal_axis,
    number,
    params,
    require_dtype,
    tensor_arg,
)
from relaxlab.ops.shapes import (
    ONE,
    Shape,
    at_least,
    at_most,
    impossible,
    prove,
    require_count,
    require_elements,
    show,
    simplify,
    stated,
)

Array = np.ndarray[Any, Any]
Indices = tuple[PrimExpr, ...]
MODES = ("fast", "clip", "wrap", "nan")


# --- take -------------------------------------------------------------------------------------


def _take_infer(call: graph.Call, tys: TypesOf) -> Type:
    x = tensor_arg(call, tys, 0)
    place = _indices_type(call, tys)
    if attr(call, "mode") not in MODES:
        raise fail(call, f"mode {attr(call, 'mode')!r} is not known", f"use one of {MODES}")
    axis = attr(call, "axis")
    if axis is None and x.ndim not in (-1, 1):
        raise fail(call, f"axis must be given for a tensor with {x.ndim} dimensions")
    if x.ndim < 0 or place.ndim < 0:
        return TensorType(None, x.dtype)
    axis = normal_axis(call, 0 if axis is None else axis, x.ndim)
    if x.shape is None or place.shape is None:
        return TensorType(None, x.dtype, x.ndim - 1 + place.ndim)
    result = (*x.shape[:axis], *place.shape, *x.shape[axis + 1 :])
    require_elements(call, (x.shape[axis],), result)
    return TensorType(result, x.dtype)


def _take_needs(call: graph.Call, tys: TypesOf) -> None:
    if attr(call, "mode") == "nan":
        require_dtype(call, tensor_arg(call, tys, 0), "floating point for mode 'nan'")


def _indices_type(call: graph.Call, tys: TypesOf) -> TensorType:
    given = tys[1] if len(tys) > 1 else None
    is_scalar = isinstance(given, PrimType)
    place = TensorType((), given.dtype) if is_scalar else tensor_arg(call, tys, 1)
    require_dtype(call, place, "integer", 1)
    return place


def _take_emit(call: graph.Call, out: TensorType, x: te.Tensor, at: Arg) -> te.Tensor:
    assert out.shape is not None
    axis = normal_axis(call, attr(call, "axis") or 0, x.ndim)
    extent, mode = x.shape[axis], attr(call, "mode")
    ndim = at.ndim if isinstance(at, te.Tensor) else 0

    def element(*i: PrimExpr) -> PrimExpr:
        read = at[i[axis : axis + ndim]] if isinstance(at, te.Tensor) else at
        assert isinstance(read, PrimExpr)
        index = scalar.cast(read, "int64")
        inside = index % extent if mode == "wrap" else scalar.clamp(index, 0, extent - 1)
        value = x[(*i[:axis], inside, *i[axis + ndim :])]
        if mode != "nan":
            return value
        wrong = expr.Or(expr.LT(index, te.ZERO), expr.GE(index, extent))
        return expr.if_then_else(wrong, expr.const(float("nan"), x.dtype), value)

    return te.compute(out.shape, element, "T_take")


def _take(x: Array, indices: Any, axis: int | None = None, mode: str = "fast") -> Array:
    at = np.asarray(indices, np.int64)
    axis = 0 if axis is None else axis
    if mode != "nan":
        return np.take(x, at, axis, mode="wrap" if mode == "wrap" else "clip")
    value = np.array(np.take(x, at, axis, mode="clip"))
    wrong = (at < 0) | (at >= x.shape[axis])
    lead = axis % x.ndim
    value[(slice(None),) * lead + (wrong,)] = np.nan
    return value


# Indices outside the tensor: "clip" and "fast" read the nearest element ("fast" promises that
# there are none), "wrap" counts modulo the extent, "nan" gives NaN.
define(
    "take",
    params("x indices", axis=None, mode="fast"),
    _take_infer,
    needs=[_take_needs],
    emit=_take_emit,
    reference=_take,
    traits=["rounds_once"],
)


# --- strided_slice ----------------------------------------------------------------------------


Part = tuple[PrimExpr, PrimExpr, PrimExpr]
"""The part taken of a sliced dimension: first index, stride and number of elements."""


def _slices(call: graph.Call, shape: Shape) -> dict[int, Part]:
    """Return the part that is taken of each sliced dimension.

    Bounds mean what they mean in NumPy: constants count from the end when negative, and bounds
    outside the tensor are moved into it. Symbolic bounds must not be negative, symbolic strides
    positive. With `assume_inbound` every bound counts from the front and must lie in the tensor.
    """
    axes = normal_axes(call, attr(call, "axes"), len(shape), "axes")
    begins, ends, strides = (_bounds(call, n, len(axes)) for n in ("begin", "end", "strides"))
    result: dict[int, Part] = {}
    for axis, begin, end, stride in zip(axes, begins, ends, strides, strict=True):
        _check_stride(call, stride)
        inbound = attr(call, "assume_inbound")
        for bound in (begin, end):
            constant = isinstance(bound, expr.IntImm)
            if not constant and impossible(call, expr.GE(bound, te.ZERO), f"{bound} is negative"):
                raise fail(call, f"the symbolic bound {bound} is negative")
        result[axis] = _slice(shape[axis], begin, end, stride, inbound)
        if inbound:
            _check_promise(call, shape[axis], result[axis])
    return result


def _check_sliced(call: graph.Call, ndim: int) -> None:
    """Check what is given of the axes where their extents are not known."""
    axes = attr(call, "axes")
    if ndim >= 0:
        axes = normal_axes(call, axes, ndim, "axes")
    count = len(axes) if isinstance(axes, tuple) else 1
    _bounds(call, "begin", count)
    _bounds(call, "end", count)
    for stride in _bounds(call, "strides", count):
        _check_stride(call, stride)


def _check_stride(call: graph.Call, stride: PrimExpr) -> None:
    if isinstance(stride, expr.IntImm) and stride.value == 0:
        raise fail(call, "strides must not be 0")
    positive = expr.GE(stride, ONE)
    if not isinstance(stride, expr.IntImm) and impossible(
        call, positive, f"the symbolic stride {stride} is not positive"
    ):
        raise fail(call, f"the symbolic stride {stride} is not positive")


def _descends(stride: PrimExpr) -> bool:
    return isinstance(stride, expr.IntImm) and stride.value < 0


def _check_promise(call: graph.Call, extent: PrimExpr, part: Part) -> None:
    """`assume_inbound` says that the slice lies in the tensor: proved, or checked at run time."""
    first, stride, count = part
    last = first + (count - 1) * stride
    low, high = (last, first) if _descends(stride) else (first, last)
    empty = expr.EQ(count, te.ZERO)
    inside = expr.And(expr.GE(low, te.ZERO), expr.LT(high, extent))
    for condition in (expr.GE(count, te.ZERO), expr.Or(empty, inside)):
        if impossible(call, condition, f"the slice from {first} lies outside {extent}"):
            raise fail(call, f"{count} elements from {first} do not lie in {extent}")


def _bounds(call: graph.Call, name: str, count: int) -> list[PrimExpr]:
    given = attr(call, name)
    items: tuple[Any, ...] = given if isinstance(given, tuple) else (given,)
    if given is None and name == "strides":
        items = (1,) * count
    if len(items) != count:
        raise fail(call, f"{name} {items} must have one entry for each of {count} axes")
    return [number(call, name, v, whole=True) for v in items]


def _slice(
    extent: PrimExpr, begin: PrimExpr, end: PrimExpr, stride: PrimExpr, inbound: bool
) -> Part:
    """Clamp one side of each bound: past the other side no element remains."""
    if not inbound:
        begin, end = _from_front(begin, extent), _from_front(end, extent)
        if not _descends(stride):
            begin, end = at_least(begin, te.ZERO), at_most(end, extent)
        else:
            begin, end = at_most(begin, extent - 1), at_least(end, expr.const(-1))
    span, step = (begin - end, -stride) if _descends(stride) else (end - begin, stride)
    count = simplify((span + (step - 1)) // step)
    return begin, stride, count if inbound else at_least(count, te.ZERO)


def _from_front(bound: PrimExpr, extent: PrimExpr) -> PrimExpr:
    from_end = isinstance(bound, expr.IntImm) and bound.value < 0
    return simplify(extent + bound) if from_end else bound


def _strided_slice_infer(call: graph.Call, tys: TypesOf) -> Type:
    x = stated(tensor_arg(call, tys, 0))
    if x.shape is None:
        _check_sliced(call, x.ndim)
        return x
    slices = _slices(call, x.shape)
    dims = tuple(slices[d][2] if d in slices else e for d, e in enumerate(x.shape))
    return TensorType(dims, x.dtype)


def _strided_slice_emit(call: graph.Call, out: TensorType, x: te.Tensor) -> te.Tensor:
    assert out.shape is not None
    slices = _slices(call, x.shape)

    def element(*i: PrimExpr) -> PrimExpr:
        return x[
            tuple(slices[d][0] + v * slices[d][1] if d in slices else v for d, v in enumerate(i))
        ]

    return te.compute(out.shape, element, "T_strided_slice")


def _strided_slice(
    x: Array, axes: Any, begin: Any, end: Any, strides: Any = None, assume_inbound: bool = False
) -> Array:
    axes, begin, end = (v if isinstance(v, tuple) else (v,) for v in (axes, begin, end))
    strides = (1,) * len(axes) if strides is None else strides
    result = x
    for axis, b, e, s in zip(axes, begin, end, strides, strict=True):
        extent = x.shape[axis]
        # An end before the first element of a descending slice has no spelling in Python.
        last = None if s < 0 and e + (extent if e < 0 else 0) < 0 else int(e)
        index = [slice(None)] * x.ndim
        index[axis] = slice(int(b), last, int(s))
        result = result[tuple(index)]
    return result


define(
    "strided_slice",
    params("x", axes=REQUIRED, begin=REQUIRED, end=REQUIRED, strides=None, assume_inbound=False),
    _strided_slice_infer,
    emit=_strided_slice_emit,
    reference=_strided_slice,
    traits=["rounds_once"],
)


# --- dynamic_strided_slice --------------------------------------------------------------------


def _dynamic_slice_infer(call: graph.Call, tys: TypesOf) -> Type:
    x = tensor_arg(call, tys, 0)
    for i in range(1, 4):
        bounds = tensor_arg(call, tys, i)
        require_dtype(call, bounds, "integer", i)
        known = bounds.shape[0] if bounds.shape else None
        fits = known is None or x.ndim < 0 or prove(expr.EQ(known, expr.const(x.ndim))) is not False
        if bounds.ndim not in (-1, 1) or not fits:
            raise fail(call, f"argument {i} must have one entry per dimension of {x}, is {bounds}")
    return TensorType(None, x.dtype, x.ndim)


def _dynamic_slice(x: Array, begin: Array, end: Array, strides: Array) -> Array:
    cut: list[slice] = []
    for extent, b, e, s in zip(x.shape, begin, end, strides, strict=True):
        if s == 0:
            raise ValueError("a stride is 0")
        # An end before the first element of a descending slice has no spelling in Python.
        last = None if s < 0 and e + (extent if e < 0 else 0) < 0 else int(e)
        cut.append(slice(int(b), last, int(s)))
    return x[tuple(cut)].copy()


# The bounds are data, so the extents are known at run time only: no loops, see `nonzero` below.
define(
    "dynamic_strided_slice",
    params("x begin end strides"),
    _dynamic_slice_infer,
    reference=_dynamic_slice,
)


# --- gather_elements, gather_nd ---------------------------------------------------------------


def _gather_elements_infer(call: graph.Call, tys: TypesOf) -> Type:
    x, at = tensor_arg(call, tys, 0), tensor_arg(call, tys, 1)
    require_dtype(call, at, "integer", 1)
    if x.ndim >= 0 and at.ndim >= 0 and x.ndim != at.ndim:
        raise fail(call, f"data and indices must have one number of dimensions: {x} and {at}")
    if x.ndim >= 0:
        axis = normal_axis(call, attr(call, "axis"), x.ndim)
        if x.shape is not None and at.shape is not None:
            require_within(call, x.shape, at.shape, axis)
            require_elements(call, (x.shape[axis],), at.shape)
    return TensorType(at.shape, x.dtype, at.ndim)


def require_within(call: graph.Call, data: Shape, indices: Shape, axis: int) -> None:
    """Require of element-wise indices that they are no larger than the data in the dimensions
    other than `axis`."""
    for d, (a, b) in enumerate(zip(data, indices, strict=True)):
        claim = f"indices {show(indices)} reach outside data {show(data)} in dimension {d}"
        if d != axis and impossible(call, expr.LE(b, a), claim):
            raise fail(call, claim)


def _gather_elements_emit(
    call: graph.Call, out: TensorType, x: te.Tensor, at: te.Tensor
) -> te.Tensor:
    axis = normal_axis(call, attr(call, "axis"), x.ndim)

    def element(*i: PrimExpr) -> PrimExpr:
        index = wrapped_index(scalar.cast(at[i], "int64"), x.shape[axis])
        return x[(*i[:axis], index, *i[axis + 1 :])]

    return te.compute(at.shape, element, "T_gather_elements")


def wrapped_index(index: PrimExpr, extent: PrimExpr) -> PrimExpr:
    """A run-time index as NumPy means it (negative: from the end), moved into the tensor."""
    from_end = expr.Select(expr.LT(index, te.ZERO), index + extent, index)
    return scalar.clamp(from_end, 0, extent - 1)


def places_in(indices: Array, extent: int) -> Array:
    """Return an array of indices moved into a dimension of this extent, as by `wrapped_index`."""
    at = indices.astype(np.int64)
    return np.clip(np.where(at < 0, at + extent, at), 0, max(extent - 1, 0))


def _gather_elements(data: Array, indices: Array, axis: int = 0) -> Array:
    places = list(np.indices(indices.shape))
    places[axis] = places_in(indices, data.shape[axis])
    return data[tuple(places)]


define(
    "gather_elements",
    params("data indices", axis=0),
    _gather_elements_infer,
    emit=_gather_elements_emit,
    reference=_gather_elements,
)


# --- one_hot ----------------------------------------------------------------------------------


def _one_hot_infer(call: graph.Call, tys: TypesOf) -> Type:
    at = tensor_arg(call, tys, 0)
    require_dtype(call, at, "integer")
    dtypes = [ty.dtype if isinstance(ty, PrimType | TensorType) else None for ty in tys[1:3]]
    if len(tys) != 3 or dtypes[0] != dtypes[1]:
        raise fail(call, f"on_value and off_value must be scalars of one dtype, are {tys[1:]}")
    depth = require_count(call, "depth", attr(call, "depth"))
    if at.ndim < 0:
        return TensorType(None, dtypes[0])
    axis = normal_axis(call, attr(call, "axis"), at.ndim + 1)
    if at.shape is None:
        return TensorType(None, dtypes[0], at.ndim + 1)
    return TensorType((*at.shape[:axis], depth, *at.shape[axis:]), dtypes[0])


def _one_hot_emit(call: graph.Call, out: TensorType, at: te.Tensor, on: Arg, off: Arg) -> te.Tensor:
    assert out.shape is not None
    axis = normal_axis(call, attr(call, "axis"), len(out.shape))

    def element(*i: PrimExpr) -> PrimExpr:
        hit = expr.EQ(scalar.cast(at[(*i[:axis], *i[axis + 1 :])], "int64"), i[axis])
        a, b = (v[()] if isinstance(v, te.Tensor) else v for v in (on, off))
        assert isinstance(a, PrimExpr) and isinstance(b, PrimExpr)
        return expr.Select(hit, a, b)

    return te.compute(out.shape, element, "T_one_hot")


def _one_hot(indices: Array, on_value: Any, off_value: Any, depth: int, axis: int = -1) -> Array:
    on, off = np.asarray(on_value), np.asarray(off_value)
    at = np.expand_dims(indices, axis)
    shape = [1] * at.ndim
    shape[axis] = depth
    return np.where(at == np.arange(depth).reshape(shape), on, off).astype(on.dtype)


define(
    "one_hot",
    params("indices on_value off_value", depth=REQUIRED, axis=-1),
    _one_hot_infer,
    emit=_one_hot_emit,
    reference=_one_hot,
)


# --- nonzero, unique --------------------------------------------------------------------------
# The extents of the results depend on the data: only ranks are known, and no loop function can
# be given its output. The calls are lowered to library functions.


def _nonzero_infer(call: graph.Call, tys: TypesOf) -> Type:
    tensor_arg(call, tys, 0)
    return TensorType(None, "int64", 2)


define(
    "nonzero",
    params("x"),
    _nonzero_infer,
    reference=lambda x: np.array(np.nonzero(x), np.int64),
)
