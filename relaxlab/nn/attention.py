"""Attention with rotary embedding over a KV cache that is updated in place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from relaxlab.ir import expr
from relaxlab.ir.arguments import methods_name_arguments
from relaxlab.ir.expr import PrimExpr
from relaxlab.nn import loop_functions, spec
from relaxlab.nn.builder import Parameter, Tensor
from relaxlab.nn.layers import Columns, Linear, MergedLinear
from relaxlab.nn.loop_functions import Scores
from relaxlab.nn.module import Module


@dataclass(frozen=True, slots=True)
class Heads:
    """Heads `first` .. `first + count` of a tensor (b, s, total, head_dim)."""

    tensor: Tensor
    first: int
    count: int

    @property
    def total(self) -> int:
        """All heads of the tensor."""
        return _constant(self.tensor.shape[2])

    @property
    def head_dim(self) -> int:
        """Features per head."""
        return _constant(self.tensor.shape[3])


def _constant(extent: PrimExpr) -> int:
    assert isinstance(extent, expr.IntImm)
    return extent.value


def split_heads(
    columns: Mapping[str, Columns], batch: PrimExpr, length: PrimExpr, head_dim: int
) -> dict[str, Heads]:
    """The parts of a merged projection (batch * length, n) as heads, nothing cut out."""
    split = {
        t: t.reshape(batch, length, t.shape[-1] // head_dim, head_dim)
        for t in dict.fromkeys(part.tensor for part in columns.values())
    }
    return {
        name: Heads(split[part.tensor], part.first // head_dim, part.count // head_dim)
        for name, part in columns.items()
    }


@methods_name_arguments
class RotaryEmbedding(Module):
    """Turns pairs of a head's first `dims` features by an angle per position and pair.

    The tables `cos` and `sin`, (positions, dims / 2), hold the angles' cosines and sines.
    """

    def __init__(self, positions: spec.Dim, dims: int, *, interleaved: bool) -> None:
        self.dims, self.interleaved = dims, interleaved
        self.cos = Parameter((positions, dims // 2))
        self.sin = Parameter((positions, dims // 2))

    def forward(self, x: Heads, past: PrimExpr) -> Heads:
        builder = x.tensor.builder
        func = loop_functions.rotary(
            x.total, x.first, x.count, x.head_dim, self.dims, self.interleaved
        )
        tables = [builder.weight(self.cos), builder.weight(self.sin)]
        (y,) = builder.call_loops("rotary", func, [x.tensor, *tables], [past])
        return Heads(y, 0, x.count)


class Cache(Protocol):
    """A layer's stored keys and values, and the positions of the new ones."""

    @property
    def dtype(self) -> str:
        """The dtype of the keys and values."""
        ...

    def rotate(self, rotary: RotaryEmbedding, x: Heads) -> Heads:
        """The heads of the new positions, turned by their angles."""
        ...

    def append(self, k: Heads, v: Heads) -> Cache:
        """The cache with the keys and values of the new positions."""
        ...

    def attend(self, q: Heads, scores: Scores) -> Tensor:
        """The values (b, s, heads, head_dim) mixed for each query of the new positions, which the
        cache has already."""
        ...


@dataclass(frozen=True, slots=True)
class KVCache:
    """Keys (b, kv_heads, positions / 16, head_dim, 16) and values (b, kv_heads, positions,
    head_dim) of one layer, `past` positions in use. New positions are written in place."""

    keys: Tensor
    values: Tensor
    past: PrimExpr

    @staticmethod
    def shapes(heads: int, head_dim: int, positions: int) -> tuple[tuple[int, ...], ...]:
        """The shapes of one sequence's keys and values."""
        return loop_functions.cache_shapes((heads, head_dim), positions)

    @staticmethod
    def spec(
        batch: spec.Dim, positions: spec.Dim, kv_heads: int, head_dim: int, dtype: str = "float32"
    ) -> list[spec.Tensor]:
        """The two parameters, for `Module.export`; `positions` is a number or a symbol's name.
        With a symbol, that of the keys' blocks is `key_blocks`."""
        block = loop_functions.KEY_BLOCK
        blocks = "key_blocks" if isinstance(positions, str) else -(-positions // block)
        return [
            spec.Tensor((batch, kv_heads, blocks, head_dim, block), dtype),
            spec.Tensor((batch, kv_heads, positions, head_dim), dtype),
        ]

    @property
    def dtype(self) -> str:
        """The dtype of the keys and values."""
        return self.keys.dtype

    @property
    def shape(self) -> loop_functions.HeadShape:
        """Heads, features per head."""
        _, heads, _, head_dim = self.values.shape
        return _constant(heads), _constant(head_dim)

    def require_room(self, length: PrimExpr) -> None:
        """Have calls stop unless there is room for `length` new positions, where the number of
        positions is a symbol."""
        end, (blocks, *_), (positions, _) = (
            self.past + length, self.keys.shape[2:], self.values.shape[2:],
        )  # fmt: skip
        # For a constant number of positions the caller sees to it.
        if isinstance(positions, expr.Var):
            for room in (positions, blocks * loop_functions.KEY_BLOCK):
                self.keys.builder.require(expr.LE(end, room), "room")

    def rotate(self, rotary: RotaryEmbedding, x: Heads) -> Heads:
        """The heads of the new positions, turned by their angles."""
        return rotary(x, self.past)

    def append(self, k: Heads, v: Heads) -> KVCache:
        """The cache with the keys and values of the new positions."""
        func = loop_functions.append_kv(
            k.total, k.first, v.total, v.first, self.shape, self.dtype, k.tensor.dtype
        )
        keys, values = k.tensor.builder.call_loops(
            "append_kv",
            func,
            [k.tensor, v.tensor, self.keys, self.values],
            [self.past],
            inplace=(2, 3),
        )
        return replace(self, keys=keys, values=values)

    def attend(self, q: Heads, scores: Scores) -> Tensor:
        """The values (b, s, heads, head_dim) mixed for each query of the new positions, which the
        cache has already."""
        func = loop_functions.cached_attention(
            q.total, q.first, q.count, self.shape, self.dtype, scores, q.tensor.dtype
        )
        return q.tensor.builder.call_loops(
            "cached_attention", func, [q.tensor, self.keys, self.values], [self.past]
        )[0]


class HeadNorm(Module):
    """x / sqrt(mean(x^2) + eps) * weight, head by head."""

    def __init__(self, head_dim: int, eps: float) -> None:
        self.weight, self.eps = Parameter((head_dim,)), eps

    def forward(self, x: Heads) -> Heads:
        heads = x.tensor[:, :, x.first : x.first + x.count]
        weight = x.tensor.builder.weight(self.weight)
        return Heads(heads.op("nn.rms_norm", weight, axes=-1, epsilon=self.eps), 0, x.count)


@methods_name_arguments
class Attention(Module):
    """Causal self-attention; query heads share key and value heads in equal groups.

    `qkv` has the parts `q`, `k` and `v`. With `norms`, queries and keys are normalised before they
    are rotated; without `rotary`, they are not rotated. `round_queries`: queries are rounded to the
    dtype of the cache, as keys always are.
    """

    def __init__(
        self,
        qkv: MergedLinear,
        output: Linear,
        rotary: RotaryEmbedding | None,
        *,
        head_dim: int,
        scores: Scores,
        norms: tuple[HeadNorm, HeadNorm] | None = None,
        round_queries: bool = False,
    ) -> None:
        self.qkv, self.output, self.rotary = qkv, output, rotary
        self.head_dim, self.scores = head_dim, scores
        self.q_norm, self.k_norm = norms or (None, None)
        self.round_queries = round_queries

    def forward(self, x: Tensor, batch: PrimExpr, length: PrimExpr, cache: Cache) -> Tensor:
        """x (batch * length, hidden): `length` new positions, which are appended to `cache`; the
        result has the shape of x."""
        heads = split_heads(self.qkv(x), batch, length, self.head_dim)
        q, k, v = (heads[name] for name in ("q", "k", "v"))
        if self.q_norm is not None and self.k_norm is not None:
            q, k = self.q_norm(q), self.k_norm(k)
        q, k = self._rotated(q, k, cache)
        if self.round_queries:
            q, k = _rounded(q, k, cache.dtype)
        mixed = cache.append(k, v).attend(q, self.scores)
        return self.output(mixed.reshape(batch * length, q.count * self.head_dim))

    def _rotated(self, q: Heads, k: Heads, cache: Cache) -> tuple[Heads, Heads]:
        """Return queries and keys rotated: in one call where they are adjacent."""
        if self.rotary is None:
            return q, k
        # Parts with their own number format are tensors of their own.
        if q.tensor is not k.tensor:
            return cache.rotate(self.rotary, q), cache.rotate(self.rotary, k)
        both = cache.rotate(self.rotary, Heads(q.tensor, q.first, q.count + k.count))
        return Heads(both.tensor, 0, q.count), Heads(both.tensor, q.count, k.count)


def _rounded(q: Heads, k: Heads, dtype: str) -> tuple[Heads, Heads]:
    """Return queries and keys in another dtype: by one call where they are parts of one tensor."""
    rounded = q.tensor.astype(dtype)
    together = q.tensor is k.tensor
    return replace(q, tensor=rounded), replace(k, tensor=rounded) if together else k
