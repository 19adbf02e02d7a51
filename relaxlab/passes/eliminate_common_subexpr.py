"""Compute each pure value once."""

from __future__ import annotations

from typing import Any

from relaxlab.ir import graph
from relaxlab.ir.module import Module
from relaxlab.ir.node import Node, map_children, replace
from relaxlab.ir.substitute import substitute
from relaxlab.passes.base import NoOptions, module_pass
from relaxlab.passes.bindings import expr_key, is_pure, replace_body, with_bindings
from relaxlab.tracing import note


@module_pass("eliminate_common_subexpr")
def eliminate_common_subexpr(mod: Module, _: NoOptions) -> Module:
    """Bind a second evaluation of the same pure call to the first one's variable.

    The copies it leaves (`y = x`) are what `canonicalize` removes. A value computed in a branch is
    known only there. Calls of other functions are left alone unless they are pure.
    """
    updates: dict[str, graph.Function] = {}
    for name, fn in mod.graph_functions().items():
        updates[name] = replace_body(fn, _sequence(name, fn.body, {}, mod))
    return mod.with_functions(updates)


def _sequence(
    name: str, seq: graph.SeqExpr, known: dict[Any, graph.Var], mod: Module
) -> graph.SeqExpr:
    same: dict[graph.Var, graph.Expr] = {}
    blocks: list[graph.BindingBlock] = []
    for block in seq.blocks:
        bindings: list[graph.Binding] = []
        local: list[Any] = []
        for b in block.bindings:
            new = substitute(b, values=same) if same else b
            if isinstance(new, graph.VarBinding):
                key, new = _binding(name, new, known, same, mod)
                if key is not None and isinstance(new.var, graph.DataflowVar):
                    local.append(key)
            bindings.append(new)
        for key in local:  # dataflow variables are not visible after their block
            del known[key]
        blocks.append(with_bindings(block, bindings))
    body = substitute(seq.body, values=same) if same else seq.body
    if body is seq.body and all(a is b for a, b in zip(blocks, seq.blocks, strict=True)):
        return seq
    return replace(seq, blocks=tuple(blocks), body=body)


def _binding(
    name: str,
    b: graph.VarBinding,
    known: dict[Any, graph.Var],
    same: dict[graph.Var, graph.Expr],
    mod: Module,
) -> tuple[Any, graph.VarBinding]:
    """The key this binding adds to `known` (None: none), and the binding to write."""
    if isinstance(b.value, graph.If):

        def branch(n: Node) -> Node:
            if isinstance(n, graph.SeqExpr):
                return _sequence(name, n, dict(known), mod)
            return n

        value = map_children(b.value, branch)
        return None, b if value is b.value else replace(b, value=value)
    if not isinstance(b.value, graph.Call | graph.TupleGetItem) or not is_pure(b.value, mod):
        return None, b
    key = expr_key(b.value)
    first = known.get(key)
    if first is None:
        known[key] = b.var
        return key, b
    note("eliminate_common_subexpr", f"{name}.{b.var.name}", f"is computed as {first.name}")
    if isinstance(b.var, graph.DataflowVar) or not isinstance(first, graph.DataflowVar):
        same[b.var] = first  # otherwise the copy carries the value out of the block
    return None, replace(b, value=first)
