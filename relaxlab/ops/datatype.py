"""Operators on data types."""

from __future__ import annotations

from typing import Any

import numpy as np

from relaxlab.ir import graph
from relaxlab.ir.dtypes import converted, is_dtype, lanes_of, numpy_dtype
from relaxlab.ir.op_table import REQUIRED
from relaxlab.ir.types import TensorType, Type
from relaxlab.ops import scalar, te
from relaxlab.ops.define import TypesOf, attr, define, fail, params, tensor_arg, tensor_like


def dtype_attr(call: graph.Call, name: str = "dtype") -> str | None:
    """A dtype attribute. Raises when it names no scalar data type."""
    dtype = attr(call, name)
    if dtype is not None and not (
        isinstance(dtype, str) and is_dtype(dtype) and lanes_of(dtype) == 1
    ):
        raise fail(call, f"{name} {dtype!r} is not a data type", 'for example "float32"')
    return dtype


def required_dtype(call: graph.Call) -> str:
    """The attribute `dtype` of an operator that needs one."""
    dtype = dtype_attr(call)
    if dtype is None:
        raise fail(call, "dtype must be a data type, is None", 'for example "float32"')
    return dtype


def _astype_infer(call: graph.Call, tys: TypesOf) -> Type:
    return tensor_like(tensor_arg(call, tys, 0), required_dtype(call))


def _astype_emit(call: graph.Call, out: TensorType, x: te.Tensor) -> te.Tensor:
    dtype = attr(call, "dtype")
    return te.compute(x.shape, lambda *i: scalar.cast(x[i], dtype), "T_cast")


def _astype(x: np.ndarray[Any, Any], dtype: str = "float32") -> np.ndarray[Any, Any]:
    with np.errstate(invalid="ignore", over="ignore"):
        return np.asarray(converted(x, numpy_dtype(dtype)))


define(
    "astype",
    params("x", dtype=REQUIRED),
    _astype_infer,
    emit=_astype_emit,
    reference=_astype,
    traits=["elementwise"],
)
define(
    "wrap_param",
    params("data", dtype="float32"),
    _astype_infer,
    emit=_astype_emit,
    reference=_astype,
)
