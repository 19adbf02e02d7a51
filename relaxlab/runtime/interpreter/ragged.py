"""Ragged tensors in the interpreter: the elements of one sequence, and those of all joined again.

A value is the dense array with the elements of all sequences behind each other, as programs take
and return it. What an operator means for sequence i is element i of its result on a batch of
sequences that are all as long and, as regular tensors do not say otherwise, all equal.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from relaxlab.analysis.evaluate import evaluate
from relaxlab.ir import expr
from relaxlab.ir.types import TensorType, TupleType, Type, is_part, lengths_in

Sizes = Mapping[expr.PrimExpr, int]


def batch_of(value: Any, ty: Type | None, each: list[dict[expr.PrimExpr, int]], i: int) -> Any:
    """A batch in which every sequence is the i-th of `value`; a regular value as it is, and of what
    is to be a part of one the rows that the i-th sequence has."""
    if isinstance(ty, TupleType):
        both = zip(value, ty.fields, strict=True)
        return tuple(batch_of(v, t, each, i) for v, t in both)
    if not isinstance(ty, TensorType) or ty.shape is None or not lengths_in(ty.shape):
        return value
    if is_part(ty):
        return value[: int(evaluate(ty.shape[0], each[i]))]
    shapes = [_shape(ty, sizes) for sizes in each[: i + 1]]
    counts = [int(np.prod(s)) for s in shapes]
    flat = np.asarray(value).reshape(-1)[sum(counts[:-1]) : sum(counts)]
    return np.broadcast_to(flat.reshape(shapes[-1]), (len(each), *shapes[-1]))


def _shape(ty: TensorType, sizes: Sizes) -> tuple[int, ...]:
    """The shape of the element of one sequence."""
    assert ty.shape is not None
    return tuple(int(evaluate(d, sizes)) for d in ty.shape[1:])


def joined(results: list[Any], ty: Type, stored: Type, size: Callable[[Any], int]) -> Any:
    """The elements of all sequences, of which element i of result i is one, as a value of type
    `stored`. `size` evaluates a dimension of it."""
    if isinstance(ty, TupleType):
        assert isinstance(stored, TupleType)
        return tuple(
            joined([r[k] for r in results], t, s, size)
            for k, (t, s) in enumerate(zip(ty.fields, stored.fields, strict=True))
        )
    assert isinstance(stored, TensorType) and stored.shape is not None
    shape = tuple(map(size, stored.shape))
    if not results:
        return np.zeros(shape, stored.dtype)
    parts = [np.asarray(r[i]).reshape(-1) for i, r in enumerate(results)]
    return np.concatenate(parts).reshape(shape)
