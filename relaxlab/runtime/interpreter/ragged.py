"""Ragged tensors in the interpreter: the elements of one sequence, and those of all joined again.

A value is the dense array with the elements of all sequences behind each other, as programs take
and return it. What an operator means for sequence i is element i of its result on a batch of
sequences that are all as long and, as regular tensors do not say otherwise, all equal. For rows
that differ in length, it is element (i, j) of its result where all rows of all sequences are alike,
and what has no lengths of rows is that of sequence i.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from relaxlab.analysis.evaluate import evaluate
from relaxlab.analysis.ragged import sizes_of_each
from relaxlab.ir.types import (
    Each,
    Length,
    TensorType,
    TupleType,
    Type,
    is_part,
    lengths_in,
    outer_lengths,
)

Sizes: TypeAlias = dict[Any, int]


@dataclass(frozen=True, slots=True)
class Elements:
    """The elements that an operator on ragged tensors is evaluated for, one after the other: the
    sequences, or the rows of each. `places` are the number of the sequence of each, or that and the
    number of the row in it; `sizes` has the sizes of each by the dimensions that differ. `each`
    gives the sizes of every element of what some dimensions differ by."""

    places: Sequence[tuple[int, ...]]
    sizes: Sequence[Sizes]
    each: Callable[[Sequence[Each]], Sequence[Sizes]]
    count: int

    @staticmethod
    def of(used: Iterable[Each], lengths: Mapping[Length, Any], sizes: Any) -> Elements:
        """Those of a call whose tensors differ by `used`."""
        varying = tuple(dict.fromkeys(used))
        every, outer = sizes_of_each(varying, lengths, sizes), outer_lengths(varying)
        places: list[tuple[int, ...]] = [(i,) for i in range(len(every))]
        if outer is not None:
            places = [(i, j) for i, rows in enumerate(lengths[outer]) for j in range(rows)]
        count = len(every) if outer is None else len(lengths[outer])
        return Elements(places, every, lambda s: sizes_of_each(s, lengths, sizes), count)

    def batch_of(self, value: Any, ty: Type | None, k: int) -> Any:
        """A batch in which every element is the k-th of `value`; of a part that of the k-th, and a
        regular value as it is."""
        if isinstance(ty, TupleType):
            return tuple(self.batch_of(v, t, k) for v, t in zip(value, ty.fields, strict=True))
        if not isinstance(ty, TensorType) or ty.shape is None or not lengths_in(ty.shape):
            return value
        of_rows = outer_lengths(ty.shape) is not None
        at = k if of_rows else self.places[k][0]
        dims = ty.shape if is_part(ty) else ty.shape[2 if of_rows else 1 :]
        every = self.each(lengths_in(ty.shape))
        shapes = [tuple(int(evaluate(d, sizes)) for d in dims) for sizes in every[: at + 1]]
        counts = [int(np.prod(s)) for s in shapes]
        flat = np.asarray(value).reshape(-1)[sum(counts[:-1]) : sum(counts)]
        own = flat.reshape(shapes[-1])
        if is_part(ty):
            return own
        outer = (self.count, *(int(evaluate(d, self.sizes[k])) for d in ty.shape[1:2] if of_rows))
        return np.broadcast_to(own, (*outer, *shapes[-1]))

    def joined(self, results: list[Any], ty: Type, stored: Type, size: Callable[[Any], int]) -> Any:
        """The elements of all sequences, of which element k of result k is one, or the whole of a
        part, as a value of type `stored`. `size` evaluates a dimension of it."""
        if isinstance(ty, TupleType):
            assert isinstance(stored, TupleType)
            return tuple(
                self.joined([r[k] for r in results], t, s, size)
                for k, (t, s) in enumerate(zip(ty.fields, stored.fields, strict=True))
            )
        assert isinstance(stored, TensorType) and stored.shape is not None
        shape = tuple(map(size, stored.shape))
        if not results:
            return np.zeros(shape, stored.dtype)
        own = results
        if not is_part(ty):
            own = [r[at] for at, r in zip(self.places, results, strict=True)]
        return np.concatenate([np.asarray(r).reshape(-1) for r in own]).reshape(shape)
