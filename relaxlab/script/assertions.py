"""Reading the messages of assertions in loop functions."""

from __future__ import annotations

import ast

from relaxlab.ir.dtypes import is_int
from relaxlab.ir.expr import PrimExpr
from relaxlab.script.convert import scalar_of
from relaxlab.script.core import Context
from relaxlab.script.expressions import evaluate
from relaxlab.script.values import Value, is_sequence


def message_of(cx: Context, stmt: ast.Assert) -> tuple[str, tuple[PrimExpr, ...]]:
    """The message of an assertion, and the values of its places: `"x[{}] is {}".format(i, x[i])`.
    Raises Failure for what is no string, and for values that are not one integer for each place."""
    shown = stmt.msg
    values: tuple[PrimExpr, ...] = ()
    match shown:
        case ast.Call(ast.Attribute(ast.Constant(str()) as text, "format"), [_, *_] as args, []):
            values = tuple(scalar_of(cx, evaluate(cx, a), a) for a in args)
            shown = text
        case _:
            pass
    message: Value = "" if shown is None else evaluate(cx, shown)
    while is_sequence(message) and message:  # ("RuntimeError", ["message"])
        message = message[-1]
    if not isinstance(message, str):
        cx.fail(stmt, "E0106", "the message of an assertion is a string")
    if values and (len(values) > 2 or message.count("{}") != len(values)):
        text = f"the message has {message.count('{}')} places `{{}}` for {len(values)} values"
        cx.fail(stmt, "E0106", text, help="one `{}` for each value, of which two are most")
    if not all(is_int(v.dtype) for v in values):
        cx.fail(stmt, "E0106", "the values in the message of an assertion are integers")
    return message, values
