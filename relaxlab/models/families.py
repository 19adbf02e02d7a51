"""The families of decoders, with the names of their tensors and their features.

A family is one row of `FAMILIES` and one function for the fields of `DecoderConfig` that no key
holds. Hyperparameters are looked up by the names of Hugging Face's ``config.json``, whichever kind
of file it is (see `Keys`); weights have the names of GGUF files.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, TypeAlias

from relaxlab.models.config import ConfigError, DecoderConfig
from relaxlab.models.gguf import GGUF
from relaxlab.models.keys import Keys, keys_of_gguf, keys_of_json
from relaxlab.models.rope import GLOBAL, LOCAL, ROPE_TENSORS, read_local_rope, read_rope

Features: TypeAlias = "dict[str, Any]"
Windows: TypeAlias = "tuple[int | None, ...]"

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
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
}
"""Names of layers in Hugging Face's Llama, and in most families after it. Those of a block follow
`model.layers.N.`"""


FUSED_QKV = {"attn_q": "attn_qkv", "attn_k": "attn_qkv", "attn_v": "attn_qkv"}
"""Names in GGUF files whose queries, keys and values are one projection."""


@dataclass(frozen=True, slots=True)
class Place:
    """The place of a weight in a file: rows `first` .. `end` of a tensor of `shape`."""

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
    is_tied: whether embeddings are tied where ``config.json`` does not say.
    """

    model_type: str
    architecture: str
    features: Callable[[Keys, int], Features]
    hugging_face: Mapping[str, str] = field(default_factory=dict)
    gguf: Mapping[str, str] = field(default_factory=dict)
    norm_offset: float = 0.0
    is_tied: bool = False

    def gguf_places(self, config: DecoderConfig, gguf: GGUF) -> dict[str, Place]:
        """Return the place of each weight of a model in a GGUF file."""
        fused = FUSED_QKV if "blk.0.attn_qkv.weight" in gguf.tensors else {}
        return _places(config, {**fused, **self.gguf}, "blk.")

    def safetensors_places(self, config: DecoderConfig) -> dict[str, Place]:
        """Return the place of each weight of a model in safetensors files."""
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
    # GGUF files of Mistral have this architecture, too.
    is_mistral = keys.gguf is not None or keys.values.get("model_type") == "mistral"
    return {
        "rope": read_rope(keys, head_dim, interleaved=keys.gguf is not None),
        "activation": keys.activation("hidden_act", "silu"),
        "mlp_bias": keys.flag("mlp_bias", "blk.0.ffn_up.bias"),
        "windows": _windows(keys, lambda _: is_mistral),
        **_attention_biases(keys),
    }


def _qwen2(keys: Keys, head_dim: int) -> Features:
    return {
        "rope": read_rope(keys, head_dim),
        "activation": keys.activation("hidden_act", "silu"),
        "qkv_bias": True,
        "windows": _qwen_windows(keys),
    }


def _qwen3(keys: Keys, head_dim: int) -> Features:
    return {
        "rope": read_rope(keys, head_dim),
        "activation": keys.activation("hidden_act", "silu"),
        "qk_norm": True,
        "windows": _qwen_windows(keys),
        **_attention_biases(keys),
    }


def _qwen_windows(keys: Keys) -> Windows:
    if not keys.flag("use_sliding_window"):
        return ()
    first = keys.integer("max_window_layers", keys.layers("num_hidden_layers"))
    return _windows(keys, lambda layer: layer >= first)


def _gemma(keys: Keys, head_dim: int) -> Features:
    keys.refuse("use_bidirectional_attention", "attention to later positions")
    activation = keys.activation("hidden_act", "gelu_tanh")
    return {
        "rope": read_rope(keys, head_dim),
        # Its first files say gelu, and mean the approximation.
        "activation": "gelu_tanh" if activation == "gelu" else activation,
        "embedding_scale": math.sqrt(keys.integer("hidden_size")),
        **_attention_biases(keys),
    }


def _gemma2(keys: Keys, head_dim: int) -> Features:
    return {
        **_gemma(keys, head_dim),
        "activation": keys.activation("hidden_activation", "gelu_tanh"),
        "post_norms": True,
        "attention_scale": _gemma_scale(keys, head_dim, layers_of_27b=46),
        "attention_softcap": keys.optional("attn_logit_softcapping", 50.0),
        "logit_softcap": keys.optional("final_logit_softcapping", 30.0),
        "windows": _windows(keys, lambda layer: layer % 2 == 0, 4096),
    }


def _gemma3(keys: Keys, head_dim: int) -> Features:
    period = keys.integer("sliding_window_pattern", 6)
    return {
        **_gemma2(keys, head_dim),
        "rope": read_rope(keys, head_dim, theta=1e6),
        "local_rope": read_local_rope(keys, head_dim, theta=1e4),
        "qk_norm": True,
        "attention_scale": _gemma_scale(keys, head_dim, layers_of_27b=62),
        "attention_softcap": keys.optional("attn_logit_softcapping"),
        "logit_softcap": keys.optional("final_logit_softcapping"),
        "windows": _windows(keys, lambda layer: (layer + 1) % period != 0, 4096),
    }


def _gemma_scale(keys: Keys, head_dim: int, layers_of_27b: int) -> float:
    """Return the scale of attention's scores. GGUF files lack it: all sizes but the largest scale
    as usual, that by the size that its heads would have if they shared the hidden features."""
    if keys.gguf is None:
        return keys.number("query_pre_attn_scalar", 256.0) ** -0.5
    if keys.layers("num_hidden_layers") != layers_of_27b:
        return head_dim**-0.5
    return (keys.integer("hidden_size") // keys.integer("num_attention_heads")) ** -0.5


def _phi(keys: Keys, head_dim: int) -> Features:
    keys.refuse("qk_layernorm", "layer norm of queries and keys")
    return {
        "rope": read_rope(keys, head_dim, partial=0.5),
        "norm": "layer",
        "parallel_residual": True,
        "activation": keys.activation("hidden_act", "gelu_tanh"),
        "gated_mlp": False,
        "qkv_bias": True,
        "attn_output_bias": True,
        "mlp_bias": True,
        "head_bias": True,
    }


def _phi3(keys: Keys, head_dim: int) -> Features:
    return {
        "rope": read_rope(keys, head_dim),
        "activation": keys.activation("hidden_act", "silu"),
        "windows": _windows(keys, lambda _: True),
    }


def _attention_biases(keys: Keys) -> Features:
    return {
        "qkv_bias": keys.flag("attention_bias", "blk.0.attn_q.bias"),
        "attn_output_bias": keys.flag("attention_bias", "blk.0.attn_output.bias"),
    }


def _windows(keys: Keys, is_local: Callable[[int], bool], default: int | None = None) -> Windows:
    """Return the window of each layer, if a file names one: `is_local` tells of which layers,
    unless the file does. `default` is for files without one."""
    window = keys.optional("sliding_window", default)
    layers = keys.layers("num_hidden_layers")
    kinds = keys.names("layer_types", (LOCAL, GLOBAL))
    if kinds is not None and len(kinds) != layers:
        raise ConfigError(f"{keys.where}: {len(kinds)} 'layer_types' for {layers} layers")
    if not window:
        return ()
    if kinds is None:
        local = [is_local(layer) for layer in range(layers)]
    else:
        local = [kind == LOCAL for kind in kinds]
    return tuple(int(window) if here else None for here in local) if any(local) else ()


_PHI_NAMES = {
    "output_norm": "model.final_layernorm",
    "attn_output": "self_attn.dense",
    "ffn_up": "mlp.fc1",
    "ffn_down": "mlp.fc2",
}
_PHI3_NAMES = {
    **dict.fromkeys(("attn_q", "attn_k", "attn_v"), "self_attn.qkv_proj"),
    **dict.fromkeys(("ffn_gate", "ffn_up"), "mlp.gate_up_proj"),
}
_POST_NORM_NAMES = {
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}

FAMILIES = (
    Family("llama", "llama", _llama),
    Family("mistral", "llama", _llama),
    Family("qwen2", "qwen2", _qwen2),
    Family("qwen3", "qwen3", _qwen3),
    Family("gemma", "gemma", _gemma, norm_offset=1.0, is_tied=True),
    Family("gemma2", "gemma2", _gemma2, _POST_NORM_NAMES, norm_offset=1.0, is_tied=True),
    Family("gemma3_text", "gemma3", _gemma3, _POST_NORM_NAMES, norm_offset=1.0, is_tied=True),
    Family("phi", "phi2", _phi, _PHI_NAMES),
    Family("phi3", "phi3", _phi3, _PHI3_NAMES, gguf={"ffn_gate": "ffn_up"}),
)
"""The supported families. Where several have one GGUF architecture, the first reads it."""


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
    is_tied = keys.flag("tie_word_embeddings", default=family.is_tied)
    return _config(family, keys, keys.integer("vocab_size"), is_tied)


def family_of_gguf(gguf: GGUF) -> Family:
    """The family of a GGUF file's architecture. ConfigError where there is none."""
    found = gguf.metadata.get("general.architecture")
    for family in FAMILIES:
        if family.architecture == found:
            return family
    known = ", ".join(dict.fromkeys(f.architecture for f in FAMILIES))
    raise ConfigError(f"{gguf.path}: the architecture {found!r} is not supported; {known} are")


def family_of_json(keys: Keys) -> Family:
    """The family of a ``config.json``'s model_type. ConfigError where there is none."""
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
        norm, rope = features.get("norm", "rms"), features["rope"]
        return DecoderConfig(
            hidden_size=hidden,
            num_layers=keys.layers("num_hidden_layers"),
            num_heads=heads,
            num_kv_heads=keys.integer("num_key_value_heads", heads),
            head_dim=head_dim,
            ffn_size=keys.integer("intermediate_size"),
            vocab_size=vocab_size,
            context_length=max(keys.integer("max_position_embeddings"), rope.reach or 0),
            norm_eps=keys.number("rms_norm_eps" if norm == "rms" else "layer_norm_eps"),
            tied_embeddings=is_tied,
            **features,
        )
    except ConfigError as error:
        raise _located(error, keys.where) from None


def _located(error: ConfigError, where: str) -> ConfigError:
    text = str(error)
    return error if text.startswith(where) else ConfigError(f"{where}: {text}")
