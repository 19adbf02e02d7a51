"""A step about quotients and remainders: those of a split loop, in the order that indices have."""

from __future__ import annotations

from relaxlab.analysis.arith import Analyzer, wraps
from relaxlab.ir import expr
from relaxlab.ir.expr import IntImm, PrimExpr
from relaxlab.ir.loops import For, PrimFunc, Range
from relaxlab.ir.node import Node, map_children
from relaxlab.schedule.ranges import shape_analyzer


def quotients_first(func: PrimFunc) -> PrimFunc:
    """The function with `x // b % a` in place of `x % (a * b) // b`, and with quotients in which
    the multiples of the divisor are outside."""
    an = shape_analyzer(func)

    def visit(n: Node) -> Node:
        if isinstance(n, For):
            with an.scope():
                an.bind_range(n.loop_var, Range(n.min, n.extent))
                return map_children(n, visit)
        new = map_children(n, visit)
        return _quotient(new, an) if isinstance(new, expr.FloorDiv) else new

    return visit(func)  # type: ignore[return-value]


def _quotient(e: expr.FloorDiv, an: Analyzer) -> PrimExpr:
    match e:
        case expr.FloorDiv(expr.FloorMod(x, IntImm(whole)), IntImm(part)) if part > 0:
            if whole > 0 and whole % part == 0:
                inner = _quotient(expr.FloorDiv(x, e.b), an)
                return expr.binary(expr.FloorMod, inner, expr.const(whole // part, e.dtype))
        case _:
            pass
    return an.simplify(e) if e.dtype == "int64" and not wraps(e) else e
