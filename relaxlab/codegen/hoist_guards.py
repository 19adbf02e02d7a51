"""Loop partitioning: test a tile's guards once, outside it.

After a split that does not divide, every statement of a tile is guarded by `i*8 + j < n`, and so
are the terms of a partial reduction. Where the largest inner index passes, all do: the tile's loop
body becomes `if i*8 + 7 < n: unguarded copy, else: guarded copy`, so full tiles run without
branches and full vectors without masks (TVM's loop partitioning, kept within the loop so that
parallel loops stay one loop). Long loops without guards beside guarded statements are not copied.
Of a long serial loop only the last step can fail: it follows the loop, whose steps are not tested.
Below a diagonal (`k < i*8 + j + 1`) the steps that fail are a loop of their own. A bound may be an
element of an index function, which nothing writes: `i*8 + j < lengths[s]`.
An unrolled loop whose iterations are still guarded becomes one that ends where the guard fails: the
last part of a sum then takes time for its own terms only, and is short machine code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from relaxlab.analysis.arith import Analyzer, wraps
from relaxlab.codegen.positive import is_nondecreasing
from relaxlab.codegen.tighten_bounds import (
    as_less,
    end_of,
    reads_are_fixed,
    soonest,
    step_of,
)
from relaxlab.ir import expr
from relaxlab.ir.expr import IntImm, PrimExpr, Var, all_of
from relaxlab.ir.loops import BufferLoad, BufferStore, For, IfThenElse, LetStmt, SeqStmt, Stmt
from relaxlab.ir.node import Node, children, map_children, replace, rewrite, walk
from relaxlab.ir.substitute import substitute, symbols_in
from relaxlab.schedule.tree import conjuncts

TRUE = IntImm(1, "bool")
FEW = 16
"""Iterations up to which a loop is copied for whole tiles and for others rather than that each of
the statements beside it is tested."""
LONG = 32
"""Elements from which on a step is several vectors on all targets. Maxima of 16 K rows of 67 took
140 us where their last step was four vectors of 8, and 106 where it was one."""


def hoist_guards(stmt: Stmt) -> Stmt:
    """Apply to every serial or parallel loop of a block-free statement, innermost loops first: what
    is tested there needs no copy farther out."""
    tested: set[PrimExpr] = set()

    def visit(n: Node) -> Node:
        n = map_children(n, visit)
        if isinstance(n, For) and n.kind in ("serial", "parallel"):
            n = _partition(n, tested)
        return _tested_before(n) if isinstance(n, For) and n.kind != "parallel" else n

    return _ending_early(visit(stmt))  # type: ignore[arg-type]


def _tested_before(loop: For) -> Stmt:
    """`for: if c: …` as `if c: for: …`, where `c` is the same for all iterations."""
    match loop.body:
        case IfThenElse(condition, then, None):
            fixed = _Fixed(loop)
            outside = [c for c in conjuncts(condition) if fixed(c)]
            rest = all_of([c for c in conjuncts(condition) if c not in outside])
        case _:
            return loop
    if not outside:
        return loop
    body = then if rest == TRUE else replace(loop.body, condition=rest)
    return IfThenElse(all_of(outside), replace(loop, body=body), None)


def _partition(loop: For, tested: set[PrimExpr]) -> Stmt:
    guards: dict[PrimExpr, PrimExpr] = {}
    firsts: dict[PrimExpr, PrimExpr] = {}
    fixed = _Fixed(loop.body)
    for condition, inner in _conditions(loop.body, {}):
        for part in conjuncts(condition):
            whole = _largest(part, loop.loop_var, inner)
            # A guard that an inner loop tests is not tested again farther out: each test doubles
            # the code around it (NOTES, *Symbolic columns and depth of a product*).
            if whole is not None and part not in tested and fixed(whole):
                guards[part] = whole
                firsts[part] = soonest(part, inner)
    if not guards:
        return loop
    tested.update(guards)
    implied = _implied(loop, list(guards.values()))

    def unguarded(condition: PrimExpr) -> PrimExpr | None:
        parts = conjuncts(condition)
        rest = [c for c in parts if c not in guards]
        return all_of(rest) if len(rest) < len(parts) else None

    def drop(n: Node) -> Node | None:
        match n:
            case IfThenElse(condition, then, None) if (rest := unguarded(condition)) is not None:
                return then if rest == TRUE else replace(n, condition=rest)
            # A test of an inner tile, already partitioned: where the whole outer tile passes, so do
            # its parts.
            case IfThenElse(condition, then, Stmt()):
                return then if implied.issuperset(conjuncts(condition)) else None
            case expr.Call(_, "if_then_else", (condition, value, other)) if (
                rest := unguarded(condition)
            ) is not None:
                return value if rest == TRUE else replace(n, args=(rest, value, other))
            case _:
                return None

    def with_test(s: Stmt) -> Stmt:
        # `is`: a statement without any of the guards needs no second copy.
        full = rewrite(s, drop)
        return s if full is s else IfThenElse(test, full, _in_last_tile(s, test, loop))

    test = all_of(list(dict.fromkeys(guards.values())))
    around = _around_guarded(loop.body, with_test)
    body = around or with_test(loop.body)
    if around is None and isinstance(body, IfThenElse) and isinstance(test, expr.LT):
        return _peeled(loop, body, firsts[next(iter(guards))]) or replace(loop, body=body)
    return replace(loop, body=body)


def _in_last_tile(part: Stmt, test: PrimExpr, loop: For) -> Stmt:
    """Return what is done where the test of a whole tile fails; if only the last of a constant
    number of tiles fails it, with that number in place of the tile's, which is the loop's variable
    or a remainder. LLVM finds out by itself in short loops alone; in others it tested in front of
    each load whether the tile is the last."""
    match test:
        case expr.LT(a, IntImm(bound)):
            pass
        case _:
            return part
    lasts: dict[PrimExpr, int] = {
        n: n.b.value - 1
        for n in walk(a)
        if isinstance(n, expr.FloorMod) and isinstance(n.b, IntImm) and n.b.value > 0
        and n.dtype == "int64"
    }
    if isinstance(loop.min, IntImm) and isinstance(loop.extent, IntImm):
        lasts[loop.loop_var] = loop.min.value + loop.extent.value - 1
    number = Var("tile")
    for tile, last in lasts.items():

        def named(n: Node, tile: PrimExpr = tile) -> Node | None:
            return number if n == tile else None

        place = rewrite(a, named)
        before = Analyzer().simplify(substitute(place, {number: expr.const(last - 1)}))
        rising = (step_of(place, number) or 0) > 0
        if rising and isinstance(before, IntImm) and before.value < bound:
            return substitute(rewrite(part, named), {number: expr.const(last)})
    return part


def _peeled(loop: For, tiles: IfThenElse, first: PrimExpr) -> Stmt | None:
    """`for i: if step*i + last < n: whole, else: part` as a loop over the whole tiles, and the part
    of a tile if one is left: there is no test per iteration, and what the last one needs alone,
    such as masks, is computed once where it is the same for each of the rows around the loop.
    `first`: the condition for the first element of a tile. None unless one tile at most is left of
    a loop that may be long."""
    test, var, extent = tiles.condition, loop.loop_var, loop.extent
    if loop.kind != "serial" or loop.min != expr.const(0) or isinstance(extent, IntImm):
        return None
    if not _Fixed(loop.body)(extent):  # it is read again after the loop
        return None
    assert isinstance(test, expr.LT) and isinstance(first, expr.LT)
    step = step_of(test.a, var)
    size = Analyzer().simplify(test.a - first.a)
    if test.b != first.b:  # inner loops raise the bound: below a diagonal, more than a tile is left
        return _in_two(loop, tiles, step) if step else None
    if not step or not isinstance(size, IntImm) or size.value > step:
        return None
    # The first iteration that is not whole, and the first that is empty: one later at most.
    count, end = (_iterations_below(condition, var, step) for condition in (test, first))
    if not Analyzer.for_shapes(extent, end).prove(expr.LE(extent, end)):
        return None
    count = expr.Max(expr.Min(count, extent), expr.const(0))
    last = Var(f"{var.name}_last", var.dtype)
    assert tiles.else_case is not None
    part = _shortened(substitute(tiles.else_case, {var: last}))
    left = IfThenElse(expr.LT(count, extent), LetStmt(last, count, part), None)
    return SeqStmt((replace(loop, extent=count, body=tiles.then_case), left))


def _in_two(loop: For, tiles: IfThenElse, step: int) -> Stmt:
    """`for i: if step*i + last < n: whole, else: part` as a loop over the iterations that are
    whole, and one over the others."""
    assert isinstance(tiles.condition, expr.LT) and tiles.else_case is not None
    count = _iterations_below(tiles.condition, loop.loop_var, step)
    count = expr.Max(expr.Min(count, loop.extent), expr.const(0))
    rest = Var(f"{loop.loop_var.name}_rest", loop.loop_var.dtype)
    part = substitute(tiles.else_case, {loop.loop_var: rest})
    others = replace(loop, loop_var=rest, min=count, extent=loop.extent - count, body=part)
    return SeqStmt((replace(loop, extent=count, body=tiles.then_case), others))


def _shortened(stmt: Stmt) -> Stmt:
    """Return the statement; of several vectors whose first elements alone do anything, only the
    first half or quarter, if that is enough."""
    match stmt:
        case For(var, _, IntImm(lanes), "vectorized", body) if lanes >= LONG:
            end = end_of(body, var, {})
        case _:
            return stmt
    if end is None:
        return stmt
    shorter: Stmt = stmt
    for size in (lanes // 2, lanes // 4):
        few = replace(stmt, extent=expr.const(size))
        shorter = IfThenElse(expr.LE(end, expr.const(size)), few, shorter)
    return shorter


def _iterations_below(condition: expr.LT, var: Var, step: int) -> PrimExpr:
    """Return from which value of `var`, which may be negative, the condition fails; `step`: how
    much its left side rises each time."""
    rest = condition.b - substitute(condition.a, {var: expr.const(0)})
    return Analyzer().simplify((rest + (step - 1)) // step)


def _around_guarded(stmt: Stmt, with_test: Callable[[Stmt], Stmt]) -> Stmt | None:
    """Return the statement with the guarded parts of its sequences tested by `with_test`, so that
    long loops beside them, such as a tile's sum over the depth, need no second copy; None if there
    are no such loops."""
    match stmt:
        case SeqStmt(stmts):
            parts = [_around_guarded(s, with_test) for s in stmts]
            whole = [with_test(s) for s in stmts]
            alone = any(w is s and _is_long(s) for w, s in zip(whole, stmts, strict=True))
            if not alone and parts == [None] * len(parts):
                return None
            return SeqStmt(tuple(p or w for p, w in zip(parts, whole, strict=True)))
        case For(_, _, _, "serial") | LetStmt():
            body = _around_guarded(stmt.body, with_test)
            return None if body is None else replace(stmt, body=body)
        case _:
            return None


def _is_long(stmt: Stmt) -> bool:
    """True if the statement has a serial loop that may take more than a few iterations."""
    return any(
        isinstance(n, For)
        and n.kind == "serial"
        and not (isinstance(n.extent, IntImm) and n.extent.value <= FEW)
        for n in walk(stmt)
    )


def _implied(loop: For, wholes: Sequence[PrimExpr]) -> set[PrimExpr]:
    """The tests of smaller tiles inside the loop that hold if its own do: those of parts of its
    tile."""
    found: set[PrimExpr] = set()
    for condition, inner in _conditions(loop.body, {}, tests=True):
        for part in conjuncts(condition):
            whole = _largest(part, loop.loop_var, inner)
            if any(_is_same(whole, other) for other in wholes):
                found.add(part)
    return found


def _is_same(a: PrimExpr | None, b: PrimExpr) -> bool:
    match a, b:
        case expr.LT(x, bound), expr.LT(y, other):
            return bound == other and Analyzer().prove_equal(x, y) is True
        case _:
            return False


def _ending_early(stmt: Stmt) -> Stmt:
    """End unrolled loops all of whose iterations are guarded where the guard fails. Loops over
    private memory stay unrolled: at constant indices it is registers, and rows of a tile share
    loads."""

    def visit(n: Node) -> Node | None:
        if not isinstance(n, For) or n.kind != "unrolled" or _is_place(n.loop_var, n.body):
            return None
        for condition, _ in _conditions(n.body, {}):
            for guard in conjuncts(condition):
                extent = _steps(n, guard)
                if extent is not None and _guards_all(guard, n.body):
                    return replace(n, kind="serial", extent=extent)
        return None

    return rewrite(stmt, visit)


def _steps(loop: For, guard: PrimExpr) -> PrimExpr | None:
    """After how many iterations the guard fails for good; None where that is not known before."""
    if not isinstance(guard, expr.LT) or loop.loop_var not in symbols_in(guard.a):
        return None
    if guard.a.dtype != loop.loop_var.dtype:  # elements are compared, not places
        return None
    first = substitute(guard.a, {loop.loop_var: loop.min})
    extent = expr.Max(expr.Min(loop.extent, guard.b - first), expr.const(0))
    rises = Analyzer().prove_equal(guard.a, first + (loop.loop_var - loop.min))
    return extent if rises and _Fixed(loop.body)(extent) else None


def _is_place(var: Var, body: Stmt) -> bool:
    """True if the variable is in an index of private memory."""
    accesses = (n for n in walk(body) if isinstance(n, BufferLoad | BufferStore))
    return any(n.buffer.scope == "local" and var in symbols_in(n.indices) for n in accesses)


def _guards_all(guard: PrimExpr, n: Node) -> bool:
    """True if the statement does nothing where the guard fails."""
    match n:
        case IfThenElse(condition, then, None):
            return guard in conjuncts(condition) or _guards_all(guard, then)
        case For() | SeqStmt():
            return all(_guards_all(guard, c) for c in children(n) if isinstance(c, Stmt))
        case _:
            return False


class _Fixed:
    """True if an expression means the same before the body of a loop as anywhere inside."""

    def __init__(self, body: Stmt) -> None:
        self.body = body
        nodes = list(walk(body))
        self.defined = {n.var for n in nodes if isinstance(n, LetStmt | expr.Let)}
        self.defined |= {n.loop_var for n in nodes if isinstance(n, For)}

    def __call__(self, e: PrimExpr) -> bool:
        return not self.defined & set(symbols_in(e)) and reads_are_fixed(e, self.body)


def _conditions(
    n: Node, inner: dict[Var, For], *, tests: bool = False
) -> Iterator[tuple[PrimExpr, dict[Var, For]]]:
    """Conditions of the `if`s below, each with the loops between; `tests`: of those with an
    `else`, which are tests of whole tiles."""
    match n:
        case IfThenElse(condition, _, other) if (other is not None) == tests:
            yield condition, inner
        case expr.Call(_, "if_then_else", (condition, *_)) if not tests:
            yield condition, inner
        case For():
            inner = {**inner, n.loop_var: n}
        case _:
            pass
    for child in children(n):
        yield from _conditions(child, inner, tests=tests)


def _largest(cond: PrimExpr, var: Var, inner: dict[Var, For]) -> PrimExpr | None:
    """`cond` with inner variables at the values that make it hardest to meet; None if it is not
    `rising(var, inner…) < rising(inner…)` or no inner variable is involved."""
    cond = as_less(cond)
    if not isinstance(cond, expr.LT):
        return None
    names, bounding = symbols_in(cond.a), [v for v in symbols_in(cond.b) if v in inner]
    mine = [v for v in names if v in inner]
    if var not in names or not (mine or bounding) or wraps(cond.a) or set(mine) & set(bounding):
        return None
    last: dict[Var, PrimExpr] = {}
    for v in (*mine, *bounding):
        extent = inner[v].extent
        rising = cond.b if v in bounding else cond.a
        # Only then is the last value of the inner loop the one that fails first, or the first one
        # where it raises the bound.
        if not isinstance(extent, IntImm) or not is_nondecreasing(rising, v):
            return None
        last[v] = inner[v].min + (extent - 1)
    first = {v: inner[v].min for v in bounding}
    return expr.LT(substitute(cond.a, last), substitute(cond.b, first))
