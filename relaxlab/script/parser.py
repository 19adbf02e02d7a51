"""Reading scripts. Nothing here executes the text: Python's syntax tree is interpreted."""

from __future__ import annotations

import ast
import re
import sys
import warnings
from collections.abc import Callable, Mapping
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import numpy as np

from relaxlab.analysis.loops_check import NO_VALUE_YET, UNTRUE_CLAIMS
from relaxlab.analysis.well_formed import check_well_formed
from relaxlab.ir.arguments import names_arguments
from relaxlab.ir.diagnostics import Diagnostic, DiagnosticError
from relaxlab.ir.errors import brief, expect, kind_of
from relaxlab.ir.module import BaseFunc, Module
from relaxlab.ir.span import Source, Span, lines_of
from relaxlab.script.captured import Captured, python_value
from relaxlab.script.core import Context, Failure
from relaxlab.script.expressions import evaluate
from relaxlab.script.macros import is_macro, macro_here
from relaxlab.script.modules import read_class, read_definition, read_module
from relaxlab.script.values import Ref, Value

_NAMESPACES = {"ir": Ref("I"), "relax": Ref("R"), "tir": Ref("T"), "tirx": Ref("T")}


@names_arguments
@brief
def parse(
    text: str,
    *,
    check: bool = True,
    computable: bool = True,
    name: str = "<script>",
    names: Mapping[str, Any] | None = None,
) -> Module:
    """The module that a script defines: a class with `@I.ir_module`, or functions.

    The text is interpreted, never executed; of Python's names only `I`, `R`, `T`, those that the
    script itself gives to constants (`N = 64`), and those of `names` with their values exist in it.
    `check`: types are deduced and both levels checked for well-formedness too; without `computable`
    calls that have a type and cannot be computed are left to later checks, and loop functions that
    claim what is not true are read with a warning. `name` is used in messages.
    Raises DiagnosticError with everything that is wrong, not only the first error.
    """
    source = Source(name, text)
    tree = syntax_tree(source)
    cx = _context(source, Captured(source, (names or {},)).value, computable)
    cx.frames[0].update(I=Ref("I"), R=Ref("R"), T=Ref("T"), TypeVar=Ref("typing", "TypeVar"))
    module = Module(())
    try:
        module = _read_text(cx, tree)
    except Failure as failure:
        cx.report(failure.diagnostic)
    except RecursionError:
        cx.report(cx.error(tree, "E0116", "this program is nested too deeply to be read"))
    return _finished(cx, module, check)


def _context(
    source: Source, environment: Callable[[str], Value], computable: bool
) -> Context:
    """The state of a new parse. The rows of the operator table live in a package above this one,
    which is loaded here so that every program may use them."""
    import_module("relaxlab.ops")
    return Context(source, environment, evaluate, computable)


def syntax_tree(source: Source) -> ast.Module:
    """Python's syntax tree of a text. Raises DiagnosticError for a syntax error."""
    if not isinstance(source.text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"a script is text, not {kind_of(source.text)}")
    expect(source.name, str, "the name of a script is a string")
    try:
        return _python_tree(source.text)
    except SyntaxError as error:
        line, col = error.lineno or 1, max(0, (error.offset or 1) - 1)
        end_line, end_col = error.end_lineno or line, (error.end_offset or 0) - 1
        if (end_line, end_col) <= (line, col):
            end_line, end_col = line, col + 1
        span = Span(source, line, col, end_line, end_col)
        raise DiagnosticError([Diagnostic("E0101", error.msg, span)]) from None
    except (ValueError, RecursionError, MemoryError) as error:
        span = Span(source, 1, 0, 1, 1)
        if isinstance(error, ValueError):
            found = Diagnostic("E0101", f"this is not Python text: {error}", span)
        else:
            found = Diagnostic("E0116", "this program is nested too deeply to be read", span)
        raise DiagnosticError([found]) from None


_TYPE_PARAMS = re.compile(r"^(\s*def\s+\w+)(\[[\w\s,]*\])\(", re.M)


def _python_tree(text: str) -> ast.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about escapes and literals; the text is not ours
        try:
            return ast.parse(text)
        except SyntaxError:
            if sys.version_info >= (3, 12) or not _TYPE_PARAMS.search(text):
                raise
        # `def f[n](...)` is newer than this Python: read the brackets ourselves.
        # Blanks of the same width keep the columns of all places in messages.
        tree = ast.parse(_TYPE_PARAMS.sub(lambda m: f"{m[1]}{' ' * len(m[2])}(", text))
    lines = lines_of(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            found = _TYPE_PARAMS.match(lines[node.lineno - 1])
            names = re.findall(r"\w+", found[2]) if found else []
            vars(node)["type_params"] = [SimpleNamespace(name=n) for n in names]
    return tree


def _read_text(cx: Context, tree: ast.Module) -> Module:
    classes: list[ast.ClassDef] = []
    rest: list[ast.stmt] = []
    for stmt in tree.body:
        match stmt:
            case ast.Import() | ast.ImportFrom():
                _import(cx, stmt)
            case ast.ClassDef():
                classes.append(stmt)
            case ast.Expr(ast.Constant(str())):
                pass
            case ast.FunctionDef(name) if is_macro(cx, stmt):
                cx.define(name, macro_here(cx, stmt))
            case ast.Assign([ast.Name(name)], ast.Call(ast.Name("TypeVar")) as call):
                cx.define(name, evaluate(cx, call))
            case ast.Assign([ast.Name(name)], ast.Constant(int() | float() | str()) as constant):
                cx.define(name, evaluate(cx, constant))
            case _:
                rest.append(stmt)
    if not classes:
        if not rest:
            cx.fail(tree.body[0] if tree.body else tree, "E0104", "the script defines no function")
        return read_module(cx, rest, "Module")
    for stmt in rest + classes[1:]:
        cx.report(
            cx.error(stmt, "E0104", "a script is one class with @I.ir_module, or functions alone")
        )
    return read_class(cx, classes[0])


def _import(cx: Context, stmt: ast.Import | ast.ImportFrom) -> None:
    """Imports only say by which names the script calls its three namespaces."""
    for alias in stmt.names:
        if isinstance(stmt, ast.ImportFrom) and alias.name in _NAMESPACES:
            cx.define(alias.asname or alias.name, _NAMESPACES[alias.name])
        elif isinstance(stmt, ast.Import) and alias.name in ("tvm", "relaxlab"):
            cx.define(alias.asname or alias.name, Ref("python"))
        elif isinstance(stmt, ast.Import) and alias.name == "numpy":
            cx.define(alias.asname or alias.name, python_value(np))


def _finished(cx: Context, module: Module, check: bool, but: str = "") -> Module:
    """Return the module. Raises DiagnosticError for all errors but those of the code `but`."""
    problems = list(cx.diagnostics)
    if check and cx.checked and not problems:
        try:
            found = check_well_formed(module, computable=cx.computable)
            untrue = [d for d in found if not cx.computable and d.code in UNTRUE_CLAIMS]
            problems = [d for d in found if d.code != but and d not in untrue]
            if not problems and (said := [d for d in untrue if d.code != but]):
                warnings.warn(str(DiagnosticError(said)), stacklevel=4)
        except RecursionError:
            where = Span(cx.source, 1, 0, 1, 1)
            problems = [cx.error(where, "E0116", "this program is nested too deeply to be checked")]
    if problems:
        raise DiagnosticError(sorted(problems, key=_position))
    return module


def _position(d: Diagnostic) -> tuple[int, int]:
    return (0, 0) if d.span is None else (d.span.line, d.span.col)


# --- Decorated Python objects -------------------------------------------------------------------


def parse_class(captured: Captured, node: ast.ClassDef, *, computable: bool = True) -> Module:
    """The module of a class under `@I.ir_module`; `computable` is that of `parse`."""
    cx = _context(captured.source, captured.value, computable)
    module = Module(())
    try:
        module = read_class(cx, node)
    except Failure as failure:
        cx.report(failure.diagnostic)
    return _finished(cx, module, True)


def parse_function(
    captured: Captured, node: ast.FunctionDef, *, computable: bool = True
) -> BaseFunc:
    """The function under `@R.function` or `@T.prim_func`; `computable` is that of `parse`."""
    cx = _context(captured.source, captured.value, computable)
    cx.functions[node.name] = None
    function: BaseFunc | None = None
    try:
        function = read_definition(cx, node)
    except Failure as failure:
        cx.report(failure.diagnostic)
    except RecursionError:
        cx.report(cx.error(node, "E0116", "this function is nested too deeply to be read"))
    alone = {} if function is None else {node.name: function}
    return _finished(cx, Module.of(alone), True, but=NO_VALUE_YET)[node.name]
