"""Steps about loops whose iterations are threads: one per axis of a kernel, or of a loop."""

from __future__ import annotations

from typing import cast

from relaxlab.analysis.arith import Analyzer
from relaxlab.ir import expr
from relaxlab.ir.expr import Var
from relaxlab.ir.loops import BufferLoad, For, LetStmt, PrimFunc, SeqStmt, Stmt, nested
from relaxlab.ir.node import NO_ATTRS, Attrs, Node, map_children, replace, rewrite, walk
from relaxlab.ir.substitute import substitute
from relaxlab.schedule.ranges import ZERO


def threads_unified(func: PrimFunc) -> PrimFunc:
    """The function with one loop per thread axis in each kernel: all are outside, in the order in
    which the kernel has them first, and its other loops of the same axis take their variables.
    Annotations of a thread loop go to a loop of one iteration in its place.

    Raises ValueError for loops of one axis with different extents, and for an extent that depends
    on a variable inside of the kernel.
    """
    body = cast("Stmt", _unified(func.body, None, frozenset()))
    return func if body is func.body else replace(func, body=body)


def _unified(n: Node, kernel: dict[str, For] | None, inside: frozenset[Var]) -> Node:
    """A part of a function, with loops of its own where it begins a kernel; `kernel` are the loops
    of the kernel around it by axis, which grow, and `inside` the variables that it defines."""
    match n:
        case For(kind="thread_binding", thread=str(axis)):
            pass
        case For(var) | LetStmt(var) if kernel is not None:
            return map_children(n, lambda c: _unified(c, kernel, inside | {var}))
        case _:
            return map_children(n, lambda c: _unified(c, kernel, inside))
    loops = {} if kernel is None else kernel
    if axis not in loops:
        if any(v in inside for v in walk(n.extent)):
            text = f"the extent {n.extent} of {axis} is not known where its kernel begins"
            raise ValueError(text)
        var = Var(axis.replace(".", "_"), n.loop_var.var_dtype)
        loops[axis] = replace(n, loop_var=var, min=ZERO, annotations=NO_ATTRS)
    launched = loops[axis]
    _require_same_extent(axis, launched, n)
    value = launched.loop_var if n.min == ZERO else launched.loop_var + n.min
    body = cast("Stmt", _unified(substitute(n.body, {n.loop_var: value}), loops, inside))
    if n.annotations:
        once = Var("once", n.loop_var.var_dtype)
        body = For(once, ZERO, expr.const(1), "serial", body, annotations=n.annotations)
    if kernel is None:
        body = nested([*loops.values()], body)
    return body


def _require_same_extent(axis: str, a: For, b: For) -> None:
    if not Analyzer().prove_equal(a.extent, b.extent):
        raise ValueError(
            f"the loops bound to {axis} have the extents {a.extent} and {b.extent}: "
            "those of a kernel are one loop"
        )


def virtual_threads_in_turn(func: PrimFunc) -> PrimFunc:
    """The function in which virtual threads, which one thread runs, are iterations of loops."""

    def visit(n: Node) -> Node | None:
        if isinstance(n, For) and (n.thread or "").partition(".")[0] == "vthread":
            return replace(n, kind="serial", thread=None)
        return None

    return rewrite(func, visit)


def threads_lifted(func: PrimFunc) -> PrimFunc:
    """The function in which the thread loops of an axis that one loop has in its body, and that
    hold all of its body, are one thread loop around that body.

    Raises ValueError for such loops with different extents.
    """

    def visit(n: Node) -> Node | None:
        if not isinstance(n, For):
            return None
        axes = dict.fromkeys(
            p.thread for p in walk(n.body) if isinstance(p, For) and p.kind == "thread_binding"
        )
        for axis in axes:
            if isinstance(n.body, SeqStmt) and axis is not None and _is_within(n.body, axis):
                n = replace(n, body=_lifted(n.body, axis))
        return n

    return rewrite(func, visit)


def _is_within(s: Stmt, axis: str) -> bool:
    """True if all that a statement does is in thread loops of an axis, in any case."""
    match s:
        case For(kind="thread_binding", thread=str(own)) if own == axis:
            return True
        case For(extent=extent, body=body):
            reads = any(isinstance(p, BufferLoad) for p in walk(extent))  # what threads may write
            return not reads and _is_within(body, axis)
        case SeqStmt(stmts):
            return all(_is_within(part, axis) for part in stmts)
        case _:
            return False


def _lifted(body: Stmt, axis: str) -> For:
    """A thread loop around a statement in place of those in it."""
    found = [n for n in walk(body) if isinstance(n, For) and n.thread == axis]
    first = found[0]
    for other in found:
        _require_same_extent(axis, first, other)
    var = Var(axis.replace(".", "_"), first.loop_var.var_dtype)

    def visit(n: Node) -> Node | None:
        if not isinstance(n, For) or n.thread != axis:
            return None
        value = var if n.min == ZERO else var + n.min
        return substitute(n.body, {n.loop_var: value})

    notes = Attrs({k: v for n in found for k, v in n.annotations.items()})
    inner = cast("Stmt", rewrite(body, visit))
    return replace(first, loop_var=var, min=ZERO, body=inner, annotations=notes)
