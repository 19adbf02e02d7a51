"""The gradient of attention."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from relaxlab.ir import expr, graph
from relaxlab.ops.attention import scale_of
from relaxlab.ops.gradients.base import Adjoint, NotDifferentiable, Step, gradient, op
from relaxlab.ops.scalar import accumulator_of, cast
from relaxlab.ops.shapes import divide_exactly


@gradient("nn.attention", "nn.attention_bias")
def _attention(step: Step) -> Sequence[Adjoint]:
    """With p the weights of the keys and g the adjoint of the result: g v^T is the adjoint of p,
    and p * (g v^T - the sum of g v^T * p) that of the scores."""
    emit, group = step.bb.emit, _queries_per_key(step)
    q, adjoint = _heads(step, step.args[0]), _heads(step, step.adjoint)
    k, v = (_heads(step, a, group) for a in step.args[1:3])
    wide = accumulator_of(step.dtype)
    factor = graph.PrimValue(cast(scale_of(step.call, step.shape()[3]), wide))
    p = _weights(step, op("multiply", op("matmul", q, _turned(k)), factor))
    of_p = emit(op("matmul", adjoint, _turned(v)))
    total = op("sum", op("multiply", of_p, p), axis=[-1], keepdims=True)
    of_scores = emit(op("multiply", p, op("subtract", of_p, total)))
    scaled = emit(op("multiply", of_scores, factor))
    return (
        _back(step, op("matmul", scaled, k)),
        _back(step, op("matmul", _turned(scaled), q), group),
        _back(step, op("matmul", _turned(p), adjoint), group),
        *(step.fit(_as(of_scores, wide, step.type_of(a).dtype or ""), 3) for a in step.args[3:]),
    )


def _queries_per_key(step: Step) -> int:
    """The number of heads of queries that read one head of keys."""
    group = divide_exactly(step.shape()[2:3], step.shape(1)[2:3])
    if not isinstance(group, expr.IntImm):
        raise NotDifferentiable(
            f"the gradient of {step.call.op} needs a constant number of query heads per key head"
        )
    return group.value


def _as(value: graph.Expr, dtype: str, wanted: str) -> graph.Expr:
    return value if dtype == wanted else op("astype", value, dtype=wanted)


def _turned(value: graph.Expr) -> graph.Call:
    return op("permute_dims", value, axes=[0, 1, 3, 2])


def _heads(step: Step, value: graph.Expr, repeats: int = 1) -> graph.Expr:
    """(batch, length, heads, depth) as (batch, heads * repeats, length, depth), in the dtype in
    which scores are summed."""
    value = _as(value, step.dtype, accumulator_of(step.dtype))
    value = op("permute_dims", value, axes=[0, 2, 1, 3])
    return step.bb.emit(op("repeat", value, repeats=repeats, axis=1) if repeats > 1 else value)


def _back(step: Step, value: graph.Expr, repeats: int = 1) -> graph.Expr:
    """A value as `_heads` returns them in the order and dtype of the arguments, summed over the
    repeats."""
    if repeats > 1:
        value = step.bb.emit(value)
        batch, heads, length, depth = step.shape_of(value)
        apart = (batch, heads // repeats, expr.const(repeats), length, depth)
        value = op("sum", op("reshape", value, graph.ShapeExpr(apart)), axis=[2])
    value = op("permute_dims", value, axes=[0, 2, 1, 3])
    return _as(value, accumulator_of(step.dtype), step.dtype)


def _weights(step: Step, scores: graph.Expr) -> graph.Expr:
    """The softmax of scores over the keys that a query sees; zeros where it sees none."""
    wide, emit = accumulator_of(step.dtype), step.bb.emit
    for bias in step.args[3:]:
        scores = op("add", scores, _as(bias, step.type_of(bias).dtype or "", wide))
    seen = _seen(step, wide)
    if seen is None and not step.args[3:]:
        return emit(op("nn.softmax", scores))
    lowest, zero = (graph.Constant(np.asarray(v, wide)) for v in (-np.inf, 0))
    if seen is not None:
        scores = op("where", op("greater", seen, zero), scores, lowest)
    # A bias may hide keys, too: of a query that sees none the softmax is not a number.
    scores = emit(scores)
    return emit(op("where", op("equal", scores, lowest), zero, op("nn.softmax", scores)))


def _seen(step: Step, dtype: str) -> graph.Expr | None:
    """A matrix of query and key positions with 1 where the query sees the key, else 0; None where
    all see all."""
    mask, window = step.attr("causal_mask"), step.attr("window_size")
    if mask is None and window is None:
        return None
    rows, length = step.shape()[1], step.shape(1)[1]
    shift = length - rows if mask == "BottomRight" else expr.const(0)
    seen: graph.Expr = op("ones", graph.ShapeExpr((rows, length)), dtype)
    if mask is not None:
        seen = op("tril", seen, shift)
    return seen if window is None else op("triu", seen, shift - window + 1)
