"""The Llama family as modules: decoder blocks over a KV cache, weights in any storage format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from relaxlab import nn
from relaxlab.ir.expr import PrimExpr
from relaxlab.ir.module import Module as IRModule
from relaxlab.models.config import LlamaConfig
from relaxlab.nn import loop_functions

ATTENTION = {"q": "attn_q", "k": "attn_k", "v": "attn_v"}
GATE_UP = {"gate": "ffn_gate", "up": "ffn_up"}


@dataclass(frozen=True, slots=True)
class Source:
    """Where a parameter's array comes from: this field of those tensors (by GGUF name), the rows
    of one below those of the other."""

    tensors: tuple[str, ...]
    field: str


class Block(nn.Module):
    """One decoder block: attention and gated MLP, each behind a norm and added to its input."""

    def __init__(
        self,
        config: LlamaConfig,
        formats: Mapping[str, str],
        precision: nn.Precision,
        rotary: nn.RotaryEmbedding,
    ) -> None:
        """`formats` gives the weight format of each of this block's tensors, such as `attn_q`."""

        def merged(names: Mapping[str, str], rows: Mapping[str, int]) -> nn.MergedLinear:
            kinds = {part: formats[name] for part, name in names.items()}
            return nn.MergedLinear(config.hidden_size, rows, kinds, precision)

        def linear(name: str, inputs: int) -> nn.Linear:
            return nn.Linear(
                inputs, config.hidden_size, format=formats[name], precision=precision
            )

        inner, kv = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
        self.attention_norm = nn.RMSNorm(config.hidden_size, config.norm_eps)
        self.attention = nn.Attention(
            merged(ATTENTION, {"q": inner, "k": kv, "v": kv}),
            linear("attn_output", inner),
            rotary,
            heads=config.num_heads,
            kv_heads=config.num_kv_heads,
        )
        self.mlp_norm = nn.RMSNorm(config.hidden_size, config.norm_eps)
        self.mlp = nn.GatedMLP(
            merged(GATE_UP, {"gate": config.ffn_size, "up": config.ffn_size}),
            linear("ffn_down", config.ffn_size),
        )

    def forward(
        self,
        x: nn.Tensor,
        batch: PrimExpr,
        length: PrimExpr,
        past: PrimExpr,
        cache: nn.KVCache,
    ) -> nn.Tensor:
        x = x + self.attention(self.attention_norm(x), batch, length, past, cache)
        return x + self.mlp(self.mlp_norm(x))

    def sources(self) -> dict[str, Source]:
        """The source of each parameter by its path, tensor names without `blk.N.`."""
        found = {
            "attention_norm.weight": Source(("attn_norm",), "data"),
            "mlp_norm.weight": Source(("ffn_norm",), "data"),
            **weight_sources("attention.output.weight", self.attention.output, ("attn_output",)),
            **weight_sources("mlp.down.weight", self.mlp.down, ("ffn_down",)),
        }
        projections = (
            ("attention.qkv", self.attention.qkv, ATTENTION),
            ("mlp.gate_up", self.mlp.gate_up, GATE_UP),
        )
        for path, merged, names in projections:
            for i, (group, part) in enumerate(zip(merged.groups, merged.linears, strict=True)):
                tensors = tuple(names[p] for p in group)
                found |= weight_sources(f"{path}.linears.{i}.weight", part, tensors)
        return found


def weight_sources(
    path: str, layer: nn.Linear | nn.Embedding, tensors: tuple[str, ...]
) -> dict[str, Source]:
    """The sources of the fields of a layer's weight, whose path is `path`."""
    return {f"{path}.{field}": Source(tensors, field) for field in layer.weight.fields}


class Llama(nn.Module):
    """A Llama-family decoder: `prefill` and `decode` give the logits of the last position, for any
    number of new positions and for one; `all_logits` those of all positions.

    They take ids int32 (b, s), the number of past positions, and per layer the keys and values
    (see `nn.KVCache`), to which the new positions are appended in place. The caller sees to it
    that past + s is at most max_context, and s at least 1.
    """

    def __init__(
        self,
        config: LlamaConfig,
        formats: Mapping[str, str],
        *,
        max_context: int,
        precision: nn.Precision = nn.FLOAT32,
        kv_dtype: str = "float32",
    ) -> None:
        """`formats` gives the weight format of each tensor by GGUF name, `max_context` how many
        positions the KV cache has. ValueError for an unknown format."""
        self.config, self.max_context, self.kv_dtype = config, max_context, kv_dtype
        self.embedding = nn.Embedding(
            config.vocab_size, config.hidden_size, format=formats["token_embd.weight"]
        )
        self.rotary = nn.RotaryEmbedding(
            max_context, config.head_dim, interleaved=config.interleaved_rope
        )
        self.blocks = nn.ModuleList(
            [
                Block(config, _of_block(formats, i), precision, self.rotary)
                for i in range(config.num_layers)
            ]
        )
        self.norm = nn.RMSNorm(config.hidden_size, config.norm_eps)
        # The logits themselves deserve 15 bits: one row per call, and decoding waits for memory.
        fine: nn.Activations = "q16" if precision.one == "q8" else precision.one
        self.head = nn.Linear(
            config.hidden_size,
            config.vocab_size,
            format=formats.get("output.weight", "F32"),
            precision=nn.Precision(fine, fine),
            weight=self.embedding.weight if config.tied_embeddings else None,
        )

    def prefill(
        self, ids: nn.Tensor, past: Sequence[PrimExpr], cache: Sequence[Sequence[nn.Tensor]]
    ) -> nn.Tensor:
        """Logits float32 (b, vocab_size) of the last of the s positions."""
        b, s = ids.shape
        x = self._trunk(ids, past, cache).reshape(b, s, self.config.hidden_size)
        last = loop_functions.last_position(self.config.hidden_size)
        return self.head(self.norm(ids.builder.call_loops("last_position", last, [x])[0]))

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
        logits = self.head(self.norm(self._trunk(ids, past, cache)))
        return logits.reshape(b, s, self.config.vocab_size)

    def _trunk(
        self, ids: nn.Tensor, past: Sequence[PrimExpr], cache: Sequence[Sequence[nn.Tensor]]
    ) -> nn.Tensor:
        b, s = ids.shape
        x = self.embedding(ids.reshape(b * s))
        for block, (keys, values) in zip(self.blocks, cache, strict=True):
            x = block(x, b, s, past[0], nn.KVCache(keys, values))
        return x

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
            batch, self.max_context, config.num_kv_heads, config.head_dim, self.kv_dtype
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
        """Where each weight comes from, by its name; the rotary tables are computed instead."""
        found = weight_sources("embedding.weight", self.embedding, ("token_embd.weight",))
        for i, block in enumerate(self.blocks):
            for path, source in block.sources().items():
                tensors = tuple(f"blk.{i}.{t}.weight" for t in source.tensors)
                found[f"blocks.{i}.{path}"] = Source(tensors, source.field)
        found["norm.weight"] = Source(("output_norm.weight",), "data")
        if not self.config.tied_embeddings:
            found |= weight_sources("head.weight", self.head, ("output.weight",))
        return found


def _of_block(formats: Mapping[str, str], index: int) -> dict[str, str]:
    """The entries of block `index`, without prefix and suffix: `attn_q`, `ffn_down`, …"""
    prefix = f"blk.{index}."
    return {
        name.removeprefix(prefix).removesuffix(".weight"): kind
        for name, kind in formats.items()
        if name.startswith(prefix)
    }
