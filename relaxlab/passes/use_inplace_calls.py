"""Calls of operators that write their result over an operand, before operators are lowered."""

from __future__ import annotations

from collections.abc import Mapping

from relaxlab.ir import graph
from relaxlab.ir.module import BaseFunc, Module
from relaxlab.passes.base import NoOptions, module_pass
from relaxlab.passes.bindings import all_bindings, map_blocks, tir_call, vars_in, with_bindings
from relaxlab.passes.legalize_ops import legalize_ops
from relaxlab.passes.overwrite_operands import OverwriteOptions, overwrite_operands
from relaxlab.tracing import first_rewrites, may_apply, recording

RULE = "use_inplace_calls"


@module_pass(RULE, needs=("normalize",))
def use_inplace_calls(mod: Module, _: NoOptions) -> Module:
    """In dataflow blocks, a call of an operator becomes an in-place call of its loops where these
    may overwrite an operand that nothing reads afterwards. All other operators stay operators.

    The lowered program decides: the calls are those that `overwrite_operands` finds in it.
    """
    with recording(), first_rewrites(None):  # a trial: its decisions are none of the program's
        whole = OverwriteOptions(constant_sizes=True)
        lowered = overwrite_operands.function(legalize_ops(mod), whole)
    updates: dict[str, BaseFunc] = {}
    for name, fn in mod.graph_functions().items():
        known = {*fn.params, *(b.var for b in all_bindings(fn))}
        new = lowered[name]
        assert isinstance(new, graph.Function)
        inplace = {
            b.var: b
            for b in all_bindings(new)
            if (call := tir_call(b.value)) and call.inplace and known.issuperset(vars_in(b.value))
        }
        changed = map_blocks(fn, lambda block, n=name, found=inplace: _with_calls(n, block, found))
        updates[name] = changed
        calls = filter(None, (tir_call(b.value) for b in all_bindings(changed)))
        updates.update((call.callee, lowered[call.callee]) for call in calls)
    return mod.with_functions(updates)


def _with_calls(
    name: str, block: graph.BindingBlock, found: Mapping[graph.Var, graph.Binding]
) -> graph.BindingBlock:
    """The block, if it is one of dataflow, with the calls of operators that were found in place."""
    if not isinstance(block, graph.DataflowBlock):
        return block
    bindings: list[graph.Binding] = []
    for b in block.bindings:
        new, call = found.get(b.var, b), tir_call(found[b.var].value) if b.var in found else None
        if call is None or tir_call(b.value) is not None:
            bindings.append(b)
            continue
        operand = call.args[call.inplace[0]]
        assert isinstance(operand, graph.Var)
        may = may_apply(RULE, f"{name}.{b.var.name}", f"is written over `{operand.name}`")
        bindings.append(new if may else b)
    return with_bindings(block, bindings)
