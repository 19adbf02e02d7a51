"""The decorators of functions and classes, as they are written."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import Any

from relaxlab.script.core import Context
from relaxlab.script.expressions import arguments, evaluate
from relaxlab.script.values import Ref, describe


@dataclass(frozen=True, slots=True)
class Decorator:
    """A function's decorator."""

    kind: str
    options: dict[str, Any]


_OPTIONS = {
    "function": {"pure", "private", "check_well_formed"},
    "prim_func": {"private", "check_well_formed", "s_tir"},
    "ir_module": {"check_well_formed", "s_tir"},
    "rewriter": set[str](),  # a class with a pattern and its replacement
}


def decorator_of(cx: Context, node: ast.FunctionDef | ast.ClassDef) -> Decorator:
    """The script decorator of a function or class. Raises Failure when there is none."""
    wanted = "@I.ir_module" if isinstance(node, ast.ClassDef) else "@R.function or @T.prim_func"
    for deco in node.decorator_list:
        options: dict[str, Any] = {}
        target = deco
        if isinstance(deco, ast.Call):
            target = deco.func
            options = {k: a.value for k, a in arguments(cx, deco, "decorator").kwargs.items()}
        value = evaluate(cx, target)
        kind = value.path.rpartition(".")[2] if isinstance(value, Ref) else ""
        if kind not in _OPTIONS:
            cx.fail(deco, "E0124", f"{describe(value)} is not a decorator of the script")
        for key, option in options.items():
            if key not in _OPTIONS[kind] or not isinstance(option, bool | None):
                cx.fail(
                    deco,
                    "E0105",
                    f"@{value} has no option {key}={option!r}",
                    help=cx.suggest(key, _OPTIONS[kind]),
                )
        cx.checked = cx.checked and options.get("check_well_formed") is not False
        return Decorator(kind, options)
    cx.fail(node_header(node), "E0124", f"{node.name!r} has no decorator", help=f"write {wanted}")


def node_header(node: ast.FunctionDef | ast.ClassDef) -> ast.AST:
    """The first line of a definition, for messages that should not underline all of it."""
    end = ast.Pass(lineno=node.lineno, col_offset=node.col_offset)
    end.end_lineno, end.end_col_offset = node.lineno, node.col_offset + 4 + len(node.name)
    return end
