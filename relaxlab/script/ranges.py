"""Ranges as the script writes them: `start:stop` for `extent` integers from `start`."""

from __future__ import annotations

from relaxlab.analysis.arith import simplify
from relaxlab.ir import expr
from relaxlab.ir.expr import PrimExpr


def extent_between(start: PrimExpr, stop: PrimExpr) -> PrimExpr:
    """The number of integers from `start` up to `stop`; inverse of how the printer writes ends."""
    match start, stop:
        case expr.IntImm(0), _:
            return stop
        case expr.IntImm(a, dtype), expr.IntImm(b):
            return expr.IntImm(b - a, dtype, span=stop.span)
        case _, expr.Add(left, right) if left == start:
            return right
        case _:
            return simplify(expr.Sub(stop, start, span=stop.span))
