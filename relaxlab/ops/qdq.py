"""Quantising to integers and back, for a whole tensor or for each index of an axis."""

from __future__ import annotations

from typing import Any

import numpy as np

from relaxlab.ir import expr, graph
from relaxlab.ir.dtypes import bits_of, converted, is_float, is_int, numpy_dtype
from relaxlab.ir.expr import PrimExpr
from relaxlab.ir.types import TensorType, Type
from relaxlab.ops import scalar, te
from relaxlab.ops.datatype import dtype_attr
from relaxlab.ops.define import (
    TypesOf,
    attr,
    define,
    fail,
    normal_axis,
    params,
    require_dtype,
    takes,
    tensor_arg,
    tensor_like,
)
from relaxlab.ops.shapes import differ

Array = np.ndarray[Any, Any]


def _check_parameters(call: graph.Call, tys: TypesOf, x: TensorType) -> None:
    """scale and zero_point are scalars, or have one entry for each index of `axis`."""
    scale, zero = tensor_arg(call, tys, 1), tensor_arg(call, tys, 2)
    require_dtype(call, scale, "floating point", 1)
    require_dtype(call, zero, "a number", 2)
    axis = normal_axis(call, attr(call, "axis"), x.ndim) if x.ndim > 0 else 0
    for name, t in (("scale", scale), ("zero_point", zero)):
        if t.ndim not in (-1, 0, 1) or (t.ndim == 1 and x.ndim == 0):
            raise fail(call, f"{name} must be a scalar or have one dimension, is {t}")
        if t.ndim == 1 and t.shape is not None and x.shape is not None:
            extent = x.shape[axis]
            if differ(call, extent, t.shape[0], f"the entries of {name} and of axis {axis}"):
                raise fail(call, f"{name} has {t.shape[0]} entries for {extent} along axis {axis}")


def _at(t: te.Tensor, i: tuple[PrimExpr, ...], axis: int) -> PrimExpr:
    return t[()] if t.ndim == 0 else t[i[axis]]


def _quantize_infer(call: graph.Call, tys: TypesOf) -> Type:
    x, out = tensor_arg(call, tys, 0), dtype_attr(call, "out_dtype")
    require_dtype(call, x, "floating point")
    if out is None or not (is_int(out) or out.startswith("float8")):
        raise fail(call, f"out_dtype must be an integer type or a float of 8 bits, is {out}")
    _check_parameters(call, tys, x)
    return tensor_like(x, out)


def _quantize_needs(call: graph.Call, tys: TypesOf) -> None:
    out = dtype_attr(call, "out_dtype")
    if out is None or not is_int(out):
        raise fail(call, f"computes integers, not {out}")


def _quantize_emit(
    call: graph.Call, out: TensorType, x: te.Tensor, scale: te.Tensor, zero: te.Tensor
) -> te.Tensor:
    """round(x / scale) + zero_point, which the cast moves into the range of the result; halves go
    to even."""
    axis = normal_axis(call, attr(call, "axis"), x.ndim) if x.ndim else 0
    assert out.dtype is not None
    wide, dtype = scalar.accumulator_of(x.dtype), out.dtype

    def element(*i: PrimExpr) -> PrimExpr:
        steps = expr.Div(scalar.cast(x[i], wide), scalar.cast(_at(scale, i, axis), wide))
        moved = scalar.call("nearbyint", steps) + scalar.cast(_at(zero, i, axis), wide)
        return scalar.cast(moved, dtype)

    return te.compute(x.shape, element, "T_quantize")


def _spread(t: Array, x: Array, axis: int) -> Array:
    if t.ndim == 0:
        return t
    return t.reshape([-1 if d == axis % x.ndim else 1 for d in range(x.ndim)])


def _quantize(
    data: Array, scale: Array, zero_point: Array, axis: int = -1, out_dtype: str = "int8"
) -> Array:
    wide = np.dtype(scalar.accumulator_of(data.dtype.name))
    factor, zero = (_spread(t, data, axis).astype(wide) for t in (scale, zero_point))
    steps = np.rint(data.astype(wide) / factor) + zero
    return np.asarray(converted(steps, np.dtype(out_dtype)))


define(
    "quantize",
    params("data scale zero_point", axis=-1, out_dtype="int8"),
    _quantize_infer,
    needs=[_quantize_needs],
    emit=_quantize_emit,
    reference=_quantize,
)


def _dequantize_infer(call: graph.Call, tys: TypesOf) -> Type:
    x, out = tensor_arg(call, tys, 0), dtype_attr(call, "out_dtype")
    if out is None or not is_float(out):
        raise fail(call, f"out_dtype must be a floating point type, is {out}")
    _check_parameters(call, tys, x)
    return tensor_like(x, out)


def _difference_dtype(dtype: str) -> str:
    return "int32" if bits_of(dtype) <= 16 else "int64"


def _dequantize_emit(
    call: graph.Call, out: TensorType, x: te.Tensor, scale: te.Tensor, zero: te.Tensor
) -> te.Tensor:
    """(x - zero_point) * scale."""
    axis = normal_axis(call, attr(call, "axis"), x.ndim) if x.ndim else 0
    assert out.dtype is not None
    dtype, exact = out.dtype, _difference_dtype(x.dtype)
    wide = scalar.accumulator_of(dtype)

    def element(*i: PrimExpr) -> PrimExpr:
        steps = expr.Sub(scalar.cast(x[i], exact), scalar.cast(_at(zero, i, axis), exact))
        value = expr.Mul(scalar.cast(steps, wide), scalar.cast(_at(scale, i, axis), wide))
        return scalar.cast(value, dtype)

    return te.compute(x.shape, element, "T_dequantize")


def _dequantize(
    data: Array, scale: Array, zero_point: Array, axis: int = -1, out_dtype: str = "float32"
) -> Array:
    exact, wide = _difference_dtype(data.dtype.name), scalar.accumulator_of(out_dtype)
    steps = data.astype(exact) - _spread(zero_point, data, axis).astype(exact)
    value = steps.astype(wide) * _spread(scale, data, axis).astype(wide)
    return value.astype(numpy_dtype(out_dtype))


define(
    "dequantize",
    params("data scale zero_point", axis=-1, out_dtype="float32"),
    _dequantize_infer,
    needs=[takes("integer")],
    emit=_dequantize_emit,
    reference=_dequantize,
)
