"""Attributes of Python objects outside the program: `np.float32`, `math.pi`, `config.width`."""

from __future__ import annotations

import ast

from relaxlab.script.advice import as_call
from relaxlab.script.captured import python_value
from relaxlab.script.core import Context, Unbound
from relaxlab.script.values import Foreign, Value


def foreign_of(cx: Context, node: ast.expr) -> Foreign | None:
    """Return the Python object outside the program that a name, dotted or not, stands for; None for
    what the script knows or nothing has."""
    match node:
        case ast.Name(name):
            try:
                value = cx.find(name)
            except Unbound:
                return None
        case ast.Attribute(base, name):
            outer = foreign_of(cx, base)
            value = None if outer is None else python_value(getattr(outer.value, name, None))
        case _:
            return None
    return value if isinstance(value, Foreign) else None


def read_attribute(
    cx: Context, outer: Foreign, node: ast.Attribute, call: ast.Call | None
) -> Value:
    """`np.float32`, `math.pi`, `config.width`: an attribute of an object outside the program."""
    try:
        value = python_value(getattr(outer.value, node.attr))
    except AttributeError:
        whole = f"{ast.unparse(node.value)!r}, a Python {outer.kind}, has no {node.attr!r}"
        cx.fail(node, "E0112", whole, help=cx.suggest(node.attr, dir(outer.value)))
    if not isinstance(value, Foreign):
        return value
    written = None if call is None else as_call(node.attr, call, cx.namespace)
    help = None if written is None else f"write `{written}`, or compute it before the program"
    cx.fail_foreign(node, value, help)
