"""Matrices that are stored in blocks of small integers and scales (`R.decode_blocks`), and products
of such integers with activations quantised at run time (`R.dynamic_quantize`,
`R.quantized_linear`)."""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from relaxlab.ir import expr, graph
from relaxlab.ir.expr import PrimExpr, binary, const
from relaxlab.ir.op_table import REQUIRED
from relaxlab.ir.quant_formats import FORMAT_BY_NAME
from relaxlab.ir.types import TensorType, TupleType, Type
from relaxlab.ops import te
from relaxlab.ops.block_formats import FORMATS, Fields, Format
from relaxlab.ops.define import (
    TypesOf,
    arg_name,
    attr,
    define,
    fail,
    params,
    require_dtype,
    tensor_arg,
    tensor_tuple_arg,
)
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


def _matrix_type(call: graph.Call, tys: TypesOf, index: int) -> TensorType:
    """The type of the matrix that the fields in `call.args[index]` store."""
    fmt, fields = format_of(call), tensor_tuple_arg(call, tys, index)
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


def _decode_infer(call: graph.Call, tys: TypesOf) -> Type:
    return _matrix_type(call, tys, 0)


def _fields(fmt: Format, given: tuple[te.Tensor, ...]) -> Fields:
    if _is_whole(given):
        return fmt.in_blocks(given[0])
    return dict(zip((name for name, *_ in fmt.fields), given, strict=True))


def _decode_emit(call: graph.Call, out: TensorType, given: tuple[te.Tensor, ...]) -> te.Tensor:
    assert out.shape is not None
    fmt = format_of(call)
    fields = _fields(fmt, given)

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


# --- Activations quantised at run time --------------------------------------------------------

PARTS = (1, 2)
"""Numbers of 8-bit integers that can represent one activation."""


def _parts(call: graph.Call) -> int:
    parts = attr(call, "parts")
    if parts not in PARTS:
        raise fail(call, f"parts must be 1 or 2, is {parts!r}")
    return parts


def _dynamic_infer(call: graph.Call, tys: TypesOf) -> Type:
    x, group, parts = tensor_arg(call, tys, 0), attr(call, "group"), _parts(call)
    require_dtype(call, x, "float32")
    if not isinstance(group, int) or group < 1:
        raise fail(call, f"group must be a positive int, is {group!r}")
    if x.ndim not in (-1, 2):
        raise fail(call, f"data must be a matrix, is {x}")
    if x.shape is None:
        real = TensorType(None, "float32", 2)
        return TupleType((TensorType(None, "int8", 3), real, real))
    rows, groups = x.shape[0], x.shape[1] // group
    if differ(call, x.shape[1], groups * group, f"the columns in groups of {group}"):
        raise fail(call, f"{x.shape[1]} columns do not fill groups of {group}")
    real = TensorType((rows, groups), "float32")
    return TupleType((TensorType((rows, groups * parts, const(group)), "int8"), real, real))


def _dynamic_emit(call: graph.Call, out: TupleType, x: te.Tensor) -> tuple[te.Tensor, ...]:
    group, parts = attr(call, "group"), _parts(call)
    shape = cast(TensorType, out.fields[1]).shape
    assert shape is not None
    rows, groups = shape
    r, s = te.reduce_axis(group, "r"), te.reduce_axis(group, "s")
    steps = _steps(parts)
    amax = te.compute(
        (rows, groups),
        lambda i, g: te.te_max(expr.Call("float32", "fabs", (x[i, g * group + r.var],)), r),
        "amax",
    )

    def integer(i: PrimExpr, g: PrimExpr, k: PrimExpr) -> PrimExpr:
        largest = binary(expr.Max, amax[i, g // parts], const(1e-30, "float32"))
        inverse = binary(expr.Div, const(steps, "float32"), largest)
        whole = _round(x[i, g // parts * group + k] * inverse)
        if parts == 1:
            return expr.Cast("int8", whole)
        high = _round(whole * (1 / 128))
        is_high = expr.EQ(g % 2, const(0))
        return expr.Cast("int8", expr.Select(is_high, high, whole - high * 128.0))

    scale = te.compute((rows, groups), lambda i, g: amax[i, g] * (1 / steps), "scale")
    q = te.compute((rows, groups * parts, group), integer, "q")

    def joined(i: PrimExpr, g: PrimExpr) -> PrimExpr:
        pieces = [expr.Cast("int32", q[i, g * parts + p, s.var]) for p in range(parts)]
        return pieces[0] if parts == 1 else pieces[0] * 128 + pieces[1]

    sums = te.compute((rows, groups), lambda i, g: te.te_sum(joined(i, g), s), "sums")
    total = te.compute(
        (rows, groups), lambda i, g: expr.Cast("float32", sums[i, g]) * scale[i, g], "total"
    )
    return q, scale, total


def _steps(parts: int) -> float:
    """Steps from zero to the largest integer of either sign."""
    return 127.0 * 128 ** (parts - 1)


def _round(e: PrimExpr) -> PrimExpr:
    return expr.Call("float32", "nearbyint", (e,))


def _dynamic_quantize(data: Array, group: int, parts: int = 1) -> tuple[Array, Array, Array]:
    groups = data.shape[1] // group
    x = data.reshape(len(data), groups, group)
    steps = np.float32(_steps(parts))
    amax = np.abs(x).max(axis=-1)
    whole = np.rint(x * (steps / np.maximum(amax, np.float32(1e-30)))[..., None])
    high = np.rint(whole / 128)
    pieces = [whole] if parts == 1 else [high, whole - high * 128]
    scale = amax * np.float32(1 / steps)
    q = np.stack(pieces, axis=2).reshape(len(x), groups * parts, group).astype(np.int8)
    return q, scale, whole.sum(axis=-1) * scale


# q int8 (m, groups * parts, group), scale and total float32 (m, groups): integers, their scale,
# and the scale times their sum. One part is a group rounded to 127 steps of either sign. With two,
# 128 * high + low counts 127 * 128 steps: each group's high parts are followed by its low parts.
define(
    "dynamic_quantize",
    params("data", group=REQUIRED, parts=1),
    _dynamic_infer,
    emit=_dynamic_emit,
    reference=_dynamic_quantize,
)


def _product_infer(call: graph.Call, tys: TypesOf) -> Type:
    q, scale, total = (tensor_arg(call, tys, i) for i in range(3))
    fmt, parts, weight = format_of(call), _parts(call), _matrix_type(call, tys, 3)
    for i, (ty, dtype, ndim) in enumerate(
        ((q, "int8", 3), (scale, "float32", 2), (total, "float32", 2))
    ):
        require_dtype(call, ty, dtype, i)
        if ty.ndim not in (-1, ndim):
            raise fail(call, f"{arg_name(call, i)} must have {ndim} dimensions, is {ty}")
    if len(tensor_tuple_arg(call, tys, 3)) == 1:
        raise fail(call, "weight must be the fields of blocks, not whole blocks")
    if q.shape is None or weight.shape is None:
        return TensorType(None, "float32", 2)
    groups = weight.shape[1] // fmt.group
    rows = q.shape[0]
    wanted = ((rows, groups * parts, const(fmt.group)), (rows, groups), (rows, groups))
    for i, (ty, dims) in enumerate(zip((q, scale, total), wanted, strict=True)):
        claim = f"the shape of {arg_name(call, i)}"
        if any(differ(call, a, b, claim) for a, b in zip(ty.shape or dims, dims, strict=True)):
            raise fail(call, f"{arg_name(call, i)} must be {show(dims)}, is {ty}")
    return TensorType((rows, weight.shape[0]), "float32")


def _product_emit(
    call: graph.Call,
    out: TensorType,
    xq: te.Tensor,
    xd: te.Tensor,
    xs: te.Tensor,
    given: tuple[te.Tensor, ...],
) -> te.Tensor:
    assert out.shape is not None
    fmt, parts = format_of(call), _parts(call)
    (m, rows), groups, g = out.shape, xd.shape[1], fmt.group
    f = _fields(fmt, given)
    kb = te.reduce_axis(groups, "kb")
    q = te.compute((rows, groups, g), lambda n, b, i: fmt.q(f, n, b, i), "q")

    def dot(part: int) -> te.Tensor:
        k = te.reduce_axis(g, "k")
        return te.compute(
            (m, groups, rows),
            lambda i, b, n: te.te_sum(
                expr.Cast("int32", q[n, b, k.var])
                * expr.Cast("int32", xq[i, b * parts + part, k.var]),
                k,
            ),
            "dot",
        )

    dots = [dot(part) for part in range(parts)]

    def whole(i: PrimExpr, n: PrimExpr) -> PrimExpr:
        first = dots[0][i, kb.var, n]
        return first if parts == 1 else first * 128 + dots[1][i, kb.var, n]

    def product(i: PrimExpr, n: PrimExpr) -> te.Reduce:
        scaled = expr.Cast("float32", whole(i, n)) * (fmt.scale(f, n, kb.var) * xd[i, kb.var])
        offset = fmt.offset(f, n, kb.var) * xs[i, kb.var]
        return te.Reduce(te.SUM_OF_TERMS, (offset + scaled,), (kb,))

    return te.compute((m, rows), product, "quantized_linear")


def _quantized_linear(
    data: Array, scale: Array, total: Array, weight: tuple[Array, ...], format: str, parts: int = 1
) -> Array:
    m, count, group = data.shape
    pieces = data.reshape(m, count // parts, parts, group).astype(np.float32)
    whole = pieces[:, :, 0] if parts == 1 else pieces[:, :, 0] * 128 + pieces[:, :, 1]
    return (whole * scale[..., None]).reshape(m, count // parts * group) @ _decode(weight, format).T


# y[i, n] = sum over groups of weight scale * scale * (sum over the group of integers) + weight
# offset * total, for what `dynamic_quantize` gives of x: x @ W.T but for the rounding of x.
define(
    "quantized_linear",
    params("data scale total weight", format=REQUIRED, parts=1),
    _product_infer,
    emit=_product_emit,
    reference=_quantized_linear,
)
