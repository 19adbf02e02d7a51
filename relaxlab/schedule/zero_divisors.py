"""Integer divisions that stop a program where zeros stand for what was not read."""

from __future__ import annotations

from relaxlab.ir import expr
from relaxlab.ir.dtypes import is_float
from relaxlab.ir.expr import IntImm, PrimExpr
from relaxlab.ir.loops import Block, BufferLoad, LetStmt
from relaxlab.ir.node import walk


def division_by_data(block: Block) -> PrimExpr | None:
    """An integer division or remainder of the block whose divisor is data that may be zero."""
    bound = {n.var for n in walk(block) if isinstance(n, LetStmt | expr.Let)}
    for n in walk(block):
        if not isinstance(n, expr.Div | expr.Mod | expr.FloorDiv | expr.FloorMod):
            continue
        data = any(isinstance(d, BufferLoad) or d in bound for d in walk(n.b))
        if data and not is_float(n.dtype) and not _is_never_zero(n.b):
            return n
    return None


def _is_never_zero(e: PrimExpr) -> bool:
    """True if an expression is not zero whatever its operands are."""
    match e:
        case IntImm(value):
            return value != 0
        case expr.Select(condition, yes, no):
            tested = expr.EQ(no, expr.const(0, no.dtype)) in _disjuncts(condition)
            return _is_never_zero(yes) and (tested or _is_never_zero(no))
        case _:
            return False


def _disjuncts(condition: PrimExpr) -> list[PrimExpr]:
    if isinstance(condition, expr.Or):
        return [*_disjuncts(condition.a), *_disjuncts(condition.b)]
    return [condition]
