"""Values of data types that are given to a program, read in machine code."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeAlias

import numpy as np

from relaxlab.codegen.artifact import Artifact
from relaxlab.codegen.llvm import jit
from relaxlab.codegen.llvm import reading_plan as native
from relaxlab.codegen.llvm.lowlevel import layout_of
from relaxlab.ir import recording as rec
from relaxlab.ir.data import DataValue
from relaxlab.ir.dtypes import numpy_dtype
from relaxlab.ir.target import Target
from relaxlab.ir.types import DataType, TensorType
from relaxlab.runtime.cache import artifact_key, cached
from relaxlab.runtime.native.direct_call import is_supported as arrays_are_known
from relaxlab.runtime.native.fields import Fields
from relaxlab.runtime.rows import row_dims

Array = np.ndarray[Any, Any]
Words: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]
Layouts: TypeAlias = Mapping[str, tuple[rec.DataLayout, ...]]
"""The constructors of data types, by their numbers."""

FIRST_ROOM = 256
"""Values for which there is room at first."""
SCALARS = ("int64", "int32", "bool", "uint8")
"""Dtypes of integers that machine code reads."""


@dataclass(frozen=True, slots=True)
class Given:
    """Values as words. `places` has the addresses of those asked for, by column; `arrays` has for
    each dtype the words of values that stand for an array, the elements of all these arrays behind
    each other, and how many each has."""

    words: Words
    places: tuple[Words, ...]
    arrays: tuple[tuple[Words, Array, Words], ...]

    def numbered(self, first_slot: int) -> tuple[list[tuple[int, Array, Words]], int]:
        """Let slots from `first_slot` on stand for the arrays. Returns for each dtype the first
        slot, the elements, and the lengths; and the next slot."""
        made: list[tuple[int, Array, Words]] = []
        for at, flat, lengths in self.arrays:
            self.words[at] = np.arange(first_slot, first_slot + len(at))
            made.append((first_slot, flat, lengths))
            first_slot += len(at)
        return made, first_slot

    def addressed(self) -> list[Array]:
        """Let their addresses stand for the arrays. Returns what holds the elements."""
        for at, flat, lengths in self.arrays:
            starts = (np.cumsum(lengths) - lengths) * flat.itemsize
            self.words[at] = flat.ctypes.data + starts
        return [flat for _, flat, _ in self.arrays]


@dataclass(slots=True)
class _Group:
    """The fields with arrays of one dtype: the most arrays, and the most bytes, of one value."""

    dtype: np.dtype[Any]
    most: int = 0
    most_bytes: int = 0


class ValueReader:
    """Reads values of the data types of a program."""

    def __init__(self, layouts: Layouts) -> None:
        self._types = {name: number for number, name in enumerate(layouts)}
        self._groups: dict[str, _Group] = {}
        self._alive: list[Any] = []
        self._most_fields = max((len(c.fields) for of in layouts.values() for c in of), default=0)
        self._reading = Fields(native.Reading)
        self._plan(layouts)
        self._reading.set(value_type=id(DataValue), array_type=id(np.ndarray))
        self._room = FIRST_ROOM
        self._make_table()
        self._function = reading_function(native.READ_VALUES)

    def _plan(self, layouts: Layouts) -> None:
        """Write the tables of data types, constructors and fields."""
        data, constructors, fields = list[int](), list[int](), list[int]()
        for name, of in layouts.items():
            data += (id(name), len(constructors) // 3, len(of))
            self._alive.append(name)
            for c in of:
                constructors += (id(c.constructor), len(fields) // 7, len(c.fields))
                self._alive.append(c.constructor)
                made = [self._field(f) for f in c.fields]
                fields += (word for f in made for word in f)
                for group in self._groups.values():
                    own = [f for f in made if f[0] == native.TENSOR and f[2] == id(group.dtype)]
                    group.most = max(group.most, len(own))
                    group.most_bytes = max(group.most_bytes, sum(f[3] for f in own))
        self._reading.hold(
            data=np.array(data, np.int64), constructors=np.array(constructors, np.int64),
            fields=np.array(fields, np.int64),
        )  # fmt: skip

    def _field(self, f: rec.Field) -> tuple[int, ...]:
        if isinstance(f.ty, DataType):
            return native.DATA, self._types[f.ty.name], 0, 0, 0, 0, 0
        assert isinstance(f.ty, TensorType)
        dtype, dims = numpy_dtype(str(f.ty.dtype)), np.array(row_dims(f.ty), np.int64)
        self._alive += [dtype, dims]
        size, kind = int(np.prod(dims)) * dtype.itemsize, native.SCALAR
        group = 0
        if f.kind != "scalar":
            self._groups.setdefault(str(f.ty.dtype), _Group(dtype))
            kind, group = native.TENSOR, list(self._groups).index(str(f.ty.dtype))
        return kind, 0, id(dtype), size, len(dims), dims.ctypes.data, group

    def _make_table(self) -> None:
        """Make room for values."""
        entries = 4 * self._room  # a power of two
        pending = 1 + self._room * (1 + self._most_fields)
        self._reading.set(room=self._room, mask=entries - 1)
        self._reading.hold(
            table=np.zeros(entries * native.ENTRY_WORDS, np.int64),
            pending=np.empty(pending * native.PENDING_WORDS, np.int64),
        )  # fmt: skip

    def read(self, columns: Sequence[tuple[list[Any], DataType]]) -> Given | None:
        """Read lists of values. None where one is not as the program's data types have it, which
        `DataWriter` says."""
        while True:
            code, given = self._attempt(columns)
            if code == native.DONE:
                return given
            if code == native.UNEXPECTED:
                return None
            self._room *= 2
            self._make_table()

    def _attempt(self, columns: Sequence[tuple[list[Any], DataType]]) -> tuple[int, Given]:
        reading = self._reading
        words = np.empty(self._room * (1 + self._most_fields), np.int64)
        reading.hold(words=words)
        reading.set(used=0, nodes=0, stamp=reading["stamp"] + 2)
        groups = [Fields(native.Group) for _ in self._groups]
        for group, of in zip(groups, self._groups.values(), strict=True):
            most = self._room * of.most
            group.hold(
                data=np.empty(self._room * of.most_bytes, np.uint8), at=np.empty(most, np.int64),
                sizes=np.empty(most, np.int64),
            )  # fmt: skip
        table = np.concatenate([np.empty(0, np.int64), *(g.words for g in groups)])
        reading.hold(groups=table)
        code, places = native.DONE, list[Words]()
        for values, ty in columns:
            places.append(np.empty(len(values), np.int64))
            to = places[-1].ctypes.data
            code = self._function(reading.address, values, self._types[ty.name], to, 1)
            if code != native.DONE:
                break
        for group, written in zip(groups, table.reshape(-1, native.GROUP_WORDS), strict=True):
            group.words[:] = written
        return code, Given(words, tuple(places), tuple(self._arrays(groups)))

    def _arrays(self, groups: Sequence[Fields]) -> Iterator[tuple[Words, Array, Words]]:
        for group, of in zip(groups, self._groups.values(), strict=True):
            count = group["count"]
            sizes = group.array("sizes")[:count]
            flat = group.array("data")[: group["used"]].view(of.dtype)
            yield group.array("at")[:count], flat, sizes // of.dtype.itemsize


def value_reader(layouts: Layouts) -> ValueReader | None:
    """The reader of the values of some data types; None where this interpreter, or their fields,
    are not what machine code reads."""
    scalars = (f.ty for of in layouts.values() for c in of for f in c.fields if f.kind == "scalar")
    known = all(isinstance(t, TensorType) and t.dtype in SCALARS for t in scalars)
    return ValueReader(layouts) if known and values_are_known() else None


@cache
def values_are_known() -> bool:
    """True if values lie in memory as the emitted code expects."""
    if not arrays_are_known():
        return False
    value = DataValue("A", "B", 0, ())
    for name, (at, _) in layout_of(native.ValueObject).items():
        if name in DataValue.__slots__:
            found = ctypes.c_int64.from_address(id(value) + at).value
            if found != id(getattr(value, name)):
                return False
    return ctypes.c_int64.from_address(id(value) + 8).value == id(DataValue)


@cache
def reading_function(name: str) -> Any:
    """The function of machine code with this name."""
    return _FUNCTIONS[name](_code().address(name))


_WORD, _MEMORY = ctypes.c_int64, ctypes.c_void_p
_FUNCTIONS: dict[str, Any] = {
    native.READ_VALUES: ctypes.PYFUNCTYPE(
        _WORD, _MEMORY, ctypes.py_object, _WORD, _MEMORY, _WORD
    ),
    native.READ_INSTANCES: ctypes.PYFUNCTYPE(_WORD, _MEMORY, ctypes.py_object),
}


@cache
def _code() -> jit.LoadedObject:
    target = Target.host()
    artifact, _ = cached(artifact_key(native.READ_VALUES, target, ()), lambda: _compiled(target))
    return jit.LoadedObject(artifact.code, target, artifact.externs)


def _compiled(target: Target) -> Artifact:
    from relaxlab.codegen.llvm.reading import reading_texts  # who finds it needs no compiler

    declarations = dict[str, str]()
    texts = reading_texts(declarations)
    externs = jit.external_functions(texts, declarations)
    code, bitcode = jit.compile_object(jit.module_text(texts, declarations, target), target)
    return Artifact((code,), bitcode, (), (), (), 0, {}, externs=externs)
