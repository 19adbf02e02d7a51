"""The inputs of a batch, read in machine code."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from relaxlab.codegen.llvm import reading_plan as native
from relaxlab.ir import expr
from relaxlab.ir import recording as rec
from relaxlab.ir.dtypes import numpy_dtype
from relaxlab.ir.types import DataType
from relaxlab.runtime.batch.words import Words
from relaxlab.runtime.native.fields import Fields
from relaxlab.runtime.native.value_reader import ValueReader
from relaxlab.runtime.native.value_tables import ValueTables, value_function, values_are_known

KINDS = {"data": native.DATA, "scalar": native.SCALAR, "array": native.TENSOR}
FIELDS = list(native.InputPlan.__annotations__)
RECORDS, FIRST_SLOT, BYTES = map(FIELDS.index, ("records", "first_slot", "bytes"))
"""The words of a plan with the address of records, their first slot, and the bytes of all arrays.
"""


def inputs_are_known(program: rec.RecordingProgram) -> bool:
    """True if machine code reads inputs such as the program's."""
    return values_are_known() and all(
        p.kind != "array"
        or all(isinstance(d, expr.Var | expr.IntImm) for d in p.tensor.shape or ())
        for p in program.params
    )


class InputPlans:
    """The plans of a program's inputs, a row of words for each parameter, and the records of arrays
    by the column of their parameter. Batches of as many instances share them.

    placed: the dtypes and ranks of the arrays that blocks read.
    """

    def __init__(self, program: rec.RecordingProgram, placed: frozenset[tuple[str, int]]) -> None:
        self._alive: list[Any] = []
        plans = [self._plan(p, placed) for p in program.params]
        self.rows: Words = np.array([p.words for p in plans], np.int64).reshape(-1, len(FIELDS))
        self._arrays = {i: p.tensor for i, p in enumerate(program.params) if p.kind == "array"}
        self._placed = [(i, bool(p["placed"])) for i, p in enumerate(plans) if i in self._arrays]
        self.records: dict[int, Words] = {}

    def _plan(self, p: rec.EntryParam, placed: frozenset[tuple[str, int]]) -> Fields:
        made = Fields(native.InputPlan)
        self._alive.append(made)
        made.set(kind=KINDS[p.kind], parameter=p.parameter, depth=len(p.path))
        made.hold(path=np.array(p.path, np.int64))
        if p.kind != "data":
            dtype = numpy_dtype(str(p.tensor.dtype))
            self._alive.append(dtype)
            is_placed = p.kind == "array" and (str(p.tensor.dtype), p.tensor.ndim) in placed
            made.set(
                descr=id(dtype), size=dtype.itemsize, ndim=p.tensor.ndim, placed=int(is_placed)
            )
        return made

    def prepare(self, count: int, first_slot: int) -> int:
        """Make room for the records of so many instances, whose slots are numbered from
        `first_slot` on. Returns the first slot after theirs."""
        for i, is_placed in self._placed:
            words = rec.RECORD_DIMS + self._arrays[i].ndim
            self.records[i] = np.empty((count, words), np.int64)
            self.rows[i, RECORDS] = self.records[i].ctypes.data
            self.rows[i, FIRST_SLOT] = first_slot
            first_slot += count if is_placed else 0
        return first_slot


class NativeInstances:
    """Reads instances by plans, of which it writes the rest: dimensions, ranges and data types.
    `values` has the memory of values of data types, where the program takes some."""

    def __init__(self, program: rec.RecordingProgram, plans: InputPlans) -> None:
        self._plans = plans
        takes_values = any(p.kind == "data" for p in program.params)
        self._tables = ValueTables(program.data)
        self.values = ValueReader(self._tables) if takes_values else None
        self._symbols: dict[expr.Var, int] = {}
        self._alive: list[Any] = []
        for row, param in zip(plans.rows, program.params, strict=True):
            self._complete(row, param)
        self._instances = Fields(native.Instances)
        self._instances.set(
            count=len(plans.rows), arguments=program.num_input, symbol_count=len(self._symbols),
            array_type=id(np.ndarray), tuple_type=id(tuple),
        )  # fmt: skip
        self._instances.hold(plans=plans.rows, symbols=np.empty(len(self._symbols), np.int64))
        if self.values is not None:
            self._instances.set(reading=self.values.address)
        self.address = self._instances.address
        self._read = value_function(native.READ_INSTANCES)

    def _complete(self, row: Words, p: rec.EntryParam) -> None:
        if isinstance(p.ty, DataType):
            row[FIELDS.index("data")] = self._tables.types[p.ty.name]
            return
        dims = np.array([self._dim(d) for d in p.tensor.shape or ()], np.int64)
        self._alive.append(dims)
        row[FIELDS.index("dims")] = dims.ctypes.data
        if p.kind == "scalar":
            dtype = numpy_dtype(str(p.tensor.dtype))
            limits = (0, 1) if dtype.kind == "b" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
            described = {
                "least": limits[0], "most": min(limits[1], np.iinfo(np.int64).max),
                "signed": int(dtype.kind == "i"), "scalar_type": id(dtype.type),
                "python_type": id(bool if dtype.kind == "b" else int),
                "word_type": 0 if dtype.kind == "b" else id(np.int64),
            }  # fmt: skip
            for name, value in described.items():
                row[FIELDS.index(name)] = value

    def _dim(self, d: expr.PrimExpr) -> int:
        if isinstance(d, expr.IntImm):
            return d.value
        assert isinstance(d, expr.Var)
        return -1 - self._symbols.setdefault(d, len(self._symbols))

    def write_to(self, words: Words) -> None:
        """Let the words of instances be written to an array with a row for each."""
        self._instances.hold(words=words)

    def read(self, instances: list[Sequence[Any]]) -> int:
        """Write the words of all instances, their records, and values. Returns `DONE`; `NO_ROOM`
        where there was too little for values; or `UNEXPECTED` where something is not as foreseen.
        """
        return self._read(self._instances.address, instances)
