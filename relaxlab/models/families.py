"""The families of decoders: for each, what it calls its tensors and which features it has.

A family is one row of `FAMILIES` and one function, which says what `DecoderConfig` cannot know by
itself. Hyperparameters are asked for by the names of Hugging Face's ``config.json``, whichever kind
of file it is (see `Keys`); weights have the names of GGUF files.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, TypeAlias

from relaxlab.models.config import ConfigError, DecoderConfig
from relaxlab.models.gguf import GGUF
from relaxlab.models.keys import Keys, keys_of_gguf, keys_of_json
from relaxlab.models.rope import ROPE_TENSORS, read_rope

Features: TypeAlias = "dict[str, Any]"

MAX_HEAD_DIM = 4096  # many times what any model has: beyond it the number is damaged

HUGGING_FACE: Mapping[str, str] = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
"""What Hugging Face's Llama calls its layers, and most families after it. Those of a block follow
`model.layers.N.`"""


FUSED_QKV = {"attn_q": "attn_qkv", "attn_k": "attn_qkv", "attn_v": "attn_qkv"}
"""Names in GGUF files whose queries, keys and values are one projection."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a weight is in a file: rows `first` .. `end` of a tensor of `shape`."""

    tensor: str
    shape: tuple[int, ...]
    first: int
    end: int


@dataclass(frozen=True, slots=True)
class Family:
    """A family of decoders.

    model_type, architecture: what ``config.json`` and GGUF files call it.
    features: what it has of `DecoderConfig`'s features, from the keys and the features per head.
    hugging_face: names of layers where they are not those of `HUGGING_FACE`; gguf: names in GGUF
    files where they are not ours. Layers with the same name are one there, their rows below each
    other.
    norm_offset: what is to be added to the weights of norms in safetensors (not in GGUF) files.
    """

    model_type: str
    architecture: str
    features: Callable[[Keys, int], Features]
    hugging_face: Mapping[str, str] = field(default_factory=dict)
    gguf: Mapping[str, str] = field(default_factory=dict)
    norm_offset: float = 0.0

    def gguf_places(self, config: DecoderConfig, gguf: GGUF) -> dict[str, Place]:
        """Where each weight of a model is in a GGUF file."""
        fused = FUSED_QKV if "blk.0.attn_qkv.weight" in gguf.tensors else {}
        return _places(config, {**fused, **self.gguf}, "blk.")

    def safetensors_places(self, config: DecoderConfig) -> dict[str, Place]:
        """Where each weight of a model is in safetensors files."""
        return _places(config, {**HUGGING_FACE, **self.hugging_face}, "model.layers.")


def _places(config: DecoderConfig, names: Mapping[str, str], layers: str) -> dict[str, Place]:
    shapes = config.tensor_shapes()
    sharing: dict[str, list[str]] = {}
    for ours in shapes:
        *block, layer, field = ours.removeprefix("blk.").split(".")
        prefix = f"{layers}{block[0]}." if block else ""
        sharing.setdefault(f"{prefix}{names.get(layer, layer)}.{field}", []).append(ours)
    found: dict[str, Place] = {}
    for tensor, weights in sharing.items():
        ends = list(accumulate(shapes[ours][0] for ours in weights))
        shape = (ends[-1], *shapes[weights[0]][1:])
        for ours, first, end in zip(weights, [0, *ends], ends, strict=False):
            found[ours] = Place(tensor, shape, first, end)
    return {ours: found[ours] for ours in shapes}


def _llama(keys: Keys, head_dim: int) -> Features:
    attention_bias = keys.flag("attention_bias", "blk.0.attn_q.bias")
    return {
        "rope": read_rope(keys, head_dim, interleaved=keys.gguf is not None),
        "activation": keys.activation("hidden_act", "silu"),
        "qkv_bias": attention_bias,
        "attn_output_bias": keys.flag("attention_bias", "blk.0.attn_output.bias"),
        "mlp_bias": keys.flag("mlp_bias", "blk.0.ffn_up.bias"),
    }


FAMILIES = (Family("llama", "llama", _llama),)
"""The families that we know. Where several have one GGUF architecture, the first reads it."""


def config_from_gguf(gguf: GGUF) -> DecoderConfig:
    """The configuration that a GGUF file states, checked against its tensors: every one that the
    model needs is there in the right shape, and no other.

    ConfigError if a key is missing, the tensors do not fit, or the file has an architecture or a
    feature that is not supported; GGUFError if a tensor is missing.
    """
    family = family_of_gguf(gguf)
    keys = keys_of_gguf(gguf, family.architecture)
    layers = keys.integer("num_hidden_layers")
    if layers > len(gguf.tensors):  # before a list of the tensors of an absurd number of layers
        raise ConfigError(f"{gguf.path}: {layers} layers, but only {len(gguf.tensors)} tensors")
    vocab_size = gguf.tensor("token_embd.weight").shape[0]
    config = _config(family, keys, vocab_size, "output.weight" not in gguf.tensors)
    _check_tensors(family, config, gguf)
    return config


def _check_tensors(family: Family, config: DecoderConfig, gguf: GGUF) -> None:
    places = {p.tensor: p.shape for p in family.gguf_places(config, gguf).values()}
    for name, shape in places.items():
        found = gguf.tensor(name).shape
        if found != shape:
            raise ConfigError(f"{gguf.path}: tensor '{name}' has shape {found}, expected {shape}")
    # A bias, say: leaving it out would change the answers.
    extra = [n for n in sorted(gguf.tensors.keys() - places.keys()) if n not in ROPE_TENSORS]
    if extra:
        raise ConfigError(
            f"{gguf.path}: tensors that a {family.model_type} model has no use for: "
            f"{', '.join(extra[:5])}"
        )


def config_from_json(path: str | os.PathLike[str]) -> DecoderConfig:
    """The configuration in a Hugging Face ``config.json``; ConfigError as for `config_from_gguf`,
    and also when the file is not JSON."""
    keys = keys_of_json(path)
    family = family_of_json(keys)
    is_tied = keys.flag("tie_word_embeddings", "")
    return _config(family, keys, keys.integer("vocab_size"), is_tied)


def family_of_gguf(gguf: GGUF) -> Family:
    """The family of a GGUF file's architecture. ConfigError where we know none."""
    found = gguf.metadata.get("general.architecture")
    for family in FAMILIES:
        if family.architecture == found:
            return family
    known = ", ".join(dict.fromkeys(f.architecture for f in FAMILIES))
    raise ConfigError(f"{gguf.path}: the architecture {found!r} is not supported; {known} are")


def family_of_json(keys: Keys) -> Family:
    """The family of a ``config.json``'s model_type. ConfigError where we know none."""
    found = keys.values.get("model_type")
    for family in FAMILIES:
        if family.model_type == found:
            return family
    known = ", ".join(f.model_type for f in FAMILIES)
    raise ConfigError(f"{keys.where}: the model_type {found!r} is not supported; {known} are")


def _config(family: Family, keys: Keys, vocab_size: int, is_tied: bool) -> DecoderConfig:
    hidden = keys.integer("hidden_size")
    heads = keys.integer("num_attention_heads")
    head_dim = keys.integer("head_dim", hidden // max(heads, 1))
    if head_dim > MAX_HEAD_DIM:
        raise ConfigError(f"{keys.where}: head_dim is {head_dim}, more than {MAX_HEAD_DIM}")
    try:
        features = family.features(keys, head_dim)
        norm = features.get("norm", "rms")
        return DecoderConfig(
            hidden_size=hidden,
            num_layers=keys.integer("num_hidden_layers"),
            num_heads=heads,
            num_kv_heads=keys.integer("num_key_value_heads", heads),
            head_dim=head_dim,
            ffn_size=keys.integer("intermediate_size"),
            vocab_size=vocab_size,
            context_length=keys.integer("max_position_embeddings"),
            norm_eps=keys.number("rms_norm_eps" if norm == "rms" else "layer_norm_eps"),
            tied_embeddings=is_tied,
            **features,
        )
    except ConfigError as error:
        raise _located(error, keys.where) from None


def _located(error: ConfigError, where: str) -> ConfigError:
    text = str(error)
    return error if text.startswith(where) else ConfigError(f"{where}: {text}")
