"""A model's hyperparameters, under one vocabulary for GGUF metadata and Hugging Face's
``config.json``."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from relaxlab.models.config import ConfigError
from relaxlab.models.gguf import GGUF

if TYPE_CHECKING:
    from relaxlab import nn

MOST_LAYERS = 4096  # many times what any model has: beyond it the number is damaged
GGUF_KEYS: Mapping[str, str] = {
    "hidden_size": "embedding_length",
    "num_hidden_layers": "block_count",
    "num_attention_heads": "attention.head_count",
    "num_key_value_heads": "attention.head_count_kv",
    "head_dim": "attention.key_length",
    "intermediate_size": "feed_forward_length",
    "max_position_embeddings": "context_length",
    "rms_norm_eps": "attention.layer_norm_rms_epsilon",
    "layer_norm_eps": "attention.layer_norm_epsilon",
    "sliding_window": "attention.sliding_window",
    "attn_logit_softcapping": "attn_logit_softcapping",
    "final_logit_softcapping": "final_logit_softcapping",
    "rope_theta": "rope.freq_base",
    "rope_local_base_freq": "rope.freq_base_swa",
    "rotary_dim": "rope.dimension_count",
    "rope_type": "rope.scaling.type",
    "factor": "rope.scaling.factor",
    "attention_factor": "rope.scaling.attn_factor",
    "original_max_position_embeddings": "rope.scaling.original_context_length",
    "beta_fast": "rope.scaling.yarn_beta_fast",
    "beta_slow": "rope.scaling.yarn_beta_slow",
    "extrapolation_factor": "rope.scaling.yarn_ext_factor",
}
"""GGUF's names of keys of ``config.json``, after the architecture's name. GGUF files lack the keys
that are not here."""

_ACTIVATIONS: Mapping[str, nn.Activation] = {
    "silu": "silu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
}

_REQUIRED: Any = object()


@dataclass(frozen=True, slots=True)
class Keys:
    """Hyperparameters by the names of ``config.json``; errors name the file and its own key.

    `prefix` is in front of each key of a GGUF file: the architecture and a dot.
    """

    where: str
    values: Mapping[str, Any]
    gguf: GGUF | None = None
    prefix: str = ""

    def integer(self, key: str, default: int = _REQUIRED) -> int:
        """A whole number. ConfigError when it is missing and has no default, or is no such."""
        return self._number(key, int, default)

    def number(self, key: str, default: float = _REQUIRED) -> float:
        """A number; errors as for `integer`."""
        return float(self._number(key, int | float, default))

    def optional(self, key: str, default: float | None = None) -> float | None:
        """Return a number, None for null; the default if the file lacks the key."""
        if not self.has(key):
            return default
        return None if self._get(key) is None else self.number(key)

    def flag(self, key: str, tensor: str | None = None, default: bool = False) -> bool:
        """True if a feature is there: the key is true; a GGUF file has the tensor that goes with
        it (None: no GGUF file has the feature)."""
        if self.gguf is not None:
            # GGUF has no keys for such features: their tensors are there or not.
            return tensor in self.gguf.tensors
        value = self.values.get(key, default)
        if not isinstance(value, bool):
            raise ConfigError(f"{self.where}: '{key}' must be true or false, is {value!r}")
        return value

    def refuse(self, key: str, what: str) -> None:
        """ConfigError if the key of ``config.json`` is set: `what` it asks for is unsupported."""
        if self.gguf is None and self.values.get(key):
            raise ConfigError(f"{self.where}: {what} ('{key}') is not supported")

    def activation(self, key: str, default: nn.Activation) -> nn.Activation:
        """The nonlinearity of MLPs."""
        value = self._get(key) if self.has(key) else None
        if value is None:
            return default
        if value not in _ACTIVATIONS:
            raise ConfigError(
                f"{self.where}: '{key}' {value!r} is not supported; {', '.join(_ACTIVATIONS)} are"
            )
        return _ACTIVATIONS[value]

    def text(self, key: str, default: str) -> str:
        """Return a text. Raises ConfigError for a value of another kind."""
        value = self._get(key)
        if value is None:
            return default
        if not isinstance(value, str):
            raise ConfigError(f"{self.where}: '{self._name(key)}' must be a name, is {value!r}")
        return value

    def names(self, key: str, known: Collection[str]) -> tuple[str, ...] | None:
        """Return a list of names among the known ones; None if the file lacks the key."""
        found = self._get(key)
        if found is None:
            return None
        if not isinstance(found, list) or not all(name in known for name in found):
            raise ConfigError(
                f"{self.where}: '{key}' must be a list of {' and '.join(known)}, is {found!r}"
            )
        return tuple(found)

    def numbers(self, key: str, tensor: str) -> tuple[float, ...]:
        """A list of numbers: the key's; in a GGUF file, the tensor's elements."""
        if self.gguf is not None:
            return tuple(self.gguf.tensor(tensor).dequantise().ravel().tolist())
        found = self._get(key)
        if not isinstance(found, list) or not all(isinstance(n, int | float) for n in found):
            raise ConfigError(f"{self.where}: '{key}' must be a list of numbers, is {found!r}")
        return tuple(float(n) for n in found)

    def child(self, key: str) -> Keys:
        """The keys of an object inside of ``config.json``; none where there is no such."""
        found = self.values.get(key)
        if found is None:
            found = {}
        if not isinstance(found, dict):
            raise ConfigError(f"{self.where}: {key} must be an object, is {found!r}")
        return Keys(f"{self.where}, {key}", found)

    def has(self, key: str) -> bool:
        """True if the file has a value for a key."""
        name = self._name(key)
        return name is not None and name in self.values

    def _name(self, key: str) -> str | None:
        if self.gguf is None:
            return key
        return f"{self.prefix}{GGUF_KEYS[key]}" if key in GGUF_KEYS else None

    def layers(self, key: str) -> int:
        """The number of layers. ConfigError for more than `MOST_LAYERS`."""
        count = self.integer(key)
        if count > MOST_LAYERS:
            raise ConfigError(f"{self.where}: {count} layers, more than {MOST_LAYERS}")
        return count

    def _get(self, key: str) -> Any:
        name = self._name(key)
        return None if name is None else self.values.get(name)

    def _number(self, key: str, kind: Any, default: Any) -> Any:
        value = self._get(key)
        if value is None and default is not _REQUIRED:
            return default
        if value is None:
            raise ConfigError(f"{self.where}: the key '{self._name(key)}' is missing")
        # In Python, true and false are integers.
        if not isinstance(value, kind) or isinstance(value, bool):
            raise ConfigError(f"{self.where}: '{self._name(key)}' must be a number, is {value!r}")
        return value


def keys_of_gguf(gguf: GGUF, architecture: str) -> Keys:
    """Return the keys of a GGUF file."""
    return Keys(str(gguf.path), gguf.metadata, gguf, f"{architecture}.")


def keys_of_json(path: str | os.PathLike[str]) -> Keys:
    """Return the keys of a ``config.json``. Raises ConfigError if it does not hold a JSON
    object."""
    try:
        values = json.loads(Path(path).read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: not JSON: {error}") from None
    if not isinstance(values, dict):
        raise ConfigError(f"{path}: must hold a JSON object")
    return Keys(str(path), values)
