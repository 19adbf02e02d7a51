"""The inputs of a batch, read in machine code."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from relaxlab.codegen.llvm import reading_plan as native
from relaxlab.ir import expr
from relaxlab.ir import recording as rec
from relaxlab.ir.dtypes import numpy_dtype
from relaxlab.runtime.batch.words import Words
from relaxlab.runtime.native.direct_call import is_supported
from relaxlab.runtime.native.fields import Fields
from relaxlab.runtime.native.value_reader import reading_function

INTEGERS = ("int64", "int32")
"""Dtypes of integers that machine code reads."""
KINDS = {"data": native.DATA, "scalar": native.SCALAR, "array": native.TENSOR}
WORDS = len(native.InputPlan.__annotations__)


def inputs_are_known(program: rec.RecordingProgram) -> bool:
    """True if machine code reads inputs such as the program's."""
    return is_supported() and all(
        p.kind == "data"
        or (p.kind == "scalar" and p.tensor.dtype in INTEGERS)
        or (
            p.kind == "array"
            and all(isinstance(d, expr.Var | expr.IntImm) for d in p.tensor.shape or ())
        )
        for p in program.params
    )


class NativeInstances:
    """The plans of a program's inputs."""

    def __init__(self, program: rec.RecordingProgram) -> None:
        self._alive: list[Any] = []
        self._symbols: dict[expr.Var, int] = {}
        plans = [self._plan(p) for p in program.params]
        self._table = np.concatenate([np.empty(0, np.int64), *(p.words for p in plans)])
        self._rows = self._table.reshape(-1, WORDS)
        self._arrays = [(i, p.tensor) for i, p in enumerate(program.params) if p.kind == "array"]
        self._instances = Fields(native.Instances)
        self._instances.set(
            count=len(plans), arguments=program.num_input, symbol_count=len(self._symbols),
            array_type=id(np.ndarray), tuple_type=id(tuple), int_type=id(int),
            word_type=id(np.int64),
        )  # fmt: skip
        self._instances.hold(plans=self._table, symbols=np.empty(len(self._symbols), np.int64))
        self._records: list[Words] = []
        self._count = -1
        """The instances that the records have room for."""
        self._read = reading_function(native.READ_INSTANCES)

    def _plan(self, p: rec.EntryParam) -> Fields:
        made = Fields(native.InputPlan)
        self._alive.append(made)
        made.set(kind=KINDS[p.kind], parameter=p.parameter, depth=len(p.path))
        made.hold(path=np.array(p.path, np.int64))
        if p.kind == "data":
            return made
        dtype = numpy_dtype(str(p.tensor.dtype))
        self._alive.append(dtype)
        made.set(descr=id(dtype), size=dtype.itemsize, ndim=p.tensor.ndim)
        made.hold(dims=np.array([self._dim(d) for d in p.tensor.shape or ()], np.int64))
        if p.kind == "scalar":
            made.set(least=int(np.iinfo(dtype).min), most=int(np.iinfo(dtype).max))
        return made

    def _dim(self, d: expr.PrimExpr) -> int:
        if isinstance(d, expr.IntImm):
            return d.value
        assert isinstance(d, expr.Var)
        return -1 - self._symbols.setdefault(d, len(self._symbols))

    def read(
        self, instances: list[Sequence[Any]], words: Words, firsts: Sequence[int]
    ) -> list[tuple[Words, int]] | None:
        """Write the words of all instances. Returns the input records of all arrays, of which the
        slots begin at `firsts`, and their bytes; batches of the same size share their memory. None
        where something is not as foreseen."""
        if len(instances) != self._count:
            self._prepare(len(instances), firsts)
        self._rows[:, BYTES] = 0
        self._instances.set(words=words.ctypes.data)
        if self._read(self._instances.address, instances) != native.DONE:
            return None
        sizes = self._rows[:, BYTES].tolist()
        return [(r, sizes[i]) for r, (i, _) in zip(self._records, self._arrays, strict=True)]

    def _prepare(self, count: int, firsts: Sequence[int]) -> None:
        self._count, self._records = count, []
        for (i, ty), first in zip(self._arrays, firsts, strict=True):
            records = np.empty((count, rec.RECORD_DIMS + ty.ndim), np.int64)
            self._rows[i, RECORDS : RECORDS + 2] = records.ctypes.data, first
            self._records.append(records)


RECORDS = list(native.InputPlan.__annotations__).index("records")
"""The word of a plan with the address of records; the first slot follows it."""
BYTES = RECORDS + 2
"""The word with the bytes of all arrays."""
