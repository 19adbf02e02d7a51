"""Gradients of reductions and scans."""

from __future__ import annotations

from collections.abc import Sequence

from relaxlab.ir import graph
from relaxlab.ir.expr import PrimExpr
from relaxlab.ops.gradients.base import Adjoint, NotDifferentiable, Step, gradient, nothing, op


def reduced_axes(step: Step) -> tuple[int, ...]:
    """The axes that a reduction reduces, counted from the front."""
    axis, ndim = step.attr("axis"), len(step.shape())
    if axis is None:
        return tuple(range(ndim))
    return tuple(a % ndim for a in (axis if isinstance(axis, tuple) else (axis,)))


def _extents(step: Step) -> list[PrimExpr]:
    shape = step.shape()
    return [shape[a] for a in reduced_axes(step)]


def _kept(step: Step, value: graph.Expr) -> graph.Expr:
    """A value of the result's shape with the reduced axes as ones of length 1."""
    if step.attr("keepdims") or step.attr("axis") is None:
        return value
    return op("expand_dims", value, axis=list(reduced_axes(step)))


def _spread(step: Step, value: graph.Expr) -> graph.Call:
    """A value of the result's shape repeated along the axes that were reduced."""
    return op("broadcast_to", _kept(step, value), graph.ShapeExpr(step.shape()))


@gradient("sum")
def _sum(step: Step) -> Sequence[Adjoint]:
    return (_spread(step, step.adjoint),)


@gradient("mean")
def _mean(step: Step) -> Sequence[Adjoint]:
    return (_spread(step, op("divide", step.adjoint, step.count(_extents(step)))),)


def _deviation(step: Step) -> graph.Expr:
    """x minus its mean along the reduced axes."""
    x = step.args[0]
    mean = op("mean", x, axis=list(reduced_axes(step)), keepdims=True)
    return op("subtract", x, mean)


def _twice_by_count(step: Step, adjoint: graph.Expr) -> graph.Expr:
    twice = op("multiply", step.number(2), adjoint)
    return op("divide", twice, step.count(_extents(step)))


@gradient("variance")
def _variance(step: Step) -> Sequence[Adjoint]:
    scaled = _kept(step, _twice_by_count(step, step.adjoint))
    return (op("multiply", scaled, _deviation(step)),)


@gradient("std")
def _std(step: Step) -> Sequence[Adjoint]:
    halved = op("divide", op("multiply", step.number(0.5), step.adjoint), step.out)
    return (op("multiply", _kept(step, _twice_by_count(step, halved)), _deviation(step)),)


@gradient("max", "min")
def _extremum(step: Step) -> Sequence[Adjoint]:
    """The adjoint in equal shares where the extremum is attained."""
    chosen = op("equal", step.args[0], _spread(step, step.out))
    chosen = step.bb.emit(op("astype", chosen, dtype=step.type_of(step.out).dtype))
    ties = op("sum", chosen, axis=list(reduced_axes(step)), keepdims=True)
    return (op("multiply", _kept(step, step.adjoint), op("divide", chosen, ties)),)


@gradient("prod")
def _prod(step: Step) -> Sequence[Adjoint]:
    """The product of the others, by products before and after each: elements may be zero."""
    axes = reduced_axes(step)
    if len(axes) != 1:
        raise NotDifferentiable("the gradient of R.prod is known along one axis")
    others = _product_of_others(step.args[0], axes[0])
    return (op("multiply", _kept(step, step.adjoint), others),)


def _product_of_others(x: graph.Expr, axis: int) -> graph.Expr:
    before = op("cumprod", x, axis=axis, exclusive=True)
    after = op(
        "flip", op("cumprod", op("flip", x, axis=axis), axis=axis, exclusive=True), axis=axis
    )
    return op("multiply", before, after)


@gradient("cumsum")
def _cumsum(step: Step) -> Sequence[Adjoint]:
    """The sum of the adjoints at each place and after it."""
    axis, adjoint = step.attr("axis"), step.adjoint
    if step.attr("dtype") is not None:
        adjoint = step.bb.emit(op("astype", adjoint, dtype=step.type_of(step.args[0]).dtype))
    # From the end: a difference of sums would lose small adjoints behind large ones.
    at = 0 if axis is None else axis
    turned = op("flip", adjoint, axis=at)
    result = op("flip", op("cumsum", turned, axis=at, exclusive=step.attr("exclusive")), axis=at)
    return (result if axis is not None else op("reshape", result, graph.ShapeExpr(step.shape())),)


@gradient("cumprod")
def _cumprod(step: Step) -> Sequence[Adjoint]:
    """The adjoint of each result, times the product of the other elements that it has, summed over
    the results that have the element. Elements may be zero, so that nothing is divided by them:
    the products are those of all pairs of an element and a result."""
    x, adjoint, axis = step.args[0], step.adjoint, step.attr("axis")
    exclusive, shape, emit = step.attr("exclusive"), step.shape(), step.bb.emit
    dtype = step.type_of(x).dtype
    if step.attr("dtype") is not None:
        adjoint = emit(op("astype", adjoint, dtype=dtype))
    if axis is None:
        x, order = emit(op("flatten", x)), [0]
    else:
        order = [*(a for a in range(len(shape)) if a != axis % len(shape)), axis % len(shape)]
    last = order != sorted(order)
    if last:  # the scanned axis becomes the last
        x, adjoint = (emit(op("permute_dims", v, axes=order)) for v in (x, adjoint))
    extent = step.shape_of(x)[-1]
    ones = op("ones", graph.ShapeExpr((extent, extent)), dtype)
    before = op("greater", op("tril", ones), op("zeros", graph.ShapeExpr(()), dtype))
    one = op("ones", graph.ShapeExpr(()), dtype)
    after = op("where", before, one, op("expand_dims", x, axis=[-2]))
    others = op("cumprod", after, axis=-1, exclusive=exclusive)
    others = op("triu", others, 1 if exclusive else 0)
    weighted = op("multiply", others, op("expand_dims", adjoint, axis=[-2]))
    summed = op("sum", weighted, axis=[-1])
    result = op("multiply", op("cumprod", x, axis=-1, exclusive=True), summed)
    if axis is None:
        return (op("reshape", result, graph.ShapeExpr(shape)),)
    places = [order.index(a) for a in range(len(shape))]
    return (op("permute_dims", result, axes=places) if last else result,)


def scattered(step: Step, adjoint: graph.Expr, indices: graph.Expr, axis: int) -> graph.Call:
    """The adjoints added up at the places along an axis of the first argument that their elements
    came from."""
    zeros = op("zeros", graph.ShapeExpr(step.shape()), step.type_of(step.args[0]).dtype)
    return op("scatter_elements", zeros, indices, adjoint, axis=axis, reduction="add")


@gradient("sort")
def _sort(step: Step) -> Sequence[Adjoint]:
    axis, descending = step.attr("axis"), step.attr("descending")
    places = op("argsort", step.args[0], axis=axis, descending=descending, dtype="int64")
    return (scattered(step, step.adjoint, places, axis),)


@gradient("topk")
def _topk(step: Step) -> Sequence[Adjoint]:
    given = {name: step.attr(name) for name in ("k", "axis", "largest")}
    kind = step.attr("ret_type")
    if kind == "indices":
        return (None,)
    if kind == "values":
        places: graph.Expr = op("topk", step.args[0], **given, ret_type="indices", dtype="int64")
        return (scattered(step, step.adjoint, places, given["axis"]),)
    adjoint, places = graph.TupleGetItem(step.adjoint, 0), graph.TupleGetItem(step.out, 1)
    return (scattered(step, adjoint, places, given["axis"]),)


gradient(*("argmax argmin argsort ").split())(nothing)
