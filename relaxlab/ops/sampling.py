"""Drawing from distributions with uniform numbers that the caller provides."""

from __future__ import annotations

from typing import Any

import numpy as np

from relaxlab.ir import expr, graph, loops
from relaxlab.ir.dtypes import numpy_dtype
from relaxlab.ir.expr import PrimExpr
from relaxlab.ir.types import TensorType, Type
from relaxlab.ops import scalar, te
from relaxlab.ops.datatype import dtype_attr
from relaxlab.ops.define import (
    TypesOf,
    attr,
    define,
    fail,
    params,
    require_dtype,
    tensor_arg,
)
from relaxlab.ops.reduce import narrow, scan_compute
from relaxlab.ops.search_sort import argsort_compute
from relaxlab.ops.shapes import ONE, differ, require_elements

Array = np.ndarray[Any, Any]
LE, LT = expr.LE, expr.LT


# --- multinomial_from_uniform -----------------------------------------------------------------


def _multinomial_infer(call: graph.Call, tys: TypesOf) -> Type:
    prob, uniform, rows = (tensor_arg(call, tys, i) for i in range(3))
    require_dtype(call, prob, "floating point")
    require_dtype(call, uniform, "floating point", 1)
    require_dtype(call, rows, "integer", 2)
    for i, t in enumerate((prob, uniform, rows)):
        if t.ndim not in (-1, 2):
            raise fail(call, f"argument {i} must have two dimensions, is {t}")
    for i, t in enumerate((uniform, rows), 1):
        if t.shape is not None and differ(call, t.shape[1], ONE, "the row length and 1"):
            raise fail(call, f"argument {i} must have shape (n, 1), is {t}")
    pair = [t.shape[0] for t in (uniform, rows) if t.shape]
    if len(pair) == 2 and differ(call, pair[0], pair[1], "the numbers of draws"):
        raise fail(call, f"{uniform} and {rows} must have one row per draw")
    if prob.shape is not None and uniform.shape is not None:
        require_elements(call, prob.shape, uniform.shape)
    return TensorType(uniform.shape, dtype_attr(call), 2)


def _multinomial_emit(
    call: graph.Call, out: TensorType, prob: te.Tensor, uniform: te.Tensor, rows: te.Tensor
) -> te.Tensor:
    assert out.shape is not None
    sums = scan_compute(prob, 1, "float32", te.SUM, False, "cumsum")
    count = prob.shape[1]
    v = te.reduce_axis(count, "v")

    def element(i: PrimExpr, j: PrimExpr) -> te.Reduce:
        row = scalar.clamp(scalar.cast(rows[i, j], "int64"), 0, prob.shape[0] - 1)
        drawn = scalar.cast(uniform[i, j], "float32")
        total = sums[row, count - 1]
        # The first class whose running sum exceeds the draw; the last one when none does.
        missed = expr.And(LE(sums[row, v.var], drawn * total), LT(v.var, count - 1))
        return te.te_sum(expr.Select(missed, ONE, te.ZERO), v)

    classes = te.compute(out.shape, element, "T_multinomial")
    return narrow(classes, attr(call, "dtype"))


def _multinomial(
    prob: Array, uniform_sample: Array, sample_indices: Array, dtype: str = "int64"
) -> Array:
    rows = np.clip(sample_indices[:, 0].astype(np.int64), 0, prob.shape[0] - 1)
    sums = np.cumsum(prob.astype(np.float32), axis=1, dtype=np.float32)[rows]
    drawn = uniform_sample.astype(np.float32) * sums[:, -1:]
    classes = (sums[:, :-1] <= drawn).sum(1, keepdims=True)
    return classes.astype(numpy_dtype(dtype))


define(
    "multinomial_from_uniform",
    params("prob uniform_sample sample_indices", dtype="int64"),
    _multinomial_infer,
    emit=_multinomial_emit,
    reference=_multinomial,
)


# --- softmax_with_temperature -----------------------------------------------------------------


def _per_row(call: graph.Call, tys: TypesOf) -> TensorType:
    """The type of (rows, classes), after checks that the other arguments are (rows, 1)."""
    x = tensor_arg(call, tys, 0)
    require_dtype(call, x, "floating point")
    if x.ndim not in (-1, 2):
        raise fail(call, f"argument 0 must be (rows, classes), is {x}")
    for i in range(1, len(tys)):
        t = tensor_arg(call, tys, i)
        if t.ndim not in (-1, 2):
            raise fail(call, f"argument {i} must have shape (rows, 1), is {t}")
        wanted = () if x.shape is None else (x.shape[0], ONE)
        for a, b in zip(wanted, t.shape or (), strict=False):
            if differ(call, a, b, f"the rows of argument {i}"):
                raise fail(call, f"argument {i} must have shape (rows, 1), is {t}")
    return x


def _temperature_infer(call: graph.Call, tys: TypesOf) -> Type:
    x = _per_row(call, tys)
    require_dtype(call, tensor_arg(call, tys, 1), "floating point", 1)
    return x


def _temperature_emit(
    call: graph.Call, out: TensorType, x: te.Tensor, temperature: te.Tensor
) -> te.Tensor:
    rows, classes = x.shape
    name, m, v = "T_softmax_with_temperature", te.reduce_axis(classes, "m"), te.reduce_axis(classes)
    best = te.compute((rows,), lambda i: te.te_max(scalar.wide(x[i, m.var]), m), f"{name}_max")

    def candidate(i: PrimExpr, j: PrimExpr) -> PrimExpr:
        value = scalar.wide(x[i, j])
        is_best = expr.Or(expr.EQ(value, best[i]), scalar.isnan(value))
        return expr.Select(is_best, j, expr.highest(j.dtype))

    # Two reductions with vectors of partial results, where one of pairs is element by element.
    place = te.compute((rows,), lambda i: te.te_min(candidate(i, v.var), v), f"{name}_argmax")

    def weight(i: PrimExpr, j: PrimExpr) -> PrimExpr:
        degree = scalar.cast(temperature[i, 0], best.dtype)
        zero, one = expr.const(0, best.dtype), expr.const(1, best.dtype)
        cold = expr.EQ(degree, zero)
        gap = expr.Sub(scalar.wide(x[i, j]), best[i])
        exp = scalar.call("exp", expr.Div(gap, expr.Select(cold, one, degree)))
        return expr.Select(cold, expr.Select(expr.EQ(place[i], j), one, zero), exp)

    weights = te.compute(x.shape, weight, f"{name}_exp")
    r = te.reduce_axis(classes, "v")
    total = te.compute((rows,), lambda i: te.te_sum(weights[i, r.var], r), f"{name}_expsum")
    return te.compute(
        x.shape, lambda i, j: scalar.cast(expr.Div(weights[i, j], total[i]), x.dtype), name
    )


def _softmax_with_temperature(logits: Array, temperature: Array) -> Array:
    if not logits.size:
        return logits.copy()
    x = logits.astype(scalar.accumulator_of(logits.dtype.name))
    t = temperature.astype(x.dtype)
    cold = np.arange(x.shape[1]) == x.argmax(1)[:, None]
    gap = x - x.max(1, keepdims=True)
    weights = np.where(t == 0, cold, np.exp(gap / np.where(t == 0, 1, t))).astype(x.dtype)
    return (weights / weights.sum(1, keepdims=True)).astype(logits.dtype)


# softmax(logits / temperature); all of it on the first of the largest where temperature is 0.
define(
    "softmax_with_temperature",
    params("logits temperature"),
    _temperature_infer,
    emit=_temperature_emit,
    reference=_softmax_with_temperature,
)


# --- renormalize_top_p_top_k ------------------------------------------------------------------


def _top_infer(call: graph.Call, tys: TypesOf) -> Type:
    x = _per_row(call, tys)
    require_dtype(call, tensor_arg(call, tys, 1), "floating point", 1)
    require_dtype(call, tensor_arg(call, tys, 2), "integer", 2)
    return x


def _top_emit(
    call: graph.Call, out: TensorType, prob: te.Tensor, top_p: te.Tensor, top_k: te.Tensor
) -> te.Tensor:
    rows, classes = prob.shape
    order = argsort_compute(prob, 1, True)
    ranked = te.compute(
        prob.shape, lambda i, j: scalar.cast(prob[i, order[i, j]], "float32"), "T_ranked"
    )
    sums = scan_compute(ranked, 1, "float32", te.SUM, False, "cumsum")
    r = te.reduce_axis(classes, "r")

    def limit(i: PrimExpr) -> PrimExpr:
        k = scalar.cast(top_k[i, 0], "int64")
        return expr.Select(LE(k, te.ZERO), classes, expr.binary(expr.Min, k, classes))

    def counted(i: PrimExpr) -> te.Reduce:
        wanted = expr.Mul(scalar.cast(top_p[i, 0], "float32"), sums[i, limit(i) - 1])
        short = expr.if_then_else(
            expr.EQ(r.var, te.ZERO), te.TRUE, LT(sums[i, r.var - 1], wanted)
        )
        return te.te_sum(expr.Select(expr.And(LT(r.var, limit(i)), short), ONE, te.ZERO), r)

    kept = te.compute((rows,), counted, "T_kept")

    def body(row: tuple[expr.Var, ...], b: dict[te.Tensor, loops.Buffer]) -> loops.Stmt:
        (i,) = row
        rank = expr.Var("rank")

        def load(t: te.Tensor, *at: PrimExpr) -> PrimExpr:
            return loops.BufferLoad(b[t], at)

        count = load(kept, i)
        share = expr.Div(load(ranked, i, rank), load(sums, i, count - 1))
        value = expr.if_then_else(LT(rank, count), share, expr.const(0.0, "float32"))
        store = loops.BufferStore(
            b[result], scalar.cast(value, prob.dtype), (i, load(order, i, rank))
        )
        return loops.For(rank, te.ZERO, classes, "serial", store)

    name = "T_renormalize"
    inputs = [order, ranked, sums, kept]
    (result,) = te.compute_rows((rows,), [(name, prob.shape, prob.dtype)], inputs, body, name)
    return result


def _renormalize(prob: Array, top_p: Array, top_k: Array) -> Array:
    if not prob.size:
        return prob.copy()
    classes = prob.shape[1]
    wide = prob.astype(np.float32)
    order = np.argsort(-wide, axis=1, kind="stable")
    ranked = np.take_along_axis(wide, order, 1)
    sums = np.cumsum(ranked, axis=1, dtype=np.float32)
    k = np.where(top_k <= 0, classes, np.minimum(top_k, classes)).astype(np.int64)
    wanted = top_p.astype(np.float32) * np.take_along_axis(sums, k - 1, 1)
    before = np.concatenate([np.zeros_like(sums[:, :1]), sums[:, :-1]], 1)
    rank = np.arange(classes)
    kept = (rank < k) & ((rank == 0) | (before < wanted))
    total = np.take_along_axis(sums, kept.sum(1, keepdims=True) - 1, 1)
    result = np.zeros_like(wide)
    np.put_along_axis(result, order, np.where(kept, ranked / total, 0), 1)
    return result.astype(prob.dtype)


# Keeps the `top_k` most likely classes (0 or less: all), of these the fewest whose share reaches
# `top_p` (at least one), and scales what is kept to a sum of 1. Equal ones: the lower class first.
define(
    "renormalize_top_p_top_k",
    params("prob top_p top_k"),
    _top_infer,
    emit=_top_emit,
    reference=_renormalize,
)
