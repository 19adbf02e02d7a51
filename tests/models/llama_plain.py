"""A Llama in plain operators: what speed and results of the layers of `nn` are compared with.

No function of it says how anything is computed: products are `linear` of `decode_blocks`, the cache
is updated by `slice_scatter` of donated arguments, attention is one operator over a slice of it.
Weight names are those of GGUF files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from relaxlab import nn
from relaxlab.ir.expr import PrimExpr
from relaxlab.ir.module import Module as IRModule
from relaxlab.models.config import DecoderConfig
from relaxlab.models.weights import Source

Caches = Sequence[Sequence[nn.Tensor]]


class Block(nn.Module):
    """One decoder block."""

    def __init__(self, config: DecoderConfig, formats: Mapping[str, str], prefix: str) -> None:
        self.config, shapes = config, config.tensor_shapes()

        def matrix(name: str) -> nn.Weight:
            stored = f"{prefix}{name}.weight"
            rows, cols = shapes[stored]
            return nn.Weight(rows, cols, formats[stored])

        self.attn_norm, self.ffn_norm = (nn.Parameter((config.hidden_size,)) for _ in range(2))
        self.attn_q, self.attn_k = matrix("attn_q"), matrix("attn_k")
        self.attn_v, self.attn_output = matrix("attn_v"), matrix("attn_output")
        self.ffn_gate, self.ffn_up = matrix("ffn_gate"), matrix("ffn_up")
        self.ffn_down = matrix("ffn_down")

    def forward(
        self, x: nn.Tensor, past: PrimExpr, keys: nn.Tensor, values: nn.Tensor
    ) -> tuple[nn.Tensor, nn.Tensor, nn.Tensor]:
        """x float32 (b, s, hidden) and the caches (b, positions, kv_heads, head_dim), of any float
        dtype; all three updated."""
        config = self.config
        b, s, _ = x.shape
        normed = rms_norm(x, self.attn_norm, config.norm_eps)
        q, k, v = (
            linear(normed, w).reshape(b, s, heads, config.head_dim)
            for w, heads in (
                (self.attn_q, config.num_heads),
                (self.attn_k, config.num_kv_heads),
                (self.attn_v, config.num_kv_heads),
            )
        )
        q, k = (rotated(t, config, past) for t in (q, k))
        place = {"start": past, "end": past + s, "axis": 1}
        keys = keys.op("slice_scatter", k.astype(keys.dtype), **place)
        values = values.op("slice_scatter", v.astype(values.dtype), **place)
        cut = {"axes": [1], "begin": [0], "end": [past + s], "assume_inbound": True}
        seen = [c.op("strided_slice", **cut).astype("float32") for c in (keys, values)]
        mixed = q.op("nn.attention", *seen, causal_mask="BottomRight")
        inner = config.num_heads * config.head_dim
        x = x + linear(mixed.reshape(b, s, inner), self.attn_output)
        normed = rms_norm(x, self.ffn_norm, config.norm_eps)
        gated = linear(normed, self.ffn_gate).op("nn.silu") * linear(normed, self.ffn_up)
        return x + linear(gated, self.ffn_down), keys, values


class LlamaPlain(nn.Module):
    """`prefill` and `decode` take ids int32 (b, s), past positions, and per layer the keys and
    values (b, positions, kv_heads, head_dim), which they overwrite; they give the logits of the
    last position (b, vocab_size), and the caches."""

    def __init__(self, config: DecoderConfig, formats: Mapping[str, str]) -> None:
        """`formats` gives the weight format of each tensor by GGUF name."""
        self.config = config
        shape = config.vocab_size, config.hidden_size
        self.token_embd = nn.Weight(*shape, formats["token_embd.weight"])
        self.output_norm = nn.Parameter((config.hidden_size,))
        if not config.tied_embeddings:
            self.output = nn.Weight(*shape, formats["output.weight"])
        self.blk = nn.ModuleList(
            [Block(config, formats, f"blk.{i}.") for i in range(config.num_layers)]
        )

    def prefill(self, ids: nn.Tensor, past: Sequence[PrimExpr], cache: Caches) -> list[nn.Tensor]:
        """For any number of new positions."""
        config, (b, s) = self.config, ids.shape
        x = self.token_embd.dense(ids.builder).op("take", ids, axis=0)
        kept: list[nn.Tensor] = []
        for block, (keys, values) in zip(self.blk, cache, strict=True):
            x, keys, values = block(x, past[0], keys, values)
            kept += [keys, values]
        last = x.op("strided_slice", axes=[1], begin=[s - 1], end=[s], assume_inbound=True)
        normed = rms_norm(last.reshape(b, config.hidden_size), self.output_norm, config.norm_eps)
        head = self.token_embd if config.tied_embeddings else self.output
        return [linear(normed, head), *kept]

    def decode(self, ids: nn.Tensor, past: Sequence[PrimExpr], cache: Caches) -> list[nn.Tensor]:
        """For one new position."""
        return self.prefill(ids, past, cache)

    def build(
        self, most: int, kv_dtype: str = "float32"
    ) -> tuple[IRModule, tuple[Source, ...]]:
        """The module for at most `most` new positions, and where its weights come from."""
        config = self.config
        shape = 1, "positions", config.num_kv_heads, config.head_dim
        kept = nn.spec.Tensor(shape, kv_dtype, donated=True)
        methods = {
            name: {
                "ids": nn.spec.Tensor((1, length), "int32"),
                "past": nn.spec.Shape(("p",)),
                "cache": [[kept, kept]] * config.num_layers,
            }
            for name, length in (("prefill", "s"), ("decode", 1))
        }
        module, names = self.export(methods, {"s": most})
        return module, tuple(_source(n) for n in names)


def _source(path: str) -> Source:
    """The source of a parameter: a vector's path is its tensor, a matrix's that and a field."""
    if path.endswith("_norm"):
        return Source((f"{path}.weight",), "data")
    tensor, _, name = path.rpartition(".")
    return Source((f"{tensor}.weight",), name)


def linear(x: nn.Tensor, weight: nn.Weight) -> nn.Tensor:
    """x @ W.T."""
    return x.op("linear", weight.dense(x.builder))


def rms_norm(x: nn.Tensor, weight: nn.Parameter, epsilon: float) -> nn.Tensor:
    """x / sqrt(mean(x^2) + epsilon) * weight over the last axis."""
    return x.op("nn.rms_norm", x.builder.weight(weight), axes=-1, epsilon=epsilon)


def rotated(x: nn.Tensor, config: DecoderConfig, past: PrimExpr) -> nn.Tensor:
    """x (b, s, heads, head_dim), turned by the angles of positions from `past` on."""
    rope = config.rope
    style = "gptj" if rope.interleaved else "neox"
    return x.op("nn.rope", past, theta=rope.theta, style=style, rotary_dim=rope.dims)
