"""Compute each pure value once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from relaxlab.ir import graph
from relaxlab.ir.module import Module
from relaxlab.ir.node import Node, map_children, replace
from relaxlab.ir.substitute import substitute
from relaxlab.passes.base import module_pass
from relaxlab.passes.bindings import expr_key, replace_body, with_bindings
from relaxlab.passes.effects import is_pure, overwritten_vars
from relaxlab.tracing import may_apply


@dataclass(frozen=True, slots=True)
class SharingOptions:
    """`calls_only`: tuples that are made twice, and fields that are taken twice, stay so."""

    calls_only: bool = False


@module_pass("eliminate_common_subexpr", SharingOptions, needs=("normalize",))
def eliminate_common_subexpr(mod: Module, options: SharingOptions) -> Module:
    """Bind a second evaluation of the same pure call, or the same tuple, to the first variable.

    It leaves copies (`y = x`) for `canonicalize` to remove. A value computed in a branch is known
    only there. Calls of other functions are taken for impure unless they are known to be pure.
    """
    of_tuples = (graph.Tuple, graph.TupleGetItem)
    shared = (graph.Call,) if options.calls_only else (graph.Call, *of_tuples)
    updates: dict[str, graph.Function] = {}
    for name, fn in mod.graph_functions().items():
        state = _Eliminator(name, mod, overwritten_vars(fn, mod), shared)
        updates[name] = replace_body(fn, state.sequence(fn.body, {}))
    return mod.with_functions(updates)


@dataclass(frozen=True, slots=True)
class _Eliminator:
    """`overwritten`: values that must stay of their own, because a call overwrites them.
    `shared`: the kinds of values that are computed once."""

    name: str
    mod: Module
    overwritten: set[graph.Var]
    shared: tuple[type[graph.Expr], ...]

    def sequence(self, seq: graph.SeqExpr, known: dict[Any, graph.Var]) -> graph.SeqExpr:
        """Return the sequence without repeated evaluations; `known` maps what was computed before
        to the variable that holds it."""
        same: dict[graph.Var, graph.Expr] = {}
        blocks: list[graph.BindingBlock] = []
        for block in seq.blocks:
            bindings: list[graph.Binding] = []
            local: list[Any] = []
            for b in block.bindings:
                new = substitute(b, values=same) if same else b
                if isinstance(new, graph.VarBinding):
                    key, new = self.binding(new, known, same)
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

    def binding(
        self,
        b: graph.VarBinding,
        known: dict[Any, graph.Var],
        same: dict[graph.Var, graph.Expr],
    ) -> tuple[Any, graph.VarBinding]:
        """The key this binding adds to `known` (None: none), and the binding to write."""
        if isinstance(b.value, graph.If):

            def branch(n: Node) -> Node:
                return self.sequence(n, dict(known)) if isinstance(n, graph.SeqExpr) else n

            value = map_children(b.value, branch)
            return None, b if value is b.value else replace(b, value=value)
        shared = isinstance(b.value, self.shared)
        if not shared or b.var in self.overwritten or not is_pure(b.value, self.mod):
            return None, b
        key = expr_key(b.value)
        first = known.get(key)
        if first is None:
            known[key] = b.var
            return key, b
        reason = f"is computed as {first.name}"
        if not may_apply("eliminate_common_subexpr", f"{self.name}.{b.var.name}", reason):
            return None, b
        if isinstance(b.var, graph.DataflowVar) or not isinstance(first, graph.DataflowVar):
            same[b.var] = first  # otherwise the copy carries the value out of the block
        return None, replace(b, value=first)
