"""Express normalisations by simpler operators."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from relaxlab.ir import graph, types
from relaxlab.ir.module import Module
from relaxlab.ir.op_table import op_row
from relaxlab.ops.gradients.base import op
from relaxlab.passes.base import module_pass
from relaxlab.passes.bindings import leaf_type
from relaxlab.passes.patterns import Match, is_op
from relaxlab.passes.patterns.rewrite import rewrite_matches

RULE = "decompose_norms"


@dataclass(frozen=True, slots=True)
class DecomposeOptions:
    """`training`: batch norms take the mean and variance of the batch, and update the moving ones;
    layer norms are taken apart, too."""

    training: bool = False


@module_pass(RULE, DecomposeOptions, needs=("normalize",))
def decompose_norms(mod: Module, options: DecomposeOptions) -> Module:
    """Write `nn.batch_norm`, and in training `nn.layer_norm`, as means, differences and products,
    whose constants other passes fold and whose gradients are known one by one.

    In inference a batch norm uses the moving mean and variance and returns them unchanged.
    """
    if not options.training:
        return rewrite_matches(mod, is_op("nn.batch_norm"), _inference, RULE)
    mod = rewrite_matches(mod, is_op("nn.batch_norm"), _training, RULE)
    return rewrite_matches(mod, is_op("nn.layer_norm"), _layer_norm, RULE)


def _attr(call: graph.Call, name: str) -> Any:
    assert isinstance(call.op, graph.Op)
    defaults = {p.name: p.default for p in op_row(call.op.name).params}
    return call.attrs.get(name, defaults[name])


def _constant(value: float, dtype: str) -> graph.Constant:
    return graph.Constant(np.asarray(value, dtype))


def _normed(
    call: graph.Call, mean: graph.Expr, variance: graph.Expr, ty: types.TensorType
) -> graph.Expr:
    """(x - mean) / sqrt(variance + epsilon), scaled and shifted along the axis."""
    x, gamma, beta = call.args[:3]
    axis = _attr(call, "axis") % ty.ndim
    others = [i for i in range(ty.ndim) if i != axis]

    def along(value: graph.Expr) -> graph.Expr:
        return op("expand_dims", value, axis=others) if others else value

    assert ty.dtype is not None
    deviation = op(
        "sqrt", op("add", along(variance), _constant(_attr(call, "epsilon"), ty.dtype))
    )
    result = op("divide", op("subtract", x, along(mean)), deviation)
    if _attr(call, "scale"):
        result = op("multiply", result, along(gamma))
    return op("add", result, along(beta)) if _attr(call, "center") else result


def _known(call: graph.Call) -> types.TensorType | None:
    ty = leaf_type(call.args[0])
    if not isinstance(ty, types.TensorType) or ty.ndim < 0 or ty.dtype is None:
        return None
    return ty


def _inference(call: graph.Call, _: Match) -> graph.Expr | str:
    ty = _known(call)
    if ty is None:
        return "the rank or dtype of the input is not known"
    mean, variance = call.args[3:5]
    return graph.Tuple((_normed(call, mean, variance, ty), mean, variance))


def _training(call: graph.Call, _: Match) -> graph.Expr | str:
    ty = _known(call)
    if ty is None:
        return "the rank or dtype of the input is not known"
    axis = _attr(call, "axis") % ty.ndim
    others = [i for i in range(ty.ndim) if i != axis]
    assert ty.dtype is not None
    mean = op("mean", call.args[0], axis=others)
    variance = op("variance", call.args[0], axis=others)
    rate = _attr(call, "momentum")

    def moved(old: graph.Expr, new: graph.Expr) -> graph.Expr:
        kept = op("multiply", _constant(1 - rate, ty.dtype or ""), old)
        return op("add", kept, op("multiply", _constant(rate, ty.dtype or ""), new))

    return graph.Tuple(
        (
            _normed(call, mean, variance, ty),
            moved(call.args[3], mean),
            moved(call.args[4], variance),
        )
    )


def _layer_norm(call: graph.Call, _: Match) -> graph.Expr | str:
    ty = _known(call)
    if ty is None:
        return "the rank or dtype of the input is not known"
    axes = _attr(call, "axes")
    assert ty.dtype is not None
    x = call.args[0]
    mean = op("mean", x, axis=axes, keepdims=True)
    variance = op("variance", x, axis=axes, keepdims=True)
    deviation = op("sqrt", op("add", variance, _constant(_attr(call, "epsilon"), ty.dtype)))
    result = op("divide", op("subtract", x, mean), deviation)
    if _attr(call, "scale") and len(call.args) > 1:
        result = op("multiply", result, call.args[1])
    if _attr(call, "center") and len(call.args) > 2:
        result = op("add", result, call.args[2])
    return result
