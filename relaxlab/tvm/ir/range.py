"""Ranges as TVM constructs them: by their ends."""

from __future__ import annotations

from typing import Any

from relaxlab.ir import expr, loops
from relaxlab.tvm.spelling import Spelling


class Range(metaclass=Spelling, core=loops.Range):
    """The numbers from `begin` to `end`, which is excluded; from 0 where one number is given."""

    def __new__(cls, begin: Any, end: Any = None, span: object = None) -> loops.Range:
        low, high = (0, begin) if end is None else (begin, end)
        first = expr.as_expr(low)
        return loops.Range(first, expr.as_expr(high, first.dtype) - first)

    @staticmethod
    def from_min_extent(min_value: Any, extent: Any, span: object = None) -> loops.Range:
        """`extent` numbers from `min_value` on."""
        first = expr.as_expr(min_value)
        return loops.Range(first, expr.as_expr(extent, first.dtype))
