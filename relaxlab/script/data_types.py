"""Reading declarations of data types, and the patterns of `match`."""

from __future__ import annotations

import ast

from relaxlab.ir import expr, graph, types
from relaxlab.ir.data import Constructor, DataDef
from relaxlab.ir.errors import counted
from relaxlab.script.annotations import type_of
from relaxlab.script.core import Context
from relaxlab.script.expressions import evaluate
from relaxlab.script.values import Arg, ModuleRef, Ref

_FIELDS = 'a constructor has its fields\' types in a tuple: `Node: ("Tree", "Tree")`, `Nil: ()`'


def is_data_type(cx: Context, stmt: ast.stmt) -> bool:
    """True for a class with the decorator `@R.data`."""
    if not isinstance(stmt, ast.ClassDef) or len(stmt.decorator_list) != 1:
        return False
    with cx.recover(stmt):
        return evaluate(cx, stmt.decorator_list[0]) == Ref("R", "data")
    return False


def read_data_types(cx: Context, nodes: list[ast.ClassDef]) -> None:
    """Read the data types of a module into `cx.data`. They may mention each other."""
    for node in nodes:
        if node.name in cx.functions or node.name in cx.data:
            cx.report(cx.error(node, "E0115", f"the module defines {node.name!r} twice",
                               help="rename one of them"))  # fmt: skip
        cx.data[node.name] = DataDef(node.name, (), span=cx.span(node))
        cx.define(node.name, types.DataType(node.name))
    for node in nodes:
        found: list[Constructor] = []
        for stmt in node.body:
            with cx.recover(stmt):
                made = _constructor(cx, node.name, len(found), stmt)
                found += [] if made is None else [made]
        cx.data[node.name] = DataDef(node.name, tuple(found), span=cx.span(node))


def _constructor(cx: Context, data: str, tag: int, stmt: ast.stmt) -> Constructor | None:
    match stmt:
        case ast.Expr(ast.Constant(str())) | ast.Pass():
            return None
        case ast.AnnAssign(ast.Name(name), annotation, None):
            pass
        case _:
            cx.fail(stmt, "E0125", "this is no constructor of a data type", help=_FIELDS)
    if name in cx.constructors or name in cx.functions:
        cx.fail(stmt, "E0115", f"the module defines {name!r} twice", help="rename one of them")
    if not isinstance(annotation, ast.Tuple):
        cx.fail(annotation, "E0125", f"the fields of `{name}` are no tuple", help=_FIELDS)
    fields: list[types.Type] = []
    for e in annotation.elts:
        fields.append(types.ObjectType())  # of one that is wrong
        with cx.recover(e):
            fields[-1] = _field(cx, e)
    cx.constructors[name] = made = Constructor(data, name, tag, tuple(fields), span=cx.span(stmt))
    return made


def _field(cx: Context, node: ast.expr) -> types.Type:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        if node.value not in cx.data:
            cx.fail(node, "E0102", f"the module declares no data type {node.value!r}",
                    help=cx.suggest(node.value, cx.data))  # fmt: skip
        return types.DataType(node.value, span=cx.span(node))
    ty = type_of(cx, Arg(evaluate(cx, node), node))
    match ty:
        case types.DataType():
            return ty
        case types.TensorType(shape, str()) if shape is not None and all(
            isinstance(d, expr.IntImm) for d in shape
        ):
            return ty
        case _:
            cx.fail(
                node, "E0125",
                f"a field of a data type is a tensor of constant shape or a data type, not {ty}",
                help='write R.Tensor((), "int64") for an integer',
            )  # fmt: skip


def read_pattern(cx: Context, node: ast.match_case) -> tuple[str, list[graph.Var]]:
    """The constructor of a case, and new variables for the fields."""
    pattern = node.pattern
    if not isinstance(pattern, ast.MatchClass) or node.guard is not None or pattern.kwd_attrs:
        cx.fail(
            pattern, "E0125", "a case is a constructor with names for its fields",
            help="write `case cls.Node(left, right):`, a case for each constructor",
        )  # fmt: skip
    callee = pattern.cls
    base = evaluate(cx, callee.value) if isinstance(callee, ast.Attribute) else None
    name = callee.attr if isinstance(callee, ast.Attribute) else ast.unparse(callee)
    if not isinstance(base, ModuleRef) or name not in cx.constructors:
        cx.fail(
            callee, "E0102", f"the module has no constructor {ast.unparse(callee)!r}",
            help=cx.suggest(name, cx.constructors),
            notes=(f"it has: {', '.join(cx.constructors) or 'none'}",),
        )  # fmt: skip
    of = cx.constructors[name]
    if len(pattern.patterns) != len(of.fields):
        has = f"`{name}` has {counted(len(of.fields), 'field')}"
        text = f"{has}, and the case names {len(pattern.patterns)}"
        cx.fail(pattern, "E0125", text, help=f"it is {of!r}")
    fields: list[graph.Var] = []
    for p, ty in zip(pattern.patterns, of.fields, strict=True):
        if not isinstance(p, ast.MatchAs) or p.pattern is not None:
            cx.fail(p, "E0125", "the field of a pattern is a name",
                    help="match the field itself in the body of the case")  # fmt: skip
        if p.name is not None and any(p.name == f.name for f in fields):
            cx.fail(p, "E0125", f"two fields of the pattern are called {p.name!r}",
                    help="give each a name of its own; `_` is for what is not read")  # fmt: skip
        fields.append(graph.Var(p.name or "_", ty, span=cx.span(p)))
    return name, fields
