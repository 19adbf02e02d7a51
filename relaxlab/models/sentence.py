"""One vector per text: what sentence-transformers keeps beside an encoder, and computes after it.

A folder lists its modules in ``modules.json``: the encoder, how token vectors become one
(``1_Pooling``), maps after that (``2_Dense``), and whether the result gets length 1
(``2_Normalize``). Without that list a folder may still have ``1_Pooling``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from relaxlab import nn, ops
from relaxlab.models.config import ConfigError
from relaxlab.models.keys import Keys, keys_of_json
from relaxlab.models.loader import ModelError
from relaxlab.models.named_layers import NamedLayers

# --- Pooling --------------------------------------------------------------------------------------


def _counts(mask: nn.Tensor) -> nn.Tensor:
    """1, 2, 3, … over the tokens that are not padding, which have 0; float32 (b, s)."""
    mask = mask.astype("float32")
    return mask.op("cumsum", axis=1) * mask


def _weighted(hidden: nn.Tensor, weights: nn.Tensor) -> nn.Tensor:
    """The sum over the tokens (b, width) of hidden states times weights (b, s)."""
    b, s = weights.shape
    return (hidden * weights.reshape(b, s, 1)).op("sum", axis=1)


def _total(weights: nn.Tensor) -> nn.Tensor:
    return weights.op("sum", axis=1, keepdims=True)


def _mean(hidden: nn.Tensor, mask: nn.Tensor) -> nn.Tensor:
    mask = mask.astype("float32")
    return _weighted(hidden, mask).op("divide", _total(mask))


def _mean_sqrt_len(hidden: nn.Tensor, mask: nn.Tensor) -> nn.Tensor:
    mask = mask.astype("float32")
    return _weighted(hidden, mask).op("divide", _total(mask).op("sqrt"))


def _weighted_mean(hidden: nn.Tensor, mask: nn.Tensor) -> nn.Tensor:
    counts = _counts(mask)
    return _weighted(hidden, counts).op("divide", _total(counts))


def _last(hidden: nn.Tensor, mask: nn.Tensor) -> nn.Tensor:
    counts = _counts(mask)
    # The token whose number is the number of tokens.
    is_last = counts.op("equal", _total(mask.astype("float32"))).astype("float32")
    return _weighted(hidden, is_last * mask.astype("float32"))


def _max(hidden: nn.Tensor, mask: nn.Tensor) -> nn.Tensor:
    b, s = mask.shape
    real = mask.reshape(b, s, 1).op("not_equal", 0)
    # Padding must not be the largest: this is less than any hidden state.
    return real.op("where", hidden, -1e9).op("max", axis=1)


def first(hidden: nn.Tensor, mask: nn.Tensor | None = None) -> nn.Tensor:
    """The hidden state (b, width) of each text's first token."""
    begin = hidden.op("strided_slice", axes=(1,), begin=(0,), end=(1,))
    return begin.reshape(hidden.shape[0], hidden.shape[2])


Pooling: TypeAlias = "Callable[[nn.Tensor, nn.Tensor], nn.Tensor]"

POOLINGS: Mapping[str, Pooling] = {
    "cls_token": first,
    "max_tokens": _max,
    "mean_tokens": _mean,
    "mean_sqrt_len_tokens": _mean_sqrt_len,
    "weightedmean_tokens": _weighted_mean,
    "lasttoken": _last,
}
"""From hidden states (b, s, width) and a mask int32 (b, s) to vectors (b, width), by the names that
follow ``pooling_mode_`` in a configuration; several are put side by side in this order."""
_SHORT = {name.removesuffix("_tokens").removesuffix("_token"): name for name in POOLINGS}


# --- Modules of a folder --------------------------------------------------------------------------

_ACTIVATIONS = {
    "torch.nn.modules.linear.Identity": None,
    "torch.nn.modules.activation.Tanh": "tanh",
    "torch.nn.modules.activation.ReLU": "nn.relu",
    "torch.nn.modules.activation.GELU": "nn.gelu",
}


@dataclass(frozen=True, slots=True)
class Dense:
    """A map of vectors, its weights in the folder `path` of the model's; `activation` is an
    operator, or None."""

    path: str
    inputs: int
    outputs: int
    bias: bool
    activation: str | None


@dataclass(frozen=True, slots=True)
class SentenceConfig:
    """The configuration of a sentence encoder. `poolings`: keys of `POOLINGS`. `max_length`: tokens
    of a text that are read, None for as many as the encoder has positions. `lowercase`: texts are
    lowered first. `normalize`: vectors get length 1."""

    poolings: tuple[str, ...] = ("mean_tokens",)
    dense: tuple[Dense, ...] = ()
    normalize: bool = False
    max_length: int | None = None
    lowercase: bool = False

    def width(self, hidden_size: int) -> int:
        """The length of a vector."""
        return self.dense[-1].outputs if self.dense else hidden_size * len(self.poolings)


def sentence_config(folder: Path) -> SentenceConfig:
    """Read the configuration from a folder. Raises ModelError for a module that is not supported or
    cannot be read, ConfigError for an option that is not."""
    poolings, dense, normalize = ("mean_tokens",), list[Dense](), False
    for kind, path in _modules(folder):
        if kind == "Pooling":
            poolings = _poolings(keys_of_json(folder / path / "config.json"))
        elif kind == "Dense":
            dense.append(_dense(path, keys_of_json(folder / path / "config.json")))
        elif kind == "Normalize":
            normalize = True
        elif kind not in ("Transformer", "Dropout"):
            raise ModelError(
                f"{folder / 'modules.json'}: a module {kind} is not supported; Transformer, "
                "Pooling, Dense, Normalize and Dropout are"
            )
    limits = sorted(folder.glob("sentence_*_config.json"))
    keys = keys_of_json(limits[0]) if limits else Keys(str(folder), {})
    tokenizer = folder / "tokenizer_config.json"
    most = keys_of_json(tokenizer) if tokenizer.exists() else keys
    length = keys.optional("max_seq_length", most.optional("model_max_length"))
    return SentenceConfig(
        poolings, tuple(dense), normalize, None if length is None else int(length),
        keys.values.get("do_lower_case") is True,
    )  # fmt: skip


def _modules(folder: Path) -> list[tuple[str, str]]:
    """The class and the folder of each module, in order."""
    listed = folder / "modules.json"
    if not listed.exists():
        pooling = folder / "1_Pooling" / "config.json"
        return [("Pooling", "1_Pooling")] if pooling.exists() else []
    try:
        entries: list[Mapping[str, Any]] = json.loads(listed.read_text(encoding="utf-8"))
        return [(e["type"].rpartition(".")[2], e["path"]) for e in entries]
    except (ValueError, RecursionError, TypeError, KeyError, AttributeError):
        raise ModelError(f"{listed}: expected a list of modules with type and path") from None


def _poolings(keys: Keys) -> tuple[str, ...]:
    prefix = "pooling_mode_"
    asked = {k.removeprefix(prefix) for k, v in keys.values.items() if k.startswith(prefix) and v}
    named = keys.values.get("pooling_mode", [])
    names = [named] if isinstance(named, str) else named
    asked |= {_SHORT.get(name, name) for name in names}
    unknown = sorted(asked - set(POOLINGS))
    if unknown:
        raise ConfigError(
            f"{keys.where}: pooling {', '.join(unknown)} is not supported; "
            f"{', '.join(POOLINGS)} are"
        )
    return tuple(name for name in POOLINGS if name in asked) or ("mean_tokens",)


def _dense(path: str, keys: Keys) -> Dense:
    name = keys.text("activation_function", "torch.nn.modules.activation.Tanh")
    if name not in _ACTIVATIONS:
        raise ConfigError(
            f"{keys.where}: activation_function {name} is not supported; "
            f"{', '.join(_ACTIVATIONS)} are"
        )
    return Dense(
        path, keys.integer("in_features"), keys.integer("out_features"),
        keys.values.get("bias") is not False, _ACTIVATIONS[name],
    )  # fmt: skip


# --- In the program -------------------------------------------------------------------------------


class SentenceHead(nn.Module):
    """The modules after the encoder, but for the normalisation."""

    def __init__(self, config: SentenceConfig, hidden_size: int, make: NamedLayers) -> None:
        """Raises ConfigError for a map whose input is not the output of the one before."""
        self.config = config
        width = hidden_size * len(config.poolings)
        for dense in config.dense:
            if dense.inputs != width:
                raise ConfigError(
                    f"{dense.path} takes vectors of {dense.inputs} numbers, gets {width}"
                )
            width = dense.outputs
        self.dense = nn.ModuleList(
            [make.linear(dense_tensor(d), d.outputs, d.inputs, bias=d.bias) for d in config.dense]
        )

    def forward(self, hidden: nn.Tensor, mask: nn.Tensor) -> nn.Tensor:
        """hidden (b, s, hidden_size), mask int32 (b, s) -> vectors (b, width). A text's padding
        comes after its tokens."""
        vectors = [POOLINGS[name](hidden, mask) for name in self.config.poolings]
        x = _side_by_side(vectors) if len(vectors) > 1 else vectors[0]
        for dense, layer in zip(self.config.dense, self.dense, strict=True):
            x = layer(x)
            x = x if dense.activation is None else x.op(dense.activation)
        return x


def _side_by_side(vectors: list[nn.Tensor]) -> nn.Tensor:
    call = ops.concat(tuple(v.var for v in vectors), axis=1)
    return vectors[0].builder.emit(call, "vectors")


def dense_tensor(dense: Dense) -> str:
    """The name of a map's tensors among those of the model, without `.weight` and `.bias`."""
    return f"{dense.path}.linear"
