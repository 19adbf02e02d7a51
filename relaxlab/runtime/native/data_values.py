"""Values of data types as words that native code reads and writes, and back."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from relaxlab.codegen.artifact import ConstructorTree, TypeTree
from relaxlab.ir import expr
from relaxlab.ir import recording as rec
from relaxlab.ir.data import DataValue
from relaxlab.ir.dtypes import numpy_dtype
from relaxlab.ir.errors import kind_of
from relaxlab.ir.types import DataType, TensorType
from relaxlab.runtime.native.arguments import ArgumentConverter, ArgumentError, view_memory
from relaxlab.runtime.native.value_maker import NativeMaker
from relaxlab.runtime.native.value_reader import Given, ValueReader, Words
from relaxlab.runtime.native.value_tables import Layouts, ValueTables, values_are_known
from relaxlab.runtime.rows import row_dims

Array = np.ndarray[Any, Any]


@dataclass(slots=True)
class DataWriter:
    """Writes values that instances give as words: each value once, however often it is met. Their
    tensors are collected by dtype. This is what machine code does, for values that it does not
    know."""

    layouts: Layouts
    words: list[int] = field(default_factory=lambda: [])
    addresses: list[int] = field(default_factory=lambda: [])
    """The words that are places of values, to which the address of the first word is added."""
    places: dict[int, int] = field(default_factory=lambda: {})
    """The first word of each value, by its identity; -1 while its fields are written."""
    keep: list[DataValue] = field(default_factory=lambda: [])
    tensors: dict[np.dtype[Any], list[tuple[int, Array]]] = field(default_factory=lambda: {})
    """Per dtype, the words that are to stand for tensors, with these."""

    def write(self, value: Any, ty: DataType, what: str) -> int:
        """Write a value, and return its first word.

        Raises ArgumentError naming `what` for what is no value of the type, has a tensor that does
        not fit, or contains itself.
        """
        # An explicit stack: trees may be deeper than Python recurses.
        self._check(value, ty.name, what)
        pending: list[tuple[DataValue, bool]] = [(value, False)]
        while pending:
            top, ready = pending.pop()
            if ready:
                self._emit(top, what)
                continue
            if id(top) in self.places:
                if self.places[id(top)] < 0:
                    raise ArgumentError(f"{what} contains itself: `{top.constructor}`")
                continue
            self.places[id(top)] = -1
            self.keep.append(top)
            pending.append((top, True))
            for v, f in zip(top.fields, self._layout(top, what).fields, strict=True):
                if isinstance(f.ty, DataType):
                    self._check(v, f.ty.name, f"a field of `{top.constructor}` in {what}")
                    pending.append((v, False))
        return self.places[id(value)]

    def _check(self, value: Any, data: str, what: str) -> None:
        if not isinstance(value, DataValue) or value.data != data:
            raise ArgumentError(f"{what} is {kind_of(value)}, expected a value of `{data}`")

    def _layout(self, value: DataValue, what: str) -> rec.DataLayout:
        layouts = self.layouts[value.data]
        known = 0 <= value.tag < len(layouts)
        if not known or layouts[value.tag].constructor != value.constructor:
            has = ", ".join(f"`{layout.constructor}`" for layout in layouts)
            raise ArgumentError(f"{what} has `{value.constructor}`, which is no constructor of "
                                f"`{value.data}` in this program, but {has}")  # fmt: skip
        if len(layouts[value.tag].fields) != len(value.fields):
            raise ArgumentError(f"{what} has a `{value.constructor}` with {len(value.fields)} "
                                f"fields, expected {len(layouts[value.tag].fields)}")  # fmt: skip
        return layouts[value.tag]

    def _emit(self, value: DataValue, what: str) -> None:
        layout = self._layout(value, what)
        first = len(self.words)
        self.words.append(value.tag)
        for v, f in zip(value.fields, layout.fields, strict=True):
            if f.kind == "data":
                self.addresses.append(len(self.words))
                self.words.append(8 * self.places[id(v)])
            elif f.kind == "scalar":
                self.words.append(
                    self._integer(v, f, f"a field of `{value.constructor}` in {what}")
                )
            else:
                array = self._array(v, f, f"a field of `{value.constructor}` in {what}")
                self.tensors.setdefault(array.dtype, []).append((len(self.words), array))
                self.words.append(0)
        self.places[id(value)] = first

    def _integer(self, value: Any, of: rec.Field, what: str) -> int:
        """An integer of a value. Raises ArgumentError for what its dtype does not hold."""
        assert isinstance(of.ty, TensorType)
        array, wanted = np.asarray(value), numpy_dtype(str(of.ty.dtype))
        if array.shape != () or array.dtype.kind not in "biu" or array.astype(wanted) != array:
            raise ArgumentError(f"{what} is {value!r}, expected {of.ty}")
        return int(array.astype(wanted).astype(np.int64))  # as a word has it

    def _array(self, value: Any, of: rec.Field, what: str) -> Array:
        """A tensor of a value. Raises ArgumentError for one of another dtype or shape, such as the
        data type of another program has: what reads it would go on behind its end."""
        assert isinstance(of.ty, TensorType)
        array = np.asarray(value)
        if array.dtype != numpy_dtype(str(of.ty.dtype)) or array.shape != row_dims(of.ty):
            got = f"an array of {array.dtype} of shape {array.shape}"
            raise ArgumentError(f"{what} is {got}, expected {of.ty}")
        return array

    def given(self, firsts: Sequence[int]) -> tuple[list[int], Given]:
        """The addresses of values by their first words, and all that was written."""
        words = np.array(self.words, np.int64)
        words[self.addresses] += words.ctypes.data
        groups: list[tuple[Words, Array, Words]] = []
        for members in self.tensors.values():
            at = np.array([at for at, _ in members], np.int64)
            flat = np.concatenate([a.reshape(-1) for _, a in members])
            groups.append((at, flat, np.array([a.nbytes for _, a in members], np.int64)))
        return [8 * f + words.ctypes.data for f in firsts], Given(words, tuple(groups))


Tensors: TypeAlias = "Callable[[list[int], TensorType], Sequence[Array]]"
"""Gives the arrays of one type in some slots."""


@dataclass(frozen=True, slots=True)
class _Fields:
    """The fields of a constructor by what they hold: the numbers of those with a value, and its
    data type; with a tensor, and its type; and with an integer, and its dtype. `only` is the value
    of a constructor without fields: one is as good as another."""

    data: str
    constructor: str
    tag: int
    count: int
    only: DataValue | None
    values: tuple[tuple[int, str], ...]
    tensors: tuple[tuple[int, TensorType], ...]
    scalars: tuple[tuple[int, Any], ...]


def _fields_of(data: str, tag: int, layout: rec.DataLayout) -> _Fields:
    fields, name = list(enumerate(layout.fields)), layout.constructor
    values = [(i, f.ty.name) for i, f in fields if isinstance(f.ty, DataType)]
    others = [(i, f.kind, f.ty) for i, f in fields if isinstance(f.ty, TensorType)]
    tensors = [(i, ty) for i, kind, ty in others if kind == "slot"]
    scalars = [(i, numpy_dtype(str(ty.dtype))) for i, kind, ty in others if kind == "scalar"]
    only = None if fields else DataValue(data, name, tag, ())
    return _Fields(
        data, name, tag, len(fields), only, tuple(values), tuple(tensors), tuple(scalars)
    )  # fmt: skip


Visited: TypeAlias = "tuple[int, _Fields, list[Any]]"
"""A value as words: its address, its constructor, and its fields, which are words at first."""


class ValueMaker:
    """Makes values of data types of the words that native code has left. This is what machine code
    does, for arrays that are not in the memory of this machine."""

    def __init__(self, layouts: Layouts) -> None:
        self._fields = {
            name: [_fields_of(name, tag, layout) for tag, layout in enumerate(of)]
            for name, of in layouts.items()
        }

    def made(self, roots: list[int], ty: DataType, tensors: Tensors) -> list[DataValue]:
        """The values at some addresses. What several share is one object; `tensors` is asked once
        for each field that holds tensors."""
        known: dict[int, DataValue] = {}
        visited = self._in_post_order(roots, ty.name, known)
        alike: dict[int, list[Visited]] = {}
        for value in visited:
            alike.setdefault(id(value[1]), []).append(value)
        for values in alike.values():
            for i, of_field in values[0][1].tensors:
                arrays = tensors([words[i] for _, _, words in values], of_field)
                for (_, _, fields), array in zip(values, arrays, strict=True):
                    fields[i] = array
        for address, of, fields in visited:
            for i, _ in of.values:
                fields[i] = known[fields[i]]
            for i, dtype in of.scalars:
                fields[i] = np.asarray(fields[i], np.int64).astype(dtype)
            known[address] = DataValue(of.data, of.constructor, of.tag, tuple(fields))
        return [known[r] for r in roots]

    def _in_post_order(
        self, roots: list[int], data: str, known: dict[int, DataValue]
    ) -> list[Visited]:
        """All values that some addresses lead to, each behind those that it holds. Those without
        fields are `known` instead."""
        found: list[Visited] = []
        seen: set[int] = set()
        pending: list[tuple[int, str] | Visited] = [(r, data) for r in reversed(roots)]
        while pending:
            entry = pending.pop()
            if len(entry) > 2:  # all that it holds has been visited
                found.append(entry)
                continue
            address, name = entry
            if address in seen:
                continue
            seen.add(address)
            of = self._fields[name][ctypes.c_int64.from_address(address).value]
            fields = (ctypes.c_int64 * of.count).from_address(address + 8)[:]
            if of.only is not None:
                known[address] = of.only
            elif of.values:
                pending.append((address, of, fields))
                pending += [(fields[i], inner) for i, inner in of.values]
            else:
                found.append((address, of, fields))
        return found


class DataTypes:
    """The data types of a compiled program, whose values have addresses where recorded ones have
    slots: of tensors, too."""

    def __init__(self, data: Mapping[str, tuple[ConstructorTree, ...]]) -> None:
        self._layouts: Layouts = {
            name: tuple(
                rec.DataLayout(constructor, tuple(map(_field_of, fields)))
                for constructor, fields in constructors
            )
            for name, constructors in data.items()
        }
        tables = ValueTables(self._layouts) if values_are_known() else None
        self._reader = None if tables is None else ValueReader(tables)
        self._native = None if tables is None else NativeMaker(tables)
        self._maker = ValueMaker(self._layouts)

    def argument(self, tree: TypeTree, where: str, at: int) -> ArgumentConverter:
        """The converter of an argument. It keeps the memory of the last two values: one may be
        bound while another is refused."""
        kept: list[Any] = []

        def convert(value: Any, words: Any, _: list[Any]) -> None:
            words[at], given = self._read(value, DataType(tree.text), where)
            given.address_arrays()
            kept.append(given)
            del kept[:-2]

        return convert

    def _read(self, value: Any, ty: DataType, where: str) -> tuple[int, Given]:
        """The address of a value, and the memory that holds it.

        Raises ArgumentError naming `where` for what is no value of the type, or contains itself.
        """
        found = None if self._reader is None else self._reader.read(value, ty)
        if found is not None:
            return found
        writer = DataWriter(self._layouts)
        (address,), given = writer.given([writer.write(value, ty, where)])
        return address, given

    def result(self, tree: TypeTree, address: int) -> DataValue:
        """The value at an address; its arrays are copies."""
        ty = DataType(tree.text)
        if self._native is not None:
            return self._native.made(np.array([address]), ty)[0]
        return self._maker.made([address], ty, _copied)[0]


def _field_of(tree: TypeTree) -> rec.Field:
    if tree.kind == "data":
        return rec.Field("data", DataType(tree.text))
    return rec.Field("slot", TensorType(tuple(map(expr.const, tree.dims)), tree.dtype))


def _copied(addresses: list[int], ty: TensorType) -> list[Array]:
    dims, dtype = row_dims(ty), numpy_dtype(str(ty.dtype))
    return [view_memory(address, dims, dtype).copy() for address in addresses]
