"""Algebraic data types: their declarations, which a module holds, and their values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from relaxlab.ir import types
from relaxlab.ir.arguments import names_arguments
from relaxlab.ir.dtypes import numpy_dtype
from relaxlab.ir.errors import counted, kind_of
from relaxlab.ir.expr import IntImm
from relaxlab.ir.node import Node, node

if TYPE_CHECKING:
    from relaxlab.ir.module import Module

DATA_TYPES = "data_types"
"""The attribute of a module that holds the declarations of its data types."""
_SHOWN_LEVELS = 3
"""Levels of nested values that the `repr` of a value shows."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class DataValue:
    """A value of an algebraic data type: what a constructor made of its fields. `tag` is the number
    of the constructor in the declaration of the type."""

    data: str
    constructor: str
    tag: int
    fields: tuple[Any, ...]

    def __repr__(self) -> str:
        return _text(self, _SHOWN_LEVELS)


@node
class Constructor(Node):
    """A constructor of the data type `data`, with the types of its fields. Called with fields, it
    returns a value of the type."""

    data: str
    name: str
    tag: int
    fields: tuple[types.Type, ...]

    def __repr__(self) -> str:
        return f"{self.name}({', '.join(map(str, self.fields))})"

    def __call__(self, *fields: Any) -> DataValue:
        """Return the value with these fields: arrays or numbers for tensors, values of data types
        for those. Raises TypeError for fields that do not fit."""
        if len(fields) != len(self.fields):
            takes = counted(len(self.fields), "field")
            raise TypeError(f"`{self.name}` of `{self.data}` has {takes}, got {len(fields)}")
        given = enumerate(zip(fields, self.fields, strict=True))
        values = tuple(_field(v, ty, f"field {i} of `{self.name}`") for i, (v, ty) in given)
        return DataValue(self.data, self.name, self.tag, values)


@node
class DataDef(Node):
    """The declaration of a data type: its constructors, numbered in their order."""

    name: str
    constructors: tuple[Constructor, ...]

    def constructor(self, name: str) -> Constructor | None:
        """Return the constructor of that name, or None."""
        return next((c for c in self.constructors if c.name == name), None)


def data_types(mod: Module | None) -> Mapping[str, DataDef]:
    """Return the data types that a module declares, by name."""
    declared: tuple[DataDef, ...] = () if mod is None else mod.attrs.get(DATA_TYPES, ())
    return {d.name: d for d in declared}


@names_arguments
def constructors(mod: Module) -> dict[str, Constructor]:
    """Return the constructors of all data types of a module by name, to make values with.

    >>> leaf, node = constructors(mod)["Leaf"], constructors(mod)["Node"]  # doctest: +SKIP
    >>> node(leaf(3), leaf(4))                                            # doctest: +SKIP
    Node(Leaf(3), Leaf(4))
    """
    return {c.name: c for d in data_types(mod).values() for c in d.constructors}


def _field(value: Any, ty: types.Type, what: str) -> Any:
    if isinstance(ty, types.DataType):
        if not isinstance(value, DataValue) or value.data != ty.name:
            raise TypeError(f"{what} is a `{ty.name}`, got {kind_of(value)}")
        return value
    assert isinstance(ty, types.TensorType) and ty.dtype is not None
    dtype = numpy_dtype(ty.dtype)
    array = np.asarray(value)
    if isinstance(value, bool | int | float):
        array = np.asarray(value, dtype)
        if dtype.kind in "iub" and array != value:
            raise TypeError(f"{what} is a {ty}, got {value!r}")
    shape = tuple(d.value for d in ty.shape or () if isinstance(d, IntImm))
    if array.dtype != dtype or array.shape != shape:
        got = f"an array of {array.dtype} of shape {array.shape}"
        raise TypeError(f"{what} is a {ty}, got {got}")
    return array


def _text(value: Any, levels: int) -> str:
    if not isinstance(value, DataValue):
        return str(value) if np.ndim(value) == 0 else f"array{np.shape(value)}"
    if not levels and value.fields:
        return f"{value.constructor}(…)"
    inner = ", ".join(_text(f, levels - 1) for f in value.fields)
    return f"{value.constructor}({inner})"
