"""Last tiles of columns in as many vectors as these columns fill.

A tile of sums down columns is several vectors wide, and the last one is computed from masked loads:
of 67 columns the second tile has three, and 61 idle lanes. There are copies of the tile with
fewer lanes, of which the narrowest that has all columns that are left is taken: the lanes of the
next narrower one all have a column, so they need no mask. Of a constant number of columns LLVM
finds the idle lanes itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from relaxlab.analysis.arith import Analyzer
from relaxlab.codegen.tighten_bounds import step_of
from relaxlab.ir import expr
from relaxlab.ir.expr import IntImm, PrimExpr, Var
from relaxlab.ir.loops import BufferLoad, BufferStore, For, IfThenElse, SeqStmt, Stmt, seq
from relaxlab.ir.node import Node, map_children, replace, rewrite, walk
from relaxlab.ir.substitute import substitute, symbols_in
from relaxlab.schedule.tree import conjuncts

LONG = 32
"""Lanes from which on a tile is several vectors on all targets."""
EIGHTHS = (1, 2, 3, 4, 6, 8)
"""The widths of copies of a last tile, in eighths of its lanes. With quarters alone, sums of 17
columns took 1.35 times as long as with a constant, so 1.15. With all eighths 33 and 49 columns took
0.98 and 1.01 times as long instead of 1.13 and 1.21, but kernels took 40 % more time to compile
than with quarters instead of 17 %."""


def narrow_tiles(stmt: Stmt) -> Stmt:
    """Apply to every parallel loop over tiles of a block-free statement, whose whole tiles
    `hoist_guards` has told from the last one. No iteration reads the private memory of another."""

    an = Analyzer()

    def visit(n: Node) -> Node:
        match n:
            case For(kind="parallel", body=IfThenElse(_, _, Stmt() as part) as body):
                return replace(n, body=replace(body, else_case=_narrowed(part, an)))
            case IfThenElse(condition, then, other):  # a version, with what it says of sizes
                with an.assuming(condition):
                    then = visit(then)
                with an.assuming(expr.Not(condition)):
                    other = other and visit(other)
                return replace(n, then_case=then, else_case=other)
            case Stmt():
                return map_children(n, visit)
            case _:
                return n

    return visit(stmt)  # type: ignore[return-value]


def _accesses(root: Node) -> Iterator[BufferLoad | BufferStore]:
    return (n for n in walk(root) if isinstance(n, BufferLoad | BufferStore))


def _narrowed(part: Stmt, an: Analyzer) -> Stmt:
    """Return a last tile; if it has several vectors, copies with fewer lanes and tests that choose
    the narrowest one that has all columns that are left, which are as many as `an` knows."""
    extents = (n.extent for n in walk(part) if isinstance(n, For) and n.kind == "vectorized")
    lanes = max((n.value for n in extents if isinstance(n, IntImm)), default=0)
    left = _columns_left(part) if lanes >= LONG and lanes % EIGHTHS[-1] == 0 else None
    if left is None:
        return part
    step = lanes // EIGHTHS[-1]
    fewest = an.bounds_of(left)[0] or 0
    bounds = [0, *(n * step for n in EIGHTHS[:-1])]
    narrowed = _with_own_memory(_first_lanes(part, left, bounds[-1], None))
    for sure, few in reversed([*pairwise(bounds)]):
        if few < fewest:
            break
        copy = _with_own_memory(_first_lanes(part, left, sure, few))
        narrowed = IfThenElse(expr.LE(left, expr.const(few)), copy, narrowed)
    return narrowed


def _with_own_memory(copy: Stmt) -> Stmt:
    """Return a copy with other private buffers. LLVM makes registers of what all accesses to a
    buffer have in common: shared with copies of wider vectors, a narrow one would be inserted into
    a wide one at each step."""
    private = dict.fromkeys(n.buffer for n in _accesses(copy) if n.buffer.scope == "local")
    return substitute(copy, buffers={buffer: replace(buffer) for buffer in private})


def _columns_left(part: Stmt) -> PrimExpr | None:
    """Return the number of columns that are left for a tile, such that no result depends on its
    lanes from there on; None if that is not known, or the number of columns is constant.

    Each statement accesses private memory at one last index, its lane, so lanes are kept apart; and
    each that writes to other memory does so where `column + lane < columns`, for its lane or for
    the last one of its vector, with one column and one number of columns for all.
    """
    found: set[PrimExpr | None] = set()
    vectors = [n for n in walk(part) if isinstance(n, For) and n.kind == "vectorized"]
    last = {n.loop_var: n.min + n.extent - 1 for n in vectors}
    for stmt, conditions in _leaves(part, ()):
        lane = _lane(stmt)
        if lane is None:
            return None
        if isinstance(stmt, BufferStore) and stmt.buffer.scope != "local":
            found.add(_left(lane, conditions) or _left(substitute(lane, last), conditions))
    within = {n.loop_var for n in walk(part) if isinstance(n, For)}
    match [*found]:
        case [PrimExpr() as left] if not within & set(symbols_in(left)):
            return left
        case _:
            return None


def _leaves(
    stmt: Stmt, conditions: tuple[PrimExpr, ...]
) -> Iterator[tuple[Stmt, tuple[PrimExpr, ...]]]:
    """The statements in loops, branches and sequences, each with the conditions around it."""
    match stmt:
        case For(body=body):
            yield from _leaves(body, conditions)
        case SeqStmt(stmts):
            for s in stmts:
                yield from _leaves(s, conditions)
        case IfThenElse(condition, then, other):
            yield from _leaves(then, (*conditions, *conjuncts(condition)))
            if other is not None:
                yield from _leaves(other, conditions)
        case _:
            yield stmt, conditions


def _lane(stmt: Stmt) -> PrimExpr | None:
    """Return the last index at which a store accesses private memory; None if there are several, or
    the statement is no store."""
    if not isinstance(stmt, BufferStore):
        return None
    indices = {n.indices[-1] for n in _accesses(stmt) if n.buffer.scope == "local"}
    return indices.pop() if len(indices) == 1 else None


def _left(lane: PrimExpr, conditions: Sequence[PrimExpr]) -> PrimExpr | None:
    """Return the number of lanes that meet `column + lane < columns`, for the first of the
    conditions that has this form."""
    for condition in conditions:
        if not isinstance(condition, expr.LT) or condition.a.dtype != lane.dtype:
            continue
        if not isinstance(condition.b, IntImm):
            left = Analyzer().simplify(condition.b - condition.a + lane)
            if not set(symbols_in(lane)) & set(symbols_in(left)):
                return left
    return None


def _first_lanes(stmt: Stmt, left: PrimExpr, sure: int, few: int | None) -> Stmt:
    """Return a copy of a tile for its first `few` lanes (None for all), where more than `sure`
    columns and at most `few` are left."""
    match stmt:
        case For(var, IntImm(0), IntImm(extent), kind, body) if extent > 1:
            lanes = [_lane(s) for s, _ in _leaves(body, ())]
            if kind == "vectorized" and extent > sure and set(lanes) == {var}:
                end = extent if few is None else min(extent, few)
                unmasked = _in_columns(body, var, left)
                if not sure or unmasked is body:
                    return replace(stmt, extent=expr.const(end))
                first = replace(stmt, extent=expr.const(sure), body=unmasked)
                rest = replace(stmt, min=expr.const(sure), extent=expr.const(end - sure))
                return seq(first, rest)
            steps = [_step(n, var) for n in lanes]
            if few is not None and kind in ("serial", "unrolled") and min(steps) >= few:
                return _first_lanes(substitute(body, {var: expr.const(0)}), left, sure, few)
        case IfThenElse(expr.LT(a, b), _, Stmt() as other) if few is not None:
            # The test whether all lanes of several vectors are columns: it fails for so few.
            beyond = Analyzer().simplify(left - (b - a))
            if isinstance(beyond, IntImm) and beyond.value >= few:
                return _first_lanes(other, left, sure, few)
        case _:
            pass
    return map_children(
        stmt, lambda c: _first_lanes(c, left, sure, few) if isinstance(c, Stmt) else c
    )  # type: ignore[return-value]


def _in_columns(body: Stmt, lane: Var, left: PrimExpr) -> Stmt:
    """Return the body of a vector without the conditions that its lanes are columns."""

    def holds(condition: PrimExpr) -> bool:
        return _left(lane, [condition]) == left

    def visit(n: Node) -> Node | None:
        match n:
            case IfThenElse(condition, then, None) if holds(condition):
                return then
            case expr.Call(_, "if_then_else", (condition, value, _)) if holds(condition):
                return value
            case _:
                return None

    return rewrite(body, visit)


def _step(lane: PrimExpr | None, var: Var) -> int:
    """Return by how many lanes a step of the loop goes on; 0 if that is not known."""
    return 0 if lane is None else step_of(lane, var) or 0
