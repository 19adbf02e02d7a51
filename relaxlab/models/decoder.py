"""The decoder as modules: blocks of attention and an MLP over a KV cache, for every family that
`DecoderConfig` can describe, weights in any storage format."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from relaxlab import nn
from relaxlab.ir.arguments import methods_name_arguments
from relaxlab.ir.expr import PrimExpr
from relaxlab.ir.module import Module as IRModule
from relaxlab.models.config import DecoderConfig, Rope
from relaxlab.models.sources import Sources
from relaxlab.models.weights import Source
from relaxlab.nn import loop_functions
from relaxlab.ops.block_formats import FORMATS

QKV = {"q": "attn_q", "k": "attn_k", "v": "attn_v"}
GATE_UP = {"gate": "ffn_gate", "up": "ffn_up"}


@dataclass(frozen=True, slots=True)
class Parts:
    """Makes the layers of a decoder from its configuration, the weight format of each tensor, and
    a precision; notes where the parameters of each come from."""

    config: DecoderConfig
    formats: Mapping[str, str]
    precision: nn.Precision
    sources: Sources = field(default_factory=Sources)

    def norm(self, tensor: str) -> nn.RMSNorm | nn.LayerNorm:
        """A norm over the hidden features."""
        config = self.config
        kind = nn.RMSNorm if config.norm == "rms" else nn.LayerNorm
        norm = kind(config.hidden_size, config.norm_eps)
        self.sources.note(norm, tensor)
        return norm

    def head_norm(self, tensor: str) -> nn.HeadNorm:
        """A norm over the features of each head."""
        norm = nn.HeadNorm(self.config.head_dim, self.config.norm_eps)
        self.sources.note(norm, tensor)
        return norm

    def embedding(self, tensor: str) -> nn.Embedding | nn.BlockEmbedding:
        """The rows of each token: those that are looked up are read where the file has them."""
        config, format = self.config, self.formats[f"{tensor}.weight"]
        if format in FORMATS:
            blocks = nn.BlockEmbedding(config.vocab_size, config.hidden_size, format)
            self.sources[blocks.blocks] = Source((f"{tensor}.weight",), "blocks")
            return blocks
        embedding = nn.Embedding(config.vocab_size, config.hidden_size, format=format)
        self.sources.note(embedding, tensor)
        return embedding

    def linear(
        self,
        tensor: str,
        shape: tuple[int, int],
        bias: bool,
        *,
        precision: nn.Precision | None = None,
        weight: nn.Weight | None = None,
        stored: str | None = None,
    ) -> nn.Linear:
        """A map with a weight of `shape` (out_features, in_features), or that of another layer.
        `stored` is the tensor that has the weight, where it is not the layer's own."""
        linear = nn.Linear(
            shape[1],
            shape[0],
            format=self.formats.get(f"{stored or tensor}.weight", "F32"),
            precision=precision or self.precision,
            weight=weight,
            bias=bias,
        )
        self.sources.note(linear, tensor, is_shared=weight is not None)
        if stored is not None and weight is None:
            fields = {name: getattr(linear.weight, name) for name in linear.weight.fields}
            self.sources.update({p: Source((f"{stored}.weight",), n) for n, p in fields.items()})
        return linear

    def merged(
        self, tensors: Mapping[str, str], rows: Mapping[str, int], bias: bool
    ) -> nn.MergedLinear:
        """Maps of the hidden features, by the names of their parts."""
        formats = {part: self.formats[f"{tensor}.weight"] for part, tensor in tensors.items()}
        merged = nn.MergedLinear(self.config.hidden_size, rows, formats, self.precision, bias=bias)
        for group, linear in zip(merged.groups, merged.linears, strict=True):
            self.sources.note(linear, *(tensors[part] for part in group))
        return merged


class Block(nn.Module):
    """One decoder block: attention and MLP, each behind a norm and added to its input."""

    def __init__(self, parts: Parts, layer: int, rotary: nn.RotaryEmbedding) -> None:
        config, prefix = parts.config, f"blk.{layer}."
        self.is_parallel = config.parallel_residual
        self.attention_norm = parts.norm(f"{prefix}attn_norm")
        self.attention = _attention(parts, layer, prefix, rotary)
        if not self.is_parallel:
            self.mlp_norm = parts.norm(f"{prefix}ffn_norm")
        self.mlp = _mlp(parts, prefix)
        self.post_norms = config.post_norms
        if config.post_norms:
            self.attention_post_norm = parts.norm(f"{prefix}post_attention_norm")
            self.mlp_post_norm = parts.norm(f"{prefix}post_ffw_norm")

    def forward(
        self, x: nn.Tensor, batch: PrimExpr, length: PrimExpr, cache: nn.Cache
    ) -> nn.Tensor:
        """x (batch * length, hidden): `length` new positions, which are appended to `cache`; the
        result has the shape of x."""
        normed = self.attention_norm(x)
        mixed = self.attention(normed, batch, length, cache)
        if self.is_parallel:
            return x + mixed + self.mlp(normed)
        x = x + (self.attention_post_norm(mixed) if self.post_norms else mixed)
        y = self.mlp(self.mlp_norm(x))
        return x + (self.mlp_post_norm(y) if self.post_norms else y)


def _attention(parts: Parts, layer: int, prefix: str, rotary: nn.RotaryEmbedding) -> nn.Attention:
    config = parts.config
    inner, kv = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    names = {part: prefix + tensor for part, tensor in QKV.items()}
    scale = config.attention_scale or 1 / math.sqrt(config.head_dim)
    norms = None
    if config.qk_norm:
        norms = (
            parts.head_norm(f"{prefix}attn_q_norm"),
            parts.head_norm(f"{prefix}attn_k_norm"),
        )
    return nn.Attention(
        parts.merged(names, {"q": inner, "k": kv, "v": kv}, config.qkv_bias),
        parts.linear(f"{prefix}attn_output", (config.hidden_size, inner), config.attn_output_bias),
        rotary,
        head_dim=config.head_dim,
        scores=nn.Scores(scale, config.attention_softcap, config.window(layer)),
        norms=norms,
        round_queries=parts.precision.queries == "cache",
    )


def _mlp(parts: Parts, prefix: str) -> nn.GatedMLP | nn.MLP:
    config = parts.config
    hidden, ffn, bias = config.hidden_size, config.ffn_size, config.mlp_bias
    if not config.gated_mlp:
        up = parts.linear(f"{prefix}ffn_up", (ffn, hidden), bias)
        down = parts.linear(f"{prefix}ffn_down", (hidden, ffn), bias)
        return nn.MLP(up, down, config.activation)
    names = {part: prefix + tensor for part, tensor in GATE_UP.items()}
    gate_up = parts.merged(names, {"gate": ffn, "up": ffn}, bias)
    down = parts.linear(f"{prefix}ffn_down", (hidden, ffn), bias)
    return nn.GatedMLP(gate_up, down, config.activation)


@methods_name_arguments
class Decoder(nn.Module):
    """A decoder-only language model: `prefill` and `decode` give the logits of the last position,
    for any number of new positions and for one; `all_logits` those of all positions.

    They take ids int32 (b, s), the number of past positions, and per layer the keys and values
    (see `nn.KVCache`), to which the new positions are appended in place; s is at least 1. Past + s
    is at most `positions`: where it is a symbol, calls check that, else the caller sees to it.

    `hidden` and `logits` work with any `nn.Cache`.
    """

    def __init__(
        self,
        config: DecoderConfig,
        formats: Mapping[str, str],
        *,
        max_context: int | None = None,
        precision: nn.Precision = nn.FLOAT32,
        kv_dtype: str = "float32",
    ) -> None:
        """`formats` gives the weight format of each tensor by GGUF name. Sequences have at most
        `max_context` positions; None: as many as the arrays of a call have room for, a symbol.
        ValueError for an unknown format."""
        self.config, self.precision, self.kv_dtype = config, precision, kv_dtype
        self.positions: int | str = "positions" if max_context is None else max_context
        parts = Parts(config, formats, precision)
        self.embedding = parts.embedding("token_embd")
        self.rotary = self._rotary(config.rope)
        if config.local_rope is not None:
            self.local_rotary = self._rotary(config.local_rope)
        self.blocks = nn.ModuleList(
            [Block(parts, i, self._rotary_of(i)) for i in range(config.num_layers)]
        )
        self.norm = parts.norm("output_norm")
        # Logits get 15 bits where other activations have 8, as decoding waits for memory anyway,
        # and float32 where the weights are plain.
        coarse = precision.one == "q8"
        fine: nn.Activations = "q16" if coarse else precision.one
        plain: Literal["float32", "bfloat16"] = "float32" if coarse else precision.plain
        # Whole blocks are looked up in the file, so the product's copy is the only one in memory.
        shared = self.embedding.weight if isinstance(self.embedding, nn.Embedding) else None
        self.head = parts.linear(
            "output",
            (config.vocab_size, config.hidden_size),
            config.head_bias,
            precision=nn.Precision(fine, fine, precision.few, plain=plain),
            weight=shared if config.tied_embeddings else None,
            stored="token_embd" if config.tied_embeddings else None,
        )
        self._sources = parts.sources

    def _rotary(self, rope: Rope) -> nn.RotaryEmbedding:
        return nn.RotaryEmbedding(self.positions, rope.dims, interleaved=rope.interleaved)

    def _rotary_of(self, layer: int) -> nn.RotaryEmbedding:
        has_own = self.config.local_rope is not None and self.config.window(layer) is not None
        return self.local_rotary if has_own else self.rotary

    def prefill(
        self, ids: nn.Tensor, past: Sequence[PrimExpr], cache: Sequence[Sequence[nn.Tensor]]
    ) -> nn.Tensor:
        """Logits float32 (b, vocab_size) of the last of the s positions."""
        b, s = ids.shape
        x = self.hidden(ids, _caches(ids, past, cache)).reshape(b, s, self.config.hidden_size)
        last = loop_functions.last_position(self.config.hidden_size)
        return self.logits(ids.builder.call_loops("last_position", last, [x])[0])

    def decode(
        self, ids: nn.Tensor, past: Sequence[PrimExpr], cache: Sequence[Sequence[nn.Tensor]]
    ) -> nn.Tensor:
        """Logits float32 (b, vocab_size) of one new position each."""
        return self.prefill(ids, past, cache)

    def all_logits(
        self, ids: nn.Tensor, past: Sequence[PrimExpr], cache: Sequence[Sequence[nn.Tensor]]
    ) -> nn.Tensor:
        """Logits float32 (b, s, vocab_size) of all positions."""
        b, s = ids.shape
        logits = self.logits(self.hidden(ids, _caches(ids, past, cache)))
        return logits.reshape(b, s, self.config.vocab_size)

    def hidden(self, ids: nn.Tensor, caches: Sequence[nn.Cache]) -> nn.Tensor:
        """ids int32 (b, s) -> float32 (b * s, hidden_size): the blocks' results at the new
        positions, which are appended to the caches, one per layer."""
        b, s = ids.shape
        x = self.embedding(ids.reshape(b * s))
        if self.config.embedding_scale != 1:
            x = x * self.config.embedding_scale
        for block, cache in zip(self.blocks, caches, strict=True):
            x = block(x, b, s, cache)
        return x

    def logits(self, x: nn.Tensor) -> nn.Tensor:
        """Results of `hidden` (m, hidden_size) -> logits float32 (m, vocab_size)."""
        logits = self.head(self.norm(x))
        cap = self.config.logit_softcap
        return logits if cap is None else (logits * (1 / cap)).op("tanh") * cap

    def build(
        self,
        *,
        methods: Sequence[str] = ("prefill", "decode"),
        batch: nn.spec.Dim = 1,
        bounds: Mapping[str, int] | None = None,
    ) -> tuple[IRModule, list[str]]:
        """The graph functions for `methods`, and the weights' names in order.

        `batch` is a number or the name of a symbol. `bounds` are upper bounds of the symbols: new
        positions `s`, past positions `p`, and the batch.
        """
        config = self.config
        caches = nn.KVCache.spec(
            batch, self.positions, config.num_kv_heads, config.head_dim, self.kv_dtype
        )

        def arguments(length: nn.spec.Dim) -> dict[str, nn.spec.Spec]:
            return {
                "ids": nn.spec.Tensor((batch, length), "int32"),
                "past": nn.spec.Shape(("p",)),
                "cache": [caches] * config.num_layers,
            }

        lengths: dict[str, nn.spec.Dim] = {"decode": 1}
        return self.export({m: arguments(lengths.get(m, "s")) for m in methods}, bounds)

    def sources(self) -> dict[str, Source]:
        """The source of each weight, by its name; the rotary tables are computed."""
        return {n: self._sources.get(p, Source((), n)) for n, p in self.named_parameters().items()}


def _caches(
    ids: nn.Tensor, past: Sequence[PrimExpr], cache: Sequence[Sequence[nn.Tensor]]
) -> list[nn.KVCache]:
    """The caches of the layers, which are all of one shape and have room for the ids."""
    found = [nn.KVCache(keys, values, past[0]) for keys, values in cache]
    found[0].require_room(ids.shape[1])
    return found
