"""Strides and places of elements in memory that is dense and row-major."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from relaxlab.ir.expr import PrimExpr, const


def strides(shape: Sequence[PrimExpr]) -> tuple[PrimExpr, ...]:
    """The distances between neighbours along each dimension, in elements."""
    return tuple(prod(shape[i + 1 :], start=const(1)) for i in range(len(shape)))


def place(indices: Sequence[PrimExpr], shape: Sequence[PrimExpr]) -> PrimExpr:
    """The number of an element."""
    number: PrimExpr = const(0)
    for index, stride in zip(indices, strides(shape), strict=True):
        number = number + index * stride
    return number
