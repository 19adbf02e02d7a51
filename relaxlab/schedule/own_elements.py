"""Elements that iterations of a loop, or statements in it, share and one of them writes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, product

from relaxlab.analysis.arith import Analyzer
from relaxlab.ir import expr
from relaxlab.ir.expr import IntImm, PrimExpr
from relaxlab.ir.loops import (
    Buffer,
    BufferLoad,
    BufferStore,
    For,
    LetStmt,
    Nondecreasing,
    PrefixSums,
    Stmt,
)
from relaxlab.ir.node import Node, walk
from relaxlab.ir.substitute import substitute, symbols_in
from relaxlab.schedule.ranges import ZERO, bind_stmt, by_data, distance
from relaxlab.schedule.store_nests import variable_of


def buffers_in(root: Node) -> set[Buffer]:
    """The buffers that are loaded or stored into."""
    return {n.buffer for n in walk(root) if isinstance(n, BufferLoad | BufferStore)}


def are_apart(stmts: Sequence[Stmt], loops: Sequence[For]) -> bool:
    """True if no two of the statements share, in different iterations of the loops, an element that
    one of them writes: all accesses to a buffer that is written are in one statement, or each
    iteration has elements of its own."""
    used = [buffers_in(s) for s in stmts]
    return all(
        sum(buffer in found for found in used) == 1
        or all(has_own_elements(stmts, buffer, loop, loops) for loop in loops)
        or _never_meet(stmts, buffer, loops)
        for buffer in written(stmts)
    )


def _never_meet(stmts: Sequence[Stmt], buffer: Buffer, loops: Sequence[For]) -> bool:
    """True if what one of the statements stores is never what another one accesses, as they are a
    constant apart in a dimension: real parts and imaginary ones, or rows of this step and the
    next."""
    inside = [n for s in stmts for n in walk(s) if isinstance(n, For)]
    varying = {loop.loop_var for loop in (*loops, *inside)}
    accesses = [
        [n for n in walk(s) if isinstance(n, BufferLoad | BufferStore) and n.buffer is buffer]
        for s in stmts
    ]

    def are_apart(a: PrimExpr, b: PrimExpr) -> bool:
        rest = distance(a, b)
        fixed = varying.isdisjoint(symbols_in((a, b))) and not by_data(a)
        return fixed and isinstance(rest, IntImm) and rest.value != 0

    return all(
        any(are_apart(a, b) for a, b in zip(x.indices, y.indices, strict=True))
        for first, second in combinations(accesses, 2)
        for x, y in product(first, second)
        if isinstance(x, BufferStore) or isinstance(y, BufferStore)
    )


def written(stmts: Sequence[Stmt]) -> set[Buffer]:
    return {n.buffer for s in stmts for n in walk(s) if isinstance(n, BufferStore)}


def has_own_elements(
    stmts: Sequence[Stmt], buffer: Buffer, loop: For, loops: Sequence[For]
) -> bool:
    """True if iterations of one of the loops over the statements share no element of the buffer:
    its variable, plus what is the same in all of them, is the same index in all accesses, or all
    are in the segment that an index function has for the iteration."""
    inside = [n for s in stmts for n in walk(s)]
    varying = {x.loop_var for x in loops} | {n.loop_var for n in inside if isinstance(n, For)}
    varying |= {n.var for n in inside if isinstance(n, LetStmt | expr.Let)}
    accesses = (n for n in inside if isinstance(n, BufferLoad | BufferStore))
    places = [n.indices for n in accesses if n.buffer is buffer]
    first, *others = places
    return any(
        variable_of(index, varying) == loop.loop_var and all(i[d] == index for i in others)
        for d, index in enumerate(first)
    ) or any(
        any(_is_in_segment(places, d, load, stmts, loop) for load in walk(index)
            if isinstance(load, BufferLoad) and load.indices == (loop.loop_var,))
        for d, index in enumerate(first)
    )  # fmt: skip


def _is_in_segment(
    places: Sequence[tuple[PrimExpr, ...]], dim: int, start: BufferLoad, stmts: Sequence[Stmt],
    loop: For,
) -> bool:  # fmt: skip
    """True if a dimension of all places is from an element of an index function, that of the loop's
    iteration, to before the next one."""
    if not any(isinstance(f, Nondecreasing | PrefixSums) for f in start.buffer.facts):
        return False
    inside = [n for s in stmts for n in walk(s) if isinstance(n, For)]
    an = Analyzer.for_shapes(*symbols_in((start.buffer.shape, loop.extent)))
    for around in dict.fromkeys((loop, *inside)):
        bind_stmt(an, around)
    first = expr.Cast("int64", start) if start.dtype != "int64" else start
    past = substitute(first, {loop.loop_var: loop.loop_var + 1})
    rests = [an.simplify(i[dim] - first) for i in places]
    room = an.simplify(past - first)
    return all(an.prove(expr.GE(r, ZERO)) and an.prove(expr.LT(r, room)) for r in rests)
