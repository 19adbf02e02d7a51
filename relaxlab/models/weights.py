"""Where a program's weights come from, and how they get to their places."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from relaxlab.models.config import DecoderConfig
from relaxlab.runtime.executable import Executable

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, slots=True)
class Source:
    """Where a parameter's array comes from: this field of those tensors, the rows of one below
    those of the other; without tensors, the table of that name (see `rotary_tables`)."""

    tensors: tuple[str, ...]
    field: str


def rotary_tables(
    config: DecoderConfig, positions: int, context: int
) -> dict[str, Array]:
    """The cosines and sines of `positions` positions in a context of `context`, float32
    (positions, dims / 2), by the names of the parameters."""
    found: dict[str, Array] = {}
    for name, rope in (("rotary", config.rope), ("local_rotary", config.local_rope)):
        if rope is not None:
            cos, sin = rope.tables(positions, context)
            found |= {f"{name}.cos": cos, f"{name}.sin": sin}
    return found


def to_json(sources: Sequence[Source]) -> list[Any]:
    """The sources as values that JSON has."""
    return [[*source.tensors, source.field] for source in sources]


def from_json(values: Sequence[Sequence[str]]) -> tuple[Source, ...]:
    """The inverse of `to_json`."""
    return tuple(Source(tuple(tensors), field) for *tensors, field in values)


def prepared(executable: Executable, weights: list[Array]) -> list[Array]:
    """The weights as the functions of a program take them: repacked where the compiler wants it."""
    if "transform_params" not in executable:
        return weights
    return list(executable["transform_params"](tuple(weights)))
