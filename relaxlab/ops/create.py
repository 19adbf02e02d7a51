"""Tensors from nothing, and triangles of matrices."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from relaxlab.ir import expr, graph, types
from relaxlab.ir.dtypes import is_float, numpy_dtype
from relaxlab.ir.expr import PrimExpr
from relaxlab.ir.op_table import REQUIRED
from relaxlab.ir.types import TensorType, Type
from relaxlab.ops import scalar, te
from relaxlab.ops.datatype import dtype_attr
from relaxlab.ops.define import (
    Arg,
    TypesOf,
    attr,
    define,
    fail,
    params,
    tensor_arg,
    tensor_like,
)
from relaxlab.ops.manipulate import shape_arg
from relaxlab.ops.shapes import at_least, simplify

Array = np.ndarray[Any, Any]


def _filled(out: TensorType, value: PrimExpr | te.Tensor, name: str) -> te.Tensor:
    assert out.shape is not None and out.dtype is not None
    dtype = out.dtype

    def element(*_: PrimExpr) -> PrimExpr:
        one = value[()] if isinstance(value, te.Tensor) else value
        return scalar.cast(one, dtype)

    return te.compute(out.shape, element, name)


# --- full, zeros, ones ------------------------------------------------------------------------


def _fill_dtype(call: graph.Call, tys: TypesOf, index: int) -> str | None:
    """The dtype of a fill value. Raises when it is not a scalar."""
    ty = tys[index] if index < len(tys) else None
    if isinstance(ty, types.PrimType):
        return ty.dtype
    if isinstance(ty, TensorType) and ty.ndim in (-1, 0):
        return ty.dtype
    raise fail(call, f"fill_value must be a scalar, is {ty}")


def _full_infer(call: graph.Call, tys: TypesOf) -> Type:
    shape = shape_arg(call, tys, 0)
    return TensorType(shape.values, dtype_attr(call) or _fill_dtype(call, tys, 1), shape.ndim)


def _full_like_infer(call: graph.Call, tys: TypesOf) -> Type:
    x = tensor_arg(call, tys, 0)
    _fill_dtype(call, tys, 1)
    return tensor_like(x, dtype_attr(call))


def _full_emit(call: graph.Call, out: TensorType, _: Arg, value: Any) -> te.Tensor:
    return _filled(out, value, "T_full")


def _full(shape: tuple[int, ...], fill_value: Any, dtype: str | None = None) -> Array:
    return np.full(shape, fill_value, numpy_dtype(dtype) if dtype else None)


def _full_like(x: Array, fill_value: Any, dtype: str | None = None) -> Array:
    return np.full(x.shape, fill_value, numpy_dtype(dtype) if dtype else x.dtype)


define(
    "full",
    params("shape fill_value", dtype=None),
    _full_infer,
    emit=_full_emit,
    reference=_full,
)
define(
    "full_like",
    params("x fill_value", dtype=None),
    _full_like_infer,
    emit=_full_emit,
    reference=_full_like,
)


def _constant(name: str, number: int) -> None:
    """Register `R.zeros` or `R.ones` and its `_like`."""

    def infer(call: graph.Call, tys: TypesOf) -> Type:
        shape = shape_arg(call, tys, 0)
        return TensorType(shape.values, dtype_attr(call), shape.ndim)

    def like_infer(call: graph.Call, tys: TypesOf) -> Type:
        return tensor_like(tensor_arg(call, tys, 0), dtype_attr(call))

    def emit(call: graph.Call, out: TensorType, _: Arg) -> te.Tensor:
        assert out.dtype is not None
        return _filled(out, expr.const(number, out.dtype), f"T_{name}")

    def full(shape: tuple[int, ...], dtype: str) -> Array:
        return np.full(shape, number, numpy_dtype(dtype))

    def full_like(x: Array, dtype: str | None = None) -> Array:
        return np.full(x.shape, number, numpy_dtype(dtype) if dtype else x.dtype)

    define(name, params("shape", dtype=REQUIRED), infer, emit=emit, reference=full)
    define(f"{name}_like", params("x", dtype=None), like_infer, emit=emit, reference=full_like)


_constant("zeros", 0)
_constant("ones", 1)


# --- arange -----------------------------------------------------------------------------------


def _arange_range(call: graph.Call) -> tuple[PrimExpr, PrimExpr, PrimExpr]:
    """start, end, step; one bound alone is the end."""
    start, end, step = (attr(call, n) for n in ("start", "end", "step"))
    if end is None:
        start, end = 0, start
    values = [expr.as_expr(v) for v in (start, end, step)]
    dtype = next((v.dtype for v in values if is_float(v.dtype)), "int64")
    first, last, stride = (scalar.cast(v, dtype) for v in values)
    return first, last, stride


def _arange_infer(call: graph.Call, tys: TypesOf) -> Type:
    start, end, step = _arange_range(call)
    dtype = dtype_attr(call) or ("float32" if is_float(start.dtype) else "int64")
    match start, end, step:
        case _, _, expr.IntImm(0) | expr.FloatImm(0.0):
            raise fail(call, "step must not be 0")
        case expr.IntImm(a) | expr.FloatImm(a), expr.IntImm(b) | expr.FloatImm(b), (
            expr.IntImm(s) | expr.FloatImm(s)
        ):
            return TensorType((expr.const(max(0, math.ceil((b - a) / s))),), dtype)
        case _, _, expr.IntImm(s) if not is_float(start.dtype):
            span = end - start if s > 0 else start - end
            length = simplify((span + (abs(s) - 1)) // abs(s))
            return TensorType((at_least(length, te.ZERO),), dtype)
        case _:
            raise fail(call, f"the number of elements from {start} to {end} by {step} is not known")


def _arange_emit(call: graph.Call, out: TensorType) -> te.Tensor:
    assert out.shape is not None and out.dtype is not None
    start, _, step = _arange_range(call)
    dtype = out.dtype

    def element(i: PrimExpr) -> PrimExpr:
        return scalar.cast(start + scalar.cast(i, start.dtype) * step, dtype)

    return te.compute(out.shape, element, "T_arange")


def _arange(start: Any, end: Any = None, step: Any = 1, dtype: str | None = None) -> Array:
    start, end = (0, start) if end is None else (start, end)
    floats = any(isinstance(v, float) for v in (start, end, step))
    out = numpy_dtype(dtype or ("float32" if floats else "int64"))
    count = max(0, math.ceil((end - start) / step))
    kind = np.float32 if floats else np.int64
    return (kind(start) + np.arange(count).astype(kind) * kind(step)).astype(out)


define(
    "arange",
    params("", start=REQUIRED, end=None, step=1, dtype=None),
    _arange_infer,
    emit=_arange_emit,
    reference=_arange,
)


# --- tril, triu -------------------------------------------------------------------------------


def _triangle(name: str, keep: type[expr.CmpOp], reference: Any) -> None:
    """Register `R.tril` or `R.triu`: zeros on the other side of diagonal `k`."""

    def infer(call: graph.Call, tys: TypesOf) -> Type:
        x = tensor_arg(call, tys, 0)
        if x.ndim in (0, 1):
            raise fail(call, f"x must have at least two dimensions, is {x}")
        return x

    def emit(call: graph.Call, out: TensorType, x: te.Tensor) -> te.Tensor:
        k, zero = expr.as_expr(attr(call, "k")), expr.const(0, x.dtype)

        def element(*i: PrimExpr) -> PrimExpr:
            return expr.Select(keep(i[-1], i[-2] + k), x[i], zero)

        return te.compute(x.shape, element, f"T_{name}")

    define(name, params("x", k=0), infer, emit=emit, reference=lambda x, k=0: reference(x, k))


_triangle("tril", expr.LE, np.tril)
_triangle("triu", expr.GE, np.triu)
