"""Specifications of the inputs of an exported method. A dimension is an int or the name of a
symbol."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from relaxlab.ir.data import DataDef

Dim: TypeAlias = "int | str"


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor parameter: `Tensor(("b", "s"), "int32")`. A `donated` one may be overwritten by the
    function: callers read what it returns instead."""

    shape: tuple[Dim, ...]
    dtype: str = "float32"
    donated: bool = False


@dataclass(frozen=True, slots=True)
class Lengths:
    """The lengths of sequences, int32: `Lengths("b", "n", at_most=512)` for b sequences of n rows
    in all. The method receives them as a tensor."""

    sequences: Dim
    rows: Dim
    at_most: int | None = None
    at_least: int = 0


@dataclass(frozen=True, slots=True)
class Ragged:
    """A tensor with dimensions that differ along the first one, i: `Ragged(("b", "s[i]", 512))`,
    where `s` is an argument before it that has lengths. Extents are those of `R.Ragged`: `s[i]`,
    `(s[i] + 1) // 2`, `n - i`."""

    shape: tuple[Dim, ...]
    dtype: str = "float32"


@dataclass(frozen=True, slots=True)
class Shape:
    """A shape parameter, whose values the method receives as scalar expressions."""

    values: tuple[Dim, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Data:
    """A value of an algebraic data type: `nn.DataType`."""

    definition: DataDef


Spec: TypeAlias = "Tensor | Lengths | Ragged | Shape | Data | Sequence[Spec]"
