"""Attention with rotary embedding over a KV cache that is updated in place."""

from __future__ import annotations

from dataclasses import dataclass

from relaxlab.ir import expr
from relaxlab.ir.expr import PrimExpr
from relaxlab.nn import loop_functions, spec
from relaxlab.nn.builder import Parameter, Tensor
from relaxlab.nn.layers import Columns, Linear, MergedLinear
from relaxlab.nn.module import Module


@dataclass(frozen=True, slots=True)
class KVCache:
    """Keys (b, kv_heads, positions / 16, head_dim, 16) and values (b, kv_heads, positions,
    head_dim) of one layer, `past` positions in use."""

    keys: Tensor
    values: Tensor

    @staticmethod
    def shapes(heads: int, head_dim: int, positions: int) -> tuple[tuple[int, ...], ...]:
        """The shapes of one sequence's keys and values."""
        return loop_functions.cache_shapes((heads, head_dim, positions))

    @staticmethod
    def spec(
        batch: spec.Dim, positions: int, kv_heads: int, head_dim: int, dtype: str = "float32"
    ) -> list[spec.Tensor]:
        """The two parameters, for `Module.export`."""
        shapes = KVCache.shapes(kv_heads, head_dim, positions)
        return [spec.Tensor((batch, *shape), dtype) for shape in shapes]

    @property
    def shape(self) -> loop_functions.CacheShape:
        """Heads, features per head, positions."""
        _, heads, positions, head_dim = self.values.shape
        assert isinstance(heads, expr.IntImm) and isinstance(head_dim, expr.IntImm)
        assert isinstance(positions, expr.IntImm)
        return heads.value, head_dim.value, positions.value


@dataclass(frozen=True, slots=True)
class Heads:
    """Heads `first` .. `first + count` of a tensor (b, s, total, head_dim)."""

    tensor: Tensor
    first: int
    count: int

    @property
    def total(self) -> int:
        """All heads of the tensor."""
        extent = self.tensor.shape[2]
        assert isinstance(extent, expr.IntImm)
        return extent.value


class RotaryEmbedding(Module):
    """Turns pairs of features by an angle per position and pair.

    The tables `cos` and `sin`, (positions, head_dim / 2), hold the angles' cosines and sines.
    """

    def __init__(self, positions: int, head_dim: int, *, interleaved: bool) -> None:
        self.head_dim, self.interleaved = head_dim, interleaved
        self.cos = Parameter((positions, head_dim // 2))
        self.sin = Parameter((positions, head_dim // 2))

    def forward(self, x: Heads, past: PrimExpr) -> Heads:
        builder = x.tensor.builder
        func = loop_functions.rotary(x.total, x.first, x.count, self.head_dim, self.interleaved)
        tables = [builder.weight(self.cos), builder.weight(self.sin)]
        (y,) = builder.call_loops("rotary", func, [x.tensor, *tables], [past])
        return Heads(y, 0, x.count)


class Attention(Module):
    """Causal self-attention; query heads share `kv_heads` key and value heads in equal groups.

    `qkv` has the parts `q`, `k` and `v`.
    """

    def __init__(
        self,
        qkv: MergedLinear,
        output: Linear,
        rotary: RotaryEmbedding,
        *,
        heads: int,
        kv_heads: int,
    ) -> None:
        self.qkv, self.output, self.rotary = qkv, output, rotary
        self.heads, self.kv_heads, self.head_dim = heads, kv_heads, rotary.head_dim

    def forward(
        self, x: Tensor, batch: PrimExpr, length: PrimExpr, past: PrimExpr, cache: KVCache
    ) -> Tensor:
        """x (batch * length, hidden): `length` new positions after `past`, which are appended to
        `cache`; the result has the shape of x."""
        columns = self.qkv(x)
        split = {
            t: t.reshape(batch, length, t.shape[-1] // self.head_dim, self.head_dim)
            for t in dict.fromkeys(part.tensor for part in columns.values())
        }
        q, k, v = (self._heads(columns[n], split) for n in ("q", "k", "v"))
        q, k = self._rotated(q, k, past)
        dtype = cache.keys.dtype
        append = loop_functions.append_kv(k.total, k.first, v.total, v.first, cache.shape, dtype)
        keys, values = x.builder.call_loops(
            "append_kv",
            append,
            [k.tensor, v.tensor, cache.keys, cache.values],
            [past],
            inplace=(2, 3),
        )
        attend = loop_functions.cached_attention(q.total, q.first, self.heads, cache.shape, dtype)
        (mixed,) = x.builder.call_loops(
            "cached_attention", attend, [q.tensor, keys, values], [past]
        )
        return self.output(mixed.reshape(batch * length, self.heads * self.head_dim))

    def _heads(self, part: Columns, split: dict[Tensor, Tensor]) -> Heads:
        first, count = part.first // self.head_dim, part.count // self.head_dim
        return Heads(split[part.tensor], first, count)

    def _rotated(self, q: Heads, k: Heads, past: PrimExpr) -> tuple[Heads, Heads]:
        """Queries and keys rotated: at once where they lie side by side."""
        if q.tensor is not k.tensor:
            return self.rotary(q, past), self.rotary(k, past)
        both = self.rotary(Heads(q.tensor, q.first, q.count + k.count), past)
        return Heads(both.tensor, 0, q.count), Heads(both.tensor, q.count, k.count)
