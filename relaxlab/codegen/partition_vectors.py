"""Loop partitioning of vectors: test outside a vector on which side of a condition it is.

A concatenation reads one operand or the other, padding reads the operand or nothing. Lane by lane
that is two masked accesses and a choice, although few vectors have lanes on both sides. A loop
`for v in vectorized(32): B[v] = if_then_else(v < n, X, Y)` becomes three: without the condition
where all lanes meet it, without where none does, and as it was (TVM's loop partitioning, within the
loops around). So does a tiled array, `A[v % n]`: most vectors are within one copy of it, and divide
once.

The vectors that remain masked are slow where the processor has no masked moves of such elements:
LLVM then tests and moves lane by lane. These few become serial loops.
"""

from __future__ import annotations

from collections.abc import Iterator

from relaxlab.analysis.arith import Analyzer, wraps
from relaxlab.ir import expr
from relaxlab.ir.dtypes import bytes_of
from relaxlab.ir.expr import IntImm, PrimExpr, Var
from relaxlab.ir.loops import BufferLoad, BufferStore, For, IfThenElse, LetStmt, SeqStmt, Stmt
from relaxlab.ir.node import Node, map_children, replace, rewrite, walk
from relaxlab.ir.substitute import symbols_in
from relaxlab.ir.target import Target

TRUE, FALSE = expr.const(True), expr.const(False)
MOST = 4
"""Conditions and divisions that a loop is partitioned by; each doubles its copies at worst."""
FEW = 8
"""Lanes up to which they are unrolled where they cannot be masked."""


def partition_vectors(stmt: Stmt, target: Target) -> Stmt:
    """Apply to every vectorized loop of a block-free statement that stores into arrays. Private
    memory is left alone: at constant indices, without branches, it is registers."""

    def visit(n: Node, failed: frozenset[PrimExpr]) -> Node:
        match n:
            case IfThenElse(condition, then, Stmt() as other):
                return replace(
                    n, then_case=visit(then, failed), else_case=visit(other, failed | {condition})
                )
            case For(kind="vectorized", extent=IntImm()) if not _is_private(n):
                return _partitioned(n, failed, target, MOST)
            case _:
                return map_children(n, lambda c: visit(c, failed))

    return visit(stmt, frozenset())  # type: ignore[return-value]


def _is_private(loop: For) -> bool:
    return any(isinstance(n, BufferStore) and n.buffer.scope == "local" for n in walk(loop))


def _partitioned(loop: For, failed: frozenset[PrimExpr], target: Target, most: int) -> Stmt:
    """`failed`: tests around the loop that are false."""
    masked = _without_masks(loop, target)
    for condition in _conditions(loop) if most else ():
        result: Stmt = masked
        for holds in (False, True):
            test = _side(condition, loop, holds)
            copy = _assuming(loop, condition, holds)
            does_nothing = not any(isinstance(n, BufferStore) for n in walk(copy))
            if test is not None and test != FALSE and test not in failed and not does_nothing:
                copy = _partitioned(copy, failed, target, most - 1)
                result = copy if test == TRUE else IfThenElse(test, copy, result)
        if result is not masked:
            return result
    for index, size in _divisions(loop) if most else ():
        within = _within_a_period(loop, index, size)
        if within is not None:
            test, copy = within
            return IfThenElse(test, _partitioned(copy, failed, target, most - 1), masked)
    return masked


def _divisions(loop: For) -> Iterator[tuple[PrimExpr, PrimExpr]]:
    """Divided indices in a loop with their divisors, where most vectors have one quotient."""
    assert isinstance(loop.extent, IntImm)
    inside = _defined_in(loop)
    for n in walk(loop.body):
        if not isinstance(n, expr.FloorMod | expr.FloorDiv) or n.dtype != "int64":
            continue
        is_short = isinstance(n.b, IntImm) and n.b.value < 2 * loop.extent.value
        if loop.loop_var not in symbols_in(n.b) and not is_short and _is_fixed(n, loop, inside):
            yield n.a, n.b


def _within_a_period(loop: For, index: PrimExpr, size: PrimExpr) -> tuple[PrimExpr, For] | None:
    """Return the test that `index // size` is the same for all lanes, and the loop without that
    quotient and its remainder; None if that is not known."""
    bounds, an = _bounds(index, loop), Analyzer()
    span = None if bounds is None else an.simplify(bounds[1] - bounds[0])
    if bounds is None or not isinstance(span, IntImm):
        return None
    first = bounds[0]
    lane = an.simplify(index - first)

    def undivided(n: Node) -> Node | None:
        match n:
            case expr.FloorMod(a, b) if (a, b) == (index, size):
                return first % size + lane
            case expr.FloorDiv(a, b) if (a, b) == (index, size):
                return first // size
            case _:
                return None

    # The test also runs where a condition keeps the division from a size of zero.
    divisor = size if isinstance(size, IntImm) else expr.Max(size, expr.const(1))
    return expr.LT(first % divisor + span, size), rewrite(loop, undivided)


def _conditions(loop: For) -> list[PrimExpr]:
    """The conditions in a loop that its lanes meet or not."""
    conditions = [
        n.args[0] if isinstance(n, expr.Call) else n.condition
        for n in walk(loop.body)
        if isinstance(n, IfThenElse | expr.Select)
        or (isinstance(n, expr.Call) and n.op == "if_then_else")
    ]
    inside = _defined_in(loop)
    return [c for c in conditions if _is_fixed(c, loop, inside)]


def _defined_in(loop: For) -> set[Var]:
    """The variables that a loop's body defines."""
    nodes = list(walk(loop.body))
    named = {n.var for n in nodes if isinstance(n, LetStmt | expr.Let)}
    return named | {n.loop_var for n in nodes if isinstance(n, For)}


def _is_fixed(e: PrimExpr, loop: For, inside: set[Var]) -> bool:
    """True if an expression of a loop's variable means the same before the loop, whose body defines
    the variables `inside`."""
    used = set(symbols_in(e))
    reads = any(isinstance(n, BufferLoad | expr.Call) for n in walk(e))
    return loop.loop_var in used and not used & inside and not reads


def _side(condition: PrimExpr, loop: For, holds: bool) -> PrimExpr | None:
    """Return a test that implies that all lanes meet the condition, or if not `holds` that none
    does; None if there is none."""
    if loop.loop_var not in symbols_in(condition):
        return condition if holds else expr.Not(condition)
    match condition:
        case expr.And(a, b) | expr.Or(a, b):
            x, y = _side(a, loop, holds), _side(b, loop, holds)
            if isinstance(condition, expr.And) == holds:
                if x is None or y is None or FALSE in (x, y):
                    return None
                return expr.all_of([part for part in (x, y) if part != TRUE])
            parts = [part for part in (x, y) if part is not None and part != FALSE]
            return expr.Or(*parts) if len(parts) == 2 else parts[0] if parts else None
        case expr.Not(a):
            return _side(a, loop, not holds)
        case expr.GT(a, b) | expr.GE(a, b):
            mirrored = expr.LT if isinstance(condition, expr.GT) else expr.LE
            return _side(mirrored(b, a), loop, holds)
        case expr.LT(a, b) | expr.LE(a, b):
            low, high = _bounds(a, loop), _bounds(b, loop)
            if low is None or high is None:
                return None
            if holds:
                test = type(condition)(low[1], high[0])
            else:
                test = (expr.LE if isinstance(condition, expr.LT) else expr.LT)(high[1], low[0])
            known = Analyzer().prove(test)
            return test if known is None else expr.const(known)
        case _:
            return None


def _bounds(e: PrimExpr, loop: For) -> tuple[PrimExpr, PrimExpr] | None:
    """Return the least and the largest value of an index in the loop, or what is beyond them; None
    if they are not known."""
    v = loop.loop_var
    if v not in symbols_in(e):
        return e, e
    # Hashes of the variable are not bounded by their values at its ends.
    if wraps(e):
        return None
    assert isinstance(loop.extent, IntImm)
    match e:
        case Var():
            return loop.min, loop.min + (loop.extent.value - 1)
        case expr.Add(a, b) | expr.Sub(a, b):
            x, y = _bounds(a, loop), _bounds(b, loop)
            if x is None or y is None:
                return None
            if isinstance(e, expr.Add):
                return x[0] + y[0], x[1] + y[1]
            return x[0] - y[1], x[1] - y[0]
        case expr.Mul(a, IntImm(factor)) if (x := _bounds(a, loop)) is not None:
            low, high = x if factor >= 0 else x[::-1]
            return low * factor, high * factor
        case expr.FloorDiv(a, IntImm(by)) if by > 0 and (x := _bounds(a, loop)) is not None:
            return x[0] // by, x[1] // by
        case _:
            return None


def _assuming(loop: For, condition: PrimExpr, holds: bool) -> For:
    """The loop where all lanes meet the condition, or none does."""

    def decide(n: Node) -> Node | None:
        match n:
            case IfThenElse(found, then, other) if found == condition:
                return then if holds else other or SeqStmt(())
            case expr.Call(_, "if_then_else", (found, x, y)) if found == condition:
                return x if holds else y
            case expr.Select(found, x, y) if found == condition:
                return x if holds else y
            case _:
                return None

    return rewrite(loop, decide)


def _without_masks(loop: For, target: Target) -> For:
    """The loop; a serial or unrolled one if its lanes would be masked and the target has no such
    moves."""
    accesses = (n.buffer for n in walk(loop) if isinstance(n, BufferLoad | BufferStore))
    narrow = any(8 * bytes_of(buffer.dtype) < target.facts.masked_bits for buffer in accesses)
    if not narrow or not _conditions(loop):
        return loop
    # The conditions of few lanes are constants: the interleaving of two arrays has no branches.
    is_short = isinstance(loop.extent, IntImm) and loop.extent.value <= FEW
    return replace(loop, kind="unrolled" if is_short else "serial")
