"""The data types of a program as machine code reads them, and its functions for their values."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeAlias

import numpy as np

from relaxlab.codegen.artifact import Artifact
from relaxlab.codegen.llvm import jit
from relaxlab.codegen.llvm import reading_plan as native
from relaxlab.codegen.llvm.lowlevel import Record, layout_of
from relaxlab.ir import recording as rec
from relaxlab.ir.data import DataValue
from relaxlab.ir.dtypes import numpy_dtype
from relaxlab.ir.target import Target
from relaxlab.ir.types import DataType, TensorType
from relaxlab.runtime.cache import artifact_key, cached
from relaxlab.runtime.native.direct_call import add_numpy_functions
from relaxlab.runtime.native.direct_call import is_supported as arrays_are_known
from relaxlab.runtime.native.fields import Fields
from relaxlab.runtime.rows import row_bytes, row_dims

Layouts: TypeAlias = Mapping[str, tuple[rec.DataLayout, ...]]
"""The constructors of data types, by their numbers."""


@dataclass(slots=True)
class ArrayGroup:
    """The fields with arrays of one dtype: the most arrays, and the most bytes, of one value."""

    dtype: np.dtype[Any]
    most: int = 0
    most_bytes: int = 0


class ValueTables:
    """The tables of data types, constructors and fields. `types` has the numbers of data types,
    `groups` the fields with arrays by their dtypes; `most_fields` are those of one constructor."""

    def __init__(self, layouts: Layouts) -> None:
        self.types = {name: number for number, name in enumerate(layouts)}
        self.groups: dict[str, ArrayGroup] = {}
        self.most_fields = max((len(c.fields) for of in layouts.values() for c in of), default=0)
        self._alive: list[Any] = []
        words: dict[type[Record], list[int]] = {
            native.DataPlan: [], native.ConstructorPlan: [], native.FieldPlan: [],
        }  # fmt: skip
        counts = {native.ConstructorPlan: 0, native.FieldPlan: 0}

        def add(table: type[Record], /, **values: int) -> None:
            row = Fields(table)
            row.set(**values)
            words[table] += row.words.tolist()

        for name, of in layouts.items():
            first = counts[native.ConstructorPlan]
            add(native.DataPlan, name=id(name), first=first, count=len(of))
            counts[native.ConstructorPlan] += len(of)
            for tag, c in enumerate(of):
                only = None if c.fields else DataValue(name, c.constructor, tag, ())
                add(
                    native.ConstructorPlan, name=id(c.constructor),
                    first=counts[native.FieldPlan], count=len(c.fields), tag=id(tag),
                    only=0 if only is None else id(only),
                )  # fmt: skip
                counts[native.FieldPlan] += len(c.fields)
                self._alive += [name, c.constructor, tag, only]
                for f in c.fields:
                    add(native.FieldPlan, **self._field(f))
                self._measure(c)
        self._tables = dict(
            zip(("data", "constructors", "fields"), map(_table, words.values()), strict=True)
        )

    def _field(self, f: rec.Field) -> dict[str, int]:
        if isinstance(f.ty, DataType):
            return {"kind": native.DATA, "data": self.types[f.ty.name]}
        assert isinstance(f.ty, TensorType)
        dtype, dims = numpy_dtype(str(f.ty.dtype)), np.array([*row_dims(f.ty), 0], np.int64)
        self._alive += [dtype, dims]
        described = {
            "descr": id(dtype), "size": row_bytes(f.ty), "ndim": len(dims) - 1,
            "dims": dims.ctypes.data,
        }  # fmt: skip
        if f.kind == "scalar":
            return described | {"kind": native.SCALAR, "signed": int(dtype.kind == "i")}
        self.groups.setdefault(str(f.ty.dtype), ArrayGroup(dtype))
        number = list(self.groups).index(str(f.ty.dtype))
        return described | {"kind": native.TENSOR, "group": number}

    def _measure(self, c: rec.DataLayout) -> None:
        """Count the arrays of a constructor by their dtypes."""
        for dtype, group in self.groups.items():
            own = [
                f.ty for f in c.fields
                if f.kind != "scalar" and isinstance(f.ty, TensorType) and f.ty.dtype == dtype
            ]  # fmt: skip
            group.most = max(group.most, len(own))
            group.most_bytes = max(group.most_bytes, sum(map(row_bytes, own)))

    def describe(self, to: Fields) -> None:
        """Write the tables, and the types of objects, into a record that has them."""
        to.hold(**self._tables)
        to.set(value_type=id(DataValue), array_type=id(np.ndarray))


def _table(words: list[int]) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.array(words, np.int64)


@cache
def values_are_known() -> bool:
    """True if values lie in memory as the emitted code expects."""
    if not arrays_are_known():
        return False
    value, layout = DataValue("A", "B", 0, ()), layout_of(native.ValueObject)
    for name, (at, _) in layout.items():
        if name in DataValue.__slots__:
            found = ctypes.c_int64.from_address(id(value) + at).value
            if found != id(getattr(value, name)):
                return False
    number, at = np.int64(-(2**40) - 3), layout_of(native.ScalarObject)["value"][0]
    if ctypes.c_int64.from_address(id(number) + at).value != number:
        return False
    is_known = ctypes.c_int64.from_address(id(value) + 8).value == id(DataValue)
    return is_known and DataValue.__basicsize__ == 8 * len(layout)


@cache
def value_function(name: str) -> Any:
    """The function of machine code with this name."""
    return _FUNCTIONS[name](_code().address(name))


def value_address(name: str) -> int:
    """The address of this function."""
    return _code().address(name)


_WORD, _MEMORY, _OBJECT = ctypes.c_int64, ctypes.c_void_p, ctypes.py_object
_FUNCTIONS: dict[str, Any] = {
    native.READ_VALUE: ctypes.PYFUNCTYPE(_WORD, _MEMORY, _OBJECT, _WORD, _MEMORY),
    native.READ_INSTANCES: ctypes.PYFUNCTYPE(_WORD, _MEMORY, _OBJECT),
    native.MAKE_VALUES: ctypes.PYFUNCTYPE(_WORD, _MEMORY, _OBJECT, _MEMORY, _WORD, _WORD),
}


@cache
def _code() -> jit.LoadedObject:
    add_numpy_functions()
    target = Target.host()
    key = artifact_key(native.READ_INSTANCES, target, ())
    artifact, _ = cached(key, lambda: _compiled(target))
    return jit.LoadedObject(artifact.code, target, artifact.externs)


def _compiled(target: Target) -> Artifact:
    from relaxlab.codegen.llvm.making import making_texts  # who finds it needs no compiler
    from relaxlab.codegen.llvm.reading import reading_texts

    declarations = dict[str, str]()
    texts = [*reading_texts(declarations), *making_texts(declarations)]
    externs = jit.external_functions(texts, declarations)
    code, bitcode = jit.compile_object(jit.module_text(texts, declarations, target), target)
    return Artifact((code,), bitcode, (), (), (), 0, {}, externs=externs)
