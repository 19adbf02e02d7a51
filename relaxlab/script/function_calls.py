"""Calls of one loop function from another: `cls.scale(A.data, n)`."""

from __future__ import annotations

import ast

from relaxlab.ir import expr, graph, loops
from relaxlab.ir.dtypes import is_dtype
from relaxlab.script.convert import scalar_of
from relaxlab.script.core import Arguments, Context, Failure
from relaxlab.script.graph_calls import call_value
from relaxlab.script.values import Arg, Ref
from relaxlab.script.views import member


def call_of(cx: Context, callee: graph.Expr, c: Arguments) -> graph.Call | expr.Call:
    """The call of a graph-level value, at the level of the function that calls it."""
    if isinstance(callee, graph.GlobalVar) and cx.namespace == "T":
        return call_function(cx, callee, c)
    return call_value(cx, callee, c)


def call_function(cx: Context, callee: graph.GlobalVar, c: Arguments) -> expr.Call:
    """The call of a function of the module; of a buffer, the address is given. Its dtype is the
    one that the signature says, `void` without one."""
    args = [_argument(cx, a) for a in c.no_keywords()]
    name = expr.StringImm(callee.name, span=callee.span)
    dtype = _returned(cx, callee.name)
    return expr.Call(dtype, "call_function", (name, *args), span=cx.span(c.node))


def _argument(cx: Context, arg: Arg) -> expr.PrimExpr:
    value = arg.value
    if isinstance(value, loops.Buffer):
        value = member(cx, value, "data", arg.node)
    return scalar_of(cx, value, arg.node)


def _returned(cx: Context, name: str) -> str:
    """The dtype that the signature of a function of the module says it returns."""
    definition = cx.definitions.get(name)
    if not isinstance(definition, ast.FunctionDef) or definition.returns is None:
        return "void"
    try:
        kind = cx.read(cx, definition.returns)
    except Failure:
        return "void"
    return kind.path if isinstance(kind, Ref) and is_dtype(kind.path) else "void"
