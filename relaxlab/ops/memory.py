"""Operators on memory: what `expand_calls` and `plan_memory` write, and views of tensors."""

from __future__ import annotations

from typing import Any

import numpy as np

from relaxlab.ir import expr, graph, types
from relaxlab.ir.dtypes import numpy_dtype
from relaxlab.ir.expr import PrimExpr
from relaxlab.ir.row_major import product
from relaxlab.ir.types import ObjectType, PrimType, TensorType, TupleType, Type
from relaxlab.ops.define import Builder, TypesOf, builder, define, fail, params, tensor_arg
from relaxlab.ops.manipulate import shape_arg
from relaxlab.ops.shapes import impossible

Array = np.ndarray[Any, Any]


def __getattr__(name: str) -> Builder:
    return builder(f"memory.{name}")


def _tensor(call: graph.Call, tys: TypesOf, shape_at: int) -> Type:
    shape = tys[shape_at] if shape_at < len(tys) else None
    dtype = call.args[shape_at + 1] if shape_at + 1 < len(call.args) else None
    if not isinstance(shape, types.ShapeType) or not isinstance(
        dtype, graph.DataTypeImm | graph.StringImm
    ):
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
    traits=["free", "allocates"],
)
define(
    "memory.alloc_storage",
    params("size virtual_device_index storage_scope dtype"),
    lambda c, t: ObjectType(),
    reference=_storage,
    pure=False,
    traits=["free", "allocates"],
)
define(
    "memory.alloc_tensor",
    params("storage offset shape dtype runtime_device_index?"),
    lambda c, t: _tensor(c, t, 2),
    reference=_part,
    pure=False,
    traits=["free", "allocates"],
)
for _name in ("memory.kill_storage", "memory.kill_tensor", "vm.kill_object"):
    define(
        _name,
        params("object"),
        lambda c, t: TupleType(()),
        reference=lambda x: (),
        pure=False,
        traits=["free"],
    )

# --- What TVM lowers to for its virtual machine -----------------------------------------------


def _vm_storage(shape: tuple[int, ...], _: int, dtype: str, __: str = "global") -> Array:
    return _storage((int(np.prod(shape, dtype=np.int64)) * numpy_dtype(dtype).itemsize,))


define(
    "vm.alloc_storage",
    params("shape runtime_device_index dtype storage_scope?"),
    lambda c, t: ObjectType(),
    reference=_vm_storage,
    pure=False,
    traits=["allocates"],
)
define(
    "vm.alloc_tensor",
    params("storage offset shape dtype runtime_device_index?"),
    lambda c, t: _tensor(c, t, 2),
    reference=_part,
    pure=False,
    traits=["allocates"],
)
# The loop function's scalar arguments are a shape, the last of `args`.
define("vm.call_tir_dyn", params("func args"), lambda c, t: TupleType(()), pure=False)


# --- Views ------------------------------------------------------------------------------------


def _view_infer(call: graph.Call, tys: TypesOf) -> Type:
    x = tensor_arg(call, tys, 0)
    shape = shape_arg(call, tys, 1) if len(tys) > 1 else types.ShapeType(x.shape, x.ndim)
    dtype = x.dtype
    if len(call.args) > 2:
        named = call.args[2]
        if isinstance(named, graph.DataTypeImm | graph.StringImm):
            dtype = named.value
        elif len(tys) < 3 or not isinstance(tys[2], ObjectType | TupleType):  # null_value() or ()
            raise fail(call, "dtype must be a data type", 'write R.dtype("int32")')
    offset: PrimExpr | None = expr.const(0)
    if len(tys) > 3 and not isinstance(tys[3], TupleType):
        if not isinstance(tys[3], PrimType) or tys[3].dtype != "int64":
            raise fail(call, f"relative_byte_offset must be an int64 scalar, is {tys[3]}")
        offset = tys[3].value
    if x.shape is not None and shape.values is not None and x.dtype and dtype and offset:
        have = product(x.shape) * numpy_dtype(x.dtype).itemsize
        need = offset + product(shape.values) * numpy_dtype(dtype).itemsize
        claim = f"the view ends at byte {need}, the tensor has {have}"
        inside = expr.And(expr.GE(offset, expr.const(0)), expr.LE(need, have))
        if impossible(call, inside, claim):
            raise fail(call, claim)
    return TensorType(shape.values, dtype, shape.ndim)


def _view(
    data: Array, shape: tuple[int, ...] | None = None, dtype: Any = None, first_byte: Any = 0
) -> Array:
    """Arguments of an operator that are left out are empty tuples."""
    sizes: tuple[int, ...] = data.shape if shape is None else shape
    kind = numpy_dtype(dtype) if dtype else data.dtype
    start = int(first_byte or 0)
    end = start + int(np.prod(sizes, dtype=np.int64)) * kind.itemsize
    raw = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
    if not 0 <= start <= end <= raw.size:
        raise ValueError(f"bytes {start} to {end} do not lie in a tensor of {raw.size} bytes")
    return raw[start:end].copy().view(kind).reshape(sizes)


# The bytes of a tensor under another shape and dtype, from an offset on. Values never change, so
# that a copy is as good as the memory itself.
define(
    "memory.view",
    params("data shape? dtype? relative_byte_offset?"),
    _view_infer,
    reference=_view,
)
define(
    "memory.ensure_zero_offset",
    params("data"),
    lambda c, t: tensor_arg(c, t, 0),
    reference=lambda data: data,
)
