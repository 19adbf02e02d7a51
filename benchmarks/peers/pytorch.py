"""The same Llama in plain PyTorch, with dequantised weights and a static KV cache.

What is written unusually here was measured to be faster: products of a single position as `mv`, its
query heads that share keys as rows of one product, and a norm of small operations. Compiling the
block of a single position with `torch.compile` gained nothing over that.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from benchmarks.peers.base import Array, Peer
from relaxlab.models.config import DecoderConfig
from relaxlab.models.families import config_from_gguf
from relaxlab.models.gguf import GGUF, read_gguf

CONTEXT = 1024


class PyTorch(Peer):
    """`dtype`: of weights and activations, "float32" or "bfloat16"."""

    def __init__(self, model: str, threads: int, *, dtype: str) -> None:
        torch.set_num_threads(threads)
        start = time.perf_counter()
        self._model = Llama(read_gguf(model), getattr(torch, dtype))
        self.about = {"version": torch.__version__, "load_s": time.perf_counter() - start}

    def reset(self) -> None:
        self._model.past = 0

    @torch.inference_mode()
    def feed(self, ids: Sequence[int]) -> Array:
        return self._model.logits(torch.tensor(ids)).float().numpy()


class Llama:
    """Weights and cache; `past` positions are in the cache."""

    def __init__(self, gguf: GGUF, dtype: torch.dtype) -> None:
        config = self.config = config_from_gguf(gguf)
        self.past = 0

        def read(name: str) -> Tensor:
            return torch.from_numpy(gguf.tensor(f"{name}.weight").dequantise()).to(dtype)

        self.embedding, self.norm = read("token_embd"), read("output_norm")
        self.head = self.embedding if config.tied_embeddings else read("output")
        self.blocks = [block_weights(config, i, read) for i in range(config.num_layers)]
        shape = (config.num_layers, 2, config.num_kv_heads, CONTEXT, config.head_dim)
        self.cache = torch.zeros(shape, dtype=dtype)
        frequencies = torch.from_numpy(config.rope.inverse_frequencies()).double()
        angles = torch.arange(CONTEXT).double()[:, None] * frequencies
        self.cos, self.sin = angles.cos().to(dtype), angles.sin().to(dtype)

    def logits(self, ids: Tensor) -> Tensor:
        """Logits (vocab_size,) after `ids`, which join the sequence."""
        config, n = self.config, len(ids)
        if self.past + n > CONTEXT:
            raise ValueError(f"the context holds {CONTEXT} positions")
        positions = torch.arange(self.past, self.past + n)
        cos, sin = self.cos[positions], self.sin[positions]
        end = self.past + n
        mask = torch.arange(end) <= positions[:, None]
        x = functional.embedding(ids, self.embedding)
        for weights, cache in zip(self.blocks, self.cache[..., :end, :], strict=True):
            x = block(config, x, weights, cache, positions, cos, sin, mask)
        self.past += n
        return product(rms_norm(x[-1:], self.norm, config.norm_eps), self.head)[0]


def block_weights(config: DecoderConfig, layer: int, read: Any) -> dict[str, Tensor]:
    """The weights of a decoder block, what reads the same input merged into one matrix."""
    prefix = f"blk.{layer}."

    def halves(name: str, heads: int) -> Tensor:
        """Rows reordered so that rotary pairs are (i, i + head_dim / 2) instead of neighbours."""
        weight = read(prefix + name)
        if not config.rope.interleaved:
            return weight
        pairs = weight.view(heads, config.head_dim // 2, 2, -1)
        return pairs.transpose(1, 2).reshape(weight.shape)

    qkv = [
        halves("attn_q", config.num_heads),
        halves("attn_k", config.num_kv_heads),
        read(prefix + "attn_v"),
    ]
    return {
        "attn_norm": read(prefix + "attn_norm"),
        "qkv": torch.cat(qkv),
        "attn_output": read(prefix + "attn_output"),
        "ffn_norm": read(prefix + "ffn_norm"),
        "gate_up": torch.cat([read(prefix + "ffn_gate"), read(prefix + "ffn_up")]),
        "ffn_down": read(prefix + "ffn_down"),
    }


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    wide = x.float()
    return (wide * torch.rsqrt((wide * wide).mean(-1, keepdim=True) + eps)).to(x.dtype) * weight


def product(x: Tensor, weight: Tensor) -> Tensor:
    """x (n, in_features) by weight (out_features, in_features)."""
    return torch.mv(weight, x[0])[None] if len(x) == 1 else functional.linear(x, weight)


def attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    """q and the result (heads, n, head_dim), k and v (kv_heads, positions, head_dim)."""
    if q.shape[1] == 1:
        rows = q.view(1, len(k), -1, q.shape[2])
        return functional.scaled_dot_product_attention(rows, k[None], v[None], mask).view(q.shape)
    return functional.scaled_dot_product_attention(
        q[None], k[None], v[None], mask, enable_gqa=True
    )[0]


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary embedding of x (heads, n, head_dim)."""
    first, second = x.chunk(2, dim=-1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)


def block(
    config: DecoderConfig,
    x: Tensor,
    weights: Mapping[str, Tensor],
    cache: Tensor,
    positions: Tensor,
    cos: Tensor,
    sin: Tensor,
    mask: Tensor,
) -> Tensor:
    """One decoder block over x (n, hidden); writes the new keys and values into `cache`
    (2, kv_heads, context, head_dim)."""
    n = len(x)
    counts = (config.num_heads, config.num_kv_heads, config.num_kv_heads)
    normed = rms_norm(x, weights["attn_norm"], config.norm_eps)
    heads = product(normed, weights["qkv"]).view(n, -1, config.head_dim).transpose(0, 1)
    q, k, v = heads.split(counts)
    cache[0].index_copy_(1, positions, rotate(k, cos, sin))
    cache[1].index_copy_(1, positions, v)
    mixed = attention(rotate(q, cos, sin), cache[0], cache[1], mask)
    x = x + product(mixed.transpose(0, 1).reshape(n, -1), weights["attn_output"])
    normed = rms_norm(x, weights["ffn_norm"], config.norm_eps)
    gate, up = product(normed, weights["gate_up"]).chunk(2, dim=-1)
    return x + product(functional.silu(gate) * up, weights["ffn_down"])
