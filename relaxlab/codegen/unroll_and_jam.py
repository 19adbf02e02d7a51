"""Loops over rows become copies side by side inside of the loops along them.

Unroll and jam (Kennedy and Allen, *Optimizing Compilers for Modern Architectures*, section 8.4):
of running sums along rows each waits for the one before; those of four rows at once wait for four
together, without the gathers that rows as lanes of a vector take.
"""

from __future__ import annotations

from typing import cast

from relaxlab.ir import expr
from relaxlab.ir.expr import IntImm, PrimExpr, Var
from relaxlab.ir.loops import For, IfThenElse, SeqStmt, Stmt, seq
from relaxlab.ir.node import Node, map_children, replace
from relaxlab.ir.substitute import substitute, symbols_in
from relaxlab.schedule.annotate import UNROLL_AND_JAM
from relaxlab.schedule.ranges import distance


def unroll_and_jam(body: Stmt) -> Stmt:
    """The statement with the annotated loops innermost, and unrolled there."""

    def visit(n: Node) -> Node:
        n = map_children(n, visit)
        if isinstance(n, For) and UNROLL_AND_JAM in n.annotations:
            return _jammed(replace(n, kind="unrolled", annotations={}), n.body)
        return n

    return cast("Stmt", visit(body))


def _jammed(rows: For, s: Stmt) -> Stmt:
    """A loop over rows around `s`, as loops in it."""
    match s:
        case SeqStmt(stmts):
            return seq(*(_jammed(rows, part) for part in stmts))
        case For(_, least, extent, "serial", body) if not _varies((least, extent), rows.loop_var):
            return replace(s, body=_jammed(rows, body))
        case IfThenElse(condition, then, None) if _ends(condition, rows.loop_var):
            # All rows are there, or those that are go one by one.
            last = rows.min + rows.extent - 1
            every = substitute(condition, {rows.loop_var: last})
            apart = replace(rows, kind="serial", body=s)
            return IfThenElse(every, _jammed(rows, then), apart)
        case IfThenElse(condition, then, other) if not _varies((condition,), rows.loop_var):
            other = None if other is None else _jammed(rows, other)
            return IfThenElse(condition, _jammed(rows, then), other)
        case _:
            var = Var(rows.loop_var.name, rows.loop_var.dtype)
            return replace(rows, loop_var=var, body=substitute(s, {rows.loop_var: var}))


def _varies(values: tuple[PrimExpr, ...], var: Var) -> bool:
    return var in symbols_in(values)


def _ends(condition: PrimExpr, var: Var) -> bool:
    """True for `… + var < …`: what holds for the last row then holds for all."""
    if not isinstance(condition, expr.LT) or var in symbols_in(condition.b):
        return False
    step = distance(substitute(condition.a, {var: var + 1}), condition.a)
    return isinstance(step, IntImm) and step.value > 0
