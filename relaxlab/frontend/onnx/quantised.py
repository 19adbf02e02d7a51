"""Rows of operators on quantised numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from relaxlab.frontend.emitter import Emitter, dtype_of, shape_of
from relaxlab.frontend.onnx.networks import conv
from relaxlab.frontend.onnx.rows import per_channel, rank, row
from relaxlab.frontend.table import Refused
from relaxlab.ir import expr, graph
from relaxlab.ir.dtypes import is_int

INTEGERS = ("int8", "uint8", "int16", "uint16", "int32")


def _over(b: Emitter, x: graph.Expr, v: Any, axis: int, block_size: int) -> Any:
    """A scale or zero point for each element of a tensor: one, one per index of an axis, or one per
    block along it."""
    if rank(v) == 0 or (rank(v) == 1 and shape_of(v)[0] == expr.const(1)):
        return b.reshape(v, ())
    if rank(v) == 1:
        return per_channel(b, v, rank(x), axis % rank(x))
    if not block_size:
        raise Refused("scales of as many dimensions as the data without a block size")
    repeated = b.repeat(v, repeats=block_size, axis=axis)
    extent = shape_of(x)[axis % rank(x)]
    return b.strided_slice(repeated, [axis % rank(x)], [expr.const(0)], [extent])


def quantized(b: Emitter, x: Any, scale: Any, zero: Any, dtype: str) -> graph.Expr:
    """round(x / scale) + zero, clipped to the range of the integers."""
    if dtype not in INTEGERS:
        raise Refused(f"quantised numbers of type {dtype}")
    wide = b.round(b.divide(b.cast(x, "float32"), b.cast(scale, "float32")))
    wide = wide if zero is None else b.add(wide, b.cast(zero, "float32"))
    limits = np.iinfo(dtype)
    return b.cast(b.clip(wide, min=float(limits.min), max=float(limits.max)), dtype)


def dequantized(b: Emitter, x: Any, scale: Any, zero: Any) -> graph.Expr:
    """(x - zero) * scale."""
    if not is_int(dtype_of(x)):
        raise Refused(f"quantised numbers of type {dtype_of(x)}")
    wide = b.cast(x, "int32")
    wide = wide if zero is None else b.subtract(wide, b.cast(zero, "int32"))
    return b.multiply(b.cast(b.cast(wide, "float32"), dtype_of(scale)), scale)


@row("QuantizeLinear")
def quantize_linear(
    b: Emitter, x: Any, scale: Any, zero: Any = None, *, axis: int = 1, block_size: int = 0,
    output_dtype: Any = None, **_: Any,
) -> graph.Expr:  # fmt: skip
    dtype = dtype_of(zero) if zero is not None else output_dtype or "uint8"
    scale = _over(b, x, scale, axis, block_size)
    zero = zero if zero is None else _over(b, x, zero, axis, block_size)
    return quantized(b, x, scale, zero, dtype)


@row("DequantizeLinear")
def dequantize_linear(
    b: Emitter, x: Any, scale: Any, zero: Any = None, *, axis: int = 1, block_size: int = 0,
    output_dtype: Any = None, **_: Any,
) -> graph.Expr:  # fmt: skip
    scale = _over(b, x, scale, axis, block_size)
    zero = zero if zero is None else _over(b, x, zero, axis, block_size)
    result = dequantized(b, x, scale, zero)
    return b.cast(result, output_dtype) if output_dtype else result


@row("MatMulInteger")
def matmul_integer(
    b: Emitter, x: Any, y: Any, x_zero: Any = None, y_zero: Any = None, **_: Any
) -> Any:
    return b.matmul(_centred(b, x, x_zero, -1), _centred(b, y, y_zero, -2))


def _centred(b: Emitter, x: Any, zero: Any, axis: int) -> graph.Expr:
    """Integers less their zero point: one, or one per row of the first operand and per column of
    the second."""
    wide = b.cast(x, "int32")
    if zero is None:
        return wide
    if rank(zero) == 1 and shape_of(zero)[0] != expr.const(1):
        zero = b.expand_dims(zero, axis=(-1,)) if axis == -1 else zero
    elif rank(zero) == 1:
        zero = b.reshape(zero, ())
    return b.subtract(wide, b.cast(zero, "int32"))


@row("QLinearMatMul")
def qlinear_matmul(
    b: Emitter, x: Any, x_scale: Any, x_zero: Any, y: Any, y_scale: Any, y_zero: Any, scale: Any,
    zero: Any, **_: Any,
) -> graph.Expr:  # fmt: skip
    total = matmul_integer(b, x, y, x_zero, y_zero)
    scales = b.multiply(b.cast(x_scale, "float32"), b.cast(y_scale, "float32"))
    return quantized(b, b.multiply(b.cast(total, "float32"), scales), scale, zero, dtype_of(zero))


@row("ConvInteger")
def conv_integer(
    b: Emitter, x: Any, w: Any, x_zero: Any = None, w_zero: Any = None, **options: Any
) -> graph.Expr:
    x = _centred(b, x, x_zero, -2)
    w = b.cast(w, "int32") if w_zero is None else b.subtract(
        b.cast(w, "int32"), b.cast(_filters(b, w, w_zero), "int32")
    )  # fmt: skip
    return conv(b, x, w, **options)


def _filters(b: Emitter, w: Any, v: Any) -> Any:
    """A value per filter, in the form of the filters."""
    scalar = rank(v) == 0 or shape_of(v)[0] == expr.const(1)
    return b.reshape(v, ()) if scalar else per_channel(b, v, rank(w), 0)


@row("QLinearConv")
def qlinear_conv(
    b: Emitter, x: Any, x_scale: Any, x_zero: Any, w: Any, w_scale: Any, w_zero: Any, scale: Any,
    zero: Any, bias: Any = None, **options: Any,
) -> graph.Expr:  # fmt: skip
    total = conv_integer(b, x, w, x_zero, w_zero, **options)
    if bias is not None:
        total = b.add(total, per_channel(b, bias, rank(total)))
    per = b.multiply(x_scale, w_scale if rank(w_scale) == 0 else b.reshape(w_scale, (-1,)))
    per = per if rank(per) == 0 or shape_of(per)[0] == expr.const(1) else per_channel(
        b, per, rank(total))  # fmt: skip
    return quantized(b, b.multiply(b.cast(total, "float32"), per), scale, zero, dtype_of(zero))
