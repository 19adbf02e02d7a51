"""Note which buffers of loop functions hold weights, whose layout is free."""

from __future__ import annotations

from collections.abc import Sequence

from relaxlab.ir import graph
from relaxlab.ir.loops import PrimFunc
from relaxlab.ir.module import Module
from relaxlab.ir.node import replace
from relaxlab.passes.base import NoOptions, module_pass
from relaxlab.passes.bindings import all_bindings, map_blocks, tir_call, with_bindings
from relaxlab.passes.new_functions import NewFunctions

FREE = "layout_free_buffers"


@module_pass("mark_free_layouts", needs=("normalize",))
def mark_free_layouts(mod: Module, _: NoOptions) -> Module:
    """Call copies of loop functions whose attribute `layout_free_buffers` has the places of
    arguments that are constants or weights: the parameters after `num_input`, all inputs if a
    function does not say. A schedule may store these in another order."""
    copies = NewFunctions[PrimFunc](mod)
    updates = {name: _function(fn, mod, copies) for name, fn in mod.graph_functions().items()}
    marked = mod.with_functions({**updates, **copies.made})
    return marked.without(*_replaced(mod, marked)) if copies.made else mod


def _function(fn: graph.Function, mod: Module, copies: NewFunctions[PrimFunc]) -> graph.Function:
    inputs = fn.attrs.get("num_input", len(fn.params))
    weights = {*fn.params[inputs:]}

    def binding(b: graph.Binding) -> graph.Binding:
        call = tir_call(b.value)
        func = mod.get(call.callee) if call is not None else None
        if call is None or not isinstance(func, PrimFunc):
            return b
        places = [
            i for i, a in enumerate(call.args) if isinstance(a, graph.Constant) or a in weights
        ]
        if func.attrs.get(FREE) == tuple(places):
            return b
        marked = replace(func, attrs=func.attrs.with_(**{FREE: tuple(places)}))
        name = copies.name_of(marked, call.callee)
        args = (graph.GlobalVar(name), *b.value.args[1:])  # type: ignore[attr-defined]
        return replace(b, value=replace(b.value, args=args))  # type: ignore[call-arg]

    return map_blocks(fn, lambda blk: with_bindings(blk, [binding(b) for b in blk.bindings]))


def _replaced(before: Module, after: Module) -> Sequence[str]:
    """The private loop functions that calls were of, and are no longer."""
    was, now = (
        {c.callee for f in m.graph_functions().values() for b in all_bindings(f)
         if (c := tir_call(b.value)) is not None}
        for m in (before, after)
    )  # fmt: skip
    return sorted(name for name in was - now if before.loop_functions()[name].private)
