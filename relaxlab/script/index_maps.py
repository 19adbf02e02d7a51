"""Functions that take a lambda, which nothing else does: `T.index_map(lambda i, j: (j, i))`,
`T.prefix_sums(lambda i: s[i])`.
"""

from __future__ import annotations

import ast
from collections.abc import Callable

from relaxlab.analysis.index_map import IndexMap
from relaxlab.ir import expr, loops
from relaxlab.script.convert import cast, scalar_of
from relaxlab.script.core import Context
from relaxlab.script.values import Value, is_sequence


def index_map(cx: Context, node: ast.Call) -> IndexMap:
    """`T.index_map(lambda i, j: (j, i))`; as the argument `index_map`, the lambda alone will do."""
    match node:
        case ast.Call(_, [ast.Lambda() as written], keywords):
            _check_index_map(cx, keywords)
            return read_lambda(cx, written)
        case _:
            help = "write `T.index_map(lambda i, j: (j, i))`"
            cx.fail(node, "E0105", "T.index_map takes one lambda", help=help)


def _check_index_map(cx: Context, keywords: list[ast.keyword]) -> None:
    for k in keywords:
        if k.arg not in ("index_dtype", "inverse_index_map"):
            cx.fail(k.value, "E0105", f"T.index_map has no parameter {k.arg!r}")


def read_lambda(cx: Context, node: ast.Lambda) -> IndexMap:
    args, body = node.args, node.body
    if not args.args or args.defaults or args.vararg or args.kwonlyargs:
        cx.fail(node, "E0105", "an index map takes one variable per dimension")
    with cx.frame():
        variables = tuple(expr.Var(a.arg, span=cx.span(a)) for a in args.args)
        for v in variables:
            cx.define(v.name, v)
        value = cx.read(cx, body)
        items = value if is_sequence(value) else (value,)
        finals = tuple(scalar_of(cx, v, body) for v in items)
    return IndexMap(variables, finals, span=cx.span(node))


def prefix_sums(cx: Context, node: ast.Call) -> loops.PrefixSums:
    """`T.prefix_sums(lambda i: s[i])`."""
    match node:
        case ast.Call(_, [ast.Lambda(ast.arguments(args=[ast.arg(name)], defaults=[]), body)], []):
            pass
        case _:
            help = "write `T.prefix_sums(lambda i: s[i])`"
            cx.fail(node, "E0105", "T.prefix_sums takes one lambda of one index", help=help)
    with cx.frame():
        cx.define(name, loops.Position())
        of = cast(scalar_of(cx, cx.read(cx, body), body), "int64")
    return loops.PrefixSums(of, span=cx.span(node))


WITH_LAMBDA: dict[str, Callable[[Context, ast.Call], Value]] = {
    "index_map": index_map,
    "prefix_sums": prefix_sums,
}
"""The functions of `T` that take a lambda."""
