"""Operators that allocate memory: what `expand_calls` and `plan_memory` write."""

from __future__ import annotations

from typing import Any

import numpy as np

from relaxlab.ir import graph, types
from relaxlab.ir.dtypes import numpy_dtype
from relaxlab.ir.types import ObjectType, TensorType, Type
from relaxlab.ops.define import TypesOf, define, fail, params

Array = np.ndarray[Any, Any]


def _tensor(call: graph.Call, tys: TypesOf, shape_at: int) -> Type:
    shape = tys[shape_at] if shape_at < len(tys) else None
    dtype = call.args[shape_at + 1] if shape_at + 1 < len(call.args) else None
    if not isinstance(shape, types.ShapeType) or not isinstance(dtype, graph.DataTypeImm):
        raise fail(call, "takes a shape and a data type")
    return TensorType(shape.values, dtype.value, shape.ndim)


def _storage(size: tuple[int, ...], *_: Any) -> Array:
    """New memory holds nothing yet: NaN, or -1, shows a read too early."""
    return np.full(size, 0xFF, np.uint8)


def _fresh(shape: tuple[int, ...], dtype: str, *_: Any) -> Array:
    kind = numpy_dtype(dtype)
    count = int(np.prod(shape, dtype=np.int64)) * kind.itemsize
    return _part(_storage((count,)), 0, shape, dtype)


def _part(storage: Array, offset: int, shape: tuple[int, ...], dtype: str, *_: Any) -> Array:
    kind = numpy_dtype(dtype)
    count = int(np.prod(shape, dtype=np.int64)) * kind.itemsize
    part = storage[int(offset) : int(offset) + count]
    part[...] = 0xFF  # what lay there is dead
    return part.view(kind).reshape(shape)


define(
    "builtin.alloc_tensor",
    params("shape dtype runtime_device_index storage_scope?"),
    lambda c, t: _tensor(c, t, 0),
    reference=_fresh,
    pure=False,
)
define(
    "memory.alloc_storage",
    params("size virtual_device_index storage_scope dtype"),
    lambda c, t: ObjectType(),
    reference=_storage,
    pure=False,
)
define(
    "memory.alloc_tensor",
    params("storage offset shape dtype runtime_device_index"),
    lambda c, t: _tensor(c, t, 2),
    reference=_part,
    pure=False,
)
