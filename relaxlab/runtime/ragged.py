"""Sequences of different lengths as one array of rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from relaxlab.ir.errors import UserError, brief
from relaxlab.runtime.arrays import Array, as_array

LENGTHS = ("int32", "int64")


class RaggedError(UserError, ValueError):
    """Lengths or offsets that do not fit their rows; the message names the sequence."""


class Ragged:
    """The rows of sequences behind each other, `data` (rows, ...), and their `lengths`, int32 as
    programs take them (`R.Lengths`).

    It is an argument wherever a program takes its rows, without a copy; `lengths` is one where it
    takes the lengths.
    """

    __slots__ = ("data", "lengths")

    def __init__(self, data: Array, lengths: Array) -> None:
        for at in np.flatnonzero(lengths > np.iinfo("int32").max)[:1]:
            raise RaggedError(f"sequence {at} has {lengths[at]} rows, more than an int32 counts")
        self.data, self.lengths = data, lengths.astype("int32", copy=False)

    def __len__(self) -> int:
        return len(self.lengths)

    def __repr__(self) -> str:
        shape, n = self.data.shape, len(self.lengths)
        return f"Ragged({n} sequences, {shape[0]} rows, {self.data.dtype}{list(shape[1:])})"

    @property
    def offsets(self) -> Array:
        """The first row of each sequence, and the number of all rows: int64 (sequences + 1,)."""
        return np.concatenate([[0], np.cumsum(self.lengths, dtype="int64")])

    def to_list(self) -> list[Array]:
        """The sequences, as views of the rows."""
        return np.split(self.data, self.offsets[1:-1]) if len(self) else []

    def like(self, rows: Any) -> Ragged:
        """Other rows of the same sequences, such as a program's result. Raises RaggedError for
        another number of rows."""
        return ragged(rows, lengths=self.lengths)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return np.array(self.data, dtype, copy=copy)

    def __dlpack__(self, **options: Any) -> Any:
        return self.data.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.data.__dlpack_device__()


@brief
def ragged(
    rows: Any, *, lengths: Any = None, offsets: Any = None
) -> Ragged:
    """Sequences of different lengths as one array of rows.

    `rows` is a list of arrays that agree in all but their first dimension, which are copied behind
    each other; a jagged nested tensor of PyTorch; or the rows themselves with their `lengths`
    (int32 or int64), or with `offsets` as Arrow has them: the first row of each sequence, and the
    end. Rows are copied from a list alone, and those outside of the offsets are left out. Raises
    RaggedError naming the sequence whose length or offset does not fit.

    >>> r = ragged([np.zeros((3, 8)), np.zeros((1, 8))])
    >>> r, r.lengths.tolist()
    (Ragged(2 sequences, 4 rows, float64[8]), [3, 1])
    """
    if lengths is not None and offsets is not None:
        raise RaggedError("sequences are given by their lengths or by offsets, not by both")
    if lengths is None and offsets is None:
        if isinstance(rows, list | tuple):
            return _of_list(rows)  # type: ignore[reportUnknownArgumentType]
        if not hasattr(rows, "offsets") or not callable(getattr(rows, "values", None)):
            raise RaggedError("an array of rows needs the lengths of its sequences, or offsets")
        rows, offsets = rows.values(), rows.offsets()
    data = as_array(rows)
    if data.ndim == 0:
        raise RaggedError("rows are an array with one dimension or more")
    if offsets is not None:
        ends = _integers(offsets, "offsets")
        return _of_offsets(data, ends)
    counts = _integers(lengths, "lengths")
    for at in np.flatnonzero(counts < 0)[:1]:
        raise RaggedError(f"lengths[{at}] is {counts[at]}; a length is not negative")
    total = sum(map(int, counts))  # of Python, which does not overflow
    if total != len(data):
        raise RaggedError(f"the lengths add up to {total}, and there are {len(data)} rows")
    return Ragged(data, counts)


def _of_list(parts: Sequence[Any]) -> Ragged:
    arrays = [as_array(p) for p in parts]
    if not arrays:
        raise RaggedError("a list without sequences has no rows to tell their shape")
    for i, a in enumerate(arrays):
        if a.ndim == 0 or a.shape[1:] != arrays[0].shape[1:] or a.dtype != arrays[0].dtype:
            raise RaggedError(
                f"sequence {i} is {a.dtype}{list(a.shape)}; rows are {arrays[0].dtype}"
                f"{list(arrays[0].shape[1:])} as those of sequence 0"
            )
    return Ragged(np.concatenate(arrays), np.array([len(a) for a in arrays], "int32"))


def _of_offsets(data: Array, ends: Array) -> Ragged:
    if not len(ends):
        raise RaggedError("offsets have the end of the last sequence at least")
    for at in np.flatnonzero(np.diff(ends) < 0)[:1]:
        raise RaggedError(f"offsets[{at + 1}] is {ends[at + 1]}, less than the one before it")
    if ends[0] < 0 or ends[-1] > len(data):
        wrong = 0 if ends[0] < 0 else len(ends) - 1
        raise RaggedError(f"offsets[{wrong}] is {ends[wrong]}, and there are {len(data)} rows")
    return Ragged(data[int(ends[0]) : int(ends[-1])], np.diff(ends))


def _integers(values: Any, what: str) -> Array:
    found = as_array(values) if not isinstance(values, list | tuple) else np.array(values, "int64")
    if found.ndim != 1 or found.dtype.name not in LENGTHS:
        raise RaggedError(f"{what} are a one-dimensional array of int32 or int64")
    return found
