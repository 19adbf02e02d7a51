"""Opening models: a GGUF file, or a Hugging Face folder with `config.json` and safetensors."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from relaxlab.ir.arguments import names_arguments
from relaxlab.ir.errors import UserError, path_of
from relaxlab.ir.names import among
from relaxlab.models import smollm2, tiny
from relaxlab.models.chat import ChatTemplate
from relaxlab.models.config import ConfigError, DecoderConfig
from relaxlab.models.families import (
    Place,
    config_from_gguf,
    config_from_json,
    family_of_gguf,
    family_of_json,
)
from relaxlab.models.gguf import GGUFTensor, read_gguf
from relaxlab.models.keys import keys_of_json
from relaxlab.models.safetensors import read_safetensors
from relaxlab.models.tokenizer import Tokenizer
from relaxlab.models.tokenizer_gguf import tokenizer_from_gguf
from relaxlab.models.tokenizer_json import read_tokenizer_json
from relaxlab.models.weights import Source, dense, rotary_tables
from relaxlab.runtime.collection import collection_paused

if TYPE_CHECKING:
    from relaxlab.models.decoder import Decoder

Array = np.ndarray[Any, np.dtype[Any]]

NAMED: Mapping[str, Callable[[], Path]] = {"smollm2-135m": smollm2.path, "tiny": tiny.path}
"""Models that have a name instead of a path."""

FORMAT_OF_DTYPE = {"float32": "F32", "float16": "F16", "bfloat16": "BF16"}


class ModelError(UserError, ValueError):
    """The model cannot be opened; the message gives the reason and what would work."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """An opened model: configuration, tokenizer and weights, which stay on disk until read.

    `formats` gives the storage format of each tensor by GGUF name, `read` its stored fields, and
    whole `blocks` where it has some, as views of the file where it is no vector. Chat models have
    a `chat` template.
    """

    path: Path
    config: DecoderConfig
    tokenizer: Tokenizer
    chat: ChatTemplate | None
    formats: Mapping[str, str] = field(repr=False)
    read: Callable[[str], dict[str, Array]] = field(repr=False)

    def weights(self, model: Decoder, names: Sequence[str]) -> list[Array]:
        """The arrays of a model's weights, in the order of `names`.

        Parts of merged projections are joined, quantised blocks taken apart into their fields;
        everything else is a view of the file. Rotary tables have the model's `positions`, or those
        of its longest context.
        """
        sources, positions = model.sources(), model.positions
        if isinstance(positions, str):
            positions = self.config.context_length
        tables = rotary_tables(model.config, positions)
        return self.arrays([sources[name] for name in names], tables)

    def arrays(self, sources: Sequence[Source], tables: Mapping[str, Array]) -> list[Array]:
        """The arrays of the sources, in order; `tables` are those that are computed."""
        return [dense(source, self.read, tables) for source in sources]


_MODELS = "give a GGUF file, a folder with config.json, or one of: "


@names_arguments
def open_model(model: str | os.PathLike[str]) -> Checkpoint:
    """Open a model by name (`smollm2-135m`, `tiny`), GGUF file or Hugging Face folder.

    Raises ModelError, ConfigError, GGUFError, TokenizerError or SafetensorsError (all ValueErrors)
    naming what is wrong with it, FileNotFoundError when it is not there.
    """
    named = NAMED.get(str(model))
    path = path_of(model, "the path of a model") if named is None else named()
    if not str(model) or not path.exists():
        raise FileNotFoundError(
            f"there is no model {str(model)!r}; {_MODELS}{among(model, NAMED)}"
        )
    if path.is_dir() and not (path / "config.json").exists():
        raise FileNotFoundError(
            f"the folder {str(model)!r} has no config.json; {_MODELS}{', '.join(NAMED)}"
        )
    with collection_paused():  # a vocabulary makes hundreds of thousands of objects
        return _open_folder(path) if path.is_dir() else _open_file(path)


def _open_file(path: Path) -> Checkpoint:
    gguf = read_gguf(path)
    config = config_from_gguf(gguf)
    tokenizer = tokenizer_from_gguf(gguf)
    _check_vocabulary(path, config, tokenizer)
    has_template = "tokenizer.chat_template" in gguf.metadata
    chat = ChatTemplate.from_gguf(gguf, tokenizer) if has_template else None
    places = family_of_gguf(gguf).gguf_places(config, gguf)
    formats = {ours: gguf.tensor(place.tensor).format.name for ours, place in places.items()}
    # Not `gguf` itself: its metadata, with the merges of the vocabulary, may go.
    tensors = {ours: gguf.tensor(place.tensor) for ours, place in places.items()}
    return Checkpoint(
        path, config, tokenizer, chat, formats, lambda n: _fields(tensors[n], places[n])
    )


def _fields(tensor: GGUFTensor, place: Place) -> dict[str, Array]:
    """The stored fields and blocks of a weight, as views; of a vector, float32."""
    # Norms and biases are small, and every kernel takes them in float32.
    if len(tensor.shape) == 1:
        return {"data": tensor.dequantise()[place.first : place.end]}
    found = tensor.format.views(tensor.raw, tensor.shape)
    if tensor.format.block_size > 1:
        found["blocks"] = tensor.format.blocks(tensor.raw, tensor.shape)
    return {name: array[place.first : place.end] for name, array in found.items()}


def _check_vocabulary(path: Path, config: DecoderConfig, tokenizer: Tokenizer) -> None:
    # A matrix may be padded beyond the vocabulary; the reverse would read outside it.
    if tokenizer.vocab_size > config.vocab_size:
        raise ConfigError(
            f"{path}: the tokenizer has {tokenizer.vocab_size} tokens, the embedding only "
            f"{config.vocab_size} rows"
        )


def _open_folder(path: Path) -> Checkpoint:
    config = config_from_json(path / "config.json")
    family = family_of_json(keys_of_json(path / "config.json"))
    index = path / "model.safetensors.index.json"
    file = index if index.exists() else path / "model.safetensors"
    arrays = read_safetensors(file)
    places = family.safetensors_places(config)
    _check_all_used(file, arrays, places, config)
    found: dict[str, Array] = {}
    for ours, place in places.items():
        array = _array_for(file, arrays, place)[place.first : place.end]
        if array.ndim == 1:
            array = array.astype(np.float32)
        found[ours] = array + family.norm_offset if ours.endswith("_norm.weight") else array
    tokenizer, template = read_tokenizer_json(path)
    _check_vocabulary(path, config, tokenizer)
    chat = None if template is None else ChatTemplate(template, tokenizer)
    formats = {name: FORMAT_OF_DTYPE[array.dtype.name] for name, array in found.items()}
    return Checkpoint(path, config, tokenizer, chat, formats, lambda n: {"data": found[n]})


def _check_all_used(
    file: Path, arrays: Mapping[str, Array], places: Mapping[str, Place], config: DecoderConfig
) -> None:
    used = {place.tensor for place in places.values()}
    used |= {"lm_head.weight"} if config.tied_embeddings else set()
    # Older files keep the frequencies of the rotary embedding, too.
    extra = [n for n in sorted(arrays.keys() - used) if not n.endswith("rotary_emb.inv_freq")]
    if extra:
        raise ModelError(
            f"{file}: tensors that the model of config.json has no use for: {', '.join(extra[:5])}"
        )


def _array_for(file: Path, arrays: Mapping[str, Array], place: Place) -> Array:
    """The array at a place; ModelError when it does not fit."""
    if place.tensor not in arrays:
        raise ModelError(f"{file}: no tensor '{place.tensor}'")
    array = arrays[place.tensor]
    if array.shape != place.shape or array.dtype.name not in FORMAT_OF_DTYPE:
        raise ModelError(
            f"{file}: tensor '{place.tensor}' is {array.dtype} {array.shape}, expected "
            f"{place.shape} in {', '.join(FORMAT_OF_DTYPE)}"
        )
    return array
