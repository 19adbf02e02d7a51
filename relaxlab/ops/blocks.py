"""Matrices that are stored in blocks of small integers and scales (`R.decode_blocks`)."""

from __future__ import annotations

from typing import Any

import numpy as np

from relaxlab.ir import expr, graph
from relaxlab.ir.expr import PrimExpr
from relaxlab.ir.op_table import REQUIRED
from relaxlab.ir.quant_formats import FORMAT_BY_NAME
from relaxlab.ir.types import TensorType, Type
from relaxlab.ops import te
from relaxlab.ops.block_formats import FORMATS, Fields, Format
from relaxlab.ops.define import TypesOf, attr, define, fail, params, tensor_tuple_arg
from relaxlab.ops.shapes import differ, show

Array = np.ndarray[Any, Any]


def format_of(call: graph.Call) -> Format:
    """The format of a call's blocks."""
    name = attr(call, "format")
    if name not in FORMATS:
        raise fail(call, f"format {name!r} is not known", f"there are {', '.join(FORMATS)}")
    return FORMATS[name]


def _is_whole(fields: tuple[Any, ...]) -> bool:
    """True for blocks as a file has them, which no format stores as one field."""
    return len(fields) == 1


def _decode_infer(call: graph.Call, tys: TypesOf) -> Type:
    fmt, fields = format_of(call), tensor_tuple_arg(call, tys, 0)
    wanted = fmt.fields
    if _is_whole(fields):
        wanted = (("blocks", "uint8", (fmt.storage.block_bytes,)),)
    if len(fields) != len(wanted):
        names = ", ".join(name for name, *_ in wanted)
        raise fail(call, f"{fmt.name} has the fields {names}, or whole blocks, not {len(fields)}")
    for ty, (name, dtype, tail) in zip(fields, wanted, strict=True):
        if ty.dtype not in (None, dtype) or ty.ndim not in (-1, 2 + len(tail)):
            shape = ", ".join(("rows", "blocks", *map(str, tail)))
            raise fail(call, f"{name} of {fmt.name} must be {dtype} ({shape}), is {ty}")
    known = next((ty.shape for ty in fields if ty.shape is not None), None)
    if known is None:
        return TensorType(None, "float32", 2)
    for ty, (name, _, tail) in zip(fields, wanted, strict=True):
        dims = (*known[:2], *map(expr.const, tail))
        claim = f"the shape of {name} of {fmt.name}"
        if any(differ(call, a, b, claim) for a, b in zip(ty.shape or dims, dims, strict=True)):
            raise fail(call, f"{name} of {fmt.name} must be {show(dims)}, is {ty}")
    return TensorType((known[0], known[1] * fmt.block), "float32")


def _decode_emit(call: graph.Call, out: TensorType, given: tuple[te.Tensor, ...]) -> te.Tensor:
    assert out.shape is not None
    fmt = format_of(call)
    fields: Fields = dict(zip((name for name, *_ in fmt.fields), given, strict=False))
    if _is_whole(given):
        fields = fmt.in_blocks(given[0])

    def element(n: PrimExpr, k: PrimExpr) -> PrimExpr:
        return fmt.weight(fields, n, k)

    return te.compute(out.shape, element, f"decode_{fmt.name}")


def _decode(fields: tuple[Array, ...], format: str) -> Array:
    storage = FORMAT_BY_NAME[format]
    rows, blocks = fields[0].shape[:2]
    named = {f.name: a for f, a in zip(storage.fields, fields, strict=False)}
    raw = fields[0] if _is_whole(fields) else storage.join_fields(named)
    return storage.dequantise(raw, (rows, blocks * storage.block_size))


# fields: those of a block in the order of the file, each (rows, blocks, ...), or one tensor uint8
# (rows, blocks, bytes) of whole blocks.
define(
    "decode_blocks",
    params("fields", format=REQUIRED),
    _decode_infer,
    emit=_decode_emit,
    reference=_decode,
)
