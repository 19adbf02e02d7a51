"""Batch norms of convolutions become part of their weights."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from relaxlab.ir import graph, types
from relaxlab.ir.module import Module
from relaxlab.ops.define import attr
from relaxlab.ops.gradients.base import op
from relaxlab.passes.base import module_pass
from relaxlab.passes.bindings import leaf_type
from relaxlab.passes.patterns import Match, is_const, is_op, wildcard
from relaxlab.passes.patterns.rewrite import rewrite_matches

RULE = "fold_batch_norm"
DATA, WEIGHT = wildcard(), is_const()
GAMMA, BETA, MEAN, VARIANCE = is_const(), is_const(), is_const(), is_const()
CONVOLUTION = (is_op("nn.conv1d") | is_op("nn.conv2d") | is_op("nn.conv3d"))(DATA, WEIGHT)


@dataclass(frozen=True, slots=True)
class FoldOptions:
    """`inference`: norms that train, too, use the moving mean and variance and return them
    unchanged."""

    inference: bool = False


@module_pass(RULE, FoldOptions, needs=("normalize",))
def fold_batch_norm(mod: Module, options: FoldOptions) -> Module:
    """Scale the constant weights of a convolution as the batch norm of its result does, and add a
    bias, where the norm uses the moving mean and variance."""
    pattern = is_op("nn.batch_norm")(CONVOLUTION, GAMMA, BETA, MEAN, VARIANCE)
    return rewrite_matches(mod, pattern, partial(_folded, options), RULE)


def _folded(options: FoldOptions, norm: graph.Call, match: Match) -> graph.Expr | str:
    if attr(norm, "training") and not options.inference:
        return "the norm trains: it uses the mean and variance of the batch"
    convolution = match.definition(CONVOLUTION)
    assert isinstance(convolution, graph.Call)
    result, weight = leaf_type(norm.args[0]), leaf_type(match[WEIGHT])
    assert isinstance(result, types.TensorType) and isinstance(weight, types.TensorType)
    kernel = attr(convolution, "kernel_layout")
    layout = attr(convolution, "out_layout") or attr(convolution, "data_layout")
    if not (kernel.isalpha() and layout.isalpha()):
        return "the layout has blocks"
    if layout.index("C") != attr(norm, "axis") % result.ndim:
        return "the norm is not along the channels"
    if result.dtype != weight.dtype or weight.dtype is None:
        return "the weights have another dtype than the result"
    gamma, beta, mean, variance = norm.args[1:]
    epsilon = graph.Constant(np.asarray(attr(norm, "epsilon"), weight.dtype))
    deviation = op("sqrt", op("add", variance, epsilon))
    one = graph.Constant(np.asarray(1, weight.dtype))
    factor = op("divide", gamma if attr(norm, "scale") else one, deviation)
    scaled = op("multiply", match[WEIGHT], _along(factor, weight, kernel.index("O")))
    folded = graph.Call(convolution.op, (match[DATA], scaled), convolution.attrs)
    moved = op("multiply", mean, factor)
    bias = op("subtract", beta, moved) if attr(norm, "center") else op("negative", moved)
    normed = op("add", folded, _along(bias, result, layout.index("C")))
    return graph.Tuple((normed, mean, variance))


def _along(value: graph.Call, ty: types.TensorType, axis: int) -> graph.Call:
    """A vector as a tensor that broadcasts along one axis of a type."""
    dims = [-1 if k == axis else 1 for k in range(ty.ndim)]
    return op("reshape", value, tuple(dims))
