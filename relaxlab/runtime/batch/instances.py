"""The inputs of a batch as its recording reads them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from relaxlab.codegen.llvm.reading_plan import DONE, GROUP_WORDS, NO_ROOM
from relaxlab.codegen.llvm.recorder_words import REFUSED
from relaxlab.ir import expr
from relaxlab.ir import recording as rec
from relaxlab.ir.dtypes import numpy_dtype
from relaxlab.ir.errors import counted, kind_of
from relaxlab.ir.types import DataType
from relaxlab.runtime.batch.native_instances import (
    BYTES,
    FIRST_SLOT,
    InputPlans,
    NativeInstances,
    inputs_are_known,
)
from relaxlab.runtime.batch.words import Words
from relaxlab.runtime.native.arguments import ArgumentError
from relaxlab.runtime.native.data_values import DataWriter

Array = np.ndarray[Any, Any]


NOTHING = np.empty(0, np.int64)
NO_GROUPS = np.empty((0, GROUP_WORDS), np.int64)


@dataclass(slots=True)
class Inputs:
    """The inputs of a batch. `words` has a row per instance: its scalars, and the addresses of its
    input records. `plans` has a row of words for each parameter, where these records are. `slots`
    is the first slot behind those of input arrays. `values` are the words of values of data types,
    `groups` a row of words for the arrays in them of each dtype. `keep` holds the memory that words
    point to. `refused` has the reasons of the instances whose arrays do not fit, `failures` a
    failure for these, 0 for the others."""

    words: Words
    plans: Words
    slots: int
    failures: Words
    values: Words = field(default_factory=lambda: NOTHING)
    groups: Words = field(default_factory=lambda: NO_GROUPS)
    keep: list[Any] = field(default_factory=lambda: [])
    refused: dict[int, str] = field(default_factory=lambda: {})

    def refuse(self, reasons: dict[int, str]) -> None:
        """Leave instances out."""
        if reasons:
            self.refused = reasons | self.refused
            self.failures = np.zeros_like(self.failures)
            self.failures[list(self.refused)] = REFUSED


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
        self._data = [(c, p) for c, p in enumerate(program.params) if p.kind == "data"]
        self._plans = InputPlans(program, readable_kinds(program))
        known = inputs_are_known(program)
        self._native = NativeInstances(program, self._plans) if known else None
        self._count = -1
        """The instances that there is room for."""
        self._prepare(0)

    @property
    def plan_address(self) -> int:
        """The address of the plan by which machine code reads instances; 0 where Python does."""
        return 0 if self._native is None else self._native.address

    def is_expected(self, inputs: Inputs) -> bool:
        """True for inputs in which nothing is unusual, which machine code read alone."""
        return inputs is self._expected

    def read(self, instances: list[Sequence[Any]]) -> Inputs:
        """The inputs of instances, whose arrays may be read where they lie. The next batch of as
        many takes their memory: where all is as expected, they are the same object.

        Raises ArgumentError naming the instance and the argument that does not fit.
        """
        if len(instances) != self._count:
            self._prepare(len(instances))
        if self._native is not None and self._read_natively(self._native, instances):
            return self._expected
        of = self._expected
        made = Inputs(of.words, of.plans, of.slots, of.failures)
        self._require_arguments(instances)
        self._slowly(instances, made)
        if self._data:
            self._read_data(instances, made)
        return made

    def _read_natively(self, by: NativeInstances, instances: list[Sequence[Any]]) -> bool:
        """Read instances in machine code. False where something is not as it expects."""
        code = by.read(instances)
        while code == NO_ROOM and by.values is not None:
            self._count = -1  # until new memory is known everywhere, should Ctrl-C come in between
            by.values.grow()
            self._prepare(len(instances))
            code = by.read(instances)
        return code == DONE

    def _prepare(self, count: int) -> None:
        self._count = -1
        words = np.empty((count, len(self.program.params)), np.int64)
        slots = self._plans.prepare(count, len(self.program.shared))
        self._expected = Inputs(words, self._plans.rows, slots, np.zeros(count, np.int64))
        """The inputs of a batch of so many instances in which nothing is unusual."""
        if self._native is not None:
            self._native.write_to(words)
            of_values = self._native.values
            if of_values is not None:
                of_values.renew()
                self._expected.values, self._expected.groups = of_values.words, of_values.groups
        self._count = count

    def _require_arguments(self, instances: Sequence[Sequence[Any]]) -> None:
        takes = f"`{self.program.entry}` takes {self.program.num_input} besides its weights"
        for i, instance in enumerate(instances):
            if not isinstance(instance, tuple | list):
                kind = kind_of(instance)
                raise ArgumentError(
                    f"instance {i} is {kind}, expected a tuple of arguments; {takes}"
                )
            if len(instance) != self.program.num_input:
                raise ArgumentError(
                    f"instance {i} has {counted(len(instance), 'argument')}; {takes}"
                )

    def _slowly(self, instances: Sequence[Sequence[Any]], made: Inputs) -> None:
        """Read all but values of data types."""
        symbols: dict[expr.Var, Words] = {}
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
            made.refuse(_misfits(param, shapes, symbols))
            flat = np.concatenate([a.reshape(-1) for a in arrays])
            lengths = np.prod(shapes, axis=1, dtype=np.int64)
            records, plan = self._plans.records[column], made.plans[column]
            starts = np.cumsum(lengths) - lengths
            records[:, rec.RECORD_DATA] = flat.ctypes.data + starts * flat.itemsize
            records[:, rec.RECORD_SLOT] = plan[FIRST_SLOT] + np.arange(count)
            records[:, rec.RECORD_DIMS :] = shapes
            plan[BYTES] = flat.nbytes
            made.words[:, column] = records.ctypes.data + np.arange(count) * records.strides[0]
            made.keep.append(flat)

    def _read_data(self, instances: Sequence[Sequence[Any]], made: Inputs) -> None:
        """Write the values of data types that instances give."""
        writer, firsts = DataWriter(self.program.data), list[int]()
        for _, p in self._data:
            assert isinstance(p.ty, DataType)
            for i, instance in enumerate(instances):
                value = _leaf(instance[p.parameter], p.path)
                firsts.append(writer.write(value, p.ty, f"`{p.name}` of instance {i}"))
        addresses, given = writer.given(firsts)
        columns = [column for column, _ in self._data]
        made.words[:, columns] = np.array(addresses).reshape(len(columns), len(instances)).T
        made.values, made.groups = given.words, given.table()
        made.keep.append(given)


def _leaf(value: Any, path: tuple[int, ...]) -> Any:
    for index in path:
        value = value[index]
    return value


def _scalars(param: rec.EntryParam, values: list[Any]) -> Array:
    # Each by itself: in one array, int64 and uint64 become float64.
    made = [np.asarray(v) for v in values]
    wanted = numpy_dtype(str(param.tensor.dtype))
    kinds = "b" if wanted.kind == "b" else "iu"
    if any(m.ndim != 0 or m.dtype.kind not in kinds for m in made):
        _refuse(param, values, lambda v: np.ndim(v) == 0 and np.asarray(v).dtype.kind in kinds)
    cast = [m.astype(wanted) for m in made]
    if cast != made:
        _refuse(param, values, lambda v: np.asarray(v).astype(wanted) == v)
    return np.array(cast, wanted)


def _arrays(param: rec.EntryParam, values: list[Any]) -> list[Array]:
    wanted, ndim = numpy_dtype(str(param.tensor.dtype)), param.tensor.ndim
    arrays = [_array(param, i, v) for i, v in enumerate(values)]
    if any(a.dtype != wanted or a.ndim != ndim for a in arrays):
        _refuse(param, values, lambda v: np.asarray(v).dtype == wanted and np.ndim(v) == ndim)
    return arrays


def _array(param: rec.EntryParam, i: int, value: Any) -> Array:
    try:
        return np.asarray(value)
    except ValueError as error:  # of lists of different lengths
        raise ArgumentError(f"`{param.name}` of instance {i} is no array: {error}") from None


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
