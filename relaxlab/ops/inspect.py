"""Properties of a tensor, as scalars (`R.inspect.tensor_shape_i`, ...).

Every tensor here is dense, in row-major order, and begins at its first element. The dtype is given
by DLPack's code (0 int, 1 uint, 2 float, 4 bfloat, 6 bool), bits and lanes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from relaxlab.ir import expr, graph
from relaxlab.ir.dtypes import bits_of, is_float, is_uint, numpy_dtype
from relaxlab.ir.expr import PrimExpr
from relaxlab.ir.row_major import product
from relaxlab.ir.types import PrimType, TensorType, Type
from relaxlab.ops.define import (
    Builder,
    TypesOf,
    builder,
    define,
    fail,
    params,
    tensor_arg,
)
from relaxlab.ops.shapes import impossible

Array = np.ndarray[Any, Any]


def __getattr__(name: str) -> Builder:
    return builder(f"inspect.{name}")


def dtype_code(dtype: str) -> int:
    """DLPack's number for the kind of a dtype."""
    if dtype == "bool":
        return 6
    if dtype == "bfloat16":
        return 4
    return 2 if is_float(dtype) else int(is_uint(dtype))


def _property(
    name: str, result: str, known: Callable[[TensorType], int | None], of: Callable[[Array], int]
) -> None:
    """Register `R.inspect.<name>(tensor)`; `known` returns the value if the type determines it."""

    def infer(call: graph.Call, tys: TypesOf) -> Type:
        value = known(tensor_arg(call, tys, 0))
        return PrimType(result, None if value is None else expr.const(value, result))

    define(f"inspect.{name}", params("tensor"), infer, reference=of)


_property(
    "tensor_ndim", "int32", lambda t: t.ndim if t.ndim >= 0 else None, lambda tensor: tensor.ndim
)
_property(
    "tensor_dtype_code",
    "uint8",
    lambda t: None if t.dtype is None else dtype_code(t.dtype),
    lambda tensor: dtype_code(tensor.dtype.name),
)
_property(
    "tensor_dtype_bits",
    "uint8",
    lambda t: None if t.dtype is None else _bits(t.dtype),
    lambda tensor: tensor.dtype.itemsize * 8,
)
_property("tensor_dtype_lanes", "uint16", lambda t: 1, lambda tensor: 1)
_property("tensor_byte_offset", "int64", lambda t: 0, lambda tensor: 0)
_property("tensor_elem_offset", "int64", lambda t: 0, lambda tensor: 0)


def _bits(dtype: str) -> int:
    return numpy_dtype(dtype).itemsize * 8 if dtype == "bool" else bits_of(dtype)


def _axis(call: graph.Call, tys: TypesOf, x: TensorType) -> PrimExpr | None:
    """The axis argument. Raises when it is no int64 or known to be out of range."""
    ty = tys[1] if len(tys) > 1 else None
    if not isinstance(ty, PrimType) or ty.dtype != "int64":
        raise fail(call, f"axis must be an int64 scalar, is {ty}", "write R.prim_value(0)")
    if ty.value is not None and x.ndim >= 0:
        claim = f"axis {ty.value} is out of range for a tensor with {x.ndim} dimensions"
        inside = expr.And(expr.GE(ty.value, expr.const(0)), expr.LT(ty.value, expr.const(x.ndim)))
        if impossible(call, inside, claim):
            raise fail(call, claim)
    return ty.value


def _along(
    name: str, value: Callable[[tuple[PrimExpr, ...], int], PrimExpr], of: Callable[..., int]
) -> None:
    """Register `R.inspect.<name>(tensor, axis)`."""

    def infer(call: graph.Call, tys: TypesOf) -> Type:
        x = tensor_arg(call, tys, 0)
        axis = _axis(call, tys, x)
        known = x.shape is not None and isinstance(axis, expr.IntImm)
        return PrimType("int64", value(x.shape, axis.value) if known else None)  # type: ignore

    define(f"inspect.{name}", params("tensor axis"), infer, reference=of)


_along(
    "tensor_shape_i",
    lambda shape, axis: shape[axis],
    lambda tensor, axis: tensor.shape[int(axis)],
)
_along(
    "tensor_stride_i",
    lambda shape, axis: product(shape[axis + 1 :]),
    lambda tensor, axis: int(np.prod(tensor.shape[int(axis) + 1 :], dtype=np.int64)),
)
