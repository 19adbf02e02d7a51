"""A plain float32 NumPy Llama: what the compiled model's logits are compared against.

Written for clarity: dequantised weights, one matrix product per line, nothing fused. Weight names
are those of GGUF files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from relaxlab.models.config import DecoderConfig
from relaxlab.models.families import config_from_gguf
from relaxlab.models.gguf import GGUF

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(slots=True)
class KVCache:
    """Keys (rotated) and values of the positions seen so far, per layer (n, kv_heads, head_dim)."""

    keys: list[Array] = field(default_factory=list)
    values: list[Array] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.keys[0]) if self.keys else 0

    def extend(self, layer: int, k: Array, v: Array) -> tuple[Array, Array]:
        """Append one layer's new rows; returns all rows of that layer."""
        if layer == len(self.keys):
            self.keys.append(k)
            self.values.append(v)
        else:
            self.keys[layer] = np.concatenate([self.keys[layer], k])
            self.values[layer] = np.concatenate([self.values[layer], v])
        return self.keys[layer], self.values[layer]


@dataclass(frozen=True, slots=True)
class LlamaNumpy:
    """`weights`: float32 arrays by GGUF name, matrices (out_features, in_features)."""

    config: DecoderConfig
    weights: Mapping[str, Array]

    @staticmethod
    def from_gguf(gguf: GGUF) -> LlamaNumpy:
        """Dequantise every tensor of an open GGUF file (about 4 bytes per weight). ValueError for
        another architecture than Llama's."""
        if gguf.metadata.get("general.architecture") != "llama":
            raise ValueError(f"{gguf.path} is no Llama")
        config = config_from_gguf(gguf)
        weights = {name: gguf.tensors[name].dequantise() for name in config.tensor_shapes()}
        return LlamaNumpy(config, weights)

    def logits(self, ids: Sequence[int], cache: KVCache | None = None) -> Array:
        """Next-token logits at every position of `ids`, float32 (len(ids), vocab_size).

        With a `cache` the ids continue the sequence it holds, and it is extended in place.
        ValueError for an empty sequence, an id outside the vocabulary or too long a context.
        """
        cache = KVCache() if cache is None else cache
        config, start = self.config, len(cache)
        tokens = np.asarray(ids, np.int64)
        if tokens.ndim != 1 or not tokens.size:
            raise ValueError(f"ids must be a non-empty sequence, got shape {tokens.shape}")
        if tokens.min() < 0 or tokens.max() >= config.vocab_size:
            raise ValueError(f"ids must lie in 0..{config.vocab_size - 1}")
        if start + len(tokens) > config.context_length:
            raise ValueError(
                f"{start + len(tokens)} positions exceed the context of {config.context_length}"
            )
        positions = np.arange(start, start + len(tokens))
        x = self.weights["token_embd.weight"][tokens]
        for layer in range(config.num_layers):
            normed = self._norm(x, f"blk.{layer}.attn_norm")
            x = x + self._attention(layer, normed, positions, cache)
            x = x + self._feed_forward(layer, self._norm(x, f"blk.{layer}.ffn_norm"))
        head = "token_embd" if config.tied_embeddings else "output"
        return self._linear(self._norm(x, "output_norm"), head)

    def greedy(self, ids: Sequence[int]) -> Iterator[int]:
        """The most likely continuation of `ids`, token by token, until the context is full."""
        cache = KVCache()
        step = list(ids)
        while len(cache) + len(step) <= self.config.context_length:
            step = [int(self.logits(step, cache)[-1].argmax())]
            yield step[0]

    def _linear(self, x: Array, name: str) -> Array:
        return x @ self.weights[f"{name}.weight"].T

    def _norm(self, x: Array, name: str) -> Array:
        mean_square = np.mean(x * x, axis=-1, keepdims=True, dtype=np.float32)
        scale = 1 / np.sqrt(mean_square + np.float32(self.config.norm_eps))
        return x * scale * self.weights[f"{name}.weight"]

    def _rotate(self, x: Array, positions: Array) -> Array:
        """Rotary embedding of x (n, heads, head_dim)."""
        angle = positions[:, None] * self.config.rope.inverse_frequencies().astype(np.float64)
        cos = np.cos(angle).astype(np.float32)[:, None, :]
        sin = np.sin(angle).astype(np.float32)[:, None, :]
        half = x.shape[-1] // 2
        out = np.empty_like(x)
        if self.config.rope.interleaved:
            first, second = np.s_[..., 0::2], np.s_[..., 1::2]
        else:
            first, second = np.s_[..., :half], np.s_[..., half:]
        out[first] = x[first] * cos - x[second] * sin
        out[second] = x[second] * cos + x[first] * sin
        return out

    def _attention(self, layer: int, x: Array, positions: Array, cache: KVCache) -> Array:
        config, block = self.config, f"blk.{layer}."
        n = len(x)
        q = self._linear(x, block + "attn_q").reshape(n, config.num_heads, config.head_dim)
        k = self._linear(x, block + "attn_k").reshape(n, config.num_kv_heads, config.head_dim)
        v = self._linear(x, block + "attn_v").reshape(n, config.num_kv_heads, config.head_dim)
        q, k = self._rotate(q, positions), self._rotate(k, positions)
        keys, values = cache.extend(layer, k, v)
        group = config.num_heads // config.num_kv_heads
        keys, values = (np.repeat(a, group, axis=1).swapaxes(0, 1) for a in (keys, values))
        scores = q.swapaxes(0, 1) @ keys.swapaxes(1, 2) / np.float32(np.sqrt(config.head_dim))
        visible = np.arange(keys.shape[1]) <= positions[:, None]
        scores = np.where(visible, scores, np.float32(-np.inf))
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        weights /= weights.sum(axis=-1, keepdims=True)
        mixed = (weights @ values).swapaxes(0, 1).reshape(n, config.num_heads * config.head_dim)
        return self._linear(mixed, block + "attn_output")

    def _feed_forward(self, layer: int, x: Array) -> Array:
        block = f"blk.{layer}."
        gate = self._linear(x, block + "ffn_gate")
        # exp may overflow to inf for very negative gates: the quotient is then the right 0.
        with np.errstate(over="ignore"):
            activated = gate / (1 + np.exp(-gate))
        return self._linear(activated * self._linear(x, block + "ffn_up"), block + "ffn_down")
