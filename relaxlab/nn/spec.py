"""Specifications of the inputs of an exported method. A dimension is an int or the name of a
symbol."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

Dim: TypeAlias = "int | str"


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor parameter: `Tensor(("b", "s"), "int32")`. A `donated` one may be overwritten by the
    function: callers read what it returns instead."""

    shape: tuple[Dim, ...]
    dtype: str = "float32"
    donated: bool = False


@dataclass(frozen=True, slots=True)
class Shape:
    """A shape parameter, whose values the method receives as scalar expressions."""

    values: tuple[Dim, ...]


Spec: TypeAlias = "Tensor | Shape | Sequence[Spec]"
