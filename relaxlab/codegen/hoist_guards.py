"""Test a tile's guards once, outside it.

After a split that does not divide, every statement of a tile is guarded by `i*8 + j < n`, and so is
what a partial reduction adds. Where the largest inner index passes, all do: the tile's loop body
becomes `if i*8 + 7 < n: unguarded copy, else: guarded copy`, so full tiles run without branches and
full vectors without masks (TVM's loop partitioning, kept within the loop so that parallel loops
stay one loop).
"""

from __future__ import annotations

from collections.abc import Iterator

from relaxlab.ir import expr
from relaxlab.ir.expr import IntImm, PrimExpr, Var, all_of
from relaxlab.ir.loops import BufferLoad, For, IfThenElse, LetStmt, Stmt
from relaxlab.ir.node import Node, children, map_children, replace, rewrite, walk
from relaxlab.ir.substitute import substitute, symbols_in

TRUE = IntImm(1, "bool")


def hoist_guards(stmt: Stmt) -> Stmt:
    """Apply to every serial or parallel loop of a block-free statement."""

    def visit(n: Node) -> Node:
        n = map_children(n, visit)
        if isinstance(n, For) and n.kind in ("serial", "parallel"):
            return _partition(n)
        return n

    return visit(stmt)  # type: ignore[return-value]


def _partition(loop: For) -> For:
    guards: dict[PrimExpr, PrimExpr] = {}
    fixed = _Fixed(loop.body)
    for condition, inner in _conditions(loop.body, {}):
        for part in _conjuncts(condition):
            whole = _largest(part, loop.loop_var, inner)
            if whole is not None and fixed(whole):
                guards[part] = whole
    if not guards:
        return loop

    def unguarded(condition: PrimExpr) -> PrimExpr:
        return all_of([c for c in _conjuncts(condition) if c not in guards])

    def drop(n: Node) -> Node | None:
        match n:
            case IfThenElse(condition, then, None):
                rest = unguarded(condition)
                return then if rest == TRUE else replace(n, condition=rest)
            case expr.Call(_, "if_then_else", (condition, value, other)):
                rest = unguarded(condition)
                return value if rest == TRUE else replace(n, args=(rest, value, other))
            case _:
                return None

    full = rewrite(loop.body, drop)
    test = all_of(list(dict.fromkeys(guards.values())))
    return replace(loop, body=IfThenElse(test, full, loop.body))


class _Fixed:
    """Whether an expression means the same before the body of a loop as anywhere inside."""

    def __init__(self, body: Stmt) -> None:
        nodes = list(walk(body))
        self.defined = {n.var for n in nodes if isinstance(n, LetStmt | expr.Let)}
        self.defined |= {n.loop_var for n in nodes if isinstance(n, For)}

    def __call__(self, e: PrimExpr) -> bool:
        reads = any(isinstance(n, BufferLoad | expr.Call) for n in walk(e))
        return not reads and not self.defined & set(symbols_in(e))


def _conditions(n: Node, inner: dict[Var, For]) -> Iterator[tuple[PrimExpr, dict[Var, For]]]:
    """Conditions of the `if`s below, each with the loops between."""
    match n:
        case IfThenElse(condition, _, None):
            yield condition, inner
        case expr.Call(_, "if_then_else", (condition, *_)):
            yield condition, inner
        case For():
            inner = {**inner, n.loop_var: n}
        case _:
            pass
    for child in children(n):
        yield from _conditions(child, inner)


def _conjuncts(e: PrimExpr) -> Iterator[PrimExpr]:
    if isinstance(e, expr.And):
        yield from _conjuncts(e.a)
        yield from _conjuncts(e.b)
    else:
        yield e


def _largest(cond: PrimExpr, var: Var, inner: dict[Var, For]) -> PrimExpr | None:
    """`cond` with inner variables at the values that make it hardest to meet; None if it is not
    `rising(var, inner…) < bound` or no inner variable is involved."""
    if not isinstance(cond, expr.LT) or any(v in inner for v in symbols_in(cond.b)):
        return None
    names = symbols_in(cond.a)
    mine = [v for v in names if v in inner]
    if var not in names or not mine:
        return None
    last: dict[Var, PrimExpr] = {}
    for v in mine:
        extent = inner[v].extent
        if not isinstance(extent, IntImm) or not _rises(cond.a, v):
            return None
        last[v] = inner[v].min + (extent - 1)
    return expr.LT(substitute(cond.a, last), cond.b)


def _rises(e: PrimExpr, v: Var) -> bool:
    """Whether `e` never falls as `v` grows, by its form."""
    match e:
        case expr.Var() | IntImm():
            return True
        case expr.Add(a, b):
            return _rises(a, v) and _rises(b, v)
        case expr.Mul(a, IntImm(value)) | expr.FloorDiv(a, IntImm(value)):
            return value >= 0 and _rises(a, v)
        case _:
            return v not in symbols_in(e)
