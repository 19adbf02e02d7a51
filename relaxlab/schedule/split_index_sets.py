"""Loops whose first or last iterations do something else become several loops without that test.

Index-set splitting (Wolfe, *High Performance Compilers for Parallel Computing*): of `if i == 0: …
else: …` in a loop over i that carries values from one iteration to the next, the first iteration is
a loop of its own. What remains in each loop can be taken apart, as if it were written so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import cast

from relaxlab.analysis.arith import Analyzer
from relaxlab.ir import expr
from relaxlab.ir.expr import Call, CmpOp, IntImm, PrimExpr, Var
from relaxlab.ir.loops import For, IfThenElse, PrimFunc, Stmt, seq
from relaxlab.ir.node import Node, map_children, replace, rewrite, walk
from relaxlab.ir.substitute import substitute, symbols_in
from relaxlab.schedule.ranges import ZERO, bind_stmt, by_data, shape_analyzer

MOST_RANGES = 3
"""Loops that one is split into at most: a first, a middle and a last part."""


def split_index_sets(body: Stmt, func: PrimFunc, carries: Callable[[For], bool]) -> Stmt:
    """Return a statement of a function, all of whose loops begin at zero, with those loops split
    that carry values and test for some of their iterations."""

    def visit(n: Node, around: tuple[For, ...]) -> Node:
        inner = (*around, n) if isinstance(n, For) else around
        made = map_children(n, lambda child: visit(child, inner))
        if not isinstance(made, For):
            return made
        an = shape_analyzer(func)
        for loop in around:
            bind_stmt(an, loop)
        starts = _starts(made, an)
        if not 0 < len(starts) < MOST_RANGES or not carries(made):
            return made
        # A loop of a negative extent has no iterations: only starts need to be in order.
        ends = [an.simplify(_end(s, made.extent)) for s in starts]
        pairs = zip((ZERO, *starts), (*ends, made.extent), strict=True)
        return seq(*(_part(made, start, an.simplify(end - start), an) for start, end in pairs))

    return cast("Stmt", visit(body, ()))


def _starts(loop: For, an: Analyzer) -> list[PrimExpr]:
    """The iterations, a constant away from the first or the end, from which on tests of a loop's
    variable have another result, in order."""
    first: set[int] = set()
    last: set[int] = set()
    for test in _tests(loop):
        for n in walk(test):
            for at in _changes(n, loop.loop_var, an):
                match at, an.simplify(loop.extent - at):
                    case IntImm(count), _:
                        first.add(count)
                    case _, IntImm(count):
                        last.add(count)
                    case _:
                        pass
    starts: list[PrimExpr] = [expr.const(n) for n in sorted(first) if n > 0]
    before = starts[-1] if starts else ZERO
    for rest in sorted((n for n in last if n > 0), reverse=True):
        starts.append(expr.Max(an.simplify(loop.extent - rest), before))
    return [s for s in dict.fromkeys(starts) if s != loop.extent]


def _end(start: PrimExpr, extent: PrimExpr) -> PrimExpr:
    """The end of the iterations before `start`."""
    return start.a if isinstance(start, expr.Max) else expr.Min(start, extent)


def _changes(n: Node, var: Var, an: Analyzer) -> list[PrimExpr]:
    """The values of a variable from which on a comparison has another result than before."""
    if not isinstance(n, CmpOp) or var not in symbols_in(n) or by_data(n):
        return []
    if {n.a.dtype, n.b.dtype} != {var.dtype}:
        return []
    distance = an.simplify(n.a - n.b)
    below, above = an.simplify(var - distance), an.simplify(distance + var)
    if var not in symbols_in(below):
        equal, kind = below, type(n)
    elif var not in symbols_in(above):
        equal, kind = above, _MIRRORED.get(type(n), type(n))
    else:
        return []
    return [an.simplify(equal + step) for step in _STEPS.get(kind, (0, 1))]


_STEPS: dict[type[CmpOp], tuple[int, ...]] = {
    expr.LT: (0,), expr.GE: (0,), expr.LE: (1,), expr.GT: (1,),
}  # fmt: skip
"""Distances behind the number that a variable is compared with at which the result changes; for a
test whether they are equal 0 and 1."""
_MIRRORED: dict[type[CmpOp], type[CmpOp]] = {
    expr.LT: expr.GT, expr.GT: expr.LT, expr.LE: expr.GE, expr.GE: expr.LE,
}  # fmt: skip
"""The comparison with its sides exchanged, where it is another one."""


def _tests(s: Stmt) -> Iterator[PrimExpr]:
    """The conditions in a statement."""
    for n in walk(s):
        match n:
            case (
                IfThenElse(condition) | expr.Select(condition)
                | Call(_, "if_then_else", (condition, *_))
            ):  # fmt: skip
                yield condition
            case _:
                pass


def _part(loop: For, start: PrimExpr, count: PrimExpr, an: Analyzer) -> Stmt:
    """Some iterations, `count` from `start` on, as a loop from zero, without the tests that are
    known in it."""
    with an.scope():
        var = Var(loop.loop_var.name, loop.loop_var.dtype)
        part = For(var, ZERO, count, "serial", loop.body, span=loop.span)
        bind_stmt(an, part)
        an.assume(expr.GE(count, expr.const(1)))

        def visit(n: Node) -> Node | None:
            match n:
                case (
                    IfThenElse(condition, then, other)
                    | expr.Select(condition, then, other)
                    | Call(_, "if_then_else", (condition, then, other))
                ):
                    known = an.prove(condition)
                    chosen = then if known else other or seq()
                    return None if known is None else chosen
                case _:
                    return None

        moved = substitute(loop.body, {loop.loop_var: var + start})
        return replace(part, body=rewrite(moved, visit))
