"""Numbers, strides and places of elements in memory that is dense and row-major."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod

from relaxlab.ir.expr import PrimExpr, const


def product(dims: Iterable[PrimExpr]) -> PrimExpr:
    """The product of dimensions; 1 where there are none."""
    return prod(dims, start=const(1))


def strides(shape: Sequence[PrimExpr]) -> tuple[PrimExpr, ...]:
    """The distances between neighbours along each dimension, in elements."""
    return tuple(product(shape[i + 1 :]) for i in range(len(shape)))


def place(indices: Sequence[PrimExpr], shape: Sequence[PrimExpr]) -> PrimExpr:
    """The number of an element."""
    number: PrimExpr = const(0)
    for index, stride in zip(indices, strides(shape), strict=True):
        number = number + index * stride
    return number
