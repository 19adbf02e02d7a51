"""Patterns of common compositions, each with names of its parts."""

from __future__ import annotations

from collections.abc import Mapping

from relaxlab.passes.patterns.language import is_op, wildcard
from relaxlab.tvm.relax.dpl import DFPattern

Named = tuple[DFPattern, Mapping[str, DFPattern]]
"""A pattern, and parts of it by their names, which checks ask for."""


def _finished(
    out: DFPattern, parts: dict[str, DFPattern], with_bias: bool, activation: str | None
) -> Named:
    """A pattern with a bias added and an activation applied."""
    if with_bias:
        parts["bias"] = wildcard()
        out = is_op("relax.add")(out, parts["bias"])
    return (is_op(activation)(out) if activation else out), parts


def make_fused_bias_activation_pattern(
    op_name: str, with_bias: bool = False, activation: str | None = None
) -> Named:
    """An operator of two tensors, `lhs` and `rhs`, perhaps with a bias and an activation."""
    lhs, rhs = wildcard(), wildcard()
    root = is_op(op_name)(lhs, rhs)
    return _finished(root, {"lhs": lhs, "rhs": rhs, "root": root}, with_bias, activation)


def make_conv2d_pattern(with_bias: bool = False, activation: str | None = None) -> Named:
    """A convolution, perhaps with a bias and an activation."""
    return make_fused_bias_activation_pattern("relax.nn.conv2d", with_bias, activation)


def make_matmul_pattern(
    with_bias: bool = False, activation: str | None = None, transposed_rhs: bool = False
) -> Named:
    """A product, of a transposed right side if so, perhaps with a bias and an activation."""
    lhs, rhs = wildcard(), wildcard()
    factor = is_op("relax.permute_dims")(rhs) if transposed_rhs else rhs
    root = is_op("relax.matmul")(lhs, factor)
    return _finished(root, {"lhs": lhs, "rhs": rhs, "root": root}, with_bias, activation)


def make_residual_block_pattern(
    node_output: DFPattern | Named, binary_op: str = "relax.add", activation: str | None = None
) -> Named:
    """A pattern of what another one matches and a further input, on either side of an operator."""
    out, given = node_output if isinstance(node_output, tuple) else (node_output, {})
    parts = {**given, "residual": wildcard()}
    both = is_op(binary_op)
    joined = both(out, parts["residual"]) | both(parts["residual"], out)
    return (is_op(activation)(joined) if activation else joined), parts


def make_layer_norm_pattern() -> DFPattern:
    """A layer normalisation of three tensors."""
    return is_op("relax.nn.layer_norm")(wildcard(), wildcard(), wildcard())
