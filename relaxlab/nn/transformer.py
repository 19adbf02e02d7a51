"""Attention and encoder layers under the names that PyTorch gives them, on batches of sequences:
all equally long, (b, s, features), or ragged, (b, s[i], features)."""

from __future__ import annotations

from typing import Literal

from relaxlab.ir.arguments import methods_name_arguments
from relaxlab.nn.builder import Parameter, Tensor
from relaxlab.nn.initial import uniform_fan_in, zeros
from relaxlab.nn.layers import LayerNorm, Linear
from relaxlab.nn.module import Module
from relaxlab.ops.define import builder as operator


@methods_name_arguments
class MultiheadAttention(Module):
    """Attention of the positions of each sequence to those of the same one, or to those of another
    one. `causal`: a position sees those up to itself.

    in_proj_weight: (3 * features, features), for queries, keys and values; in_proj_bias: (3 *
    features,).
    """

    def __init__(self, features: int, heads: int, *, causal: bool = False) -> None:
        """ValueError for features that the heads do not share equally."""
        if features % heads:
            raise ValueError(f"{heads} heads do not share {features} features equally")
        self.features, self.heads, self.causal = features, heads, causal
        initial = uniform_fan_in(features)
        self.in_proj_weight = Parameter((3 * features, features), initial=initial)
        self.in_proj_bias = Parameter((3 * features,), initial=zeros)
        self.out_proj = Linear(features, features, bias=True)

    def forward(self, x: Tensor, memory: Tensor | None = None) -> Tensor:
        """x (b, s, features) asks, and `memory` (b, t, features) answers; x itself where there is
        none. The result has the shape of x."""
        weight, bias = (x.builder.weight(p) for p in (self.in_proj_weight, self.in_proj_bias))
        if memory is None:
            q, k, v = self._heads(x, weight, bias)
        else:
            end = self.features
            (q,) = self._heads(x, weight[:end], bias[:end])
            k, v = self._heads(memory, weight[end:], bias[end:])
        mask = {"causal_mask": "TopLeft"} if self.causal else {}
        return self.out_proj(q.op("nn.attention", k, v, **mask).reshape(0, 0, self.features))

    def _heads(self, x: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, ...]:
        """Projections of x, each as heads (b, s, heads, features / heads)."""
        y, each = x.op("linear", weight, bias), self.features // self.heads
        if y.shape[-1] == x.shape[-1]:
            return (y.reshape(0, 0, self.heads, each),)
        parts = y.shape[-1].value // self.features  # type: ignore[attr-defined]
        heads = y.reshape(0, 0, parts * self.heads, each)
        return x.builder.emit_tuple(operator("split")(heads.var, parts, axis=2), "heads")


@methods_name_arguments
class TransformerEncoderLayer(Module):
    """Self-attention and two linear maps with a nonlinearity between them, each added to its input
    and normalised, `norm_first` before it and else after the sum."""

    def __init__(
        self,
        features: int,
        heads: int,
        hidden: int = 2048,
        activation: Literal["relu", "gelu"] = "relu",
        *,
        norm_first: bool = False,
        causal: bool = False,
    ) -> None:
        self.self_attn = MultiheadAttention(features, heads, causal=causal)
        self.linear1 = Linear(features, hidden, bias=True)
        self.linear2 = Linear(hidden, features, bias=True)
        self.norm1, self.norm2 = LayerNorm(features), LayerNorm(features)
        self.activation, self.norm_first = activation, norm_first

    def forward(self, x: Tensor) -> Tensor:
        if self.norm_first:
            x = x + self.self_attn(self.norm1(x))
            return x + self._feed_forward(self.norm2(x))
        x = self.norm1(x + self.self_attn(x))
        return self.norm2(x + self._feed_forward(x))

    def _feed_forward(self, x: Tensor) -> Tensor:
        return self.linear2(self.linear1(x).op(f"nn.{self.activation}"))
