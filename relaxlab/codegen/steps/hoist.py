"""A step that evaluates outside of loops what is the same in all of their iterations."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeGuard

from relaxlab.codegen.steps.loops import is_constant_in_loops, without_no_ops
from relaxlab.ir import expr
from relaxlab.ir.expr import IntImm, PrimExpr, Var, all_of
from relaxlab.ir.loops import Block, For, IfThenElse, LetStmt, PrimFunc, Stmt
from relaxlab.ir.node import Node, replace, rewrite, walk
from relaxlab.schedule.tree import conjuncts, with_fresh_binders


def expressions_outside(func: PrimFunc) -> PrimFunc:
    """The function whose loops are inside of values that are named in them, of conditions, also of
    some terms of a conjunction, and of the choices between values that are the same in each of
    their iterations: such a loop is there once for each side of the choice.

    What reads memory or divides by anything but a constant stays. Loops of threads stay outside.
    """

    def visit(n: Node) -> Node | None:
        return _outside(n) if isinstance(n, For) and n.kind != "thread_binding" else None

    new = rewrite(func, visit)
    return func if new is func else without_no_ops(new)


def _outside(loop: For) -> Stmt | None:
    """A loop inside of what is the same in its iterations, or None if nothing is."""
    match loop.body:
        case LetStmt(var, value, body) if _is_same(value, loop):
            return LetStmt(var, value, _moved(replace(loop, body=body)))
        case IfThenElse(condition, yes, None):
            same = [c for c in conjuncts(condition) if _is_same(c, loop)]
            rest = [c for c in conjuncts(condition) if not _is_same(c, loop)]
            if same:
                inner = IfThenElse(all_of(rest), yes) if rest else yes
                return IfThenElse(all_of(same), _moved(replace(loop, body=inner)))
        case IfThenElse(condition, yes, no) if _is_same(condition, loop):
            other = None if no is None else with_fresh_binders(_moved(replace(loop, body=no)))
            return IfThenElse(condition, _moved(replace(loop, body=yes)), other)
        case _:
            pass
    chosen = (n.args[0] for n in walk(loop.body) if _is_choice(n))
    found = next((c for c in chosen if _is_same(c, loop)), None)
    if found is None:
        return None
    yes, no = (_moved(_with_choice(loop, found, side)) for side in (1, 2))
    return IfThenElse(found, yes, with_fresh_binders(no))


def _moved(loop: For) -> Stmt:
    return _outside(loop) or loop


def _is_choice(n: Node) -> TypeGuard[expr.Call]:
    return isinstance(n, expr.Call) and n.op == "if_then_else" and not isinstance(n.args[0], IntImm)


def _is_same(e: PrimExpr, loop: For) -> bool:
    """True if an expression has one value in all iterations of a loop, and has it where there are
    none; it reads no variable that the loop or a statement in it defines."""
    defined = set(defined_in(loop))
    return all(p not in defined and is_constant_in_loops(p) for p in walk(e))


def defined_in(s: Stmt) -> Iterator[Var]:
    """The variables that a statement and those in it define."""
    for n in walk(s):
        match n:
            case For(var) | LetStmt(var) | expr.Let(var):
                yield var
            case Block(_, iter_vars):
                yield from (iv.var for iv in iter_vars)
            case _:
                pass


def _with_choice(loop: For, condition: PrimExpr, side: int) -> For:
    """The loop in which the choices by a condition are made: 1 as if it holds, 2 if not."""

    def visit(n: Node) -> Node | None:
        return n.args[side] if _is_choice(n) and n.args[0] == condition else None

    return rewrite(loop, visit)
