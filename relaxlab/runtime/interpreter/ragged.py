"""Ragged tensors in the interpreter: the elements of one sequence, and those of all joined again.

A value is the dense array with the elements of all sequences behind each other, as programs take
and return it. What an operator means for sequence i is element i of its result on a batch of
sequences that are all as long and, as regular tensors do not say otherwise, all equal.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from relaxlab.analysis.evaluate import evaluate
from relaxlab.ir import expr
from relaxlab.ir.types import TensorType, TupleType, Type, is_part, lengths_in


def batch_of(value: Any, ty: Type | None, each: list[dict[expr.PrimExpr, int]], i: int) -> Any:
    """A batch in which every sequence is the i-th of `value`; of a part that of the i-th sequence,
    and a regular value as it is."""
    if isinstance(ty, TupleType):
        both = zip(value, ty.fields, strict=True)
        return tuple(batch_of(v, t, each, i) for v, t in both)
    if not isinstance(ty, TensorType) or ty.shape is None or not lengths_in(ty.shape):
        return value
    dims = ty.shape if is_part(ty) else ty.shape[1:]
    shapes = [tuple(int(evaluate(d, sizes)) for d in dims) for sizes in each[: i + 1]]
    counts = [int(np.prod(s)) for s in shapes]
    flat = np.asarray(value).reshape(-1)[sum(counts[:-1]) : sum(counts)]
    own = flat.reshape(shapes[-1])
    return own if is_part(ty) else np.broadcast_to(own, (len(each), *shapes[-1]))


def joined(results: list[Any], ty: Type, stored: Type, size: Callable[[Any], int]) -> Any:
    """The elements of all sequences, of which element i of result i is one, or the whole of a part,
    as a value of type `stored`. `size` evaluates a dimension of it."""
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
    own = results if is_part(ty) else [r[i] for i, r in enumerate(results)]
    return np.concatenate([np.asarray(r).reshape(-1) for r in own]).reshape(shape)
