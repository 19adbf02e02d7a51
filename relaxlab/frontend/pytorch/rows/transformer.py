"""Layers of transformers that PyTorch computes by one call where no gradient is needed."""

from __future__ import annotations

import math
from typing import Any

from relaxlab.frontend.emitter import Emitter, Tensor, dtype_of, shape_of
from relaxlab.frontend.pytorch.rows.elementwise import converted
from relaxlab.frontend.pytorch.rows.linear import linear
from relaxlab.frontend.pytorch.rows.nn import layer_norm
from relaxlab.frontend.pytorch.rows.shapes import transpose
from relaxlab.frontend.pytorch.rows.table import row
from relaxlab.frontend.table import Refused
from relaxlab.ir import expr
from relaxlab.ir.types import TensorType

OF_PAIRS, OF_KEYS = 0, 1
"""Kinds of masks: (query, key) and (batch, key); all others are (batch, heads, query, key)."""


def of_width(b: Emitter, x: Tensor, weight: Tensor) -> Tensor:
    """Features, which PyTorch may not have compared with the matrix that they are multiplied by:
    a call does it then."""
    return b.fit(x, TensorType((*shape_of(x)[:-1], shape_of(weight)[-1]), dtype_of(x)))


def heads_of(b: Emitter, x: Tensor, heads: int) -> Tensor:
    """Features (batch, length, heads * depth) as (batch, heads, length, depth)."""
    batch, length, width = shape_of(x)
    return transpose(b, b.reshape(x, (batch, length, heads, width // heads)), 1, 2)


def hidden(b: Emitter, mask: Tensor, kind: int | None) -> Tensor:
    """A mask, true or not zero where a key is hidden, in the shape of the scores."""
    mask, shape = converted(b, mask, "bool"), shape_of(mask)
    if kind == OF_PAIRS:
        return b.reshape(mask, (1, 1, *shape))
    return b.reshape(mask, (shape[0], 1, 1, shape[1])) if kind == OF_KEYS else mask


@row("aten._native_multi_head_attention.default")
def multi_head_attention(
    b: Emitter, query: Tensor, key: Tensor, value: Tensor, embed_dim: int, heads: int,
    qkv_weight: Tensor, qkv_bias: Tensor, weight: Tensor, bias: Tensor,
    mask: Tensor | None = None, need_weights: bool = True, average: bool = True,
    mask_type: int | None = None,
) -> Any:  # fmt: skip
    """Attention with its projections, and the probabilities, or their means over the heads.

    Nothing is seen of a row whose keys are all hidden."""
    alone = query is key and key is value
    query = of_width(b, query, qkv_weight)
    if alone:
        parts = b.fields(b.split(linear(b, query, qkv_weight, qkv_bias),
                                 indices_or_sections=3, axis=-1))  # fmt: skip
    else:
        weights, biases = (
            b.fields(b.split(t, indices_or_sections=3, axis=0)) for t in (qkv_weight, qkv_bias)
        )
        key, value = (of_width(b, t, qkv_weight) for t in (key, value))
        sources = zip((query, key, value), weights, biases, strict=True)
        parts = tuple(linear(b, *source) for source in sources)
    q, k, v = (heads_of(b, part, heads) for part in parts)
    depth = shape_of(q)[-1]
    if not isinstance(depth, expr.IntImm):
        raise Refused(f"the size of its heads is {depth}")
    scores = b.matmul(b.divide(q, math.sqrt(depth.value)), transpose(b, k, -2, -1))
    if mask is not None:
        mask = hidden(b, mask, mask_type)
        scores = b.where(mask, float("-inf"), scores)
    chances = b.softmax(scores, axis=-1)
    if mask is not None:
        chances = b.where(mask, 0.0, chances)  # not NaN where all are hidden
    seen = b.reshape(transpose(b, b.matmul(chances, v), 1, 2), shape_of(query))
    result = linear(b, seen, weight, bias)
    if not need_weights:
        return result, b.zeros((0,), dtype="float32")
    return result, b.mean(chances, axis=1) if average else chances


@row("aten._transformer_encoder_layer_fwd.default")
def encoder_layer(
    b: Emitter, x: Tensor, embed_dim: int, heads: int, qkv_weight: Tensor, qkv_bias: Tensor,
    weight: Tensor, bias: Tensor, use_gelu: bool, norm_first: bool, eps: float,
    norm_weight_1: Tensor, norm_bias_1: Tensor, norm_weight_2: Tensor, norm_bias_2: Tensor,
    weight_1: Tensor, bias_1: Tensor, weight_2: Tensor, bias_2: Tensor,
    mask: Tensor | None = None, mask_type: int | None = None,
) -> Any:  # fmt: skip
    """A layer of `torch.nn.TransformerEncoder`."""

    def attended(x: Tensor) -> Tensor:
        return multi_head_attention(
            b, x, x, x, embed_dim, heads, qkv_weight, qkv_bias, weight, bias, mask, False,
            mask_type=mask_type,
        )[0]  # fmt: skip

    def fed_forward(x: Tensor) -> Tensor:
        y = linear(b, x, weight_1, bias_1)
        return linear(b, b.gelu(y) if use_gelu else b.relu(y), weight_2, bias_2)

    x = of_width(b, x, qkv_weight)
    width = list(shape_of(x)[-1:])
    norms = (norm_weight_1, norm_bias_1), (norm_weight_2, norm_bias_2)
    for part, (gain, offset) in zip((attended, fed_forward), norms, strict=True):
        if norm_first:
            x = b.add(x, part(layer_norm(b, x, width, gain, offset, eps)))
        else:
            x = layer_norm(b, b.add(x, part(x)), width, gain, offset, eps)
    return x
