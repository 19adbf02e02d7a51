"""Private functions and all their calls, for passes that change signatures."""

from __future__ import annotations

from collections.abc import Callable

from relaxlab.ir import graph
from relaxlab.ir.module import Module
from relaxlab.ir.node import Node, map_children, replace, walk


def called_only(mod: Module) -> dict[str, graph.Function]:
    """The private graph functions that nothing but calls mentions, so that their signatures may
    change together with the calls."""
    private = {
        k: f
        for k, f in mod.graph_functions().items()
        if f.private and not f.attrs.get("Primitive") and "Composite" not in f.attrs
    }
    for fn in mod.graph_functions().values():
        mentions = [n.name for n in walk(fn) if isinstance(n, graph.GlobalVar)]
        calls = [n.op.name for n in walk(fn) if isinstance(n, graph.Call)
                 and isinstance(n.op, graph.GlobalVar)]  # fmt: skip
        for name in {*private}:
            if mentions.count(name) != calls.count(name):
                del private[name]
    return private


def map_calls(
    fn: graph.Function, names: set[str], rewrite: Callable[[str, graph.Call], graph.Expr]
) -> graph.Function:
    """A function with the calls of the named functions rewritten."""

    def visit(n: Node) -> Node:
        new = map_children(n, visit)
        match new:
            case graph.Call(graph.GlobalVar(name)) if name in names:
                return rewrite(name, new)
            case _:
                return new

    body = visit(fn.body)
    assert isinstance(body, graph.SeqExpr)
    return fn if body is fn.body else replace(fn, body=body)
