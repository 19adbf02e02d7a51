"""Functions under `@T.macro`, `@T.inline` or `@R.macro`: their statements stand wherever they are
called."""

from __future__ import annotations

import ast
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field

from relaxlab.ir.span import Source
from relaxlab.script.core import Arguments, Context, Unbound
from relaxlab.script.values import Ref, Value

DECORATORS = {"macro": (Ref("T"), Ref("R")), "inline": (Ref("T"),)}
"""The decorators of macros, with the namespaces that have them."""


@dataclass(frozen=True, slots=True)
class Macro:
    """A definition with the names that were visible where it stands, which are those of its
    statements if it is hygienic; else these are the names where it is called."""

    node: ast.FunctionDef
    source: Source = field(repr=False, compare=False)
    frames: tuple[dict[str, Value], ...] = field(repr=False, compare=False)
    environment: Callable[[str], Value] = field(repr=False, compare=False)
    hygienic: bool = True


def is_macro(cx: Context, node: ast.FunctionDef) -> bool:
    """True if one of the function's decorators says that it is a macro."""
    return any(_names_macro(cx, d) for d in node.decorator_list)


def _names_macro(cx: Context, decorator: ast.expr) -> bool:
    match decorator:
        case ast.Call(func):
            return _names_macro(cx, func)
        case ast.Attribute(ast.Name(base), name) if name in DECORATORS:
            try:
                return cx.find(base) in DECORATORS[name]
            except Unbound:
                return False
        case _:
            return False


def macro_here(cx: Context, node: ast.FunctionDef) -> Macro:
    """The macro that `node` defines where the parse is now."""
    args = node.args
    if args.vararg or args.kwarg or args.kwonlyargs or args.posonlyargs:
        cx.fail(node, "E0104", "the parameters of a macro are positional")
    options = [k for d in node.decorator_list if isinstance(d, ast.Call) for k in d.keywords]
    hygienic = all(bool(cx.read(cx, k.value)) for k in options if k.arg == "hygienic")
    return Macro(node, cx.source, tuple(cx.frames), cx.environment, hygienic)


def macro_called(cx: Context, node: ast.expr) -> Macro | None:
    """The macro that an expression calls; None for another call."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
        return None
    try:
        value = cx.find(node.func.id)
    except Unbound:
        return None
    return value if isinstance(value, Macro) else None


@contextmanager
def expanding(cx: Context, macro: Macro, c: Arguments) -> Generator[list[ast.stmt]]:
    """The statements of a macro, to be read in the block: the names are those of its definition, or
    those here if it is not hygienic, and its parameters. Raises Failure where the arguments do not
    fit."""
    parameters = macro.node.args.args
    defaults = dict(zip(reversed(parameters), reversed(macro.node.args.defaults), strict=False))
    given = c.bind({p.arg: p in defaults for p in parameters})
    if cx.macros >= 64:
        cx.fail(c.node, "E0116", f"{macro.node.name!r} is expanded more than 64 levels deep")
    outer = cx.frames, cx.environment, cx.source
    cx.macros += 1
    if macro.hygienic:
        cx.frames, cx.environment = [*macro.frames, {}], macro.environment
    else:
        cx.frames = [*cx.frames, {}]
    cx.enter(macro.source)
    try:
        for p in parameters:
            arg = given[p.arg]
            value = cx.read(cx, defaults[p]) if arg is None else arg.value
            cx.define(p.arg, value)
        yield macro.node.body
    finally:
        cx.frames, cx.environment, source = outer
        cx.enter(source)
        cx.macros -= 1
