"""Sequences of different lengths as one array of rows."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from relaxlab.ir.arguments import names_arguments
from relaxlab.ir.errors import UserError, brief, counted
from relaxlab.runtime.arrays import Array, as_array

LENGTHS = ("int32", "int64")


class RaggedError(UserError, ValueError):
    """Lengths or offsets that do not fit their rows; the message names the sequence."""


class Ragged:
    """The rows of sequences behind each other, `data` (rows, ...), and their lengths, int32 as
    programs take them (`R.Lengths`). `extents` are those along each ragged dimension: where there
    are several, a row is there for each pair, triple and so on of positions.

    It is an argument wherever a program takes its rows, without a copy; `lengths`, the first of the
    extents, is one where it takes the lengths.
    """

    __slots__ = ("data", "extents")

    def __init__(self, data: Array, *extents: Array) -> None:
        if not extents or not all(isinstance(x, np.ndarray) for x in (data, *extents)):
            raise RaggedError(
                "Ragged is made of arrays that fit each other; rl.ragged(rows, lengths=[…]) takes "
                "lists, too, and checks them"
            )
        for lengths in extents:
            for at in np.flatnonzero(lengths > np.iinfo("int32").max)[:1]:
                raise RaggedError(
                    f"sequence {at} has {lengths[at]} rows, more than an int32 counts"
                )
        self.data = data
        self.extents = tuple(lengths.astype("int32", copy=False) for lengths in extents)

    @property
    def lengths(self) -> Array:
        """The length of each sequence along the first ragged dimension: int32 (sequences,)."""
        return self.extents[0]

    def __len__(self) -> int:
        return len(self.lengths)

    def __repr__(self) -> str:
        rows, *inner = self.data.shape
        sizes = f"{counted(len(self.lengths), 'sequence')}, {counted(rows, 'row')}"
        return f"Ragged({sizes}, {self.data.dtype}{inner})"

    @property
    def offsets(self) -> Array:
        """The first row of each sequence, and the number of all rows: int64 (sequences + 1,)."""
        rows = np.prod(self.extents, axis=0, dtype="int64")
        return np.concatenate([[0], np.cumsum(rows)])

    def to_list(self) -> list[Array]:
        """The sequences, as views of the rows: (length, ...), with a dimension for each of the
        extents."""
        if not len(self):
            return []
        parts = np.split(self.data, self.offsets[1:-1])
        sizes = zip(*self.extents, strict=True)
        return [p.reshape(*s, *p.shape[1:]) for p, s in zip(parts, sizes, strict=True)]

    def like(self, rows: Any) -> Ragged:
        """Other rows of the same sequences, such as a program's result. Raises RaggedError for
        another number of rows."""
        return ragged(rows, lengths=self.extents)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return np.array(self.data, dtype, copy=copy)

    def __dlpack__(self, **options: Any) -> Any:
        return self.data.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.data.__dlpack_device__()


@names_arguments
@brief
def ragged(
    rows: Any, *, lengths: Any = None, offsets: Any = None, dims: int = 1
) -> Ragged:
    """Sequences of different lengths as one array of rows.

    `rows` is a list of arrays that agree in all but their first dimension, which are copied behind
    each other; a nested tensor of PyTorch, whose rows are not copied if it is jagged, with no other
    rows between its sequences; or the rows themselves with their `lengths` (int32 or int64), or
    with `offsets` as Arrow has them: the first row of each sequence, and the end. Rows outside of
    the offsets are left out. Raises RaggedError naming the sequence whose length or offset does not
    fit.

    With several ragged dimensions, as those of scores, there is a row for each pair of positions:
    `dims` says how many of the first dimensions of a list's arrays differ, and `lengths` are a
    tuple of lengths, one for each dimension.

    >>> r = ragged([np.zeros((3, 8)), np.zeros((1, 8))])
    >>> r, r.lengths.tolist()
    (Ragged(2 sequences, 4 rows, float64[8]), [3, 1])
    >>> pairs = ragged([np.zeros((3, 2, 8)), np.zeros((1, 4, 8))], dims=2)
    >>> pairs, [part.shape for part in pairs.to_list()]
    (Ragged(2 sequences, 10 rows, float64[8]), [(3, 2, 8), (1, 4, 8)])
    """
    if lengths is not None and offsets is not None:
        raise RaggedError("sequences are given by their lengths or by offsets, not by both")
    if getattr(rows, "is_nested", False) and not _has_rows(rows):
        rows = list(rows.unbind())
    if lengths is None and offsets is None:
        if isinstance(rows, list | tuple):
            return _of_list(rows, dims)  # type: ignore[reportUnknownArgumentType]
        if dims != 1:
            raise RaggedError("dims is of a list; rows have a tuple of lengths, one a dimension")
        if not hasattr(rows, "offsets") or not callable(getattr(rows, "values", None)):
            raise RaggedError("an array of rows needs the lengths of its sequences, or offsets")
        rows, offsets = rows.values(), rows.offsets()
    data = as_array(rows)
    if data.ndim == 0:
        raise RaggedError("rows are an array with one dimension or more")
    if offsets is not None:
        ends = _integers(offsets, "offsets")
        return _of_offsets(data, ends)
    extents = _extents(lengths)
    sizes = zip(*(map(int, x) for x in extents), strict=True)  # of Python, which does not overflow
    total = sum(map(prod, sizes))
    if total != len(data):
        what = "the products of the lengths" if len(extents) > 1 else "the lengths"
        raise RaggedError(f"{what} add up to {total}, and there are {len(data)} rows")
    return Ragged(data, *extents)


def _has_rows(nested: Any) -> bool:
    """True for a jagged tensor all of whose rows are those of its sequences, which differ in their
    first dimension: its offsets say all about it. Others have lengths besides, with rows between
    the sequences, or are transposed."""
    if not hasattr(nested, "offsets") or nested.lengths() is not None:
        return False
    return all(isinstance(d, int) for d in nested.shape[2:])


def _extents(lengths: Any) -> list[Array]:
    """The lengths along each ragged dimension; a tuple of arrays has those of several."""
    several = isinstance(lengths, tuple) and any(map(np.ndim, lengths))  # type: ignore[reportUnknownArgumentType]
    extents = [_integers(x, "lengths") for x in (lengths if several else (lengths,))]
    for counts in extents:
        for at in np.flatnonzero(counts < 0)[:1]:
            raise RaggedError(f"lengths[{at}] is {counts[at]}; a length is not negative")
        if len(counts) != len(extents[0]):
            raise RaggedError(
                f"there are {len(extents[0])} lengths along one dimension and {len(counts)} along "
                "another"
            )
    return extents


def _of_list(parts: Sequence[Any], dims: int) -> Ragged:
    if dims < 1:
        raise RaggedError(f"dims is {dims}; one dimension or more differ")
    arrays = [as_array(p) for p in parts]
    if not arrays:
        raise RaggedError("a list without sequences has no rows to tell their shape")
    for i, a in enumerate(arrays):
        if (
            a.ndim < dims
            or a.shape[dims:] != arrays[0].shape[dims:]
            or a.dtype != arrays[0].dtype
        ):
            raise RaggedError(
                f"sequence {i} is {a.dtype}{list(a.shape)}; rows are {arrays[0].dtype}"
                f"{list(arrays[0].shape[dims:])} as those of sequence 0"
            )
    rows = [a.reshape(prod(a.shape[:dims]), *a.shape[dims:]) for a in arrays]
    return Ragged(np.concatenate(rows), *np.array([a.shape[:dims] for a in arrays], "int64").T)


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
    if isinstance(values, list | tuple):
        found = np.array(values) if len(values) else np.zeros(0, "int64")
    else:
        found = as_array(values)
    if found.ndim != 1 or found.dtype.name not in LENGTHS:
        kind = f"{found.ndim} dimensions" if found.ndim != 1 else f"dtype {found.dtype}"
        raise RaggedError(f"{what} are a one-dimensional array of int32 or int64, and have {kind}")
    return found
