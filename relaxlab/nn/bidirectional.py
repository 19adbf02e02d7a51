"""Attention without a causal mask: of an encoder to itself, of a decoder to an encoder's output.

Keys are packed before use: the features of `KEY_BLOCK` neighbouring positions side by side, as in
the KV cache. A decoder packs the keys of the encoder's output once and reads them at every step.
"""

from __future__ import annotations

import math
from functools import cache

from relaxlab.ir import expr, loops
from relaxlab.ir.arguments import methods_name_arguments
from relaxlab.ir.expr import PrimExpr
from relaxlab.nn import spec
from relaxlab.nn.attention import Heads, split_heads
from relaxlab.nn.builder import Tensor
from relaxlab.nn.layers import Linear, MergedLinear
from relaxlab.nn.loop_functions import KEY_BLOCK, mixed_by_softmax
from relaxlab.nn.module import Module
from relaxlab.ops import scalar, te


@cache
def pack_keys(total: int, first: int, heads: int, head_dim: int) -> loops.PrimFunc:
    """x (b, t, total, d) -> (b, heads, ceil(t / 16), d, 16): the heads from `first` on, positions
    last; zeros behind the last position."""
    b, t = expr.Var("b"), expr.Var("t")
    x = te.placeholder((b, t, total, head_dim), "float32", "x")

    def packed(bi: PrimExpr, h: PrimExpr, n: PrimExpr, d: PrimExpr, lane: PrimExpr) -> PrimExpr:
        position = n * KEY_BLOCK + lane
        value = x[bi, position, first + h, d]
        return scalar.if_then_else(expr.LT(position, t), value, expr.const(0.0, "float32"))

    shape = (b, heads, (t + (KEY_BLOCK - 1)) // KEY_BLOCK, head_dim, KEY_BLOCK)
    return te.create_prim_func([x, te.compute(shape, packed, "pack_keys")])


@cache
def attention(
    total: int, first: int, total_v: int, first_v: int, heads: int, head_dim: int, masked: bool
) -> loops.PrimFunc:
    """(q (b, s, total, d), keys (b, heads, n, d, 16), values (b, t, total_v, d)[, mask int32 (b,
    t)]) -> (b, s, heads, d): each of the s queries attends to all t positions, or to those where
    the mask is not zero.

    A sequence whose mask is all zeros gets the mean of its values.
    """
    b, s, t, n = (expr.Var(name) for name in ("b", "s", "t", "n"))
    q = te.placeholder((b, s, total, head_dim), "float32", "q")
    keys = te.placeholder((b, heads, n, head_dim, KEY_BLOCK), "float32", "keys")
    values = te.placeholder((b, t, total_v, head_dim), "float32", "values")
    mask = te.placeholder((b, t), "int32", "mask")
    d = te.reduce_axis(head_dim, "d")
    scale = expr.const(1 / math.sqrt(head_dim), "float32")
    # Not minus infinity: a row that is masked throughout is to stay a number.
    lowest = expr.const(-3.4e38, "float32")

    def product(bi: PrimExpr, h: PrimExpr, i: PrimExpr, j: PrimExpr) -> te.Reduce:
        key = keys[bi, h, j // KEY_BLOCK, d.var, j % KEY_BLOCK]
        return te.te_sum(q[bi, i, first + h, d.var] * key, d)

    def scaled(bi: PrimExpr, h: PrimExpr, i: PrimExpr, j: PrimExpr) -> PrimExpr:
        value = dot[bi, h, i, j] * scale
        if not masked:
            return value
        return expr.Select(expr.NE(mask[bi, j], expr.const(0, "int32")), value, lowest)

    dot = te.compute((b, heads, s, t), product, "dot")
    score = te.compute((b, heads, s, t), scaled, "score")
    out = mixed_by_softmax(score, lambda bi, h, j, e: values[bi, j, first_v + h, e], head_dim)
    return te.create_prim_func([q, keys, values, *([mask] if masked else []), out])


def attend(q: Heads, keys: Tensor, v: Heads, mask: Tensor | None = None) -> Tensor:
    """The results (b, s, heads, d) of queries over packed keys; mask int32 (b, t)."""
    masks = [] if mask is None else [mask]
    func = attention(q.total, q.first, v.total, v.first, q.count, q.head_dim, mask is not None)
    (mixed,) = q.tensor.builder.call_loops("attention", func, [q.tensor, keys, v.tensor, *masks])
    return mixed


def packed(k: Heads) -> Tensor:
    """The keys (b, heads, ceil(t / 16), d, 16) of some heads (b, t, heads, d)."""
    func = pack_keys(k.total, k.first, k.count, k.head_dim)
    return k.tensor.builder.call_loops("pack_keys", func, [k.tensor])[0]


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
        not attended to. The result has the shape of x."""
        heads = split_heads(self.qkv(x), batch, length, self.head_dim)
        q, k, v = (heads[name] for name in ("q", "k", "v"))
        mixed = attend(q, packed(k), v, mask)
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
    def spec(
        batch: spec.Dim, length: str, blocks: str, heads: int, head_dim: int
    ) -> list[spec.Tensor]:
        """Return the two parameters with the encoder's keys and values, for `Module.export`."""
        return [
            spec.Tensor((batch, heads, blocks, head_dim, KEY_BLOCK)),
            spec.Tensor((batch, length, heads, head_dim)),
        ]

    def remember(self, x: Tensor, batch: PrimExpr, length: PrimExpr) -> list[Tensor]:
        """x (batch * length, hidden) -> packed keys (batch, heads, ceil(length / 16), head_dim,
        16) and values (batch, length, heads, head_dim)."""
        k, v = (
            part(x).reshape(batch, length, self.heads, self.head_dim)
            for part in (self.key, self.value)
        )
        return [packed(Heads(k, 0, self.heads)), v]

    def forward(
        self, x: Tensor, batch: PrimExpr, length: PrimExpr, keys: Tensor, values: Tensor
    ) -> Tensor:
        """x (batch * length, hidden); the result has its shape."""
        q = self.query(x).reshape(batch, length, self.heads, self.head_dim)
        mixed = attend(Heads(q, 0, self.heads), keys, Heads(values, 0, self.heads))
        return self.output(mixed.reshape(batch * length, self.heads * self.head_dim))
