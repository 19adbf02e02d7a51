"""A step that evaluates outside of loops what is the same in all of their iterations."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeGuard

from relaxlab.codegen.steps.loops import is_constant_in_loops, without_no_ops
from relaxlab.ir import expr
from relaxlab.ir.expr import IntImm, PrimExpr, Var, all_of
from relaxlab.ir.loops import Block, For, IfThenElse, LetStmt, PrimFunc, Stmt
from relaxlab.ir.node import Node, replace, rewrite, walk
from relaxlab.schedule.tree import conjuncts, with_fresh_binders


@dataclass(frozen=True, slots=True)
class Hoisted:
    """The expressions that are evaluated outside: named values, conditions of statements, terms of
    conditions, and conditions of choices between values."""

    names: bool = True
    conditions: bool = True
    terms: bool = True
    choices: bool = True


def expressions_outside(func: PrimFunc, hoisted: Hoisted | None = None) -> PrimFunc:
    """The function whose loops are inside of values that are named in them, of conditions, also of
    some terms of a conjunction, and of the choices between values that are the same in each of
    their iterations: such a loop is there once for each side of the choice.

    What reads memory or divides by anything but a constant stays. Loops of threads stay outside.
    """
    kinds = hoisted or Hoisted()

    def visit(n: Node) -> Node | None:
        return _outside(n, kinds) if isinstance(n, For) and n.kind != "thread_binding" else None

    new = rewrite(func, visit)
    return func if new is func else without_no_ops(new)


def _outside(loop: For, kinds: Hoisted) -> Stmt | None:
    """A loop inside of what is the same in its iterations, or None if nothing is."""
    match loop.body:
        case LetStmt(var, value, body) if kinds.names and _is_same(value, loop):
            return LetStmt(var, value, _moved(replace(loop, body=body), kinds))
        case IfThenElse(condition, yes, None) if kinds.conditions:
            same = [c for c in conjuncts(condition) if _is_same(c, loop)]
            rest = [c for c in conjuncts(condition) if not _is_same(c, loop)]
            if same and (kinds.terms or not rest):
                inner = IfThenElse(all_of(rest), yes) if rest else yes
                return IfThenElse(all_of(same), _moved(replace(loop, body=inner), kinds))
        case IfThenElse(condition, yes, no) if kinds.conditions and _is_same(condition, loop):
            no = None if no is None else _moved(replace(loop, body=no), kinds)
            other = None if no is None else with_fresh_binders(no)
            return IfThenElse(condition, _moved(replace(loop, body=yes), kinds), other)
        case _:
            pass
    chosen = (n.args[0] for n in walk(loop.body) if _is_choice(n))
    found = next((c for c in chosen if kinds.choices and _is_same(c, loop)), None)
    if found is None:
        return None
    yes, no = (_moved(_with_choice(loop, found, side), kinds) for side in (1, 2))
    return IfThenElse(found, yes, with_fresh_binders(no))


def _moved(loop: For, kinds: Hoisted) -> Stmt:
    return _outside(loop, kinds) or loop


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
