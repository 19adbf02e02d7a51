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
    number,
    params,
    tensor_arg,
    tensor_like,
)
from relaxlab.ops.manipulate import shape_arg
from relaxlab.ops.shapes import at_least, impossible, simplify

Array = np.ndarray[Any, Any]


def _filled(out: TensorType, value: PrimExpr | te.Tensor, name: str) -> te.Tensor:
    assert out.shape is not None and out.dtype is not None
    dtype = out.dtype

    def element(*_: PrimExpr) -> PrimExpr:
        one = value[()] if isinstance(value, te.Tensor) else value
        return scalar.cast(one, dtype)

    return te.compute(out.shape, element, name)


# --- full, zeros, ones ------------------------------------------------------------------------


def _fill_dtype(call: graph.Call, tys: TypesOf) -> str | None:
    """The dtype of a fill value. Raises when it is not a scalar."""
    ty = tys[1] if len(tys) > 1 else None
    if isinstance(ty, types.PrimType):
        return ty.dtype
    if isinstance(ty, TensorType) and ty.ndim in (-1, 0):
        return ty.dtype
    raise fail(call, f"fill_value must be a scalar, is {ty}")


def _full_infer(call: graph.Call, tys: TypesOf) -> Type:
    shape = shape_arg(call, tys, 0)
    return TensorType(shape.values, dtype_attr(call) or _fill_dtype(call, tys), shape.ndim)


def _full_like_infer(call: graph.Call, tys: TypesOf) -> Type:
    x = tensor_arg(call, tys, 0)
    _fill_dtype(call, tys)
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
    given = zip(("start", "end", "step"), (start, end, step), strict=True)
    values = [number(call, name, v) for name, v in given]
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
        ) if math.isfinite((b - a) / s):
            return TensorType((expr.const(max(0, math.ceil((b - a) / s))),), dtype)
        case _ if not is_float(start.dtype):
            descends = isinstance(step, expr.IntImm) and step.value < 0
            claim = f"the symbolic step {step} is not positive"
            if not descends and impossible(call, expr.GE(step, expr.const(1)), claim):
                raise fail(call, claim)
            span, step = (start - end, -step) if descends else (end - start, step)
            length = simplify((span + (step - 1)) // step)
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


# --- eye, hamming_window ----------------------------------------------------------------------


def _eye_infer(call: graph.Call, tys: TypesOf) -> Type:
    rows, columns = attr(call, "n"), attr(call, "m")
    given = {"n": rows, "m": rows if columns is None else columns}
    dims = tuple(number(call, name, v, whole=True) for name, v in given.items())
    return TensorType(dims, dtype_attr(call))


def _eye_like_infer(call: graph.Call, tys: TypesOf) -> Type:
    x = tensor_arg(call, tys, 0)
    if x.ndim not in (-1, 2):
        raise fail(call, f"x must have two dimensions, is {x}")
    return TensorType(x.shape, dtype_attr(call) or x.dtype, 2)


def _eye_emit(call: graph.Call, out: TensorType, *_: Arg) -> te.Tensor:
    assert out.shape is not None and out.dtype is not None
    one, zero = expr.const(1, out.dtype), expr.const(0, out.dtype)
    k = expr.as_expr(attr(call, "k"))
    return te.compute(out.shape, lambda i, j: expr.Select(expr.EQ(j, i + k), one, zero), "T_eye")


define(
    "eye",
    params("", n=REQUIRED, m=None, k=0, dtype="float32"),
    _eye_infer,
    emit=_eye_emit,
    reference=lambda n, m=None, k=0, dtype="float32": np.eye(n, m, k, numpy_dtype(dtype)),
)
define(
    "eye_like",
    params("x", k=0, dtype=None),
    _eye_like_infer,
    emit=_eye_emit,
    reference=lambda x, k=0, dtype=None: np.eye(
        x.shape[0], x.shape[1], k, numpy_dtype(dtype) if dtype else x.dtype
    ),
)


def _hamming_infer(call: graph.Call, tys: TypesOf) -> Type:
    dtype = dtype_attr(call)
    if dtype is not None and not is_float(dtype):
        raise fail(call, f"dtype must be floating point, is {dtype}")
    size = number(call, "window_size", attr(call, "window_size"), whole=True)
    if isinstance(size, expr.IntImm) and size.value < 0:
        raise fail(call, f"window_size must be at least 0, is {size}")
    return TensorType((size,), dtype)


def _hamming_emit(call: graph.Call, out: TensorType) -> te.Tensor:
    """alpha - beta * cos(2 pi i / period); a window of one element is 1."""
    assert out.shape is not None and out.dtype is not None
    dtype = scalar.accumulator_of(out.dtype)
    (size,) = out.shape
    period = at_least(size if attr(call, "periodic") else size - 1, expr.const(1))
    alpha, beta = (expr.const(float(attr(call, n)), dtype) for n in ("alpha", "beta"))

    def element(i: PrimExpr) -> PrimExpr:
        turn = expr.Div(scalar.cast(i, dtype), scalar.cast(period, dtype))
        angle = expr.Mul(turn, expr.const(2 * math.pi, dtype))
        value = expr.Sub(alpha, expr.Mul(beta, scalar.call("cos", angle)))
        whole = expr.Select(expr.EQ(size, expr.const(1)), expr.const(1.0, dtype), value)
        return scalar.cast(whole, out.dtype or dtype)

    return te.compute(out.shape, element, "T_hamming_window")


def _hamming(
    window_size: int,
    periodic: bool = True,
    alpha: float = 0.54,
    beta: float = 0.46,
    dtype: str = "float32",
) -> Array:
    period = max(window_size if periodic else window_size - 1, 1)
    values = alpha - beta * np.cos(2 * np.pi * np.arange(window_size) / period)
    return (np.ones(1) if window_size == 1 else values).astype(numpy_dtype(dtype))


define(
    "hamming_window",
    params("", window_size=REQUIRED, periodic=True, alpha=0.54, beta=0.46, dtype="float32"),
    _hamming_infer,
    emit=_hamming_emit,
    reference=_hamming,
)


# --- tril, triu -------------------------------------------------------------------------------


def _triangle(name: str, keep: type[expr.CmpOp], reference: Any) -> None:
    """Register `R.tril` or `R.triu`: zeros on the other side of diagonal `k`."""

    def infer(call: graph.Call, tys: TypesOf) -> Type:
        x = tensor_arg(call, tys, 0)
        if x.ndim in (0, 1):
            raise fail(call, f"x must have at least two dimensions, is {x}")
        number(call, "k", attr(call, "k"), whole=True)
        return x

    def emit(call: graph.Call, out: TensorType, x: te.Tensor) -> te.Tensor:
        k, zero = expr.as_expr(attr(call, "k")), expr.const(0, x.dtype)

        def element(*i: PrimExpr) -> PrimExpr:
            return expr.Select(keep(i[-1], i[-2] + k), x[i], zero)

        return te.compute(x.shape, element, f"T_{name}")

    define(name, params("x", k=0), infer, emit=emit, reference=lambda x, k=0: reference(x, k))


_triangle("tril", expr.LE, np.tril)
_triangle("triu", expr.GE, np.triu)
