"""Neural-network operators (`R.nn.…`)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from relaxlab.ir import expr, graph
from relaxlab.ir.expr import PrimExpr
from relaxlab.ir.op_table import REQUIRED, Trait
from relaxlab.ir.types import TensorType, TupleType, Type
from relaxlab.ops import scalar, te
from relaxlab.ops.define import (
    Builder,
    Infer,
    Need,
    TypesOf,
    attr,
    builder,
    common_dtype,
    define,
    fail,
    normal_axes,
    normal_axis,
    number,
    one_dtype,
    params,
    require_dtype,
    takes,
    tensor_arg,
    type_of_argument,
)
from relaxlab.ops.elementwise import elementwise, in_float32, on_arrays
from relaxlab.ops.reduce import (
    Indices,
    count_of,
    joined,
    mean_compute,
    reduce_axes,
    reduced_shape,
    reduction,
    variance_compute,
)
from relaxlab.ops.shapes import ONE, differ, impossible, show

Array = np.ndarray[Any, Any]


def __getattr__(name: str) -> Builder:
    return builder(f"nn.{name}")


# --- Activations ------------------------------------------------------------------------------


def _float_infer(call: graph.Call, tys: TypesOf) -> Type:
    x = tensor_arg(call, tys, 0)
    require_dtype(call, x, "floating point")
    return x


def _activation(
    name: str,
    fn: Callable[..., PrimExpr],
    reference: Callable[..., Any],
    infer: Infer = _float_infer,
    needs: Iterable[Need] = (),
    traits: Iterable[Trait] = (),
    **attrs: float,
) -> None:
    """Register `y[i] = fn(x[i], **attrs)`. `traits` are those beside `elementwise`."""

    def emit(call: graph.Call, out: TensorType, x: te.Tensor) -> te.Tensor:
        values = {a: float(attr(call, a)) for a in attrs}
        return elementwise(f"T_{name}", lambda v: fn(v, **values), x)

    def numpy(x: Array, **kw: float) -> Any:
        with np.errstate(all="ignore"):
            return in_float32(reference)(x, **kw).astype(x.dtype)

    define(
        f"nn.{name}", params("data", **attrs), infer, needs=needs, emit=emit, reference=numpy,
        traits=["elementwise", *traits],
    )  # fmt: skip


def _c(value: float, x: PrimExpr) -> PrimExpr:
    return expr.const(value, x.dtype)


def _gelu_reference(x: Array) -> Array:
    return 0.5 * x * (1 + on_arrays("erf")(x * math.sqrt(0.5)))


def _softplus(x: PrimExpr, beta: float, threshold: float) -> PrimExpr:
    soft = scalar.call("log1p", scalar.call("exp", x * beta)) * (1 / beta)
    return expr.Select(expr.GT(x * beta, _c(threshold, x)), x, soft)


# As in PyTorch, a zero keeps its sign: NumPy returns the second of two zeros.
_activation(
    "relu",
    lambda x: expr.Max(_c(0, x), x),
    lambda x: np.maximum(0, x),
    type_of_argument(0),
    [takes("a number")],
    traits=["rounds_once"],
)
_activation(
    "relu6",
    lambda x: scalar.clamp(x, _c(0, x), _c(6, x)),
    lambda x: np.maximum(0, np.minimum(6, x)),
    type_of_argument(0),
    [takes("a number")],
    traits=["rounds_once"],
)
_activation("gelu", scalar.gelu, _gelu_reference)
_activation(
    "gelu_tanh",
    scalar.gelu_tanh,
    lambda x: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x))),
)
_activation("silu", scalar.silu, lambda x: x * on_arrays("sigmoid")(x))
_activation(
    "leakyrelu",
    lambda x, alpha: expr.Select(expr.GT(x, _c(0, x)), x, x * alpha),
    lambda x, alpha=0.01: np.where(x > 0, x, x * x.dtype.type(alpha)),
    traits=["rounds_once"],
    alpha=0.01,
)
_activation(
    "softplus",
    _softplus,
    lambda x, beta=1.0, threshold=20.0: np.where(
        x * beta > threshold, x, np.log1p(np.exp(x * beta)) / beta
    ),
    beta=1.0,
    threshold=20.0,
)


SELU_ALPHA, SELU_SCALE = 1.6732632423543772, 1.0507009873554805


def _selu(x: PrimExpr) -> PrimExpr:
    below = (scalar.call("exp", x) - 1.0) * SELU_ALPHA
    return expr.Select(expr.GT(x, _c(0, x)), x, below) * SELU_SCALE


_activation(
    "selu",
    _selu,
    lambda x: SELU_SCALE * np.where(x > 0, x, SELU_ALPHA * np.expm1(np.minimum(x, 0))),
)


def _prelu_infer(call: graph.Call, tys: TypesOf) -> Type:
    x, _ = tensor_arg(call, tys, 0), tensor_arg(call, tys, 1)
    require_dtype(call, x, "floating point")
    if x.ndim >= 0:
        normal_axis(call, attr(call, "axis"), x.ndim)
    return x


def _prelu_needs(call: graph.Call, tys: TypesOf) -> None:
    x, alpha = tensor_arg(call, tys, 0), tensor_arg(call, tys, 1)
    if alpha.ndim not in (-1, 1):
        raise fail(call, f"alpha must have one dimension, is {alpha}")
    if x.shape is not None and alpha.shape is not None and alpha.shape[0] != ONE:
        extent = x.shape[normal_axis(call, attr(call, "axis"), x.ndim)]
        if differ(call, extent, alpha.shape[0], "the slopes and the channels"):
            raise fail(call, f"{alpha.shape[0]} slopes do not fit {extent} channels")


def _prelu_emit(call: graph.Call, out: TensorType, x: te.Tensor, alpha: te.Tensor) -> te.Tensor:
    axis = normal_axis(call, attr(call, "axis"), x.ndim)

    def element(*i: PrimExpr) -> PrimExpr:
        value = scalar.wide(x[i])
        slope = scalar.wide(alpha[te.ZERO if alpha.shape[0] == ONE else i[axis]])
        slanted = expr.Select(expr.GT(value, _c(0, value)), value, value * slope)
        return scalar.cast(slanted, x.dtype)

    return te.compute(x.shape, element, "T_prelu")


def _prelu(data: Array, alpha: Array, axis: int = 1) -> Array:
    slope = alpha.reshape([-1 if d == axis % data.ndim else 1 for d in range(data.ndim)])
    return np.where(data > 0, data, data * slope)


define(
    "nn.prelu",
    params("data alpha", axis=1),
    _prelu_infer,
    needs=[one_dtype(), _prelu_needs],
    emit=_prelu_emit,
    reference=in_float32(_prelu),
)


# --- dropout ----------------------------------------------------------------------------------


def _dropout_infer(call: graph.Call, tys: TypesOf) -> Type:
    x = tensor_arg(call, tys, 0)
    rate = attr(call, "rate")
    if rate is None or not 0 <= rate < 1:
        raise fail(call, f"rate must be in [0, 1), is {rate}")
    return TupleType((x, x))


def _dropout_emit(call: graph.Call, out: Type, x: te.Tensor) -> tuple[te.Tensor, ...]:
    one = expr.const(1, x.dtype)
    kept = te.compute(x.shape, lambda *i: x[i], "T_dropout")
    return kept, te.compute(x.shape, lambda *_: one, "T_dropout_mask")


# Programs are for inference, where dropout keeps everything: (data, a mask of ones).
define(
    "nn.dropout",
    params("data", rate=0.5),
    _dropout_infer,
    needs=[takes("floating point")],
    emit=_dropout_emit,
    reference=lambda data, rate=0.5: (data.copy(), np.ones_like(data)),
    traits=["elementwise"],
)


# --- softmax, log_softmax ---------------------------------------------------------------------


def _softmax_infer(call: graph.Call, tys: TypesOf) -> Type:
    x = tensor_arg(call, tys, 0)
    require_dtype(call, x, "floating point")
    if x.ndim >= 0:
        normal_axis(call, attr(call, "axis"), x.ndim)
    return x


def _without(i: Indices, axis: int) -> Indices:
    return (*i[:axis], *i[axis + 1 :])


def softmax_compute(x: te.Tensor, axis: int, dtype: str) -> te.Tensor:
    """exp(x - max) / sum(exp(x - max)) along `axis`, rounded to `dtype` at the end."""
    gone = (axis,)
    top = reduction(x, gone, False, te.te_max, "T_softmax_maxelem", scalar.wide)

    def exp_element(*i: PrimExpr) -> PrimExpr:
        return scalar.call("exp", expr.Sub(scalar.wide(x[i]), top[_without(i, axis)]))

    exps = te.compute(x.shape, exp_element, "T_softmax_exp")
    total = reduction(exps, gone, False, te.te_sum, "T_softmax_expsum")

    def share(*i: PrimExpr) -> PrimExpr:
        reciprocal = expr.Div(expr.const(1, total.dtype), total[_without(i, axis)])
        return scalar.cast(expr.Mul(exps[i], reciprocal), dtype)  # one division a row

    return te.compute(x.shape, share, "T_softmax_norm")


def _softmax_emit(call: graph.Call, out: TensorType, x: te.Tensor) -> te.Tensor:
    return softmax_compute(x, normal_axis(call, attr(call, "axis"), x.ndim), x.dtype)


def _log_softmax_emit(call: graph.Call, out: TensorType, x: te.Tensor) -> te.Tensor:
    axis = normal_axis(call, attr(call, "axis"), x.ndim)
    gone = (axis,)
    name = "T_log_softmax"
    top = reduction(x, gone, False, te.te_max, "T_softmax_maxelem", scalar.wide)
    r = reduce_axes(x, gone)

    def exp_sum(*i: PrimExpr) -> te.Reduce:
        value = scalar.wide(x[joined(i, r, gone, False)])
        return te.te_sum(scalar.call("exp", expr.Sub(value, top[i])), *r)

    total = te.compute(reduced_shape(x.shape, gone, False), exp_sum, "T_softmax_expsum")

    def element(*i: PrimExpr) -> PrimExpr:
        row = _without(i, axis)
        value = expr.Sub(scalar.wide(x[i]), top[row])
        return scalar.cast(expr.Sub(value, scalar.call("log", total[row])), x.dtype)

    return te.compute(x.shape, element, f"{name}_norm")


def _softmax(x: Array, axis: int = -1) -> Array:
    if x.shape[axis] == 0:
        return x.copy()
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def _log_softmax(x: Array, axis: int = -1) -> Array:
    if x.shape[axis] == 0:
        return x.copy()
    shifted = x - x.max(axis, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis, keepdims=True))


define(
    "nn.softmax",
    params("data", axis=-1),
    _softmax_infer,
    emit=_softmax_emit,
    reference=in_float32(_softmax),
)
define(
    "nn.log_softmax",
    params("data", axis=-1),
    _softmax_infer,
    emit=_log_softmax_emit,
    reference=in_float32(_log_softmax),
)


# --- rms_norm, layer_norm ---------------------------------------------------------------------


def _norm_axes(call: graph.Call, ndim: int) -> tuple[int, ...]:
    return normal_axes(call, attr(call, "axes"), ndim, "axes")


def _norm_infer(call: graph.Call, tys: TypesOf) -> Type:
    x = tensor_arg(call, tys, 0)
    require_dtype(call, x, "floating point")
    factors = [tensor_arg(call, tys, i) for i in range(1, len(tys))]
    common_dtype(call, x, *factors)
    given = attr(call, "axes")
    axes = given if isinstance(given, tuple) else (given,)  # which count where the rank is unknown
    axes = _norm_axes(call, x.ndim) if x.ndim >= 0 else axes
    for index, f in enumerate(factors, 1):
        if f.ndim not in (-1, len(axes)):
            raise fail(call, f"argument {index} must have one dimension per axis in {axes}, is {f}")
        if f.shape is None or x.shape is None:
            continue
        for a, d in zip(axes, f.shape, strict=True):
            if differ(call, x.shape[a], d, f"axis {a} and argument {index}"):
                raise fail(
                    call,
                    f"argument {index} has shape {show(f.shape)}, the axes {axes} of "
                    f"{show(x.shape)} differ: {d} against {x.shape[a]}",
                )
    return x


def _along(i: Indices, axes: tuple[int, ...]) -> Indices:
    return tuple(i[a] for a in axes)


def _across(i: Indices, axes: tuple[int, ...]) -> Indices:
    return tuple(v for d, v in enumerate(i) if d not in axes)


def _rms_norm_emit(call: graph.Call, out: TensorType, x: te.Tensor, weight: te.Tensor) -> te.Tensor:
    axes = _norm_axes(call, x.ndim)

    def square(v: PrimExpr) -> PrimExpr:
        return expr.Mul(scalar.wide(v), scalar.wide(v))

    total = reduction(x, axes, False, te.te_sum, "T_square_sum", square)
    count = count_of(x.shape, axes, total.dtype)
    epsilon = expr.const(float(attr(call, "epsilon")), total.dtype)

    def inverse(*i: PrimExpr) -> PrimExpr:
        return scalar.call("rsqrt", expr.Add(expr.Div(total[i], count), epsilon))

    scale = te.compute(total.shape, inverse, "T_rsqrt")

    def element(*i: PrimExpr) -> PrimExpr:
        value = expr.Mul(scalar.wide(x[i]), scale[_across(i, axes)])
        return scalar.cast(expr.Mul(value, scalar.wide(weight[_along(i, axes)])), x.dtype)

    return te.compute(x.shape, element, "T_rms_norm")


def _layer_norm_emit(
    call: graph.Call, out: TensorType, x: te.Tensor, *factors: te.Tensor
) -> te.Tensor:
    axes = _norm_axes(call, x.ndim)
    mean = mean_compute(x, axes, False)
    variance = variance_compute(x, axes, False, mean)
    epsilon = expr.const(float(attr(call, "epsilon")), mean.dtype)
    center, with_scale = attr(call, "center"), attr(call, "scale")

    def element(*i: PrimExpr) -> PrimExpr:
        row = _across(i, axes)
        spread = scalar.call("rsqrt", expr.Add(variance[row], epsilon))
        value = expr.Mul(expr.Sub(scalar.wide(x[i]), mean[row]), spread)
        if with_scale:
            value = expr.Mul(value, scalar.wide(factors[0][_along(i, axes)]))
        if center:
            value = expr.Add(value, scalar.wide(factors[1][_along(i, axes)]))
        return scalar.cast(value, x.dtype)

    return te.compute(x.shape, element, "T_layer_norm")


def _spread(factor: Array, x: Array, axes: tuple[int, ...]) -> Array:
    """`factor` with its dimensions at `axes` of `x` and 1 elsewhere."""
    order = np.argsort(axes)
    shape = [x.shape[d] if d in axes else 1 for d in range(x.ndim)]
    return factor.transpose(order).reshape(shape)


def _axes_of(x: Array, axes: int | tuple[int, ...]) -> tuple[int, ...]:
    return tuple(a % x.ndim for a in (axes if isinstance(axes, tuple) else (axes,)))


def _rms_norm(data: Array, weight: Array, axes: Any = -1, epsilon: float = 1e-5) -> Array:
    at = _axes_of(data, axes)
    with np.errstate(all="ignore"):
        mean = np.sum(data * data, axis=at, keepdims=True) / math.prod(data.shape[a] for a in at)
        return (data / np.sqrt(mean + data.dtype.type(epsilon))) * _spread(weight, data, at)


def _layer_norm(
    data: Array,
    gamma: Array,
    beta: Array,
    axes: Any = -1,
    epsilon: float = 1e-5,
    center: bool = True,
    scale: bool = True,
) -> Array:
    at = _axes_of(data, axes)
    count = math.prod(data.shape[a] for a in at)
    with np.errstate(all="ignore"):
        centred = data - np.sum(data, axis=at, keepdims=True) / count
        variance = np.sum(centred * centred, axis=at, keepdims=True) / count
        y = centred / np.sqrt(variance + data.dtype.type(epsilon))
        y = y * _spread(gamma, data, at) if scale else y
        return y + _spread(beta, data, at) if center else y


define(
    "nn.rms_norm",
    params("data weight", axes=-1, epsilon=1e-5),
    _norm_infer,
    emit=_rms_norm_emit,
    reference=in_float32(_rms_norm),
)
define(
    "nn.layer_norm",
    params("data gamma beta", axes=-1, epsilon=1e-5, center=True, scale=True),
    _norm_infer,
    emit=_layer_norm_emit,
    reference=in_float32(_layer_norm),
)


# --- pad --------------------------------------------------------------------------------------


def _pad_widths(call: graph.Call, ndim: int) -> list[tuple[PrimExpr, PrimExpr]]:
    """(before, after) of each dimension."""
    given = attr(call, "pad_width")
    flat: tuple[Any, ...] = given if isinstance(given, tuple) else (given,)
    if len(flat) != 2 * ndim:
        raise fail(
            call,
            f"pad_width {flat} must have {2 * ndim} entries: before and after for each of the "
            f"{ndim} dimensions",
        )
    values = [number(call, "pad_width", v, whole=True) for v in flat]
    return list(zip(values[::2], values[1::2], strict=True))


PAD_MODES = ("constant", "reflect", "replicate", "circular")


def _pad_infer(call: graph.Call, tys: TypesOf) -> Type:
    x = tensor_arg(call, tys, 0)
    mode = attr(call, "pad_mode")
    if mode not in PAD_MODES:
        raise fail(call, f"pad_mode {mode!r} is not known", f"use one of {PAD_MODES}")
    if x.shape is None:
        return x
    widths = _pad_widths(call, x.ndim)
    for d, pair in zip(x.shape, widths, strict=True):
        _check_width(call, mode, d, pair)
    return TensorType(
        tuple(d + before + after for d, (before, after) in zip(x.shape, widths, strict=True)),
        x.dtype,
    )


def _check_width(
    call: graph.Call, mode: str, extent: PrimExpr, pair: tuple[PrimExpr, PrimExpr]
) -> None:
    """Refuse padding wider than the elements it repeats: less than the extent where it is
    reflected, at most the extent where it wraps around, any if there is one element to repeat."""
    for width in () if mode == "constant" else pair:
        if width == expr.const(0):
            continue
        least = {"reflect": width + 1, "circular": width, "replicate": ONE}[mode]
        claim = f"{extent} elements are too few for {mode} padding by {width}"
        if impossible(call, expr.GE(extent, least), claim):
            raise fail(call, claim)


def _padded_place(mode: str, v: PrimExpr, extent: PrimExpr) -> PrimExpr:
    """The element that stands at `v`, counted from the first element of the tensor."""
    if mode == "replicate":
        return scalar.clamp(v, 0, extent - 1)
    last = extent - 1 if mode == "reflect" else extent
    before = scalar.negative(v) if mode == "reflect" else v + extent
    after = last * 2 - v if mode == "reflect" else v - extent
    rest = expr.Select(expr.GE(v, extent), after, v)
    return expr.Select(expr.LT(v, expr.const(0)), before, rest)


def _pad_emit(call: graph.Call, out: TensorType, x: te.Tensor) -> te.Tensor:
    assert out.shape is not None
    widths = _pad_widths(call, x.ndim)
    fill = scalar.cast(expr.as_expr(attr(call, "pad_value")), x.dtype)
    mode = attr(call, "pad_mode")

    def element(*i: PrimExpr) -> PrimExpr:
        inside: list[PrimExpr] = []
        at: list[PrimExpr] = []
        for v, d, (before, after) in zip(i, x.shape, widths, strict=True):
            padded = (before, after) != (expr.const(0), expr.const(0))
            moved = mode != "constant" and padded
            at.append(_padded_place(mode, v - before, d) if moved else v - before)
            inside += [] if before == expr.const(0) else [expr.LE(before, v)]
            inside += [] if after == expr.const(0) else [expr.LT(v, before + d)]
        value = x[tuple(at)]
        if mode != "constant" or not inside:
            return value
        return expr.if_then_else(expr.all_of(inside), value, fill)

    return te.compute(out.shape, element, "T_pad")


def _pad(data: Array, pad_width: Any, pad_mode: str = "constant", pad_value: float = 0) -> Array:
    pairs = [(pad_width[2 * d], pad_width[2 * d + 1]) for d in range(data.ndim)]
    if pad_mode != "constant":
        mode: Any = {"reflect": "reflect", "replicate": "edge", "circular": "wrap"}[pad_mode]
        return np.pad(data, pairs, mode)
    return np.pad(data, pairs, constant_values=data.dtype.type(pad_value))


define(
    "nn.pad",
    params("data", pad_width=REQUIRED, pad_mode="constant", pad_value=0.0),
    _pad_infer,
    emit=_pad_emit,
    reference=_pad,
    traits=["rounds_once"],
)
