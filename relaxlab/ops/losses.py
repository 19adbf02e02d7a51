"""Losses."""

from __future__ import annotations

from typing import Any

import numpy as np

from relaxlab.ir import expr, graph
from relaxlab.ir.expr import PrimExpr
from relaxlab.ir.types import TensorType, Type
from relaxlab.ops import scalar, te
from relaxlab.ops.define import (
    TypesOf,
    attr,
    common_dtype,
    define,
    fail,
    first_dtype,
    one_dtype,
    params,
    require_dtype,
    takes,
    tensor_arg,
    type_of_argument,
)
from relaxlab.ops.elementwise import in_float32
from relaxlab.ops.reduce import narrow
from relaxlab.ops.shapes import differ, require_elements, show, stated

Array = np.ndarray[Any, Any]
Indices = tuple[PrimExpr, ...]


# --- cross_entropy_with_logits ----------------------------------------------------------------


def _entropy_infer(call: graph.Call, tys: TypesOf) -> Type:
    a, b = tensor_arg(call, tys, 0), tensor_arg(call, tys, 1)
    dtype = first_dtype(call, a, b)
    if a.ndim >= 0 and b.ndim >= 0 and a.ndim != b.ndim:
        raise fail(call, f"predictions and labels must have one shape: {a} and {b}")
    for x, y in zip(a.shape or (), b.shape or (), strict=False):
        if differ(call, x, y, "the extents of predictions and labels"):
            raise fail(call, f"predictions and labels must have one shape: {a} and {b}")
    return TensorType((), dtype)


def _entropy_emit(call: graph.Call, out: TensorType, a: te.Tensor, b: te.Tensor) -> te.Tensor:
    axes = tuple(te.reduce_axis(d, f"r{i}") for i, d in enumerate(a.shape))
    at = tuple(r.var for r in axes)

    def term() -> PrimExpr | te.Reduce:
        value = expr.Mul(scalar.wide(a[at]), scalar.wide(b[at]))
        return te.te_sum(value, *axes) if axes else value

    total = te.compute((), term, "T_cross_entropy_sum")
    batch = a.shape[0] if a.ndim > 1 else expr.const(1)

    def result() -> PrimExpr:
        mean = expr.Div(scalar.negative(total[()]), scalar.cast(batch, total.dtype))
        return scalar.cast(mean, a.dtype)

    return te.compute((), result, "T_cross_entropy")


def _entropy(predictions: Array, labels: Array) -> Array:
    batch = predictions.shape[0] if predictions.ndim > 1 else 1
    total = (predictions * labels).sum(dtype=predictions.dtype)
    with np.errstate(invalid="ignore"):
        return np.asarray(-total / predictions.dtype.type(batch))


# -sum(predictions * labels) / batch size; predictions are logarithms of probabilities.
define(
    "nn.cross_entropy_with_logits",
    params("predictions labels"),
    _entropy_infer,
    needs=[one_dtype(), takes("floating point")],
    emit=_entropy_emit,
    reference=in_float32(_entropy),
)


# --- nll_loss ---------------------------------------------------------------------------------


def _check_nll(call: graph.Call, tys: TypesOf, first: int) -> tuple[TensorType, TensorType]:
    """The types of predictions and targets, which are arguments `first` and `first + 1`."""
    given = [stated(tensor_arg(call, tys, i)) for i in range(first, len(tys))]
    predictions, targets, *weights = given
    common_dtype(call, predictions, *weights)
    require_dtype(call, targets, "integer", first + 1)
    if attr(call, "reduction") not in ("none", "mean", "sum"):
        known = 'use "none", "mean" or "sum"'
        raise fail(call, f"reduction {attr(call, 'reduction')!r} is not known", known)
    if predictions.ndim == 0:
        raise fail(call, "predictions must have a dimension of classes")
    if predictions.ndim >= 0 and targets.ndim not in (-1, predictions.ndim - 1):
        raise fail(call, f"targets must have one dimension less than predictions, is {targets}")
    if predictions.shape is None:
        return predictions, targets
    classes, rest = _classes(predictions.shape)
    require_elements(call, (classes,), rest)
    for a, b in zip(rest, targets.shape or (), strict=False):
        if differ(call, a, b, "the extents of predictions and targets"):
            raise fail(call, f"targets must have shape {show(rest)}, is {targets}")
    for w in weights:
        if w.ndim not in (-1, 1):
            raise fail(call, f"weights must have one dimension, is {w}")
        if w.shape is not None and differ(call, classes, w.shape[0], "the weights and classes"):
            raise fail(call, f"there are {w.shape[0]} weights for {classes} classes")
    return predictions, targets


def _classes(shape: tuple[PrimExpr, ...]) -> tuple[PrimExpr, tuple[PrimExpr, ...]]:
    """The number of classes and the other dimensions: (C,) or (N, C, ...)."""
    return (shape[0], ()) if len(shape) == 1 else (shape[1], (shape[0], *shape[2:]))


def _nll_infer(call: graph.Call, tys: TypesOf) -> Type:
    predictions, targets = _check_nll(call, tys, 0)
    if attr(call, "reduction") != "none":
        return TensorType((), predictions.dtype)
    shape = None if predictions.shape is None else _classes(predictions.shape)[1]
    ndim = predictions.ndim - 1 if predictions.ndim >= 0 else targets.ndim
    return TensorType(shape if shape is not None else targets.shape, predictions.dtype, ndim)


def _weight(
    call: graph.Call, target: PrimExpr, classes: PrimExpr, weights: te.Tensor | None, dtype: str
) -> PrimExpr:
    """Return the weight of a target: zero for `ignore_index`."""
    ignored = expr.EQ(target, expr.const(attr(call, "ignore_index")))
    weight: PrimExpr = expr.const(1, dtype)
    if weights is not None:
        weight = scalar.cast(weights[scalar.clamp(target, 0, classes - 1)], dtype)
    return expr.Select(ignored, expr.const(0, dtype), weight)


def _nll_emit(
    call: graph.Call,
    out: TensorType,
    predictions: te.Tensor,
    targets: te.Tensor,
    weights: te.Tensor | None = None,
) -> te.Tensor:
    classes, rest = _classes(predictions.shape)
    wide = scalar.accumulator_of(predictions.dtype)

    def weight(*i: PrimExpr) -> PrimExpr:
        return _weight(call, scalar.cast(targets[i], "int64"), classes, weights, wide)

    def loss(*i: PrimExpr) -> PrimExpr:
        target = scalar.clamp(scalar.cast(targets[i], "int64"), 0, classes - 1)
        at = (target,) if predictions.ndim == 1 else (i[0], target, *i[1:])
        return scalar.negative(expr.Mul(scalar.wide(predictions[at]), weight(*i)))

    losses = te.compute(rest, loss, "T_nll")
    if attr(call, "reduction") == "none":
        return narrow(losses, predictions.dtype)
    total = _total(losses, "T_nll_sum")
    if attr(call, "reduction") == "sum":
        return narrow(total, predictions.dtype)
    divisor = _total(te.compute(rest, weight, "T_nll_weight"), "T_nll_weight_sum")

    def mean() -> PrimExpr:
        return scalar.cast(expr.Div(total[()], divisor[()]), predictions.dtype)

    return te.compute((), mean, "T_nll_mean")


def _total(x: te.Tensor, name: str) -> te.Tensor:
    """The sum of all elements."""
    if x.ndim == 0:
        return x
    axes = tuple(te.reduce_axis(d, f"r{i}") for i, d in enumerate(x.shape))
    return te.compute((), lambda: te.te_sum(x[tuple(a.var for a in axes)], *axes), name)


def _nll_parts(
    predictions: Array, targets: Array, weights: Array | None, ignore_index: int
) -> tuple[Array, Array]:
    """Chosen logarithms and weights of each target, in the shape of the targets."""
    classes = predictions if predictions.ndim == 1 else np.moveaxis(predictions, 1, -1)
    at = np.clip(targets.astype(np.int64), 0, classes.shape[-1] - 1)
    chosen = np.take_along_axis(classes, at[..., None], -1)[..., 0]
    weight = np.ones_like(chosen) if weights is None else weights[at]
    return chosen, np.where(targets == ignore_index, 0, weight).astype(chosen.dtype)


def _nll(
    predictions: Array,
    targets: Array,
    weights: Array | None = None,
    reduction: str = "mean",
    ignore_index: int = -100,
) -> Array:
    wide = scalar.accumulator_of(predictions.dtype.name)
    tables = (None if t is None else t.astype(wide) for t in (predictions, weights))
    logs, factors = tables
    assert logs is not None
    chosen, weight = _nll_parts(logs, targets, factors, ignore_index)
    losses = -chosen * weight
    with np.errstate(all="ignore"):
        result = {
            "none": losses,
            "sum": losses.sum(dtype=wide),
            "mean": losses.sum(dtype=wide) / weight.sum(dtype=wide),
        }[reduction]
    return np.asarray(result).astype(predictions.dtype)


# predictions: logarithms, (C,) or (N, C, d1, ...); targets: classes, () or (N, d1, ...).
# loss = -weights[target] * predictions[target], 0 for `ignore_index`; the mean is divided by
# the sum of the weights.
define(
    "nn.nll_loss",
    params("predictions targets weights?", reduction="mean", ignore_index=-100),
    _nll_infer,
    needs=[takes("floating point")],
    emit=_nll_emit,
    reference=_nll,
)


# --- nll_loss_backward ------------------------------------------------------------------------


def _nll_backward_needs(call: graph.Call, tys: TypesOf) -> None:
    _, targets = _check_nll(call, tys, 1)
    grad = tensor_arg(call, tys, 0)
    wanted = targets.ndim if attr(call, "reduction") == "none" else 0
    if grad.ndim >= 0 and wanted >= 0 and grad.ndim != wanted:
        raise fail(call, f"output_grad must have {wanted} dimensions, is {grad}")


def _nll_backward_emit(
    call: graph.Call,
    out: TensorType,
    grad: te.Tensor,
    predictions: te.Tensor,
    targets: te.Tensor,
    weights: te.Tensor | None = None,
) -> te.Tensor:
    """-weight * gradient at the target's class, 0 elsewhere."""
    classes, rest = _classes(predictions.shape)
    wide = scalar.accumulator_of(predictions.dtype)
    reduction = attr(call, "reduction")

    def weight(*i: PrimExpr) -> PrimExpr:
        return _weight(call, scalar.cast(targets[i], "int64"), classes, weights, wide)

    divisor: te.Tensor | None = None
    if reduction == "mean":
        divisor = _total(te.compute(rest, weight, "T_nll_weight"), "T_nll_weight_sum")

    def element(*i: PrimExpr) -> PrimExpr:
        c, at = (i[0], ()) if predictions.ndim == 1 else (i[1], (i[0], *i[2:]))
        back = scalar.wide(grad[at if reduction == "none" else ()])
        if divisor is not None:
            back = expr.Div(back, divisor[()])
        value = scalar.negative(expr.Mul(back, weight(*at)))
        hit = expr.EQ(scalar.cast(targets[at], "int64"), c)
        return scalar.cast(expr.Select(hit, value, expr.const(0, wide)), predictions.dtype)

    return te.compute(predictions.shape, element, "T_nll_loss_backward")


def _nll_backward(
    output_grad: Array,
    predictions: Array,
    targets: Array,
    weights: Array | None = None,
    reduction: str = "mean",
    ignore_index: int = -100,
) -> Array:
    wide = scalar.accumulator_of(predictions.dtype.name)
    factors = None if weights is None else weights.astype(wide)
    _, weight = _nll_parts(predictions.astype(wide), targets, factors, ignore_index)
    with np.errstate(all="ignore"):
        back = output_grad.astype(wide)
        back = back / weight.sum(dtype=wide) if reduction == "mean" else back
        at, value = targets[..., None], (-back * weight)[..., None]
        count = predictions.shape[0 if predictions.ndim == 1 else 1]
        result = np.where(at == np.arange(count), value, 0)
    result = result if predictions.ndim == 1 else np.moveaxis(result, -1, 1)
    return result.astype(predictions.dtype)


define(
    "grad.nll_loss_backward",
    params("output_grad predictions targets weights?", reduction="mean", ignore_index=-100),
    type_of_argument(1),
    needs=[takes("floating point", 1), _nll_backward_needs, one_dtype(0, 1)],
    emit=_nll_backward_emit,
    reference=_nll_backward,
)
