"""Layers made from the tensors of a model file, and the tensors' arrays as the layers take them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from relaxlab import nn
from relaxlab.models.loader import FORMAT_OF_DTYPE, ModelError
from relaxlab.models.safetensors import read_safetensors
from relaxlab.models.sources import Sources
from relaxlab.models.weights import loaded
from relaxlab.runtime.executable import Executable

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, slots=True)
class Tensors:
    """The weights of a model by name: `formats` says how matrices are stored, `read` gives the
    stored fields; of everything else `data`, float32."""

    where: str
    names: frozenset[str]
    formats: Mapping[str, str]
    read: Callable[[str], Mapping[str, Array]]

    def __or__(self, other: Tensors) -> Tensors:
        """The tensors of both, which have no name in common."""

        def read(name: str) -> Mapping[str, Array]:
            return (other if name in other.names else self).read(name)

        formats = {**self.formats, **other.formats}
        return Tensors(self.where, self.names | other.names, formats, read)


@dataclass(frozen=True, slots=True)
class NamedLayers:
    """Makes layers from the names of tensors without `.weight` and `.bias`; notes where the
    parameters of each come from."""

    formats: Mapping[str, str]
    sources: Sources = field(default_factory=Sources)

    def linear(
        self, tensor: str, rows: int, columns: int, *, bias: bool = True,
        weight: nn.Weight | None = None,
    ) -> nn.Linear:  # fmt: skip
        """A map of `columns` features to `rows`; `weight` shares the matrix of another layer."""
        format = self.formats.get(f"{tensor}.weight", "F32")
        linear = nn.Linear(columns, rows, format=format, weight=weight, bias=bias)
        self.sources.note(linear, tensor, is_shared=weight is not None)
        return linear

    def merged(self, tensors: Mapping[str, str], rows: int, columns: int) -> nn.MergedLinear:
        """Maps of the same `columns` features to `rows` each, by the names of their parts."""
        formats = {p: self.formats.get(f"{t}.weight", "F32") for p, t in tensors.items()}
        merged = nn.MergedLinear(columns, dict.fromkeys(tensors, rows), formats, bias=True)
        for group, linear in zip(merged.groups, merged.linears, strict=True):
            self.sources.note(linear, *(tensors[part] for part in group))
        return merged

    def embedding(self, tensor: str, count: int, features: int) -> nn.Embedding:
        """Rows of a matrix."""
        format = self.formats.get(f"{tensor}.weight", "F32")
        embedding = nn.Embedding(count, features, format=format)
        self.sources.note(embedding, tensor)
        return embedding

    def positions(self, tensor: str, count: int, features: int) -> nn.PositionEmbedding:
        """Vectors per position."""
        table = nn.PositionEmbedding(count, features)
        self.sources.note(table, tensor)
        return table

    def norm(self, tensor: str, features: int, eps: float = 1e-5) -> nn.LayerNorm:
        """A layer norm."""
        norm = nn.LayerNorm(features, eps)
        self.sources.note(norm, tensor)
        return norm

    def conv1d(
        self, tensor: str, inputs: int, outputs: int, kernel: int, *, stride: int, padding: int
    ) -> nn.Conv1d:
        """A convolution over positions."""
        conv = nn.Conv1d(inputs, outputs, kernel, stride=stride, padding=padding)
        self.sources.note(conv, tensor)
        return conv

    def require_all_used(self, tensors: Tensors, unused: Collection[str] = ()) -> None:
        """ModelError for tensors that no layer takes, but for those named in `unused`: a file with
        more than its configuration says would give wrong answers."""
        used = {t for source in self.sources.values() for t in source.tensors}
        unread = sorted(tensors.names - used - set(unused))
        if unread:
            more = f" and {len(unread) - 3} more" if len(unread) > 3 else ""
            raise ModelError(
                f"{tensors.where}: the configuration has no use for {', '.join(unread[:3])}{more}"
            )

    def require_shapes(self, module: nn.Module, tensors: Tensors) -> None:
        """Raise ModelError for a tensor that is missing or has another shape or dtype than the
        module's parameter."""
        for parameter in module.named_parameters().values():
            source = self.sources[parameter]
            parts = [tensors.read(t)[source.field] for t in source.tensors]
            rows = sum(part.shape[0] for part in parts)
            shape, dtype = (rows, *parts[0].shape[1:]), parts[0].dtype.name
            if shape != parameter.shape or dtype != parameter.dtype:
                raise ModelError(
                    f"{tensors.where}: {' and '.join(source.tensors)}: {dtype} "
                    f"{shape}, expected {parameter.dtype} {parameter.shape}"
                )

    def load(
        self, executable: Executable, module: nn.Module, names: Sequence[str], tensors: Tensors
    ) -> None:
        """Load the weights, in the order of `names`, into a program compiled from the module, each
        repacked as soon as it is read."""
        parameters = module.named_parameters()
        sources = [self.sources[parameters[name]] for name in names]
        executable.bind_packed(loaded(executable, sources, tensors.read, {}))


def is_matrix(name: str, shape: Sequence[int]) -> bool:
    """True if a layer takes the tensor in the format that it is stored in."""
    return len(shape) == 2 and "position" not in name


def tensors_of_folder(folder: Path, rename: Callable[[str], str]) -> Tensors:
    """The tensors of a Hugging Face folder, by their names after `rename`. Matrices keep their
    dtype, the others become float32. SafetensorsError for a damaged file."""
    index = folder / "model.safetensors.index.json"
    file = index if index.exists() else folder / "model.safetensors"
    stored = {rename(name): array for name, array in read_safetensors(file).items()}
    formats = {
        name: FORMAT_OF_DTYPE.get(array.dtype.name, "F32")
        for name, array in stored.items()
        if is_matrix(name, array.shape)
    }

    def read(name: str) -> dict[str, Array]:
        if name not in stored:
            raise ModelError(f"{file}: no tensor '{name}'")
        array = stored[name]
        return {"data": array if name in formats else array.astype(np.float32, copy=False)}

    return Tensors(str(file), frozenset(stored), formats, read)
