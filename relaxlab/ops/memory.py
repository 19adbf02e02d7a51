"""Operators that allocate memory: what `expand_calls` and `plan_memory` write."""

from __future__ import annotations

from relaxlab.ir import graph, types
from relaxlab.ir.types import ObjectType, TensorType, Type
from relaxlab.ops.define import TypesOf, define, fail, params


def _tensor(call: graph.Call, tys: TypesOf, shape_at: int) -> Type:
    shape = tys[shape_at] if shape_at < len(tys) else None
    dtype = call.args[shape_at + 1] if shape_at + 1 < len(call.args) else None
    if not isinstance(shape, types.ShapeType) or not isinstance(dtype, graph.DataTypeImm):
        raise fail(call, "takes a shape and a data type")
    return TensorType(shape.values, dtype.value, shape.ndim)


define(
    "builtin.alloc_tensor",
    params("shape dtype runtime_device_index storage_scope?"),
    lambda c, t: _tensor(c, t, 0),
    pure=False,
)
define(
    "memory.alloc_storage",
    params("size virtual_device_index storage_scope dtype"),
    lambda c, t: ObjectType(),
    pure=False,
)
define(
    "memory.alloc_tensor",
    params("storage offset shape dtype runtime_device_index"),
    lambda c, t: _tensor(c, t, 2),
    pure=False,
)
