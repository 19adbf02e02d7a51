"""Matrix products."""

from __future__ import annotations

from typing import Any

import numpy as np

from relaxlab.ir import expr, graph
from relaxlab.ir.dtypes import numpy_dtype
from relaxlab.ir.expr import PrimExpr
from relaxlab.ir.op_table import REQUIRED
from relaxlab.ir.types import TensorType, Type
from relaxlab.ops import scalar, te
from relaxlab.ops.datatype import dtype_attr
from relaxlab.ops.define import (
    TypesOf,
    attr,
    common_dtype,
    define,
    fail,
    first_dtype,
    numbers,
    one_dtype,
    params,
    tensor_arg,
    tensor_tuple_arg,
)
from relaxlab.ops.reduce import narrow
from relaxlab.ops.shapes import ONE, Shape, broadcast_index, broadcast_types, differ, show

Array = np.ndarray[Any, Any]


def _product_dtype(call: graph.Call, a: TensorType, b: TensorType) -> str | None:
    """The dtype of a product; with `out_dtype`, those of the factors may differ."""
    return dtype_attr(call, "out_dtype") or first_dtype(call, a, b)


def _check_inner(call: graph.Call, a: TensorType, b: TensorType, x: PrimExpr, y: PrimExpr) -> None:
    if differ(call, x, y, "the contracted dimensions"):
        assert a.shape is not None and b.shape is not None
        raise fail(
            call,
            f"shapes {show(a.shape)} and {show(b.shape)} cannot be multiplied: the contracted "
            f"dimensions are {x} and {y}",
            "transpose one of them with R.permute_dims",
        )


def sum_of_products(
    shape: Shape,
    inner: PrimExpr,
    factors: Any,
    out_dtype: str,
    name: str,
) -> te.Tensor:
    """The tensor of sums over k in `inner` of `factors(*indices, k)` (a pair), accumulated in
    float32 for half-precision results and rounded at the end."""
    accumulator = scalar.accumulator_of(out_dtype)
    k = te.reduce_axis(inner, "k")

    def element(*i: PrimExpr) -> te.Reduce:
        a, b = (scalar.cast(f, accumulator) for f in factors(i, k.var))
        return te.te_sum(expr.Mul(a, b), k)

    result = te.compute(shape, element, name)
    if accumulator == out_dtype:
        return result
    return te.compute(shape, lambda *i: scalar.cast(result[i], out_dtype), f"{name}_cast")


# --- matmul -----------------------------------------------------------------------------------


def _matmul_infer(call: graph.Call, tys: TypesOf) -> Type:
    a, b = tensor_arg(call, tys, 0), tensor_arg(call, tys, 1)
    dtype = _product_dtype(call, a, b)
    if 0 in (a.ndim, b.ndim):
        raise fail(call, f"takes tensors of at least one dimension, got {a} and {b}")
    if a.ndim < 0 or b.ndim < 0:
        return TensorType(None, dtype)
    ndim = max(a.ndim, b.ndim, 2) - (a.ndim == 1) - (b.ndim == 1)
    if a.shape is None or b.shape is None:
        return TensorType(None, dtype, ndim)
    _check_inner(call, a, b, a.shape[-1], b.shape[-2 if b.ndim > 1 else -1])
    batch = broadcast_types(call, None, TensorType(a.shape[:-2]), TensorType(b.shape[:-2]))
    if batch.shape is None:
        return TensorType(None, dtype, ndim)
    rows = a.shape[-2:-1]
    columns = b.shape[-1:] if b.ndim > 1 else ()
    return TensorType((*batch.shape, *rows, *columns), dtype)


def _matmul_emit(call: graph.Call, out: TensorType, a: te.Tensor, b: te.Tensor) -> te.Tensor:
    assert out.shape is not None and out.dtype is not None
    rows, columns = int(a.ndim > 1), int(b.ndim > 1)
    batch = out.shape[: len(out.shape) - rows - columns]

    def factors(i: tuple[PrimExpr, ...], k: PrimExpr) -> tuple[PrimExpr, PrimExpr]:
        outer = i[: len(batch)]
        left = (*broadcast_index(outer, a.shape[:-2], batch), *i[len(batch) :][:rows], k)
        column = i[len(batch) + rows :]
        right = (*broadcast_index(outer, b.shape[:-2], batch), k, *column)
        return a[left], b[right]

    return sum_of_products(out.shape, a.shape[-1], factors, out.dtype, "T_matmul")


def _matmul(a: Array, b: Array, out_dtype: str | None = None) -> Array:
    out = numpy_dtype(out_dtype) if out_dtype else a.dtype
    wide = np.dtype(scalar.accumulator_of(out.name))
    return np.matmul(a.astype(wide), b.astype(wide)).astype(out)


define(
    "matmul",
    params("x1 x2", out_dtype=None),
    _matmul_infer,
    needs=[numbers],
    emit=_matmul_emit,
    reference=_matmul,
    traits=["product"],
)


# --- linear -----------------------------------------------------------------------------------


def _linear_infer(call: graph.Call, tys: TypesOf) -> Type:
    x, w = tensor_arg(call, tys, 0), tensor_arg(call, tys, 1)
    dtype = _product_dtype(call, x, w)
    if w.ndim not in (-1, 2) or x.ndim == 0:
        raise fail(call, f"weight must be (out_features, in_features), is {w}; data is {x}")
    if x.shape is None or w.shape is None:
        return TensorType(None, dtype, x.ndim)
    _check_inner(call, x, w, x.shape[-1], w.shape[1])
    result = TensorType((*x.shape[:-1], w.shape[0]), dtype)
    if len(tys) < 3:
        return result
    bias = tensor_arg(call, tys, 2)
    if bias.ndim not in (-1, 1):
        raise fail(call, f"bias must be (out_features,), is {bias}")
    common_dtype(call, result, bias)
    return broadcast_types(call, dtype, result, bias)


def _linear_emit(
    call: graph.Call,
    out: TensorType,
    x: te.Tensor,
    w: te.Tensor,
    bias: te.Tensor | None = None,
) -> te.Tensor:
    assert out.shape is not None and out.dtype is not None

    def factors(i: tuple[PrimExpr, ...], k: PrimExpr) -> tuple[PrimExpr, PrimExpr]:
        return x[(*i[:-1], k)], w[i[-1], k]

    y = sum_of_products(out.shape, x.shape[-1], factors, out.dtype, "T_linear")
    if bias is None:
        return y
    return te.compute(
        out.shape,
        lambda *i: expr.Add(y[i], bias[broadcast_index(i, bias.shape, y.shape)]),
        "T_add",
    )


def _linear(
    data: Array, weight: Array, bias: Array | None = None, out_dtype: str | None = None
) -> Array:
    y = _matmul(data, weight.T, out_dtype)
    return y if bias is None else (y + bias).astype(y.dtype)


define(
    "linear",
    params("data weight bias?", out_dtype=None),
    _linear_infer,
    needs=[numbers],
    emit=_linear_emit,
    reference=_linear,
    traits=["product"],
)


# --- outer ------------------------------------------------------------------------------------


def _outer_infer(call: graph.Call, tys: TypesOf) -> Type:
    a, b = tensor_arg(call, tys, 0), tensor_arg(call, tys, 1)
    dtype = a.dtype
    for t in (a, b):
        if t.ndim not in (-1, 1):
            raise fail(call, f"takes tensors of one dimension, got {t}")
    if a.shape is None or b.shape is None:
        return TensorType(None, dtype, 2)
    return TensorType((*a.shape, *b.shape), dtype)


def _outer_emit(call: graph.Call, out: TensorType, a: te.Tensor, b: te.Tensor) -> te.Tensor:
    assert out.shape is not None
    return te.compute(out.shape, lambda i, j: expr.Mul(a[i], b[j]), "T_outer")


define(
    "outer",
    params("x1 x2"),
    _outer_infer,
    needs=[one_dtype()],
    emit=_outer_emit,
    reference=np.outer,
)


# --- einsum -----------------------------------------------------------------------------------


def _einsum_labels(call: graph.Call, ndims: list[int]) -> tuple[list[list[str]], list[str]]:
    """The labels of each operand's dimensions and of the result's; the dimensions of an ellipsis
    are called .0, .1, … from the last one back."""
    text = str(attr(call, "subscripts")).replace(" ", "")
    left, arrow, right = text.partition("->")
    terms = left.split(",")
    if len(terms) != len(ndims):
        raise fail(call, f"subscripts {text!r} name {len(terms)} operands, given {len(ndims)}")
    inputs = [_labels(call, t, n) for t, n in zip(terms, ndims, strict=True)]
    used = [label for labels in inputs for label in labels]
    dots = sorted({u for u in used if u[0] == "."}, key=lambda u: -int(u[1:]))
    if arrow:
        output = _labels(call, right, len(dots) + len(right.replace("...", "")))
    else:
        output = dots + sorted(u for u in set(used) if used.count(u) == 1 and u[0] != ".")
    unknown = [label for label in output if label not in used]
    if unknown or len(set(output)) != len(output):
        raise fail(call, f"the result {right!r} of {text!r} must name operand dimensions once")
    return inputs, output


def _labels(call: graph.Call, term: str, ndim: int) -> list[str]:
    before, dots, after = term.partition("...")
    hidden = ndim - len(before) - len(after)
    if not (before + after).isalpha() and before + after:
        raise fail(call, f"subscripts {term!r} must be letters and at most one '...'")
    if hidden < 0 or (hidden and not dots):
        raise fail(call, f"subscripts {term!r} do not fit an operand with {ndim} dimensions")
    return [*before, *(f".{d}" for d in reversed(range(hidden))), *after]


def _einsum_extents(
    call: graph.Call, inputs: list[list[str]], shapes: list[Shape]
) -> dict[str, PrimExpr]:
    extents: dict[str, PrimExpr] = {}
    for labels, shape in zip(inputs, shapes, strict=True):
        for label, extent in zip(labels, shape, strict=True):
            known = extents.setdefault(label, extent)
            if label[0] == "." and known == ONE:
                extents[label] = extent
            elif not (label[0] == "." and extent == ONE) and differ(
                call, known, extent, f"the dimensions {label!r}"
            ):
                raise fail(call, f"dimension {label!r} is {known} here and {extent} there")
    return extents


def _einsum_infer(call: graph.Call, tys: TypesOf) -> Type:
    fields = tensor_tuple_arg(call, tys, 0)
    dtype = common_dtype(call, *fields)
    if any(f.ndim < 0 for f in fields):
        return TensorType(None, dtype)
    inputs, output = _einsum_labels(call, [f.ndim for f in fields])
    shapes = [f.shape for f in fields if f.shape is not None]
    if len(shapes) < len(fields):
        return TensorType(None, dtype, len(output))
    extents = _einsum_extents(call, inputs, shapes)
    return TensorType(tuple(extents[label] for label in output), dtype)


def _einsum_emit(call: graph.Call, out: TensorType, xs: tuple[te.Tensor, ...]) -> te.Tensor:
    assert out.shape is not None
    inputs, output = _einsum_labels(call, [x.ndim for x in xs])
    extents = _einsum_extents(call, inputs, [x.shape for x in xs])
    summed = {
        u: te.reduce_axis(extents[u], f"r{n}") for n, u in enumerate(extents) if u not in output
    }

    def element(*i: PrimExpr) -> PrimExpr | te.Reduce:
        place = dict(zip(output, i, strict=True)) | {u: a.var for u, a in summed.items()}
        reads = [
            scalar.wide(
                x[
                    tuple(
                        te.ZERO if d == ONE else place[u]
                        for u, d in zip(labels, x.shape, strict=True)
                    )
                ]
            )
            for x, labels in zip(xs, inputs, strict=True)
        ]
        value = reads[0]
        for read in reads[1:]:
            value = expr.Mul(value, read)
        return te.te_sum(value, *summed.values()) if summed else value

    return narrow(te.compute(out.shape, element, "T_einsum"), xs[0].dtype)


def _einsum(operands: tuple[Array, ...], subscripts: str) -> Array:
    wide = [x.astype(scalar.accumulator_of(x.dtype.name)) for x in operands]
    return np.asarray(np.einsum(subscripts, *wide)).astype(operands[0].dtype)


define(
    "einsum",
    params("operands", subscripts=REQUIRED),
    _einsum_infer,
    needs=[numbers],
    emit=_einsum_emit,
    reference=_einsum,
    traits=["product"],
)
