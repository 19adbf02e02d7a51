"""Gradients of operators that arrange, select and join elements."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise

from relaxlab.ir import graph
from relaxlab.ir.expr import IntImm, PrimExpr, const
from relaxlab.ir.row_major import product
from relaxlab.ops.gradients.base import (
    Adjoint,
    NotDifferentiable,
    Step,
    gradient,
    nothing,
    op,
)
from relaxlab.ops.gradients.reduce import scattered


def _as_shape(step: Step) -> graph.ShapeExpr:
    return graph.ShapeExpr(step.shape())


@gradient("reshape", "flatten", "nn.batch_flatten", "squeeze")
def _reshape(step: Step) -> Sequence[Adjoint]:
    return (op("reshape", step.adjoint, _as_shape(step)), *(None for _ in step.args[1:]))


@gradient("expand_dims")
def _expand_dims(step: Step) -> Sequence[Adjoint]:
    axis = step.attr("axis")
    return (op("squeeze", step.adjoint, axis=list(axis) if isinstance(axis, tuple) else [axis]),)


@gradient("permute_dims")
def _permute_dims(step: Step) -> Sequence[Adjoint]:
    ndim = len(step.shape())
    axes = step.attr("axes")
    if axes is None:
        return (op("permute_dims", step.adjoint),)
    places = [a % ndim for a in axes]
    return (op("permute_dims", step.adjoint, axes=[places.index(i) for i in range(ndim)]),)


@gradient("broadcast_to")
def _broadcast_to(step: Step) -> Sequence[Adjoint]:
    return op("collapse_sum_to", step.adjoint, _as_shape(step)), None


@gradient("collapse_sum_to", "collapse_sum_like")
def _collapse(step: Step) -> Sequence[Adjoint]:
    return op("broadcast_to", step.adjoint, _as_shape(step)), None


@gradient("flip")
def _flip(step: Step) -> Sequence[Adjoint]:
    return (op("flip", step.adjoint, axis=step.attr("axis")),)


@gradient("triu", "tril")
def _triangle(step: Step) -> Sequence[Adjoint]:
    assert isinstance(step.call.op, graph.Op)
    rest = step.args[1:]
    return (op(step.call.op.name, step.adjoint, *rest, **step.call.attrs), *(None for _ in rest))


@gradient("concat")
def _concat(step: Step) -> Sequence[Adjoint]:
    """The parts of the adjoint, one for each tensor."""
    axis, tensors = step.attr("axis"), step.args[0]
    assert isinstance(tensors, graph.Tuple)
    if len(tensors.fields) == 1:
        return (graph.Tuple((step.adjoint,)),)
    shapes = [step.shape_of(t) for t in tensors.fields]
    ends: list[PrimExpr] = list(accumulate(shape[axis] for shape in shapes))
    places = [e.value for e in ends if isinstance(e, IntImm)]
    if len(places) == len(ends):
        return (op("split", step.adjoint, places[:-1], axis=axis),)
    return (graph.Tuple(tuple(_slice(step, axis, a, b) for a, b in pairwise([const(0), *ends]))),)


def _slice(step: Step, axis: int, begin: PrimExpr, end: PrimExpr) -> graph.Call:
    return op("strided_slice", step.adjoint, [axis], [begin], [end], assume_inbound=True)


@gradient("split")
def _split(step: Step) -> Sequence[Adjoint]:
    return (op("concat", step.adjoint, axis=step.attr("axis")),)


@gradient("stack")
def _stack(step: Step) -> Sequence[Adjoint]:
    axis, tensors = step.attr("axis"), step.args[0]
    assert isinstance(tensors, graph.Tuple)
    count = len(tensors.fields)
    axis %= len(step.shape_of(step.out))
    parts = step.bb.emit(op("split", step.adjoint, count, axis=axis)) if count > 1 else None
    fields = [step.adjoint if parts is None else graph.TupleGetItem(parts, i) for i in range(count)]
    return (graph.Tuple(tuple(op("squeeze", f, axis=[axis]) for f in fields)),)


@gradient("tile")
def _tile(step: Step) -> Sequence[Adjoint]:
    """The sum over the copies: each dimension is split into the copies and the original."""
    repeats, shape = step.attr("repeats"), step.shape()
    repeats = repeats if isinstance(repeats, tuple) else (repeats,)
    ndim = max(len(repeats), len(shape))
    counts = (*(1 for _ in range(ndim - len(repeats))), *repeats)
    padded = (*(const(1) for _ in range(ndim - len(shape))), *shape)
    dims = [d for count, extent in zip(counts, padded, strict=True) for d in (count, extent)]
    apart = op("reshape", step.adjoint, dims)
    summed = op("sum", apart, axis=list(range(0, 2 * ndim, 2)))
    return (op("reshape", summed, _as_shape(step)),)


@gradient("repeat")
def _repeat(step: Step) -> Sequence[Adjoint]:
    repeats, axis, shape = step.attr("repeats"), step.attr("axis"), step.shape()
    dims = [product(shape)] if axis is None else list(shape)
    at = 0 if axis is None else axis % len(shape)
    apart = op("reshape", step.adjoint, [*dims[: at + 1], repeats, *dims[at + 1 :]])
    summed = op("sum", apart, axis=[at + 1])
    return (op("reshape", summed, _as_shape(step)) if axis is None else summed,)


@gradient("nn.pad")
def _pad(step: Step) -> Sequence[Adjoint]:
    if step.attr("pad_mode") != "constant":
        mode = step.attr("pad_mode")
        raise NotDifferentiable(f"the gradient of R.nn.pad is known for constants, not for {mode}")
    widths, shape = step.attr("pad_width"), step.shape()
    axes = list(range(len(shape)))
    begin = [widths[2 * a] for a in axes]
    end = [begin[a] + shape[a] for a in axes]
    return (op("strided_slice", step.adjoint, axes, begin, end, assume_inbound=True),)


@gradient("take")
def _take(step: Step) -> Sequence[Adjoint]:
    x, indices = step.args[:2]
    indices_type = step.bb.type_of(indices)
    if getattr(indices_type, "ndim", None) is None:
        raise NotDifferentiable("the gradient of R.take is known for a tensor of indices")
    axis, mode = step.attr("axis"), step.attr("mode")
    extent = graph.PrimValue(step.shape()[0 if axis is None else axis])
    if mode == "wrap":
        indices = op("floor_mod", indices, extent)
    elif mode == "clip":
        last = graph.PrimValue(extent.value - 1)
        indices = op("maximum", op("minimum", indices, last), graph.PrimValue(const(0)))
    back = op("grad.take_backward", step.adjoint, x, indices, axis=axis)
    return back, *(None for _ in step.args[1:])


@gradient("gather_elements")
def _gather_elements(step: Step) -> Sequence[Adjoint]:
    return scattered(step, step.adjoint, step.args[1], step.attr("axis")), None


@gradient("strided_slice")
def _strided_slice(step: Step) -> Sequence[Adjoint]:
    """The adjoint amid zeros, for slices of step 1 within bounds that are known."""
    shape = step.shape()
    axes, begin, end = (_numbers(step, name) for name in ("axes", "begin", "end"))
    if step.attr("strides") is not None and any(n != 1 for n in _numbers(step, "strides")):
        raise NotDifferentiable("the gradient of R.strided_slice is known for strides of 1")
    widths = [0] * (2 * len(shape))
    for axis, first, last in zip(axes, begin, end, strict=True):
        at, extent = axis % len(shape), shape[axis]
        if not isinstance(extent, IntImm):
            raise NotDifferentiable(
                f"the gradient of R.strided_slice needs a constant extent of axis {axis}"
            )
        low, high, _ = slice(first, last).indices(extent.value)
        widths[2 * at : 2 * at + 2] = [low, extent.value - max(low, high)]
    return (op("nn.pad", step.adjoint, widths),)


def _numbers(step: Step, name: str) -> list[int]:
    """The numbers of an attribute. Raises NotDifferentiable where they are not constants."""
    values = [getattr(v, "value", v) for v in step.attr(name)]
    if not all(isinstance(v, int) for v in values):
        raise NotDifferentiable(f"the gradient of R.strided_slice needs constants as {name}")
    return values


gradient(
    *(
        "zeros_like ones_like shape_of size nonzero one_hot zeros ones full arange eye "
        "shape_to_tensor "
    ).split()
)(nothing)
