"""The inputs of a batch as its recording reads them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from relaxlab.codegen.llvm.recorder_words import REFUSED
from relaxlab.ir import expr
from relaxlab.ir import recording as rec
from relaxlab.ir.dtypes import numpy_dtype
from relaxlab.ir.types import DataType
from relaxlab.runtime.batch.native_instances import NativeInstances, inputs_are_known
from relaxlab.runtime.batch.words import Words
from relaxlab.runtime.native.arguments import ArgumentError
from relaxlab.runtime.native.data_values import ValuesAsWords

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Arrays:
    """The arrays that instances give for a parameter: their input records, a row each, and the
    bytes of all. Their slots, where blocks read them, are numbered from `first_slot` on."""

    param: rec.EntryParam
    first_slot: int
    records: Words
    nbytes: int


@dataclass(slots=True)
class Inputs:
    """The inputs of a batch. `words` has a row per instance: its scalars, and the addresses of its
    input records. `arrays` are those that blocks may read; `fields` those in values of data types:
    of each dtype one after the other, with the slot of the first and the lengths. `keep` holds the
    memory that words point to. `refused` has the reasons of the instances whose arrays do not
    fit."""

    words: Words
    arrays: list[Arrays] = field(default_factory=lambda: [])
    fields: list[tuple[int, Array, Words]] = field(default_factory=lambda: [])
    keep: list[Any] = field(default_factory=lambda: [])
    refused: dict[int, str] = field(default_factory=lambda: {})

    def failures(self) -> Words:
        """By instance, its failure as native code numbers them; 0 for those that fit."""
        made = np.zeros(len(self.words), np.int64)
        if self.refused:
            made[list(self.refused)] = REFUSED
        return made


def readable_kinds(program: rec.RecordingProgram) -> frozenset[tuple[str, int]]:
    """The dtypes and ranks of input arrays that blocks read, whole or by rows."""
    arrays = (
        step.array.buffer
        for f in program.functions.values()
        for step in rec.walk_steps(f.steps)
        if isinstance(step, rec.WholeInput | rec.InputRow)
    )
    return frozenset((b.dtype, b.ndim) for b in arrays)


class InstanceReader:
    """Reads the inputs of a program's batches: in machine code where they are as it expects."""

    def __init__(self, program: rec.RecordingProgram) -> None:
        self.program = program
        self._values = ValuesAsWords(program.data)
        readable = readable_kinds(program)
        self._columns = [
            (column, p, (str(p.tensor.dtype), p.tensor.ndim) in readable)
            for column, p in enumerate(program.params) if p.kind == "array"
        ]  # fmt: skip
        self._data = [(c, p) for c, p in enumerate(program.params) if p.kind == "data"]
        self._native = NativeInstances(program) if inputs_are_known(program) else None
        self._words: Words = np.empty((0, len(program.params)), np.int64)

    def read(self, instances: list[Sequence[Any]]) -> tuple[Inputs, int]:
        """The inputs of instances, and the first slot after theirs. The next batch of as many takes
        their memory.

        Raises ArgumentError naming the instance and the argument that does not fit.
        """
        count, first_slot = len(instances), len(self.program.shared)
        if len(self._words) != count:
            self._words = np.empty((count, len(self.program.params)), np.int64)
        made = Inputs(self._words)
        firsts: list[int] = []
        for _, _, is_read in self._columns:
            firsts.append(first_slot)
            first_slot += count if is_read else 0
        records = None
        if self._native is not None:
            records = self._native.read(instances, made.words, firsts)
            made.keep.append(instances)  # whose arrays are read where they lie
        if records is None:
            self._require_arguments(instances)
            records = self._slowly(instances, made, firsts)
        columns = zip(self._columns, firsts, records, strict=True)
        for (_, p, is_read), first, (rows, size) in columns:
            made.keep.append(rows)
            if is_read:
                made.arrays.append(Arrays(p, first, rows, size))
        return made, self._read_data(instances, made, first_slot)

    def _require_arguments(self, instances: Sequence[Sequence[Any]]) -> None:
        for i, instance in enumerate(instances):
            if len(instance) != self.program.num_input:
                raise ArgumentError(
                    f"instance {i} has {len(instance)} arguments; `{self.program.entry}` takes "
                    f"{self.program.num_input} besides its weights"
                )

    def _slowly(
        self, instances: Sequence[Sequence[Any]], made: Inputs, firsts: Sequence[int]
    ) -> list[tuple[Words, int]]:
        """Read all but values of data types. Returns the records of all arrays, and their bytes."""
        given = iter(firsts)
        symbols: dict[expr.Var, Words] = {}
        found: list[tuple[Words, int]] = []
        for column, param in enumerate(self.program.params):
            if param.kind == "data":
                continue
            values = [_leaf(instance[param.parameter], param.path) for instance in instances]
            if param.kind == "scalar":
                made.words[:, column] = _scalars(param, values)
                continue
            arrays = _arrays(param, values)
            count = len(arrays)
            shapes = np.array([a.shape for a in arrays], np.int64).reshape(count, param.tensor.ndim)
            made.refused = _misfits(param, shapes, symbols) | made.refused
            flat = np.concatenate([a.reshape(-1) for a in arrays])
            lengths = np.prod(shapes, axis=1, dtype=np.int64)
            records = np.empty((count, rec.RECORD_DIMS + param.tensor.ndim), np.int64)
            starts = np.cumsum(lengths) - lengths
            records[:, rec.RECORD_DATA] = flat.ctypes.data + starts * flat.itemsize
            records[:, rec.RECORD_SLOT] = next(given) + np.arange(count)
            records[:, rec.RECORD_DIMS :] = shapes
            made.words[:, column] = records.ctypes.data + np.arange(count) * records.strides[0]
            made.keep.append(flat)
            found.append((records, flat.nbytes))
        return found

    def _read_data(
        self, instances: Sequence[Sequence[Any]], made: Inputs, first_slot: int
    ) -> int:
        """Write the values of data types that instances give. Returns the next slot."""
        if not self._data:
            return first_slot
        columns: list[tuple[list[Any], DataType]] = []
        for _, p in self._data:
            assert isinstance(p.ty, DataType)
            columns.append(([_leaf(i[p.parameter], p.path) for i in instances], p.ty))
        names = [p.name for _, p in self._data]
        given = self._values.read(columns, lambda c, i: f"`{names[c]}` of instance {i}")
        for (column, _), places in zip(self._data, given.places, strict=True):
            made.words[:, column] = places
        made.fields, first_slot = given.numbered(first_slot)
        made.keep.append(given)
        return first_slot


def _leaf(value: Any, path: tuple[int, ...]) -> Any:
    for index in path:
        value = value[index]
    return value


def _scalars(param: rec.EntryParam, values: list[Any]) -> Array:
    made = np.asarray(values)
    wanted = numpy_dtype(str(param.tensor.dtype))
    kinds = "b" if wanted.kind == "b" else "iu"
    if made.shape != (len(values),) or made.dtype.kind not in kinds:
        _refuse(param, values, lambda v: np.ndim(v) == 0 and np.asarray(v).dtype.kind in kinds)
    cast = made.astype(wanted)
    if not np.array_equal(cast, made):
        _refuse(param, values, lambda v: np.asarray(v).astype(wanted) == v)
    return cast


def _arrays(param: rec.EntryParam, values: list[Any]) -> list[Array]:
    wanted, ndim = numpy_dtype(str(param.tensor.dtype)), param.tensor.ndim
    arrays = [np.asarray(v) for v in values]
    if any(a.dtype != wanted or a.ndim != ndim for a in arrays):
        _refuse(param, values, lambda v: np.asarray(v).dtype == wanted and np.ndim(v) == ndim)
    return arrays


def _misfits(
    param: rec.EntryParam, shapes: Words, symbols: dict[expr.Var, Words]
) -> dict[int, str]:
    """The instances with a dimension that is not the constant, or not the symbol that an earlier
    array has determined, and how it differs."""
    found: dict[int, str] = {}
    for axis, dim in enumerate(param.tensor.shape or ()):
        given = shapes[:, axis]
        if isinstance(dim, expr.Var):
            expected = symbols.setdefault(dim, given)
        elif isinstance(dim, expr.IntImm):
            expected = np.full_like(given, dim.value)
        else:
            raise ArgumentError(
                f"dimension {axis} of `{param.name}` is {dim}: instances give arrays whose "
                "dimensions are constants or single symbols"
            )
        for i in np.flatnonzero(given != expected).tolist():
            text = f"dimension {axis} of `{param.name}` is {given[i]}, expected {expected[i]}"
            found.setdefault(i, text)
    return found


def _refuse(param: rec.EntryParam, values: list[Any], fits: Callable[[Any], Any]) -> None:
    """Raise the error of the first value that does not fit."""
    for i, value in enumerate(values):
        if not fits(value):
            got = np.asarray(value)
            raise ArgumentError(
                f"`{param.name}` of instance {i} is an array of {got.dtype} with {got.ndim} "
                f"dimensions, expected {param.ty}"
            )
