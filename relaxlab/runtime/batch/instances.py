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
from relaxlab.runtime.batch.words import Words
from relaxlab.runtime.native.arguments import ArgumentError
from relaxlab.runtime.native.data_values import DataWriter

Array = np.ndarray[Any, Any]


@dataclass(slots=True)
class Inputs:
    """The inputs of a batch. `words` has a row per instance: its scalars, and the addresses of its
    input records. `tensors` are the arrays that blocks may read, each kind's of all instances one
    after the other, with the slot of the first and the lengths; `fields` those in values of data
    types. `keep` holds the memory that words point to. `refused` has the reasons of the instances
    whose arrays do not fit."""

    words: Words
    tensors: list[tuple[int, Array, Words]] = field(default_factory=lambda: [])
    fields: list[tuple[int, Array, Words]] = field(default_factory=lambda: [])
    keep: list[Any] = field(default_factory=lambda: [])
    refused: dict[int, str] = field(default_factory=lambda: {})

    def failures(self) -> Words:
        """By instance, its failure as native code numbers them; 0 for those that fit."""
        made = np.zeros(len(self.words), np.int64)
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


def read_instances(
    program: rec.RecordingProgram,
    instances: Sequence[Sequence[Any]],
    readable: frozenset[tuple[str, int]],
    first_slot: int,
) -> tuple[Inputs, int]:
    """The inputs of instances, and the first slot after theirs.

    Raises ArgumentError naming the instance and the argument that does not fit.
    """
    count = len(instances)
    for i, instance in enumerate(instances):
        if len(instance) != program.num_input:
            raise ArgumentError(
                f"instance {i} has {len(instance)} arguments; `{program.entry}` takes "
                f"{program.num_input} besides its weights"
            )
    made = Inputs(np.empty((count, len(program.params)), np.int64))
    symbols: dict[expr.Var, Words] = {}
    first_slot = _read_data(program, instances, made, first_slot)
    for column, param in enumerate(program.params):
        number, path = param.parameter, param.path
        values = [instance[number] for instance in instances]
        if path:
            values = [_leaf(v, path) for v in values]
        if param.kind == "data":
            continue
        if param.kind == "scalar":
            made.words[:, column] = _scalars(param, values)
            continue
        arrays = _arrays(param, values)
        shapes = np.array([a.shape for a in arrays], np.int64).reshape(count, param.tensor.ndim)
        made.refused = _misfits(param, shapes, symbols) | made.refused
        flat = np.concatenate([a.reshape(-1) for a in arrays])
        lengths = np.prod(shapes, axis=1, dtype=np.int64)
        records = np.zeros((count, rec.RECORD_DIMS + param.tensor.ndim), np.int64)
        starts = np.cumsum(lengths) - lengths
        records[:, rec.RECORD_DATA] = flat.ctypes.data + starts * flat.itemsize
        if (str(param.tensor.dtype), param.tensor.ndim) in readable:
            records[:, rec.RECORD_SLOT] = np.arange(first_slot, first_slot + count)
            made.tensors.append((first_slot, flat, lengths))
            first_slot += count
        records[:, rec.RECORD_DIMS :] = shapes
        made.words[:, column] = records.ctypes.data + np.arange(count) * records.strides[0]
        made.keep += [flat, records]
    return made, first_slot


def _read_data(
    program: rec.RecordingProgram,
    instances: Sequence[Sequence[Any]],
    made: Inputs,
    first_slot: int,
) -> int:
    """Write the values of data types that instances give. Returns the next slot."""
    params = [(c, p) for c, p in enumerate(program.params) if p.kind == "data"]
    if not params:
        return first_slot
    writer = DataWriter(program.data)
    for column, p in params:
        assert isinstance(p.ty, DataType)
        for i, instance in enumerate(instances):
            value = _leaf(instance[p.parameter], p.path)
            what = f"`{p.name}` of instance {i}"
            made.words[i, column] = 8 * writer.write(value, p.ty, what)
    words, made.fields, first_slot = writer.placed(first_slot)
    made.words[:, [c for c, _ in params]] += words.ctypes.data
    made.keep.append(words)
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
