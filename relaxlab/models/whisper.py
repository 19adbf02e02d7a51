"""Whisper as modules: an encoder of log-mel frames, and a decoder that attends to its results."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from relaxlab import nn
from relaxlab.ir import expr
from relaxlab.ir.expr import PrimExpr
from relaxlab.ir.module import Module as IRModule
from relaxlab.models.config import ConfigError
from relaxlab.models.keys import Keys
from relaxlab.models.named_layers import NamedLayers
from relaxlab.nn import loop_functions

KERNEL = 3
"""Frames that each convolution looks at."""


@dataclass(frozen=True, slots=True)
class WhisperConfig:
    """Sizes. `max_frames`: log-mel frames that the encoder can read, two for each of its
    positions. `max_tokens`: positions of the decoder."""

    mel_bands: int
    hidden_size: int
    encoder_layers: int
    encoder_heads: int
    encoder_ffn: int
    decoder_layers: int
    decoder_heads: int
    decoder_ffn: int
    vocab_size: int
    max_frames: int
    max_tokens: int
    activation: nn.Activation

    def __post_init__(self) -> None:
        for heads in (self.encoder_heads, self.decoder_heads):
            if self.hidden_size % heads:
                raise ConfigError(f"{self.hidden_size} features do not divide into {heads} heads")


def config_from_json(keys: Keys) -> WhisperConfig:
    """Return the configuration in a ``config.json`` with model_type ``whisper``. Raises ConfigError
    for keys that are missing or unsupported."""
    kind = keys.text("model_type", "none")
    if kind != "whisper":
        raise ConfigError(f"{keys.where}: model_type '{kind}' is not supported; whisper is")
    keys.refuse("scale_embedding", "scaling of embeddings")
    return WhisperConfig(
        mel_bands=keys.integer("num_mel_bins"),
        hidden_size=keys.integer("d_model"),
        encoder_layers=keys.layers("encoder_layers"),
        encoder_heads=keys.integer("encoder_attention_heads"),
        encoder_ffn=keys.integer("encoder_ffn_dim"),
        decoder_layers=keys.layers("decoder_layers"),
        decoder_heads=keys.integer("decoder_attention_heads"),
        decoder_ffn=keys.integer("decoder_ffn_dim"),
        vocab_size=keys.integer("vocab_size"),
        max_frames=2 * keys.integer("max_source_positions"),
        max_tokens=keys.integer("max_target_positions"),
        activation=keys.activation("activation_function", "gelu"),
    )


def tensor_name(name: str) -> str:
    """A tensor's name without what some checkpoints put in front."""
    return name.removeprefix("model.")


_QKV = {"q": "q_proj", "k": "k_proj", "v": "v_proj"}


def _merged(make: NamedLayers, at: str, hidden: int) -> nn.MergedLinear:
    return make.merged({p: f"{at}.{n}" for p, n in _QKV.items()}, hidden, hidden)


def _mlp(make: NamedLayers, at: str, config: WhisperConfig, ffn: int) -> nn.MLP:
    up = make.linear(f"{at}.fc1", ffn, config.hidden_size)
    down = make.linear(f"{at}.fc2", config.hidden_size, ffn)
    return nn.MLP(up, down, config.activation)


class EncoderBlock(nn.Module):
    """Attention and an MLP, each behind a norm and added to its input."""

    def __init__(self, config: WhisperConfig, make: NamedLayers, layer: int) -> None:
        hidden, at = config.hidden_size, f"encoder.layers.{layer}"
        self.attention_norm = make.norm(f"{at}.self_attn_layer_norm", hidden)
        self.attention = nn.SelfAttention(
            _merged(make, f"{at}.self_attn", hidden),
            make.linear(f"{at}.self_attn.out_proj", hidden, hidden),
            heads=config.encoder_heads,
            head_dim=hidden // config.encoder_heads,
        )
        self.mlp_norm = make.norm(f"{at}.final_layer_norm", hidden)
        self.mlp = _mlp(make, at, config, config.encoder_ffn)

    def forward(self, x: nn.Tensor, batch: PrimExpr, length: PrimExpr) -> nn.Tensor:
        """x (batch * length, hidden)."""
        x = x + self.attention(self.attention_norm(x), batch, length)
        return x + self.mlp(self.mlp_norm(x))


class DecoderBlock(nn.Module):
    """Attention to what came before, attention to the encoder's output, and an MLP, each behind a
    norm and added to its input."""

    def __init__(self, config: WhisperConfig, make: NamedLayers, layer: int) -> None:
        hidden, at = config.hidden_size, f"decoder.layers.{layer}"
        heads, head_dim = config.decoder_heads, config.hidden_size // config.decoder_heads
        self.attention_norm = make.norm(f"{at}.self_attn_layer_norm", hidden)
        self.attention = nn.Attention(
            _merged(make, f"{at}.self_attn", hidden),
            make.linear(f"{at}.self_attn.out_proj", hidden, hidden),
            None,
            head_dim=head_dim,
            scores=nn.Scores(1 / math.sqrt(head_dim)),
        )
        self.cross_norm = make.norm(f"{at}.encoder_attn_layer_norm", hidden)
        parts = (
            # Keys have no bias: it would add the same number to all scores of a query, which
            # softmax ignores.
            make.linear(f"{at}.encoder_attn.{n}", hidden, hidden, bias=n != "k_proj")
            for n in (*_QKV.values(), "out_proj")
        )
        self.cross = nn.CrossAttention(*parts, heads=heads, head_dim=head_dim)
        self.mlp_norm = make.norm(f"{at}.final_layer_norm", hidden)
        self.mlp = _mlp(make, at, config, config.decoder_ffn)

    def forward(
        self,
        x: nn.Tensor,
        batch: PrimExpr,
        length: PrimExpr,
        cache: nn.Cache,
        memory: Sequence[nn.Tensor],
    ) -> nn.Tensor:
        """x (batch * length, hidden): new positions, which are appended to `cache`; `memory`: what
        `cross.remember` made of the encoder's output."""
        x = x + self.attention(self.attention_norm(x), batch, length, cache)
        x = x + self.cross(self.cross_norm(x), batch, length, *memory)
        return x + self.mlp(self.mlp_norm(x))


Caches: TypeAlias = Sequence[Sequence[nn.Tensor]]


class Whisper(nn.Module):
    """The functions `encode`, `prefill` and `decode`.

    `encode` computes, per layer of the decoder, the keys and values of its attention to the audio
    (see `nn.CrossAttention.remember`). `prefill` and `decode` take ids int32 (b, s), the number of
    past positions, per layer the keys and values of the tokens (see `nn.KVCache`), to which the
    new positions are appended in place, and then what `encode` returned; they give the logits of
    the last position. The caller sees to it that past + s is at most max_tokens, and s at least 1.
    """

    def __init__(self, config: WhisperConfig, make: NamedLayers) -> None:
        hidden = config.hidden_size
        self.config = config
        self.conv1 = make.conv1d(
            "encoder.conv1", config.mel_bands, hidden, KERNEL, stride=1, padding=1
        )
        self.conv2 = make.conv1d("encoder.conv2", hidden, hidden, KERNEL, stride=2, padding=1)
        self.frame_positions = make.positions(
            "encoder.embed_positions", config.max_frames // 2, hidden
        )
        self.encoder = nn.ModuleList(
            [EncoderBlock(config, make, i) for i in range(config.encoder_layers)]
        )
        self.encoder_norm = make.norm("encoder.layer_norm", hidden)
        self.words = make.embedding("decoder.embed_tokens", config.vocab_size, hidden)
        self.positions = make.positions("decoder.embed_positions", config.max_tokens, hidden)
        self.decoder = nn.ModuleList(
            [DecoderBlock(config, make, i) for i in range(config.decoder_layers)]
        )
        self.norm = make.norm("decoder.layer_norm", hidden)
        self.head = make.linear(
            "proj_out", config.vocab_size, hidden, bias=False, weight=self.words.weight
        )

    def encode(self, frames: nn.Tensor) -> list[nn.Tensor]:
        """frames float32 (b, mel_bands, f), at least one, at most max_frames."""
        x = frames.op("permute_dims", axes=(0, 2, 1))
        for conv in (self.conv1, self.conv2):
            x = conv(x).op(f"nn.{self.config.activation}")
        b, t, hidden = x.shape
        x = self.frame_positions(x, expr.const(0)).reshape(b * t, hidden)
        for block in self.encoder:
            x = block(x, b, t)
        x = self.encoder_norm(x)
        return [kept for block in self.decoder for kept in block.cross.remember(x, b, t)]

    def prefill(
        self, ids: nn.Tensor, past: Sequence[PrimExpr], cache: Caches, memory: Caches
    ) -> nn.Tensor:
        """Logits float32 (b, vocab_size) of the last of the s positions."""
        (b, s), hidden = ids.shape, self.config.hidden_size
        x = self.words(ids.reshape(b * s)).reshape(b, s, hidden)
        x = self.positions(x, past[0]).reshape(b * s, hidden)
        for block, (keys, values), kept in zip(self.decoder, cache, memory, strict=True):
            x = block(x, b, s, nn.KVCache(keys, values, past[0]), kept)
        # Before the largest product of all: only one position's logits are asked for.
        last = loop_functions.last_position(hidden)
        (x,) = ids.builder.call_loops("last_position", last, [x.reshape(b, s, hidden)])
        return self.head(self.norm(x))

    def decode(
        self, ids: nn.Tensor, past: Sequence[PrimExpr], cache: Caches, memory: Caches
    ) -> nn.Tensor:
        """Logits float32 (b, vocab_size) of one new position each."""
        return self.prefill(ids, past, cache, memory)

    def cache_shapes(self) -> list[tuple[int, ...]]:
        """The shapes of the keys and values of one sequence's tokens, layer by layer."""
        config = self.config
        head_dim = config.hidden_size // config.decoder_heads
        shapes = nn.KVCache.shapes(config.decoder_heads, head_dim, config.max_tokens)
        return [*shapes] * config.decoder_layers

    def build(self) -> tuple[IRModule, list[str]]:
        """The graph functions, and the weights' names in order."""
        config, heads = self.config, self.config.decoder_heads
        head_dim = config.hidden_size // heads
        cache = nn.KVCache.spec("b", config.max_tokens, heads, head_dim)
        memory = nn.CrossAttention.spec("b", "t", heads, head_dim)

        def step(length: nn.spec.Dim) -> dict[str, nn.spec.Spec]:
            return {
                "ids": nn.spec.Tensor(("b", length), "int32"),
                "past": nn.spec.Shape(("p",)),
                "cache": [cache] * config.decoder_layers,
                "memory": [memory] * config.decoder_layers,
            }

        frames: dict[str, nn.spec.Spec] = {"frames": nn.spec.Tensor(("b", config.mel_bands, "f"))}
        bounds = {
            "f": config.max_frames, "t": config.max_frames // 2,
            "s": config.max_tokens, "p": config.max_tokens,
        }  # fmt: skip
        return self.export({"encode": frames, "prefill": step("s"), "decode": step(1)}, bounds)
