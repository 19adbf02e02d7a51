"""`return` of scalars in loop functions: the IR's statements end a function at its end only, or at
that of a branch."""

from __future__ import annotations

import ast
from collections.abc import Callable

from relaxlab.ir import expr, loops
from relaxlab.ir.node import replace, walk
from relaxlab.script.cells import narrowed
from relaxlab.script.convert import scalar_of
from relaxlab.script.core import Context
from relaxlab.script.expressions import evaluate

Around = Callable[[loops.Stmt], loops.Stmt]


def returned(cx: Context, stmt: ast.Return, dtype: str | None) -> loops.Stmt | None:
    """The statement that ends a function with a scalar, of `dtype` if the signature says one; None
    for a `return` without a value."""
    given = None if stmt.value is None else evaluate(cx, stmt.value)
    if stmt.value is None or given is None:
        return None
    if isinstance(given, loops.Buffer):
        cx.fail(
            stmt,
            "E0108",
            "a loop function writes its outputs, and returns scalars only",
            help="store the result in a buffer that is a parameter",
        )
    value = scalar_of(cx, given, stmt.value, dtype)
    value = value if dtype is None else narrowed(value, dtype)
    span = cx.span(stmt)
    return loops.Evaluate(expr.Call(value.dtype, "ret", (value,), span=span), span=span)


def ends_function(s: loops.Stmt) -> bool:
    """True if a statement always ends the function with a value."""
    match s:
        case loops.SeqStmt(stmts):
            return ends_function(stmts[-1])
        case loops.IfThenElse(_, yes, no):
            return no is not None and ends_function(yes) and ends_function(no)
        case loops.LetStmt(body=body):
            return ends_function(body)
        case _:
            return loops.returned_value(s) is not None


def taking_the_rest(s: loops.IfThenElse) -> Around | None:
    """Puts the statements that follow `s` into the one of its branches that does not end the
    function; None if both do or neither does."""
    yes, no = s.then_case, s.else_case
    if ends_function(s):
        return None
    if ends_function(yes):
        before = () if no is None else (no,)
        return lambda rest: replace(s, else_case=loops.seq(*before, rest))
    if no is not None and ends_function(no):
        return lambda rest: replace(s, then_case=loops.seq(yes, rest))
    return None


def check_returns(cx: Context, s: loops.Stmt, last: bool = True) -> None:
    """Stop at a statement that ends the function where others may follow it."""
    match s:
        case loops.SeqStmt(stmts):
            for i, one in enumerate(stmts, 1):
                check_returns(cx, one, last and i == len(stmts))
        case loops.IfThenElse(_, yes, no):
            for case in (yes, no):
                if case is not None:
                    check_returns(cx, case, last)
        case loops.LetStmt(body=body):
            check_returns(cx, body, last)
        case loops.Evaluate():
            if not last and loops.returned_value(s) is not None:
                assert s.span is not None
                cx.fail(
                    s.span,
                    "E0108",
                    "a loop function returns a value at its end, or at that of a branch",
                    help="store the value in memory of one element, and return that at the end",
                )
        case _:
            for n in walk(s):
                if isinstance(n, loops.Evaluate):
                    check_returns(cx, n, last=False)
