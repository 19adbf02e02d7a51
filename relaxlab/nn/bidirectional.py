"""Attention without a causal mask: of an encoder to itself, of a decoder to an encoder's output."""

from __future__ import annotations

import math
from functools import cache

from relaxlab.ir import expr, loops
from relaxlab.ir.expr import PrimExpr
from relaxlab.nn import spec
from relaxlab.nn.attention import Heads, split_heads
from relaxlab.nn.builder import Tensor
from relaxlab.nn.layers import Linear, MergedLinear
from relaxlab.nn.loop_functions import mixed_by_softmax
from relaxlab.nn.module import Module
from relaxlab.ops import te


@cache
def attention(
    total: tuple[int, int, int], first: tuple[int, int, int], heads: int, head_dim: int,
    masked: bool,
) -> loops.PrimFunc:  # fmt: skip
    """(q (b, s, total_q, d), keys (b, t, total_k, d), values (b, t, total_v, d)[, mask int32 (b,
    t)]) -> (b, s, heads, d): each of the s queries attends to all t positions, or to those where
    the mask is not zero. Of the heads of each tensor, `total`, those from `first` on take part.

    A sequence whose mask is all zeros gets the mean of its values.
    """
    b, s, t = (expr.Var(name) for name in ("b", "s", "t"))
    first_q, first_k, first_v = first
    q, keys, values = (
        te.placeholder((b, rows, count, head_dim), "float32", name)
        for name, rows, count in zip(("q", "keys", "values"), (s, t, t), total, strict=True)
    )
    mask = te.placeholder((b, t), "int32", "mask")
    d = te.reduce_axis(head_dim, "d")
    scale = expr.const(1 / math.sqrt(head_dim), "float32")
    # Not minus infinity: a row that is masked throughout is to stay a number.
    lowest = expr.const(-3.4e38, "float32")

    def product(bi: PrimExpr, h: PrimExpr, i: PrimExpr, j: PrimExpr) -> te.Reduce:
        return te.te_sum(q[bi, i, first_q + h, d.var] * keys[bi, j, first_k + h, d.var], d)

    def scaled(bi: PrimExpr, h: PrimExpr, i: PrimExpr, j: PrimExpr) -> PrimExpr:
        value = dot[bi, h, i, j] * scale
        if not masked:
            return value
        return expr.Select(expr.NE(mask[bi, j], expr.const(0, "int32")), value, lowest)

    dot = te.compute((b, heads, s, t), product, "dot")
    score = te.compute((b, heads, s, t), scaled, "score")
    out = mixed_by_softmax(score, lambda bi, h, j, e: values[bi, j, first_v + h, e], head_dim)
    return te.create_prim_func([q, keys, values, *([mask] if masked else []), out])


def attend(q: Heads, k: Heads, v: Heads, mask: Tensor | None = None) -> Tensor:
    """The results (b, s, heads, d) of queries over keys and values; mask int32 (b, t)."""
    total, first = (q.total, k.total, v.total), (q.first, k.first, v.first)
    func = attention(total, first, q.count, q.head_dim, mask is not None)
    args = [q.tensor, k.tensor, v.tensor, *([] if mask is None else [mask])]
    return q.tensor.builder.call_loops("attention", func, args)[0]


class SelfAttention(Module):
    """Every position attends to all of its sequence. `qkv` has the parts `q`, `k` and `v`."""

    def __init__(self, qkv: MergedLinear, output: Linear, *, heads: int, head_dim: int) -> None:
        self.qkv, self.output = qkv, output
        self.heads, self.head_dim = heads, head_dim

    def forward(
        self, x: Tensor, batch: PrimExpr, length: PrimExpr, mask: Tensor | None = None
    ) -> Tensor:
        """x (batch * length, hidden), mask int32 (batch, length): positions where it is zero are
        not attended to. The result has the shape of x."""
        heads = split_heads(self.qkv(x), batch, length, self.head_dim)
        q, k, v = (heads[name] for name in ("q", "k", "v"))
        mixed = attend(q, k, v, mask)
        return self.output(mixed.reshape(batch * length, self.heads * self.head_dim))


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
        return [spec.Tensor((batch, length, heads, head_dim))] * 2

    def remember(self, x: Tensor, batch: PrimExpr, length: PrimExpr) -> list[Tensor]:
        """x (batch * length, hidden) -> keys and values (batch, length, heads, head_dim)."""
        return [
            part(x).reshape(batch, length, self.heads, self.head_dim)
            for part in (self.key, self.value)
        ]

    def forward(
        self, x: Tensor, batch: PrimExpr, length: PrimExpr, keys: Tensor, values: Tensor
    ) -> Tensor:
        """x (batch * length, hidden); the result has its shape."""
        q = self.query(x).reshape(batch, length, self.heads, self.head_dim)
        q, k, v = (Heads(tensor, 0, self.heads) for tensor in (q, keys, values))
        mixed = attend(q, k, v)
        return self.output(mixed.reshape(batch * length, self.heads * self.head_dim))
