"""Reading modules: the class, its functions, their decorators."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import Any

from relaxlab.ir import graph, loops
from relaxlab.ir.module import GLOBAL_INFOS, BaseFunc, Module
from relaxlab.ir.node import NO_ATTRS, Attrs, replace
from relaxlab.script.advice import unsupported
from relaxlab.script.convert import attribute_value
from relaxlab.script.core import Context, Failure
from relaxlab.script.data_types import is_data_type, read_data_types
from relaxlab.script.definitions import decorator_of, node_header
from relaxlab.script.expressions import arguments, evaluate
from relaxlab.script.graph_functions import read_function
from relaxlab.script.loop_signatures import read_prim_func
from relaxlab.script.macros import is_macro, macro_here
from relaxlab.script.values import Arg, ModuleRef, Ref, describe, is_dict


def read_definition(cx: Context, node: ast.FunctionDef) -> BaseFunc:
    """A decorated function of either level."""
    deco = decorator_of(cx, node)
    private = bool(deco.options.get("private"))
    if deco.kind == "prim_func":
        loop_function = read_prim_func(cx, node, s_tir=deco.options.get("s_tir", cx.s_tir))
        return replace(loop_function, private=private, name_hint=node.name)
    if deco.kind == "function":
        pure = deco.options.get("pure") is not False
        return replace(read_function(cx, node, pure=pure, private=private), name_hint=node.name)
    cx.fail(node_header(node), "E0124", f"{node.name!r} is a function, not a class")


def read_class(cx: Context, node: ast.ClassDef) -> Module:
    """The module that a class defines."""
    cx.s_tir = decorator_of(cx, node).options.get("s_tir")
    return read_module(cx, node.body, node.name, node)


def read_module(
    cx: Context, stmts: Iterable[ast.stmt], name: str, node: ast.AST | None = None
) -> Module:
    """The module of the functions among `stmts`. Every function is tried, errors or not."""
    stmts = list(stmts)
    cx.in_module = True
    _collect_names(cx, stmts)
    with cx.frame():
        cx.define("cls", ModuleRef())
        cx.define(name, ModuleRef())
        data = [s for s in stmts if isinstance(s, ast.ClassDef) and is_data_type(cx, s)]
        read_data_types(cx, data)
        attrs = cx.module_attrs()
        for stmt in (s for s in stmts if s not in data):
            with cx.recover(stmt):
                attrs = attrs.with_(**(_member(cx, stmt) or NO_ATTRS))
    cx.in_module = False
    functions = {k: f for k, f in cx.functions.items() if f is not None}
    return (
        Module.of(functions, attrs)
        if node is None
        else Module(tuple(functions.items()), attrs, name_hint=name, span=cx.span(node))
    )


def _collect_names(cx: Context, stmts: list[ast.stmt]) -> None:
    for stmt in stmts:
        name = None
        if isinstance(stmt, ast.FunctionDef) and not is_macro(cx, stmt):
            name = stmt.name
        if isinstance(stmt, ast.Assign) and isinstance(stmt.targets[0], ast.Name):
            name = stmt.targets[0].id
        if name is None:
            continue
        if name in cx.functions:
            where = node_header(stmt) if isinstance(stmt, ast.FunctionDef) else stmt
            cx.report(
                cx.error(
                    where, "E0115", f"the module defines {name!r} twice", help="rename one of them"
                )
            )
        cx.functions[name], cx.definitions[name] = None, stmt


def _member(cx: Context, stmt: ast.stmt) -> Attrs | None:
    """One statement of the class body; the module's attributes if it gives them."""
    match stmt:
        case ast.FunctionDef(name) if is_macro(cx, stmt):
            cx.define(name, macro_here(cx, stmt))
        case ast.FunctionDef(name):
            cx.functions[name] = read_definition(cx, stmt)
        case ast.Assign([ast.Name(name)], node):
            value = evaluate(cx, node)
            if not isinstance(value, graph.Function | loops.PrimFunc | graph.ExternFunc):
                cx.fail(
                    stmt,
                    "E0104",
                    f"{describe(value)} is not a function of the module",
                    help="write it before the class: programs know the names around them",
                )
            cx.functions[name] = value
        case ast.Expr(ast.Constant(str())) | ast.Pass():
            pass
        case ast.Expr(ast.Call() as call) if _statement(cx, call) == "module_attrs":
            return Attrs(_given(cx, arguments(cx, call, "I.module_attrs").bind()["attrs"]))
        case ast.Expr(ast.Call() as call) if _statement(cx, call) == "module_global_infos":
            infos = _given(cx, arguments(cx, call, "I.module_global_infos").bind()["infos"])
            return Attrs({GLOBAL_INFOS: infos})
        case ast.AsyncFunctionDef(name):
            cx.fail(stmt, "E0104", f"{name!r} cannot be asynchronous")
        case _:
            what, help = unsupported(stmt)
            cx.fail(stmt, "E0104", f"{what} is not part of a module", help=help)
    return None


def _given(cx: Context, given: Arg | None) -> dict[str, Any]:
    assert given is not None
    if not is_dict(given.value):
        cx.fail(given.node, "E0106", "attributes are a dictionary")
    return attribute_value(cx, given.value, given.node)


def _statement(cx: Context, call: ast.Call) -> str:
    """The name in `I` that a statement of the class calls; empty for something else."""
    try:
        callee = evaluate(cx, call.func)
    except Failure:
        return ""
    return callee.path if isinstance(callee, Ref) and callee.namespace == "I" else ""
