"""Statements that programs open by calls, as Python's own: `with T.If(c)` with `with T.Then()` and
`with T.Else()` inside, `with T.While(c)`, and `T.Assert(c, "message")`."""

from __future__ import annotations

import ast
from collections.abc import Callable

from relaxlab.script.core import Context

CALLS = {
    "Assert": ("condition", "message", "error_kind"), "If": ("condition",), "While": ("condition",),
}  # fmt: skip
"""The functions that open statements, with their parameters."""
PARTS = ("Then", "Else")

Callee = Callable[[Context, ast.expr], str]
"""Gives the path of the `T` function that an expression calls."""


def as_python(
    cx: Context, callee: Callee, call: ast.Call, body: list[ast.stmt], stmt: ast.stmt
) -> list[ast.stmt]:
    """The statements that a call of one of `CALLS` around others stands for. Raises Failure where
    its arguments or its parts are others."""
    name = callee(cx, call)
    given = dict(zip(CALLS[name], call.args, strict=False))
    given |= {k.arg or "": k.value for k in call.keywords}
    count = len(call.args) + len(call.keywords)
    match name, given:
        case _ if len(given) != count or not given.keys() <= {*CALLS[name]}:
            pass
        case "Assert", {"condition": condition, "message": message}:
            made = [ast.copy_location(ast.Assert(condition, message), stmt)]
            return [*made, *body]
        case "While", {"condition": condition}:
            return [ast.copy_location(ast.While(condition, body, []), stmt)]
        case "If", {"condition": condition}:
            then, other = _branches(cx, callee, body, stmt)
            return [ast.copy_location(ast.If(condition, then, other), stmt)]
        case _:
            pass
    cx.fail(call, "E0105", f"T.{name} takes {', '.join(CALLS[name])}")


def _branches(
    cx: Context, callee: Callee, body: list[ast.stmt], stmt: ast.stmt
) -> tuple[list[ast.stmt], list[ast.stmt]]:
    found: dict[str, list[ast.stmt]] = {}
    for part in body:
        match part:
            case ast.With([ast.withitem(call, None)]) if (name := callee(cx, call)) in PARTS:
                if name not in found:
                    found[name] = part.body
                    continue
                cx.fail(part, "E0104", f"a T.If has one T.{name}")
            case _:
                help = "write what is outside of them before or after the T.If"
                cx.fail(part, "E0104", "a T.If consists of T.Then and T.Else", help=help)
    if "Then" not in found:
        cx.fail(stmt, "E0104", "a T.If needs a T.Then", help="open it by `with T.Then():`")
    return found["Then"], found.get("Else", [])
