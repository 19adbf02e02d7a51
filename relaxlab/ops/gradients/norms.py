"""Gradients of normalisations."""

from __future__ import annotations

from collections.abc import Sequence
from functools import wraps

from relaxlab.ir import graph, types
from relaxlab.ir.expr import const
from relaxlab.ir.node import replace
from relaxlab.ops.gradients.base import Adjoint, NotDifferentiable, Rule, Step, gradient, op
from relaxlab.ops.scalar import accumulator_of


def _in_wide(rule: Rule) -> Rule:
    """A rule with all tensors in the dtype in which the operator sums: half precision has no
    squares of what is above 255."""

    @wraps(rule)
    def wide(step: Step) -> Sequence[Adjoint]:
        dtype, wanted = step.dtype, accumulator_of(step.dtype)
        if dtype == wanted:
            return rule(step)
        call = replace(step.call, args=tuple(_cast(step, a, wanted) for a in step.args))
        out, adjoint = _cast(step, step.out, wanted), _cast(step, step.adjoint, wanted)
        partials = rule(Step(step.bb, call, out, adjoint))
        return [None if p is None else op("astype", p, dtype=dtype) for p in partials]

    return wide


def _cast(step: Step, value: graph.Expr, dtype: str) -> graph.Var:
    """A tensor, or those of a tuple, in another dtype."""
    ty, emit = step.bb.type_of(value), step.bb.emit
    if not isinstance(ty, types.TupleType):
        return emit(op("astype", value, dtype=dtype))
    fields = (graph.TupleGetItem(value, i) for i in range(len(ty.fields)))
    return emit(graph.Tuple(tuple(_cast(step, f, dtype) for f in fields)))


class _Standard:
    """Data divided by their deviation over axes, less their mean if `centred`."""

    def __init__(self, step: Step, data: graph.Expr, axes: Sequence[int], centred: bool) -> None:
        self._axes, self._centred = list(axes), centred
        emit = step.bb.emit
        self.distance = emit(op("subtract", data, self._mean(data))) if centred else data
        square = self._mean(op("multiply", self.distance, self.distance))
        self.scale = emit(op("rsqrt", op("add", square, step.number(step.attr("epsilon")))))
        self.value = emit(op("multiply", self.distance, self.scale))

    def _mean(self, value: graph.Expr) -> graph.Call:
        return op("mean", value, axis=self._axes, keepdims=True)

    def back(self, adjoint: graph.Expr) -> graph.Call:
        """The adjoint of the data: with h the standardised data and g their adjoint,
        (g - mean(g * h) * h - mean(g)) / deviation."""
        inner: graph.Expr = op(
            "multiply", self._mean(op("multiply", adjoint, self.value)), self.value
        )
        inner = op("subtract", adjoint, inner)
        if self._centred:
            inner = op("subtract", inner, self._mean(adjoint))
        return op("multiply", inner, self.scale)


def _axes(step: Step) -> list[int]:
    """The attribute `axes`, counted from the front."""
    ndim, axes = len(step.shape()), step.attr("axes")
    return [a % ndim for a in (axes if isinstance(axes, tuple) else (axes,))]


@gradient("nn.layer_norm", "nn.rms_norm")
@_in_wide
def _trailing_norm(step: Step) -> Sequence[Adjoint]:
    """The gradient of a norm over trailing axes, whose elements have a scale each."""
    assert isinstance(step.call.op, graph.Op)
    centred = step.call.op.name == "nn.layer_norm"
    data, gamma, *beta = step.args
    ndim, axes = len(step.shape()), _axes(step)
    if axes != list(range(ndim - len(axes), ndim)):
        raise NotDifferentiable(f"the gradient of {step.call.op} is known for trailing axes")
    standard = _Standard(step, data, axes, centred)
    scaled = not centred or step.attr("scale")
    g = step.bb.emit(op("multiply", step.adjoint, gamma)) if scaled else step.adjoint
    of_gamma = step.fit(op("multiply", step.adjoint, standard.value), 1) if scaled else None
    centre = [step.fit(step.adjoint, 2) if step.attr("center") else None for _ in beta]
    return standard.back(g), of_gamma, *centre


class _Channels:
    """The scale and shift of each channel, along an axis of the data."""

    def __init__(self, step: Step, axis: str) -> None:
        self._step = step
        ndim = len(step.shape())
        self.axis = step.attr(axis) % ndim
        self.others = [a for a in range(ndim) if a != self.axis]

    def along(self, value: graph.Expr) -> graph.Expr:
        """A value of each channel with the dimensions of the data."""
        return op("expand_dims", value, axis=self.others) if self.others else value

    def summed(self, value: graph.Expr) -> graph.Call:
        """The sum of a value of the data's shape, for each channel."""
        return op("sum", value, axis=self.others)

    def scaled(self, adjoint: graph.Expr) -> graph.Expr:
        """The adjoint of the standardised data."""
        if not self._step.attr("scale"):
            return adjoint
        return self._step.bb.emit(op("multiply", adjoint, self.along(self._step.args[1])))

    def parameters(self, adjoint: graph.Expr, standard: graph.Expr) -> tuple[Adjoint, Adjoint]:
        """The adjoints of gamma and beta."""
        step = self._step
        of_gamma = self.summed(op("multiply", adjoint, standard)) if step.attr("scale") else None
        return of_gamma, self.summed(adjoint) if step.attr("center") else None


@gradient("nn.instance_norm")
@_in_wide
def _instance_norm(step: Step) -> Sequence[Adjoint]:
    channels = _Channels(step, "channel_axis")
    standard = _Standard(step, step.args[0], _axes(step), True)
    back = standard.back(channels.scaled(step.adjoint))
    return back, *channels.parameters(step.adjoint, standard.value)


@gradient("nn.group_norm")
@_in_wide
def _group_norm(step: Step) -> Sequence[Adjoint]:
    """An instance norm of the data with the channels of a group as an axis of their own."""
    channels, shape, emit = _Channels(step, "channel_axis"), step.shape(), step.bb.emit
    axis, groups = channels.axis, step.attr("num_groups")
    apart = graph.ShapeExpr(
        (*shape[:axis], const(groups), shape[axis] // groups, *shape[axis + 1 :])
    )
    over = sorted([axis + 1, *(a + (a > axis) for a in _axes(step) if a != axis)])
    standard = _Standard(step, emit(op("reshape", step.args[0], apart)), over, True)
    whole = graph.ShapeExpr(shape)
    back = standard.back(emit(op("reshape", channels.scaled(step.adjoint), apart)))
    value = emit(op("reshape", standard.value, whole))
    return op("reshape", back, whole), *channels.parameters(step.adjoint, value)


@gradient("nn.batch_norm")
@_in_wide
def _batch_norm(step: Step) -> Sequence[Adjoint]:
    """In training, an instance norm over the batch, too, whose mean and variance the moving ones
    take up; else a scale and a shift by those."""
    channels, emit = _Channels(step, "axis"), step.bb.emit
    data, _, _, mean, variance = step.args
    adjoint, of_mean, of_variance = (emit(graph.TupleGetItem(step.adjoint, i)) for i in range(3))
    if not step.attr("training"):
        scale = emit(op("rsqrt", op("add", variance, step.number(step.attr("epsilon")))))
        along = channels.along(scale)
        standard = emit(op("multiply", op("subtract", data, channels.along(mean)), along))
        back = emit(op("multiply", channels.scaled(adjoint), along))
        slope = op("multiply", channels.summed(op("multiply", back, standard)), scale)
        moved = (
            op("subtract", of_mean, channels.summed(back)),
            op("subtract", of_variance, op("multiply", step.number(0.5), slope)),
        )
        return back, *channels.parameters(adjoint, standard), *moved
    taken = _Standard(step, data, channels.others, True)
    rate, count = step.attr("momentum"), step.count([step.shape()[a] for a in channels.others])
    share = op("divide", step.number(rate), count)
    slope = op(
        "multiply", op("multiply", step.number(2), taken.distance), channels.along(of_variance)
    )
    moving = op("multiply", op("add", channels.along(of_mean), slope), share)
    back = op("add", taken.back(channels.scaled(adjoint)), moving)
    kept = tuple(op("multiply", step.number(1 - rate), a) for a in (of_mean, of_variance))
    return back, *channels.parameters(adjoint, taken.value), *kept
