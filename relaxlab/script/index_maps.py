"""Functions that take a lambda, which nothing else does: `T.index_map(lambda i, j: (j, i))`,
`T.prefix_sums(lambda i: s[i])`, `T.comm_reducer(lambda x, y: x + y, [T.float32(0)])`.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from functools import partial

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


def reducer(cx: Context, node: ast.Call) -> loops.Reducer:
    """`T.comm_reducer(lambda x, y: x + y, [T.float32(0)])`: of n values the lambda takes 2 n."""
    written = dict(zip(("combiner", "identity"), node.args, strict=False))
    written |= {k.arg: k.value for k in node.keywords if k.arg is not None}
    match written:
        case {"combiner": ast.Lambda(args=args) as combiner, "identity": identity}:
            pass
        case _:
            help = "write `T.comm_reducer(lambda x, y: x + y, [T.float32(0)])`"
            cx.fail(node, "E0105", "T.comm_reducer takes a lambda and a list of values", help=help)
    given = cx.read(cx, identity)
    identities = tuple(scalar_of(cx, v, identity) for v in (given if is_sequence(given) else ()))
    count = len(identities)
    if not count or len(args.args) != 2 * count:
        text = f"{len(args.args)} parameters to combine {count} values with as many others"
        cx.fail(combiner, "E0105", text, help="write two for each identity")
    with cx.frame():
        variables = tuple(
            expr.Var(a.arg, identities[i % count].dtype, span=cx.span(a))
            for i, a in enumerate(args.args)
        )
        for v in variables:
            cx.define(v.name, v)
        value = cx.read(cx, combiner.body)
        items = value if is_sequence(value) else (value,)
        if len(items) != count:
            cx.fail(combiner.body, "E0105", f"{len(items)} results for {count} values")
        pairs = zip(items, identities, strict=True)
        results = tuple(scalar_of(cx, v, combiner.body, i.dtype) for v, i in pairs)
    both = variables[:count], variables[count:]
    return loops.Reducer(*both, results, identities, span=cx.span(node))


FACTS_OF_EACH: dict[type[loops.FactOfEach], str] = {
    loops.PrefixSums: "prefix_sums",
    loops.SegmentIds: "segment_ids",
    loops.Permutation: "permutation",
}
"""The facts with an expression of the position, and their names in `T`."""


def fact_of_each(kind: Callable[..., Value], name: str, cx: Context, node: ast.Call) -> Value:
    """`T.prefix_sums(lambda i: s[i])` and its like."""
    match node:
        case ast.Call(_, [ast.Lambda(ast.arguments(args=[ast.arg(index)], defaults=[]), body)], []):
            pass
        case _:
            help = f"write `T.{name}(lambda i: s[i])`"
            cx.fail(node, "E0105", f"T.{name} takes one lambda of one index", help=help)
    with cx.frame():
        cx.define(index, loops.Position())
        of = cast(scalar_of(cx, cx.read(cx, body), body), "int64")
    return kind(of, span=cx.span(node))


WITH_LAMBDA: dict[str, Callable[[Context, ast.Call], Value]] = {
    "index_map": index_map,
    "comm_reducer": reducer,
    **{name: partial(fact_of_each, kind, name) for kind, name in FACTS_OF_EACH.items()},
}
"""The functions of `T` that take a lambda."""
