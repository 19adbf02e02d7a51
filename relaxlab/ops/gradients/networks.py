"""Gradients of the operators of neural networks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from relaxlab.ir import graph
from relaxlab.ops.gradients.base import Adjoint, NotDifferentiable, Step, gradient, op


@gradient("nn.softmax")
def _softmax(step: Step) -> Sequence[Adjoint]:
    weighted = op("multiply", step.adjoint, step.out)
    total = op("sum", weighted, axis=[step.attr("axis")], keepdims=True)
    return (op("multiply", op("subtract", step.adjoint, total), step.out),)


@gradient("nn.log_softmax")
def _log_softmax(step: Step) -> Sequence[Adjoint]:
    total = op("sum", step.adjoint, axis=[step.attr("axis")], keepdims=True)
    return (op("subtract", step.adjoint, op("multiply", total, op("exp", step.out))),)


@gradient("nn.cross_entropy_with_logits")
def _cross_entropy(step: Step) -> Sequence[Adjoint]:
    predictions, labels = step.args
    adjoint, shape = step.adjoint, step.shape()
    if len(shape) > 1:
        adjoint = step.bb.emit(op("divide", adjoint, step.count(shape[:1])))
    return (
        op("multiply", op("negative", adjoint), labels),
        op("multiply", op("negative", adjoint), predictions),
    )


@gradient("nn.nll_loss")
def _nll_loss(step: Step) -> Sequence[Adjoint]:
    attrs = {name: step.attr(name) for name in ("reduction", "ignore_index")}
    back = op("grad.nll_loss_backward", step.adjoint, *step.args, **attrs)
    return (back, *(None for _ in step.args[1:]))


_POOL = "pool_size strides padding dilation ceil_mode count_include_pad layout out_layout".split()


def _pool_attrs(step: Step) -> dict[str, Any]:
    return {name: step.attr(name) for name in _POOL}


@gradient("nn.max_pool2d")
def _max_pool2d(step: Step) -> Sequence[Adjoint]:
    return (op("grad.max_pool2d_backward", step.adjoint, step.args[0], **_pool_attrs(step)),)


@gradient("nn.avg_pool2d")
def _avg_pool2d(step: Step) -> Sequence[Adjoint]:
    return (op("grad.avg_pool2d_backward", step.adjoint, step.args[0], **_pool_attrs(step)),)


def _numbers(value: Any, count: int) -> tuple[int, ...]:
    """An attribute of one number for each axis, or one for all, as `count` numbers."""
    given = value if isinstance(value, tuple) else (value,)
    return tuple(given) * (count // len(given))


@gradient("nn.conv2d")
def _conv2d(step: Step) -> Sequence[Adjoint]:
    """The transposed convolution of the adjoint, and the convolution of the data by the adjoint:
    each reads images as channels."""
    layouts = step.attr("data_layout"), step.attr("kernel_layout"), step.attr("out_layout")
    if layouts[:2] != ("NCHW", "OIHW") or layouts[2] not in (None, "NCHW"):
        raise NotDifferentiable("the gradient of R.nn.conv2d is known for NCHW and OIHW")
    if step.attr("groups") != 1:
        raise NotDifferentiable("the gradient of R.nn.conv2d is known for one group")
    data, weight = step.args
    strides, dilation = _numbers(step.attr("strides"), 2), _numbers(step.attr("dilation"), 2)
    padding = _numbers(step.attr("padding"), 4)
    sizes = [_extents(step, v) for v in (data, weight, step.out)]
    rest = tuple(
        sizes[0][a] - ((sizes[2][a] - 1) * strides[a] - padding[a] - padding[a + 2]
                       + dilation[a] * (sizes[1][a] - 1) + 1)
        for a in range(2)
    )  # fmt: skip
    of_data = op(
        "nn.conv2d_transpose", step.adjoint, weight, strides=strides, padding=padding,
        output_padding=rest, dilation=dilation,
    )  # fmt: skip
    images = op(
        "nn.conv2d", op("permute_dims", data, axes=[1, 0, 2, 3]),
        op("permute_dims", step.adjoint, axes=[1, 0, 2, 3]), strides=dilation, padding=padding,
        dilation=strides,
    )  # fmt: skip
    of_weight: graph.Expr = op("permute_dims", images, axes=[1, 0, 2, 3])
    if any(rest):
        end = list(sizes[1])
        of_weight = op("strided_slice", of_weight, [2, 3], [0, 0], end, assume_inbound=True)
    return of_data, of_weight


def _extents(step: Step, value: graph.Expr) -> tuple[int, int]:
    """The extents of height and width, which are constants."""
    shape = step.shape_of(value)
    found = tuple(getattr(d, "value", None) for d in shape[2:])
    if None in found:
        raise NotDifferentiable("the gradient of R.nn.conv2d needs constant heights and widths")
    return found  # type: ignore[return-value]


@gradient("grad.no_grad")
def _no_grad(step: Step) -> Sequence[Adjoint]:
    return (None,)


@gradient("grad.start_checkpoint", "grad.end_checkpoint")
def _checkpoint(step: Step) -> Sequence[Adjoint]:
    return (step.adjoint,)
