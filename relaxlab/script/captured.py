"""Decorated Python objects: their source text, and the Python names around them."""

from __future__ import annotations

import ast
import linecache
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from types import FrameType, FunctionType
from typing import Any, TypeVar, cast

import numpy as np

from relaxlab.ir import expr, graph, loops, types
from relaxlab.ir.diagnostics import Diagnostic, DiagnosticError
from relaxlab.ir.module import Module
from relaxlab.ir.plain import plain
from relaxlab.ir.span import Source
from relaxlab.script.core import Unbound
from relaxlab.script.macros import Macro
from relaxlab.script.values import Foreign, Ref, TypeParam, Value, is_dict, is_sequence

NAMESPACES = {
    "relaxlab.script.ir": Ref("I"),
    "relaxlab.script.relax": Ref("R"),
    "relaxlab.script.tir": Ref("T"),
}


D = TypeVar("D", ast.FunctionDef, ast.ClassDef)


@dataclass(frozen=True)
class Captured:
    """A source text and the scopes of Python names visible to the decorated object."""

    source: Source
    scopes: tuple[Mapping[str, Any], ...]

    def value(self, name: str) -> Value:
        """Return the value of a Python name in a program. Raises Unbound."""
        for scope in self.scopes:
            if name in scope:
                return python_value(scope[name])
        raise Unbound(name)


def python_value(value: Any) -> Value:
    """A captured Python object as the script sees it; Foreign when it has no meaning there."""
    name = getattr(value, "__name__", None)
    if isinstance(name, str) and name in NAMESPACES and hasattr(value, "__file__"):
        return NAMESPACES[name]
    named = _NAMED.get(id(value))
    if named is not None:
        return named
    if value is TypeVar:
        return Ref("typing", "TypeVar")
    match value:
        case TypeVar(__name__=symbol):
            return TypeParam(symbol)
        case np.generic():
            return python_value(plain(value))
        case None | bool() | int() | float() | str():
            return value
        case np.ndarray():
            return cast(Value, value)
        case np.dtype():
            return cast(Value, value).name
        case Module() | graph.Expr() | loops.PrimFunc() | loops.Buffer() | expr.PrimExpr():
            return value
        case types.Type() | Macro():
            return value
        case _ if is_sequence(value):
            return tuple(python_value(v) for v in value)
        case _ if is_dict(value):
            return {k: python_value(v) for k, v in value.items()}
        case _ if isinstance(value, type) and issubclass(value, np.generic):
            return np.dtype(cast(Any, value)).name
        case _:
            return Foreign(value)


_NAMED: dict[int, Ref] = {}


def name_object(value: object, ref: Ref) -> None:
    """Let the script recognise a member of a namespace under another name: an imported decorator,
    `relu = R.nn.relu`."""
    _NAMED[id(value)] = ref


def capture(frame: FrameType, name: str, *functions: FunctionType) -> Captured:
    """The file (or cell) that `frame` runs and that defines `name`, with the Python names that
    the functions and the frame see.

    Raises DiagnosticError where Python keeps no source text.
    """
    filename = frame.f_code.co_filename
    # A file that was edited since is read anew; notebooks put the text of their cells there.
    linecache.checkcache(filename)
    lines = linecache.getlines(filename, frame.f_globals)
    if not lines and filename == "<stdin>":
        lines = _typed_lines(name)
    if not lines:
        raise DiagnosticError(
            [
                Diagnostic(
                    "E0120",
                    f"Python keeps no source text for {filename}",
                    suggestion="write the program in a file or a notebook cell, or pass its text "
                    "to relaxlab.parse",
                )
            ]
        )
    closures: dict[str, Any] = {}
    for f in functions:
        for name, cell in zip(f.__code__.co_freevars, f.__closure__ or (), strict=True):
            try:
                closures[name] = cell.cell_contents
            except ValueError:  # not assigned yet
                continue
    source = Source(filename, "".join(lines))
    # As Python looks names up, from the inside out.
    return Captured(source, (closures, frame.f_locals, frame.f_globals))


def _typed_lines(name: str) -> list[str]:
    """The definition of `name` as it was typed last at a prompt that keeps no source text (before
    Python 3.13), from the history of line editing."""
    readline = sys.modules.get("readline")
    if readline is None:
        return []
    count = readline.get_current_history_length()
    lines = [readline.get_history_item(i) or "" for i in range(1, count + 1)]
    header = re.compile(rf"(def|class)\s+{re.escape(name)}\b")
    start = max((i for i, line in enumerate(lines) if header.match(line)), default=0)
    while start > 0 and lines[start - 1].startswith("@"):
        start -= 1
    return [line + "\n" for line in lines[start:]]


def find_definition(tree: ast.Module, kind: type[D], name: str, line: int) -> D | None:
    """The definition of `name` whose decorators or header include `line`; None if there is none."""
    for node in ast.walk(tree):
        if isinstance(node, kind) and node.name == name:
            first = min([d.lineno for d in node.decorator_list] + [node.lineno])
            if first <= line <= max(node.lineno, node.body[0].lineno):
                return node
    return None
