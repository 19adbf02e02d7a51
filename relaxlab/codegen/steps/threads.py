"""A step about loops whose iterations are threads: one per axis of a kernel."""

from __future__ import annotations

from typing import cast

from relaxlab.analysis.arith import Analyzer
from relaxlab.ir import expr
from relaxlab.ir.expr import Var
from relaxlab.ir.loops import For, LetStmt, PrimFunc, Stmt
from relaxlab.ir.node import NO_ATTRS, Node, map_children, replace, walk
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
    if not Analyzer().prove_equal(launched.extent, n.extent):
        raise ValueError(
            f"the loops bound to {axis} have the extents {launched.extent} and {n.extent}: "
            "those of a kernel are one loop"
        )
    value = launched.loop_var if n.min == ZERO else launched.loop_var + n.min
    body = cast("Stmt", _unified(substitute(n.body, {n.loop_var: value}), loops, inside))
    if n.annotations:
        once = Var("once", n.loop_var.var_dtype)
        body = For(once, ZERO, expr.const(1), "serial", body, annotations=n.annotations)
    if kernel is None:
        for loop in reversed(loops.values()):
            body = replace(loop, body=body)
    return body
