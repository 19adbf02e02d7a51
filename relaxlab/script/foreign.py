"""Attributes of Python objects outside the program: `np.float32`, `math.pi`, `config.width`."""

from __future__ import annotations

import ast
from typing import Any

import numpy as np

from relaxlab.script.advice import as_call
from relaxlab.script.captured import python_value
from relaxlab.script.core import Arguments, Context, Unbound
from relaxlab.script.values import Arg, Foreign, Ref, Value, describe, is_array, is_sequence

ARRAYS = ("array", "zeros", "ones", "full", "arange", "eye", "linspace")
"""The functions of NumPy that make a constant where the program is read."""

IN_TVM = {
    "relax": Ref("R"), "relax.op": Ref("R"), "script.relax": Ref("R"),
    "tir": Ref("T"), "tirx": Ref("T"), "script.tir": Ref("T"), "script.tirx": Ref("T"),
    "script.ir": Ref("I"), "target.Target": Ref("T", "Target"),
}  # fmt: skip
"""The members of the script language that names such as `tvm.relax` stand for."""


def python_callee(cx: Context, node: ast.expr) -> Foreign | None:
    """The Python function that is called where a program is read: any in programs of TVM, else
    those of NumPy that make arrays."""
    found = foreign_of(cx, node)
    if found is None or not callable(found.value):
        return None
    makes_array = any(found.value is getattr(np, name) for name in ARRAYS)
    return found if makes_array or not cx.computable else None


def call_python(cx: Context, function: Foreign, c: Arguments) -> Value:
    """The result of a Python function of constants: `np.array([1, 2], dtype="int32")`."""
    args = [_constant(cx, a) for a in c.args]
    kwargs = {k: _constant(cx, a) for k, a in c.kwargs.items()}
    called: Any = function.value
    try:
        return python_value(called(*args, **kwargs))
    except Exception as error:  # of a function that is not ours
        cx.fail(c.node, "E0122", f"{c.name}: {error}")


def _constant(cx: Context, arg: Arg) -> Value:
    value = arg.value
    if value is None or isinstance(value, bool | int | float | str) or is_array(value):
        return value
    if is_sequence(value):
        return [_constant(cx, Arg(v, arg.node)) for v in value]
    cx.fail(arg.node, "E0122", f"{describe(value)} is not a constant")


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
