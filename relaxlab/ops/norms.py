"""Normalisation over batches, groups of channels and instances."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from relaxlab.ir import expr, graph
from relaxlab.ir.expr import PrimExpr
from relaxlab.ir.op_table import REQUIRED
from relaxlab.ir.row_major import product
from relaxlab.ir.types import TensorType, TupleType, Type
from relaxlab.ops import scalar, te
from relaxlab.ops.define import (
    TypesOf,
    attr,
    common_dtype,
    define,
    fail,
    normal_axes,
    normal_axis,
    op_name,
    params,
    require_dtype,
    tensor_arg,
)
from relaxlab.ops.elementwise import in_float32
from relaxlab.ops.reduce import mean_compute, variance_compute
from relaxlab.ops.shapes import differ, impossible, simplify

Array = np.ndarray[Any, Any]
Indices = tuple[PrimExpr, ...]


def _per_channel(
    call: graph.Call, tys: TypesOf, x: TensorType, axis: str
) -> tuple[int, tuple[TensorType, ...]]:
    """The channel axis, and the arguments after the first, which have one entry per channel."""
    require_dtype(call, x, "floating point")
    given = tuple(tensor_arg(call, tys, i) for i in range(1, len(tys)))
    common_dtype(call, x, *given)
    place = normal_axis(call, attr(call, axis), x.ndim, axis) if x.ndim >= 0 else -1
    known = [t.shape[0] for t in given if t.shape is not None and t.ndim == 1]
    channels = x.shape[place] if x.shape is not None else next(iter(known), None)
    for i, t in enumerate(given, 1):
        if t.ndim not in (-1, 1):
            raise fail(call, f"argument {i} must have one dimension, is {t}")
        if t.shape is None or channels is None:
            continue
        if differ(call, channels, t.shape[0], f"the channels and argument {i}"):
            raise fail(call, f"argument {i} has {t.shape[0]} entries for {channels} channels")
    return place, given


def _scaled(
    call: graph.Call, value: PrimExpr, channel: PrimExpr, gamma: te.Tensor, beta: te.Tensor
) -> PrimExpr:
    """`value` times gamma plus beta of its channel, as far as `scale` and `center` say."""
    if attr(call, "scale"):
        value = expr.Mul(value, scalar.wide(gamma[channel]))
    return expr.Add(value, scalar.wide(beta[channel])) if attr(call, "center") else value


def _normalised(
    call: graph.Call,
    x: te.Tensor,
    statistics: tuple[te.Tensor, ...],
    row: Callable[[Indices], Indices],
    channel: int,
    gamma: te.Tensor,
    beta: te.Tensor,
) -> te.Tensor:
    """(x - mean) / sqrt(variance + epsilon), scaled per channel. `row`: which of the statistics
    belong to an element."""
    epsilon = float(attr(call, "epsilon"))

    def element(*i: PrimExpr) -> PrimExpr:
        mean, variance = (scalar.wide(t[row(i)]) for t in statistics)
        spread = scalar.call("rsqrt", expr.Add(variance, expr.const(epsilon, variance.dtype)))
        value = expr.Mul(expr.Sub(scalar.wide(x[i]), mean), spread)
        return scalar.cast(_scaled(call, value, i[channel], gamma, beta), x.dtype)

    return te.compute(x.shape, element, f"T_{op_name(call).rpartition('.')[2]}")


def _affine(y: Array, gamma: Array, beta: Array, axis: int, center: bool, scale: bool) -> Array:
    y = y * _channel(gamma, y, axis) if scale else y
    return y + _channel(beta, y, axis) if center else y


def _standard(x: Array, axes: tuple[int, ...], epsilon: float) -> Array:
    centred = x - _mean(x, axes)
    return centred / np.sqrt(_mean(centred**2, axes) + x.dtype.type(epsilon))


# --- batch_norm -------------------------------------------------------------------------------


def _batch_infer(call: graph.Call, tys: TypesOf) -> Type:
    x = tensor_arg(call, tys, 0)
    _, given = _per_channel(call, tys, x, "axis")
    if len(given) != 4:
        raise fail(call, "takes data, gamma, beta, moving_mean and moving_var")
    return TupleType((x, given[2], given[3]))


def _batch_emit(
    call: graph.Call, out: Type, x: te.Tensor, gamma: te.Tensor, beta: te.Tensor, *old: te.Tensor
) -> tuple[te.Tensor, ...]:
    axis = normal_axis(call, attr(call, "axis"), x.ndim)
    others = tuple(d for d in range(x.ndim) if d != axis)
    training = attr(call, "training")
    momentum = float(attr(call, "momentum"))
    if training:
        average = mean_compute(x, others, False)
        now = (average, variance_compute(x, others, False, average))
    else:
        now = old

    def moved(past: te.Tensor, new: te.Tensor, name: str) -> te.Tensor:
        if not training:
            return te.compute(past.shape, lambda c: past[c], name)

        def channel(c: PrimExpr) -> PrimExpr:
            keep, take = (expr.const(f, new.dtype) for f in (1 - momentum, momentum))
            kept = expr.Mul(keep, scalar.wide(past[c]))
            return scalar.cast(expr.Add(kept, expr.Mul(take, new[c])), past.dtype)

        return te.compute(past.shape, channel, name)

    y = _normalised(call, x, now, lambda i: (i[axis],), axis, gamma, beta)
    names = ("T_moving_mean", "T_moving_var")
    return (y, *(moved(p, n, name) for p, n, name in zip(old, now, names, strict=True)))


def _batch_norm(
    data: Array,
    gamma: Array,
    beta: Array,
    moving_mean: Array,
    moving_var: Array,
    axis: int,
    epsilon: float = 1e-5,
    center: bool = True,
    scale: bool = True,
    momentum: float = 0.1,
    training: bool = True,
) -> tuple[Array, ...]:
    wide = np.dtype(scalar.accumulator_of(data.dtype.name))
    x, g, b, mean, var = (t.astype(wide) for t in (data, gamma, beta, moving_mean, moving_var))
    others = tuple(d for d in range(x.ndim) if d != axis % x.ndim)
    now = (
        (_mean(x, others), _mean((x - _mean(x, others)) ** 2, others))
        if training
        else (
            _channel(mean, x, axis),
            _channel(var, x, axis),
        )
    )
    y = (x - now[0]) / np.sqrt(now[1] + wide.type(epsilon))
    y = _affine(y, g, b, axis, center, scale)
    if training:
        pairs = zip((mean, var), now, strict=True)
        mean, var = ((1 - momentum) * p + momentum * n.reshape(-1) for p, n in pairs)
    return tuple(np.asarray(t).astype(data.dtype) for t in (y, mean, var))


def _mean(x: Array, axes: tuple[int, ...]) -> Array:
    """The mean, NaN for no elements."""
    count = x.dtype.type(math.prod(x.shape[a] for a in axes))
    with np.errstate(invalid="ignore"):
        return np.sum(x, axis=axes, keepdims=True) / count


def _channel(t: Array, x: Array, axis: int) -> Array:
    return t.reshape([-1 if d == axis % x.ndim else 1 for d in range(x.ndim)])


# The moving variance takes up the mean squared distance of the batch (divided by the number of
# elements, as in TVM). `momentum` is the weight of the batch.
define(
    "nn.batch_norm",
    params(
        "data gamma beta moving_mean moving_var",
        axis=REQUIRED,
        epsilon=1e-5,
        center=True,
        scale=True,
        momentum=0.1,
        training=True,
    ),
    _batch_infer,
    emit=_batch_emit,
    reference=_batch_norm,
)


# --- instance_norm ----------------------------------------------------------------------------


def _instance_infer(call: graph.Call, tys: TypesOf) -> Type:
    x = tensor_arg(call, tys, 0)
    channel, _ = _per_channel(call, tys, x, "channel_axis")
    if x.ndim >= 0 and channel in normal_axes(call, attr(call, "axes"), x.ndim, "axes"):
        raise fail(call, f"axes {attr(call, 'axes')} hold the channel axis {channel}")
    return x


def _instance_emit(
    call: graph.Call, out: TensorType, x: te.Tensor, gamma: te.Tensor, beta: te.Tensor
) -> te.Tensor:
    channel = normal_axis(call, attr(call, "channel_axis"), x.ndim)
    axes = normal_axes(call, attr(call, "axes"), x.ndim, "axes")
    mean = mean_compute(x, axes, False)
    variance = variance_compute(x, axes, False, mean)

    def row(i: Indices) -> Indices:
        return tuple(v for d, v in enumerate(i) if d not in axes)

    return _normalised(call, x, (mean, variance), row, channel, gamma, beta)


def _instance_norm(
    data: Array,
    gamma: Array,
    beta: Array,
    channel_axis: int,
    axes: Any,
    epsilon: float = 1e-5,
    center: bool = True,
    scale: bool = True,
) -> Array:
    at = axes if isinstance(axes, tuple) else (axes,)
    return _affine(_standard(data, at, epsilon), gamma, beta, channel_axis, center, scale)


define(
    "nn.instance_norm",
    params(
        "data gamma beta",
        channel_axis=REQUIRED,
        axes=REQUIRED,
        epsilon=1e-5,
        center=True,
        scale=True,
    ),
    _instance_infer,
    emit=_instance_emit,
    reference=in_float32(_instance_norm),
)


# --- group_norm -------------------------------------------------------------------------------


def _group_size(call: graph.Call, channels: PrimExpr) -> PrimExpr:
    groups = attr(call, "num_groups")
    if not isinstance(groups, int) or groups < 1:
        raise fail(call, f"num_groups must be at least 1, is {groups}")
    claim = f"{channels} channels do not divide into {groups} groups"
    remainder = expr.EQ(expr.binary(expr.FloorMod, channels, groups), te.ZERO)
    if impossible(call, remainder, claim):
        raise fail(call, claim)
    return simplify(channels // groups)


def _group_infer(call: graph.Call, tys: TypesOf) -> Type:
    result = _instance_infer(call, tys)
    x = tensor_arg(call, tys, 0)
    if x.shape is not None:
        _group_size(call, x.shape[normal_axis(call, attr(call, "channel_axis"), x.ndim)])
    return result


def _group_emit(
    call: graph.Call, out: TensorType, x: te.Tensor, gamma: te.Tensor, beta: te.Tensor
) -> te.Tensor:
    """Statistics over `axes` and the channels of a group, for each group of each other index."""
    channel = normal_axis(call, attr(call, "channel_axis"), x.ndim)
    axes = normal_axes(call, attr(call, "axes"), x.ndim, "axes")
    size = _group_size(call, x.shape[channel])
    groups = expr.const(attr(call, "num_groups"))
    kept = tuple(d for d in range(x.ndim) if d not in axes)
    shape = tuple(groups if d == channel else x.shape[d] for d in kept)
    count = scalar.cast(product((size, *(x.shape[a] for a in axes))), _wide(x))

    def mean_of(value: Any, name: str) -> te.Tensor:
        inner = {  # in the order of memory
            d: te.reduce_axis(size, "c") if d == channel else te.reduce_axis(x.shape[d], f"r{d}")
            for d in sorted((*axes, channel))
        }

        def element(*i: PrimExpr) -> te.Reduce:
            outer = dict(zip(kept, i, strict=True))
            at = tuple(
                outer[d] * size + inner[d].var
                if d == channel
                else (inner[d].var if d in inner else outer[d])
                for d in range(x.ndim)
            )
            return te.te_sum(value(at, i), *inner.values())

        total = te.compute(shape, element, f"{name}_sum")
        return te.compute(shape, lambda *i: expr.Div(total[i], count), name)

    mean = mean_of(lambda at, _: scalar.wide(x[at]), "T_group_mean")

    def squared(at: Indices, i: Indices) -> PrimExpr:
        distance = expr.Sub(scalar.wide(x[at]), mean[i])
        return expr.Mul(distance, distance)

    variance = mean_of(squared, "T_group_variance")

    def row(i: Indices) -> Indices:
        return tuple(i[d] // size if d == channel else i[d] for d in kept)

    return _normalised(call, x, (mean, variance), row, channel, gamma, beta)


def _wide(x: te.Tensor) -> str:
    return scalar.accumulator_of(x.dtype)


def _group_norm(
    data: Array,
    gamma: Array,
    beta: Array,
    num_groups: int,
    channel_axis: int,
    axes: Any,
    epsilon: float = 1e-5,
    center: bool = True,
    scale: bool = True,
) -> Array:
    channel = channel_axis % data.ndim
    at = [a % data.ndim for a in (axes if isinstance(axes, tuple) else (axes,))]
    split = (*data.shape[:channel], num_groups, data.shape[channel] // num_groups)
    x = data.reshape(*split, *data.shape[channel + 1 :])
    over = (channel + 1, *(a + (a > channel) for a in at))
    y = _standard(x, over, epsilon).reshape(data.shape)
    return _affine(y, gamma, beta, channel, center, scale)


define(
    "nn.group_norm",
    params(
        "data gamma beta",
        num_groups=REQUIRED,
        channel_axis=REQUIRED,
        axes=REQUIRED,
        epsilon=1e-5,
        center=True,
        scale=True,
    ),
    _group_infer,
    emit=_group_emit,
    reference=in_float32(_group_norm),
)
