"""Loop unswitching: one test in front of unrolled loops in place of a mask for each element.

Attention stores scores under a mask, in unrolled loops inside the one over chunks of positions. For
most chunks the mask is true for every thread and position. Where it is a conjunction of linear
inequalities, it is true for all of them if it is for the worst: this is the test, and where it
holds, the loops run without the mask.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from relaxlab.analysis.arith import Analyzer
from relaxlab.codegen.gpu.launch import ThreadAxis
from relaxlab.ir import expr
from relaxlab.ir.expr import FloatImm, IntImm, PrimExpr, Select, Var, const
from relaxlab.ir.loops import BufferStore, For, IfThenElse, LetStmt, SeqStmt, Stmt, seq
from relaxlab.ir.node import replace, rewrite, walk
from relaxlab.ir.substitute import substitute, symbols_in
from relaxlab.schedule.tree import conjuncts


def unswitch(body: Stmt, axes: Sequence[ThreadAxis]) -> Stmt:
    """Return the program of a thread with a version without the mask for each unrolled loop that is
    inside another loop and stores under one."""
    threads = {a.var: a.extent for a in axes if a.name.startswith("threadIdx")}

    def visit(s: Stmt, repeated: bool) -> Stmt:
        match s:
            case For(kind="unrolled"):
                return _unswitched(s, threads) if repeated else s
            case For(kind="serial"):
                return replace(s, body=visit(s.body, True))
            case SeqStmt(stmts):
                return seq(*(visit(part, repeated) for part in stmts))
            case IfThenElse(_, then, None):
                return replace(s, then_case=visit(then, repeated))
            case _:
                return s

    return visit(body, False)


def _unswitched(s: For, threads: Mapping[Var, PrimExpr]) -> Stmt:
    masked = [n for n in walk(s) if isinstance(n, Select)]
    stores = [n for n in walk(s) if isinstance(n, BufferStore)]
    if len(masked) != 1 or len(stores) != 1 or stores[0].value is not masked[0]:
        return s
    (mask,) = masked
    loops = [n for n in walk(s) if isinstance(n, For)]
    if any(n.min != const(0) for n in loops) or any(isinstance(n, LetStmt) for n in walk(s)):
        return s
    own = {n.loop_var: n.extent for n in loops}
    if not isinstance(mask.false_value, FloatImm) or not set(symbols_in(mask.condition)) & set(own):
        return s
    everywhere = _worst(mask.condition, {**threads, **own})
    if everywhere is None:
        return s
    plain = rewrite(s, lambda n: mask.true_value if n is mask else None)
    return IfThenElse(everywhere, plain, s)


def _worst(condition: PrimExpr, extents: Mapping[Var, PrimExpr]) -> PrimExpr | None:
    """The condition that holds if another does for all values of variables from 0 to before their
    extents; None where that is no conjunction of inequalities that are linear in them."""
    an, worst = Analyzer(), list[PrimExpr]()
    for part in conjuncts(condition):
        gaps = _gaps(part)
        if gaps is None:
            return None
        for gap in map(an.simplify, gaps):
            for var, extent in extents.items():
                step = an.simplify(substitute(gap, {var: var + 1}) - gap)
                if not isinstance(step, IntImm) or not isinstance(extent, IntImm):
                    return None
                last = const(extent.value - 1 if step.value > 0 else 0)
                gap = an.simplify(substitute(gap, {var: last}))
            worst.append(expr.LT(gap, const(0)))
    return expr.all_of(worst)


def _gaps(e: PrimExpr) -> list[PrimExpr] | None:
    """The numbers that are all negative where an inequality holds; None for something else."""
    match e:
        case expr.GT(a, b) | expr.GE(a, b):
            return _gaps((expr.LT if isinstance(e, expr.GT) else expr.LE)(b, a))
        case expr.LT(expr.Max(a, b), c) | expr.LE(expr.Max(a, b), c):
            sides = [(a, c), (b, c)]
        case expr.LT(a, expr.Min(b, c)) | expr.LE(a, expr.Min(b, c)):
            sides = [(a, b), (a, c)]
        case expr.LT(a, b):
            return [a - b]
        case expr.LE(a, b):
            return [a - b - 1]
        case _:
            return None
    first, second = (_gaps(type(e)(a, b)) for a, b in sides)
    return None if first is None or second is None else [*first, *second]
