"""Shares of threads with equal work, of loops whose iterations differ in it.

An iteration begins at the sum of the work of all before it, and belongs to the thread in whose part
of the total that is. Each thread adds the work up by itself, from the extents of the loops inside:
no table is needed, and as each iteration is one thread's, results do not depend on their number.
"""

from __future__ import annotations

from relaxlab.analysis.arith import Analyzer, simplify
from relaxlab.codegen.llvm.work import work_inside
from relaxlab.ir import expr
from relaxlab.ir.expr import PrimExpr, Var, const
from relaxlab.ir.loops import (
    Buffer,
    BufferLoad,
    BufferStore,
    For,
    IfThenElse,
    LetStmt,
    Range,
    Stmt,
    seq,
)
from relaxlab.ir.node import Node, rewrite, walk
from relaxlab.ir.substitute import substitute, symbols_in
from relaxlab.schedule.annotate import BALANCED
from relaxlab.schedule.ranges import has_iterations

ZERO, ONE = const(0), const(1)


def is_balanced(loop: For) -> bool:
    """True if the threads share out the work of a parallel loop rather than its iterations."""
    return BALANCED in loop.annotations


def work_of_loop(loop: For, total: Buffer) -> Stmt:
    """A statement that sets the only element of `total` to the work of the loop."""
    inner = _shared_inside(loop)
    count, work = inner.extent if inner else ONE, _work(loop, inner)
    return seq(_set(total, ZERO), _loop(loop, _set(total, _sum(total) + _times(count, work))))


def part_of_loop(loop: For, before: Buffer, low: PrimExpr, high: PrimExpr) -> Stmt:
    """The iterations of the loop, or of the one inside that is shared out, too, that begin from
    `low` to before `high`. The only element of `before` is the work of those before them."""
    inner, work = _shared_inside(loop), Var("work")
    if inner is None:
        mine = expr.And(expr.LE(low, _sum(before)), expr.LT(_sum(before), high))
        part = seq(IfThenElse(mine, loop.body), _set(before, _sum(before) + work))
        return seq(_set(before, ZERO), _loop(loop, LetStmt(work, _work(loop, None), part)))
    count, first, past = inner.extent, Var("first"), Var("past")

    def reached(place: PrimExpr) -> PrimExpr:
        """The number of iterations inside that begin before a place."""
        most = expr.Max(count, ZERO)
        return expr.Min(expr.Max((place - _sum(before) + (work - 1)) // work, ZERO), most)

    part: Stmt = For(
        inner.loop_var, inner.min + first, past - first, "serial", inner.body, span=loop.span
    )
    part = seq(part, _set(before, _sum(before) + _times(count, work)))
    part = LetStmt(first, reached(low), LetStmt(past, reached(high), part))
    return seq(_set(before, ZERO), _loop(loop, LetStmt(work, _work(loop, inner), part)))


def _shared_inside(loop: For) -> For | None:
    """The loop directly inside whose iterations are shared out as well."""
    inner = loop.body
    return inner if loop.annotations[BALANCED] > 1 and isinstance(inner, For) else None


def _loop(loop: For, body: Stmt) -> For:
    return For(loop.loop_var, loop.min, loop.extent, "serial", body, span=loop.span)


def _set(buffer: Buffer, value: PrimExpr) -> Stmt:
    return BufferStore(buffer, value, (ZERO,))


def _sum(buffer: Buffer) -> PrimExpr:
    return BufferLoad(buffer, (ZERO,))


def _times(count: PrimExpr, work: PrimExpr) -> PrimExpr:
    return expr.Max(count, ZERO) * work


def _work(loop: For, inner: For | None) -> PrimExpr:
    """The work of an iteration of the loop, or of the one inside, one at least. It is the same for
    all of the latter, and 1 where it depends on what the loop computes."""
    body = inner.body if inner else loop.body
    work = work_inside(body, early=True)
    if work is None:
        return ONE
    if inner is not None:
        work = substitute(work, {inner.loop_var: inner.min + inner.extent // 2})
    work = simplify(work)
    stored = {n.buffer for n in walk(loop.body) if isinstance(n, BufferStore)}
    bound = {n.var for n in walk(body) if isinstance(n, LetStmt)}
    bound |= {n.loop_var for n in walk(body) if isinstance(n, For)}
    if bound & set(symbols_in(work)) or stored & {
        n.buffer for n in walk(work) if isinstance(n, BufferLoad)
    }:
        return ONE
    an = Analyzer.for_shapes(*(n.buffer.shape for n in walk(work) if isinstance(n, BufferLoad)))
    an.bind_range(loop.loop_var, Range(loop.min, loop.extent))
    an.assume(has_iterations(loop.extent))

    def inside_buffer(n: Node) -> Node | None:
        """An element at any place: half-way through the loops there may be none."""
        if not isinstance(n, BufferLoad):
            return None
        pairs = list(zip(n.indices, n.buffer.shape, strict=True))
        needed = (c for i, dim in pairs for c in (expr.GE(i, ZERO), expr.LT(i, dim)))
        inside: list[PrimExpr] = [c for c in needed if an.prove(c) is not True]
        if not inside:
            return n
        return expr.Call(n.dtype, "if_then_else", (expr.all_of(inside), n, const(0, n.dtype)))

    return expr.Max(rewrite(work, inside_buffer), ONE)
