"""Layers of networks: convolutions, norms, softmax, pooling."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from relaxlab.frontend.emitter import Emitter, Tensor, dtype_of, shape_of
from relaxlab.frontend.pytorch.rows.elementwise import out_dtype
from relaxlab.frontend.pytorch.rows.reductions import reduced, variance
from relaxlab.frontend.pytorch.rows.shapes import out_shape
from relaxlab.frontend.pytorch.rows.table import row
from relaxlab.frontend.table import Refused
from relaxlab.ir import expr, graph
from relaxlab.ir.dtypes import numpy_dtype
from relaxlab.ir.expr import PrimExpr
from relaxlab.ops import te

Sizes = Any
"""A list of ints, one for each dimension of space or one for all."""


def spread(sizes: Sizes, rank: int) -> list[int]:
    """One entry for each dimension of space."""
    values = list(sizes) if isinstance(sizes, list | tuple) else [sizes]
    for v in values:
        if not isinstance(v, int):
            raise Refused(f"its sizes depend on symbols: {v}")
    return values * rank if len(values) == 1 else values


# --- Convolution --------------------------------------------------------------------------------


def convolution(
    b: Emitter, x: Tensor, weight: Tensor, bias: Tensor | None, stride: Sizes,
    padding: Sizes, dilation: Sizes, transposed: bool, output_padding: Sizes, groups: int,
) -> Tensor:  # fmt: skip
    rank = len(shape_of(weight)) - 2
    batch = len(shape_of(x)) == rank + 2
    if not batch:
        x = b.expand_dims(x, axis=0)
    strides, dilations = spread(stride, rank), spread(dilation, rank)
    if isinstance(padding, str):
        pads = same_padding(weight, padding, dilations)
    else:
        pads = spread(padding, rank) * 2
    attrs: dict[str, Any] = {
        "strides": strides, "padding": pads, "dilation": dilations, "groups": groups,
    }  # fmt: skip
    if transposed:
        attrs["output_padding"] = spread(output_padding, rank)
        result = getattr(b, f"conv{rank}d_transpose")(x, weight, **attrs)
    else:
        result = getattr(b, f"conv{rank}d")(x, weight, **attrs)
    if bias is not None:
        result = b.add(result, b.reshape(bias, (shape_of(bias)[0], *[1] * rank)))
    return result if batch else b.squeeze(result, axis=[0])


def same_padding(weight: Tensor, mode: str, dilation: list[int]) -> list[int]:
    """The margins before and after each dimension for `mode`, "same" or "valid"."""
    if mode == "valid":
        return [0] * (2 * len(dilation))
    sizes = [_number(k) for k in shape_of(weight)[2:]]
    total = [(k - 1) * d for k, d in zip(sizes, dilation, strict=True)]
    return [t // 2 for t in total] + [t - t // 2 for t in total]


def _number(e: expr.PrimExpr) -> int:
    if not isinstance(e, expr.IntImm):
        raise Refused(f"its sizes depend on symbols: {e}")
    return e.value


row("aten.convolution.default", convolution)


def conv(b: Emitter, x: Tensor, weight: Tensor, bias: Any = None, stride: Sizes = 1,
         padding: Sizes = 0, dilation: Sizes = 1, groups: int = 1) -> Tensor:  # fmt: skip
    return convolution(b, x, weight, bias, stride, padding, dilation, False, 0, groups)


def conv_transpose(b: Emitter, x: Tensor, weight: Tensor, bias: Any = None,
                   stride: Sizes = 1, padding: Sizes = 0, output_padding: Sizes = 0,
                   groups: int = 1, dilation: Sizes = 1) -> Tensor:  # fmt: skip
    return convolution(b, x, weight, bias, stride, padding, dilation, True, output_padding, groups)


for _rank in (1, 2, 3):
    row(f"aten.conv{_rank}d.default", f"aten.conv{_rank}d.padding", conv)
row("aten.conv_transpose1d.default", "aten.conv_transpose2d.input", "aten.conv_transpose3d.input",
    conv_transpose)  # fmt: skip


# --- Norms --------------------------------------------------------------------------------------


def ones(b: Emitter, shape: Any, dtype: str) -> Tensor:
    return b.builder.emit(graph.Constant(np.ones([_number(d) for d in shape], numpy_dtype(dtype))))


@row("aten.layer_norm.default")
def layer_norm(
    b: Emitter, x: Tensor, normalized_shape: list[Any], weight: Tensor | None = None,
    bias: Tensor | None = None, eps: float = 1e-5, *_: Any,
) -> Tensor:  # fmt: skip
    count = len(normalized_shape)
    shape, axes = shape_of(x)[-count:], list(range(-count, 0))
    filler = None if weight is not None and bias is not None else ones(b, shape, dtype_of(x))
    return b.layer_norm(
        x, weight or filler, bias or filler, axes=axes, epsilon=eps,
        center=bias is not None, scale=weight is not None,
    )  # fmt: skip


@row("aten.native_layer_norm.default")
def native_layer_norm(
    b: Emitter, x: Tensor, normalized_shape: list[Any], weight: Any, bias: Any, eps: float
) -> Any:
    axes = list(range(-len(normalized_shape), 0))
    deviation = b.rsqrt(b.add(reduced(b, "variance", x, axes, True), eps))
    return (
        layer_norm(b, x, normalized_shape, weight, bias, eps),
        b.mean(x, axis=axes, keepdims=True),
        deviation,
    )


@row("aten.rms_norm.default", "aten._fused_rms_norm.default")
def rms_norm(
    b: Emitter, x: Tensor, normalized_shape: list[Any], weight: Tensor | None = None,
    eps: float | None = None,
) -> Any:  # fmt: skip
    count = len(normalized_shape)
    eps = float(np.finfo(numpy_dtype(dtype_of(x))).eps) if eps is None else eps
    gain = ones(b, shape_of(x)[-count:], dtype_of(x)) if weight is None else weight
    return b.rms_norm(x, gain, axes=list(range(-count, 0)), epsilon=eps)


@row("aten.group_norm.default")
def group_norm(
    b: Emitter, x: Tensor, groups: int, weight: Tensor | None = None,
    bias: Tensor | None = None, eps: float = 1e-5, *_: Any,
) -> Tensor:  # fmt: skip
    channels, rank = shape_of(x)[1:2], len(shape_of(x))
    filler = None if weight is not None and bias is not None else ones(b, channels, dtype_of(x))
    if rank == 2:  # a group's channels alone
        whole = b.reshape(x, (*shape_of(x), 1))
        return b.reshape(group_norm(b, whole, groups, weight, bias, eps), shape_of(x))
    return b.group_norm(
        x, weight or filler, bias or filler, num_groups=groups, channel_axis=1,
        axes=list(range(2, rank)), epsilon=eps, center=bias is not None, scale=weight is not None,
    )  # fmt: skip


@row("aten.batch_norm.default")
def batch_norm(
    b: Emitter, x: Tensor, weight: Any, bias: Any, mean: Any, var: Any, training: bool,
    momentum: float, eps: float, *_: Any,
) -> Tensor:  # fmt: skip
    """A factor and an offset per channel, which a loader computes once where the statistics are
    weights."""
    rank = len(shape_of(x))
    others = [d for d in range(rank) if d != 1]
    if training or mean is None:
        mean = reduced(b, "mean", x, others, False)
        var = variance(b, x, others, 0, False)
    factor = b.rsqrt(b.add(var, eps))
    if weight is not None:
        factor = b.multiply(factor, weight)
    offset = b.negative(b.multiply(mean, factor))
    if bias is not None:
        offset = b.add(offset, bias)
    per_channel = (shape_of(x)[1], *[1] * (rank - 2))
    factor, offset = (b.reshape(t, per_channel) for t in (factor, offset))
    return b.add(b.multiply(x, factor), offset)


@row("aten._native_batch_norm_legit_no_training.default")
def batch_norm_no_training(
    b: Emitter, x: Tensor, weight: Any, bias: Any, mean: Tensor, var: Tensor,
    momentum: float, eps: float,
) -> Any:  # fmt: skip
    nothing = b.zeros((0,), dtype=out_dtype(b, 1))
    return batch_norm(b, x, weight, bias, mean, var, False, momentum, eps), nothing, nothing


# --- Softmax ------------------------------------------------------------------------------------


def softmax(name: str) -> None:
    def emit(b: Emitter, x: Tensor, dim: int, *_: Any, **__: Any) -> Tensor:
        x = b.cast(x, out_dtype(b))
        if not shape_of(x):
            return b.reshape(getattr(b, name)(b.reshape(x, (1,)), axis=0), ())
        return getattr(b, name)(x, axis=dim)

    row(f"aten.{name}.int", f"aten._{name}.default", emit)


softmax("softmax")
softmax("log_softmax")


# --- Pooling ------------------------------------------------------------------------------------


def pool(kind: str, rank: int) -> Any:
    """Pooling of images with or without a batch."""

    def emit(b: Emitter, x: Tensor, size: Sizes, stride: Sizes, padding: Sizes,
             **attrs: Any) -> Tensor:  # fmt: skip
        batch = len(shape_of(x)) == rank + 2
        x = x if batch else b.expand_dims(x, axis=0)
        sizes, pads = spread(size, rank), spread(padding, rank)
        strides = spread(stride, rank) if stride else sizes
        if attrs.get("ceil_mode"):
            sizes = [within(*w) for w in zip(sizes, pads, shape_of(x)[-rank:], strict=True)]
        result = getattr(b, f"{kind}_pool{rank}d")(
            x, pool_size=sizes, strides=strides, padding=pads * 2, **attrs
        )
        return result if batch else b.squeeze(result, axis=[0])

    return emit


def within(size: int, pad: int, extent: PrimExpr) -> int:
    """A window's size, at most that of the image: what is beyond it has no part in a result."""
    whole = isinstance(extent, expr.IntImm) and not pad
    return min(size, extent.value) if whole else size  # type: ignore[union-attr]


def max_pool(rank: int) -> None:
    emit = pool("max", rank)

    def maximum(
        b: Emitter, x: Tensor, size: Sizes, stride: Sizes = (), padding: Sizes = 0,
        dilation: Sizes = 1, ceil_mode: bool = False,
    ) -> Tensor:  # fmt: skip
        return emit(b, x, size, stride, padding, dilation=spread(dilation, rank),
                    ceil_mode=ceil_mode)  # fmt: skip

    row(f"aten.max_pool{rank}d.default", maximum)


def avg_pool(rank: int) -> None:
    emit = pool("avg", rank)

    def average(
        b: Emitter, x: Tensor, size: Sizes, stride: Sizes = (), padding: Sizes = 0,
        ceil_mode: bool = False, count_include_pad: bool = True, divisor: int | None = None,
    ) -> Tensor:  # fmt: skip
        if divisor is not None:
            whole = with_margins(b, x, spread(size, rank), spread(stride or size, rank),
                                 spread(padding, rank))  # fmt: skip
            mean = emit(b, whole, size, stride, 0)
            return b.multiply(mean, math.prod(spread(size, rank)) / divisor)
        return emit(b, x, size, stride, padding, ceil_mode=ceil_mode,
                    count_include_pad=count_include_pad)  # fmt: skip

    row(f"aten.avg_pool{rank}d.default", average)


def with_margins(
    b: Emitter, x: Tensor, size: list[int], stride: list[int], padding: list[int]
) -> Tensor:
    """The image with the zeros around it that the windows of the stated result reach into."""
    rank = len(size)
    widths = [0] * (2 * (len(shape_of(x)) - rank))
    outs, extents = out_shape(b)[-rank:], shape_of(x)[-rank:]
    for k, s, p, out, extent in zip(size, stride, padding, outs, extents, strict=True):
        reach = (_number(out) - 1) * s + k - p - _number(extent)
        widths += [p, max(0, reach)]
    return b.pad(x, pad_width=widths)


def adaptive_pool(rank: int) -> None:
    def average(b: Emitter, x: Tensor, size: Sizes) -> Tensor:
        batch = len(shape_of(x)) == rank + 2
        x = x if batch else b.expand_dims(x, axis=0)
        sizes = out_shape(b)[-rank:]
        result = getattr(b, f"adaptive_avg_pool{rank}d")(x, output_size=list(sizes))
        return result if batch else b.squeeze(result, axis=[0])

    row(
        f"aten.adaptive_avg_pool{rank}d.default", f"aten._adaptive_avg_pool{rank}d.default", average
    )


def adaptive_max_pool(rank: int) -> None:
    def windows(b: Emitter, x: Tensor, starts: list[Starts], reach: list[PrimExpr]) -> Tensor:
        """The elements of each window, behind all others, beyond its end the least number."""
        shape, sizes = shape_of(x), out_shape(b)[-rank:]
        least = expr.lowest(dtype_of(x))

        def element(x: te.Tensor, i: tuple[PrimExpr, ...]) -> PrimExpr:
            at, inside = list[PrimExpr](), expr.const(True, "bool")
            for d, (start, end) in enumerate(starts):
                place = start(i[-2 * rank + d]) + i[-rank + d]
                inside = expr.And(inside, expr.LT(place, end(i[-2 * rank + d])))
                at.append(expr.Min(place, shape[d - rank] - 1))
            return expr.Select(inside, x[(*i[: -2 * rank], *at)], least)

        whole = (*shape[:-rank], *sizes, *reach)
        return b.te(lambda x: te.compute(whole, lambda *i: element(x, i), "windows"), x)

    def maximum(b: Emitter, x: Tensor, size: Sizes) -> Any:
        """The largest elements, and their places in the image, row by row."""
        shape, sizes = shape_of(x), out_shape(b)[-rank:]
        starts = [ends(d, n) for d, n in zip(shape[-rank:], sizes, strict=True)]
        reach = [(d + n - 1) // n + 1 for d, n in zip(shape[-rank:], sizes, strict=True)]
        flat = b.reshape(windows(b, x, starts, reach), (*out_shape(b), math.prod(reach)))
        number = b.argmax(flat, axis=-1)

        def place(number: te.Tensor) -> te.Tensor:
            def element(*i: PrimExpr) -> PrimExpr:
                left, stride, at = number[i], expr.const(1), expr.const(0)
                for d in reversed(range(rank)):
                    at = at + (starts[d][0](i[d - rank]) + left % reach[d]) * stride
                    left, stride = left // reach[d], stride * shape[d - rank]
                return at

            return te.compute(number.shape, element, "place")

        return b.max(flat, axis=-1), b.te(place, number)

    row(f"aten.adaptive_max_pool{rank}d.default", maximum)


Starts: TypeAlias = tuple[Callable[[PrimExpr], PrimExpr], Callable[[PrimExpr], PrimExpr]]
"""The beginning and the end of a window, by its number."""


def ends(extent: PrimExpr, count: PrimExpr) -> Starts:
    return lambda i: i * extent // count, lambda i: ((i + 1) * extent + count - 1) // count


for _rank in (1, 2, 3):
    max_pool(_rank)
    avg_pool(_rank)
    adaptive_pool(_rank)
    adaptive_max_pool(_rank)
