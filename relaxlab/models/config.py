"""Hyperparameters of Llama-family models, from GGUF metadata or a Hugging Face ``config.json``."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from relaxlab.models.gguf import GGUF

MAX_HEAD_DIM = 4096  # many times what any model has: beyond it the number is damaged


class ConfigError(ValueError):
    """The model's description lacks a value, or one makes no sense; names the key and the file."""


@dataclass(frozen=True, slots=True)
class LlamaConfig:
    """Sizes of a Llama-family decoder.

    `interleaved_rope` says which entries of a head rotary embedding pairs up: (2i, 2i+1) where
    true, as GGUF files of architecture ``llama`` are stored, or (i, i + head_dim/2) where false, as
    Hugging Face stores them. `rope_divisors`, one per pair, slow the rotation down to stretch the
    context; None means no stretching.
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
    rope_theta: float
    rope_divisors: tuple[float, ...] | None
    tied_embeddings: bool
    interleaved_rope: bool

    def __post_init__(self) -> None:
        for name in self.__slots__:
            value = getattr(self, name)
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            if is_number and not (value > 0 and math.isfinite(value)):
                raise ConfigError(f"{name} must be positive, is {value}")
        if self.num_heads % self.num_kv_heads:
            raise ConfigError(
                f"{self.num_heads} attention heads cannot share {self.num_kv_heads} key/value heads"
            )
        if self.head_dim % 2:
            raise ConfigError(f"rotary embedding needs an even head_dim, is {self.head_dim}")
        divisors = self.rope_divisors
        if divisors is None:
            return
        if len(divisors) != self.head_dim // 2:
            raise ConfigError(f"{len(divisors)} rope divisors for {self.head_dim // 2} pairs")
        if not all(d > 0 and math.isfinite(d) for d in divisors):
            raise ConfigError("every rope divisor must be positive")

    def inverse_frequencies(self) -> np.ndarray[Any, np.dtype[np.float32]]:
        """Angle per position of each rotated pair, float32 (head_dim/2,), scaling applied."""
        freq = _frequencies(self.rope_theta, self.head_dim)
        if self.rope_divisors is not None:
            freq = freq / np.array(self.rope_divisors)
        return freq.astype(np.float32)

    def tensor_shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes (out_features, in_features) of the weights that the model has, by GGUF name."""
        hidden, ffn, kv = self.hidden_size, self.ffn_size, self.num_kv_heads * self.head_dim
        inner = self.num_heads * self.head_dim
        shapes: dict[str, tuple[int, ...]] = {
            "token_embd.weight": (self.vocab_size, hidden),
            "output_norm.weight": (hidden,),
        }
        if not self.tied_embeddings:
            shapes["output.weight"] = (self.vocab_size, hidden)
        block: dict[str, tuple[int, ...]] = {
            "attn_norm": (hidden,),
            "attn_q": (inner, hidden),
            "attn_k": (kv, hidden),
            "attn_v": (kv, hidden),
            "attn_output": (hidden, inner),
            "ffn_norm": (hidden,),
            "ffn_gate": (ffn, hidden),
            "ffn_up": (ffn, hidden),
            "ffn_down": (hidden, ffn),
        }
        for layer in range(self.num_layers):
            shapes |= {f"blk.{layer}.{name}.weight": shape for name, shape in block.items()}
        return shapes


def _frequencies(theta: float, head_dim: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    return theta ** -(np.arange(0, head_dim, 2, dtype=np.float64) / head_dim)


@dataclass(frozen=True, slots=True)
class _Source:
    """A mapping with typed access whose errors say what was missing and where."""

    where: str
    values: Mapping[str, Any]

    def integer(self, key: str, default: int | None = None) -> int:
        return self._get(key, int, default)

    def number(self, key: str, default: float | None = None) -> float:
        return float(self._get(key, int | float, default))

    def _get(self, key: str, kind: Any, default: Any) -> Any:
        value = self.values.get(key, default)
        if value is None:
            raise ConfigError(f"{self.where}: the key '{key}' is missing")
        if not isinstance(value, kind) or isinstance(value, bool):
            raise ConfigError(f"{self.where}: '{key}' must be a number, is {value!r}")
        return value


def config_from_gguf(gguf: GGUF) -> LlamaConfig:
    """The configuration that a GGUF file of architecture ``llama`` states, checked against its
    tensors: every one that the model needs is there in the right shape, and no other.

    ConfigError if a key is missing, the tensors do not fit, or the file has another architecture or
    a rope scaling that we do not implement; GGUFError if a tensor is missing.
    """
    arch = gguf.metadata.get("general.architecture")
    if arch != "llama":
        raise ConfigError(f"{gguf.path}: architecture {arch!r} is not supported; 'llama' is")
    source = _Source(str(gguf.path), gguf.metadata)
    hidden = source.integer("llama.embedding_length")
    heads = source.integer("llama.attention.head_count")
    head_dim = _head_dim(source, "llama.attention.key_length", hidden, heads)
    if source.integer("llama.rope.dimension_count", head_dim) != head_dim:
        raise ConfigError(f"{gguf.path}: partial rotary embedding (rope.dimension_count)")
    layers = source.integer("llama.block_count")
    if layers > len(gguf.tensors):  # before a list of the tensors of an absurd number of layers
        raise ConfigError(f"{gguf.path}: {layers} layers, but only {len(gguf.tensors)} tensors")
    config = _located(
        source.where,
        hidden_size=hidden,
        num_layers=layers,
        num_heads=heads,
        num_kv_heads=source.integer("llama.attention.head_count_kv", heads),
        head_dim=head_dim,
        ffn_size=source.integer("llama.feed_forward_length"),
        vocab_size=gguf.tensor("token_embd.weight").shape[0],
        context_length=source.integer("llama.context_length"),
        norm_eps=source.number("llama.attention.layer_norm_rms_epsilon"),
        rope_theta=source.number("llama.rope.freq_base", 10000.0),
        rope_divisors=_gguf_rope_divisors(source, gguf, head_dim),
        tied_embeddings="output.weight" not in gguf.tensors,
        interleaved_rope=True,
    )
    _check_tensors(gguf, config)
    return config


def _check_tensors(gguf: GGUF, config: LlamaConfig) -> None:
    shapes = config.tensor_shapes()
    for name, shape in shapes.items():
        found = gguf.tensor(name).shape
        if found != shape:
            raise ConfigError(f"{gguf.path}: tensor '{name}' has shape {found}, expected {shape}")
    # A bias, say: leaving it out would change the answers.
    extra = gguf.tensors.keys() - shapes.keys() - {"rope_freqs.weight"}
    if extra:
        names = ", ".join(sorted(extra)[:5])
        raise ConfigError(f"{gguf.path}: tensors that a Llama model has no use for: {names}")


def _head_dim(source: _Source, key: str, hidden: int, heads: int) -> int:
    head_dim = source.integer(key, hidden // max(heads, 1))
    if head_dim > MAX_HEAD_DIM:
        raise ConfigError(f"{source.where}: head_dim is {head_dim}, more than {MAX_HEAD_DIM}")
    return head_dim


def _located(where: str, **values: Any) -> LlamaConfig:
    try:
        return LlamaConfig(**values)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None


def _gguf_rope_divisors(source: _Source, gguf: GGUF, head_dim: int) -> tuple[float, ...] | None:
    # Llama 3.1 and later: the converter has evaluated the scaling and stores the divisors.
    if "rope_freqs.weight" in gguf.tensors:
        return tuple(gguf.tensors["rope_freqs.weight"].dequantise().ravel().tolist())
    kind = gguf.metadata.get("llama.rope.scaling.type", "none")
    if kind == "none":
        return None
    if kind == "linear":
        return (source.number("llama.rope.scaling.factor"),) * (head_dim // 2)
    raise ConfigError(f"{source.where}: rope scaling {kind!r} is unsupported; 'linear' is")


def config_from_json(path: str | os.PathLike[str]) -> LlamaConfig:
    """The configuration in a Hugging Face ``config.json`` with model_type ``llama``; ConfigError as
    for `config_from_gguf`, and also when the file is not JSON."""
    try:
        values = json.loads(Path(path).read_text(encoding="utf-8"))
    except ValueError as error:
        raise ConfigError(f"{path}: not JSON: {error}") from None
    if not isinstance(values, dict) or values.get("model_type") != "llama":
        kind = values.get("model_type") if isinstance(values, dict) else None
        raise ConfigError(f"{path}: model_type {kind!r} is not supported; 'llama' is")
    source = _Source(str(path), values)
    hidden, heads = source.integer("hidden_size"), source.integer("num_attention_heads")
    head_dim = _head_dim(source, "head_dim", hidden, heads)
    theta = source.number("rope_theta", 10000.0)
    return _located(
        source.where,
        hidden_size=hidden,
        num_layers=source.integer("num_hidden_layers"),
        num_heads=heads,
        num_kv_heads=source.integer("num_key_value_heads", heads),
        head_dim=head_dim,
        ffn_size=source.integer("intermediate_size"),
        vocab_size=source.integer("vocab_size"),
        context_length=source.integer("max_position_embeddings"),
        norm_eps=source.number("rms_norm_eps"),
        rope_theta=theta,
        rope_divisors=_json_rope_divisors(source, theta, head_dim),
        tied_embeddings=bool(values.get("tie_word_embeddings", False)),
        interleaved_rope=False,
    )


def _json_rope_divisors(
    config: _Source, theta: float, head_dim: int
) -> tuple[float, ...] | None:
    scaling = config.values.get("rope_scaling")
    if scaling is None:
        return None
    if not isinstance(scaling, dict):
        raise ConfigError(f"{config.where}: rope_scaling must be an object, is {scaling!r}")
    source = _Source(f"{config.where}, rope_scaling", scaling)
    kind = scaling.get("rope_type", scaling.get("type"))
    if kind == "linear":
        return (source.number("factor"),) * (head_dim // 2)
    if kind == "llama3":
        return _llama3_divisors(source, _frequencies(theta, head_dim))
    raise ConfigError(
        f"{config.where}: rope scaling {kind!r} is unsupported; 'linear' and 'llama3' are"
    )


def _llama3_divisors(source: _Source, freq: np.ndarray[Any, Any]) -> tuple[float, ...]:
    """Llama 3.1's rule: frequencies that make many turns over the original context are kept, those
    that make few are divided by the factor, and in between the two are blended."""
    factor, low = source.number("factor"), source.number("low_freq_factor")
    span = source.number("high_freq_factor") - low
    if factor <= 0 or span <= 0:
        raise ConfigError(f"{source.where}: factor and the span of freq_factors must be positive")
    turns = source.integer("original_max_position_embeddings") * freq / (2 * np.pi)
    keep = np.clip((turns - low) / span, 0, 1)
    return tuple((1 / (keep + (1 - keep) / factor)).tolist())
