"""Steps that leave statements out: assertions, assumptions, stores of values that nothing depends
on."""

from __future__ import annotations

from collections.abc import Callable

from relaxlab.codegen.steps.loops import NOTHING, without_no_ops
from relaxlab.ir import expr
from relaxlab.ir.loops import AssertStmt, BufferStore, Evaluate, LetStmt, PrimFunc, Stmt
from relaxlab.ir.node import Node, replace, rewrite, walk
from relaxlab.ir.substitute import substitute


def without_assertions(func: PrimFunc) -> PrimFunc:
    """The function that takes what it asserts for granted."""
    return _without(func, lambda s: isinstance(s, AssertStmt))


def without_assumptions(func: PrimFunc) -> PrimFunc:
    """The function without the assumptions on its data (`T.assume`)."""
    return _without(func, lambda s: isinstance(s, Evaluate) and _calls(s.value, "assume"))


def without_undefined_stores(func: PrimFunc) -> PrimFunc:
    """The function without stores of `T.undef()`. Raises ValueError where such a value is part of
    another."""
    undefined = {n.var: n.value for n in walk(func.body)
                 if isinstance(n, LetStmt) and _calls(n.value, "undef")}  # fmt: skip
    if undefined:
        bare = rewrite(func.body, lambda n: n.body if isinstance(n, LetStmt) and n.var in undefined
                       else None)  # fmt: skip
        func = replace(func, body=substitute(bare, undefined))
    new = _without(func, lambda s: isinstance(s, BufferStore) and _calls(s.value, "undef"))
    if any(_calls(n, "undef") for n in walk(new)):
        raise ValueError("T.undef() is the whole value of a store, or no part of a program")
    return new


def _calls(n: Node, intrinsic: str) -> bool:
    return isinstance(n, expr.Call) and n.op == intrinsic


def _without(func: PrimFunc, gone: Callable[[Node], bool]) -> PrimFunc:
    """The function without some statements, and what is left empty by that."""
    requires = tuple(r for r in func.requires if not gone(r))
    body = rewrite(func.body, lambda n: NOTHING if isinstance(n, Stmt) and gone(n) else None)
    if requires == func.requires and body is func.body:
        return func
    return without_no_ops(replace(func, requires=requires, body=body))
