"""Configuration of a decoder: sizes, and features that model families combine in their own ways."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from relaxlab.ir.errors import UserError

if TYPE_CHECKING:
    from relaxlab import nn

Array: TypeAlias = np.ndarray[Any, np.dtype[np.float32]]


class ConfigError(UserError, ValueError):
    """The model's description lacks a value, or one makes no sense; names the key and the file."""


@dataclass(frozen=True, slots=True)
class Rope:
    """Rotary position embedding: pair p of a head's first `dims` features is turned by position *
    theta^(-2p / dims) / divisors[p]; cosines and sines are multiplied by `scale`.

    `interleaved` tells which features are a pair: (2p, 2p + 1) where true, as GGUF files of
    architecture ``llama`` are stored, or (p, p + dims / 2). `divisors` slow the rotation down to
    stretch the context; None means no stretching. `long_divisors` replace them in contexts of more
    than `original_context` positions. `reach` is the number of positions that the divisors are made
    for, if that is known.
    """

    theta: float
    dims: int
    interleaved: bool = False
    divisors: tuple[float, ...] | None = None
    long_divisors: tuple[float, ...] | None = None
    original_context: int | None = None
    scale: float = 1.0
    reach: int | None = None

    def __post_init__(self) -> None:
        _check_positive(self)
        if self.dims % 2:
            raise ConfigError(f"rotary embedding needs an even number of features, is {self.dims}")
        for divisors in (self.divisors, self.long_divisors):
            if divisors is None:
                continue
            if len(divisors) != self.dims // 2:
                raise ConfigError(f"{len(divisors)} rope divisors for {self.dims // 2} pairs")
            if not all(d > 0 and math.isfinite(d) for d in divisors):
                raise ConfigError("every rope divisor must be positive")
        if (self.long_divisors is None) != (self.original_context is None):
            raise ConfigError("long rope divisors go with the context that they are meant beyond")

    def frequencies(self) -> np.ndarray[Any, np.dtype[np.float64]]:
        """Angle per position of each rotated pair, float64 (dims / 2,), without divisors."""
        return self.theta ** -(np.arange(0, self.dims, 2, dtype=np.float64) / self.dims)

    def inverse_frequencies(self, context: int = 1) -> Array:
        """Angle per position of each rotated pair, float32 (dims / 2,), in a context of that many
        positions."""
        frequencies = self.frequencies()
        is_long = self.original_context is not None and context > self.original_context
        divisors = self.long_divisors if is_long else self.divisors
        if divisors is not None:
            frequencies = frequencies / np.array(divisors)
        return frequencies.astype(np.float32)

    def tables(self, context: int) -> tuple[Array, Array]:
        """Cosines and sines of the angles of each position of a context, times `scale`, float32
        (context, dims / 2)."""
        frequencies = self.inverse_frequencies(context).astype(np.float64)
        angles = np.arange(context)[:, None] * frequencies
        cos, sin = np.cos(angles) * self.scale, np.sin(angles) * self.scale
        return cos.astype(np.float32), sin.astype(np.float32)


@dataclass(frozen=True, slots=True)
class DecoderConfig:
    """A decoder-only transformer. What has a default is a feature that some families have.

    norm: "rms", or "layer" with a bias. post_norms: attention's and the MLP's results are
    normalised, too, before they are added. qk_norm: queries and keys are normalised (RMS), head by
    head. parallel_residual: attention and MLP read the same normalised input, and their results
    are added together; else one after the other.
    activation, gated_mlp: the MLP is down(activation(gate(x)) * up(x)), or
    down(activation(up(x))).
    qkv_bias, attn_output_bias, mlp_bias, head_bias: which projections add a bias.
    attention_scale: what products of queries and keys are multiplied by; None: head_dim^-0.5.
    attention_softcap, logit_softcap: scores, logits are squeezed into -cap .. cap by
    cap * tanh(x / cap).
    windows: per layer, how many positions up to its own one sees; None: all. Empty: all layers
    see all.
    local_rope: the rotary embedding of layers with a window, where it is another.
    embedding_scale: what embeddings are multiplied by.
    """

    hidden_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    ffn_size: int
    vocab_size: int
    context_length: int
    norm_eps: float
    rope: Rope
    local_rope: Rope | None = None
    norm: Literal["rms", "layer"] = "rms"
    post_norms: bool = False
    qk_norm: bool = False
    parallel_residual: bool = False
    activation: nn.Activation = "silu"
    gated_mlp: bool = True
    qkv_bias: bool = False
    attn_output_bias: bool = False
    mlp_bias: bool = False
    head_bias: bool = False
    attention_scale: float | None = None
    attention_softcap: float | None = None
    logit_softcap: float | None = None
    windows: tuple[int | None, ...] = ()
    embedding_scale: float = 1.0
    tied_embeddings: bool = False

    def __post_init__(self) -> None:
        _check_positive(self)
        if self.num_heads % self.num_kv_heads:
            raise ConfigError(
                f"{self.num_heads} attention heads cannot share {self.num_kv_heads} key/value heads"
            )
        for rope in (self.rope, self.local_rope):
            if rope is not None and rope.dims > self.head_dim:
                raise ConfigError(f"{rope.dims} rotated features in heads of {self.head_dim}")
        if self.windows and len(self.windows) != self.num_layers:
            raise ConfigError(f"{len(self.windows)} windows for {self.num_layers} layers")
        if any(w is not None and w < 1 for w in self.windows):
            raise ConfigError("every window must be positive")

    def window(self, layer: int) -> int | None:
        """Return the number of positions up to its own that each position of a layer sees; None:
        all."""
        return self.windows[layer] if self.windows else None

    def tensor_shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the weights that the model has, matrices (out_features, in_features), by the
        names that GGUF files give them."""
        hidden = (self.hidden_size,)
        shapes = self._affine("token_embd", (self.vocab_size, *hidden))
        shapes |= self._norm("output_norm", hidden)
        if not self.tied_embeddings:
            shapes |= self._affine("output", (self.vocab_size, *hidden))
        if self.head_bias:
            shapes["output.bias"] = (self.vocab_size,)
        block = self._block_shapes()
        for layer in range(self.num_layers):
            shapes |= {f"blk.{layer}.{name}": shape for name, shape in block.items()}
        return shapes

    def _block_shapes(self) -> dict[str, tuple[int, ...]]:
        hidden, ffn = self.hidden_size, self.ffn_size
        inner, kv = self.num_heads * self.head_dim, self.num_kv_heads * self.head_dim
        shapes = self._norm("attn_norm", (hidden,))
        for name, rows in (("attn_q", inner), ("attn_k", kv), ("attn_v", kv)):
            shapes |= self._affine(name, (rows, hidden), self.qkv_bias)
        shapes |= self._affine("attn_output", (hidden, inner), self.attn_output_bias)
        if not self.parallel_residual:
            shapes |= self._norm("ffn_norm", (hidden,))
        if self.gated_mlp:
            shapes |= self._affine("ffn_gate", (ffn, hidden), self.mlp_bias)
        shapes |= self._affine("ffn_up", (ffn, hidden), self.mlp_bias)
        shapes |= self._affine("ffn_down", (hidden, ffn), self.mlp_bias)
        if self.qk_norm:
            shapes |= {f"attn_{n}_norm.weight": (self.head_dim,) for n in ("q", "k")}
        if self.post_norms:
            shapes |= self._norm("post_attention_norm", (hidden,))
            shapes |= self._norm("post_ffw_norm", (hidden,))
        return shapes

    def _norm(self, name: str, shape: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
        fields = ("weight", "bias") if self.norm == "layer" else ("weight",)
        return {f"{name}.{field}": shape for field in fields}

    @staticmethod
    def _affine(
        name: str, shape: tuple[int, ...], bias: bool = False
    ) -> dict[str, tuple[int, ...]]:
        weight = {f"{name}.weight": shape}
        return weight | {f"{name}.bias": shape[:1]} if bias else weight


def _check_positive(values: Rope | DecoderConfig) -> None:
    for name in values.__slots__:
        value = getattr(values, name)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if is_number and not (value > 0 and math.isfinite(value)):
            raise ConfigError(f"{name} must be positive, is {value}")
