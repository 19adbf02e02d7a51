"""Attention without a causal mask: of an encoder to itself, of a decoder to an encoder's output."""

from __future__ import annotations

from relaxlab.ir.arguments import methods_name_arguments
from relaxlab.ir.expr import PrimExpr
from relaxlab.nn import spec
from relaxlab.nn.builder import Tensor
from relaxlab.nn.layers import Linear, MergedLinear
from relaxlab.nn.module import Module

_LOWEST = -3.4e38
"""Added to a score that is left out. Not minus infinity: a row that is masked throughout is to stay
a number."""


@methods_name_arguments
class SelfAttention(Module):
    """Every position attends to all of its sequence. `qkv` has the parts `q`, `k` and `v`."""

    def __init__(self, qkv: MergedLinear, output: Linear, *, heads: int, head_dim: int) -> None:
        self.qkv, self.output = qkv, output
        self.heads, self.head_dim = heads, head_dim

    def forward(
        self, x: Tensor, batch: PrimExpr, length: PrimExpr, mask: Tensor | None = None
    ) -> Tensor:
        """x (batch * length, hidden), mask int32 (batch, length): positions where it is zero are
        not attended to, unless all of a sequence are. The result has the shape of x."""
        shape = batch, length, self.heads, self.head_dim
        parts = self.qkv(x)
        heads = [parts[name].whole().reshape(*shape) for name in ("q", "k", "v")]
        bias = []
        if mask is not None:
            left_out = mask.reshape(batch, 1, 1, length).op("equal", 0)
            bias.append(left_out.astype("float32") * _LOWEST)
        mixed = heads[0].op("nn.attention", *heads[1:], *bias)
        return self.output(mixed.reshape(batch * length, self.heads * self.head_dim))


@methods_name_arguments
class CrossAttention(Module):
    """Queries from one sequence, keys and values from another, which `remember` prepares once."""

    def __init__(
        self, query: Linear, key: Linear, value: Linear, output: Linear, *, heads: int,
        head_dim: int,
    ) -> None:  # fmt: skip
        self.query, self.key, self.value, self.output = query, key, value, output
        self.heads, self.head_dim = heads, head_dim

    @staticmethod
    def spec(batch: spec.Dim, length: str, heads: int, head_dim: int) -> list[spec.Tensor]:
        """Return the two parameters with the encoder's keys and values, for `Module.export`."""
        return [spec.Tensor((batch, heads, length, head_dim))] * 2

    def remember(self, x: Tensor, batch: PrimExpr, length: PrimExpr) -> list[Tensor]:
        """x (batch * length, hidden) -> keys and values (batch, heads, length, head_dim): those of
        a head behind each other, as every new query reads them."""
        return [
            part(x).reshape(batch, length, self.heads, self.head_dim).permute_dims((0, 2, 1, 3))
            for part in (self.key, self.value)
        ]

    def forward(
        self, x: Tensor, batch: PrimExpr, length: PrimExpr, keys: Tensor, values: Tensor
    ) -> Tensor:
        """x (batch * length, hidden); the result has its shape."""
        q = self.query(x).reshape(batch, length, self.heads, self.head_dim)
        k, v = (memory.permute_dims((0, 2, 1, 3)) for memory in (keys, values))
        mixed = q.op("nn.attention", k, v)
        return self.output(mixed.reshape(batch * length, self.heads * self.head_dim))
