"""Take the marks of dataflow blocks away."""

from __future__ import annotations

from relaxlab.ir import graph
from relaxlab.ir.module import Module
from relaxlab.ir.substitute import substitute
from relaxlab.passes.base import NoOptions, module_pass
from relaxlab.passes.bindings import all_bindings, map_blocks, replace_body


@module_pass("to_non_dataflow")
def to_non_dataflow(mod: Module, _: NoOptions) -> Module:
    """Make plain blocks of dataflow blocks, and plain variables of theirs: the bindings then have
    an order that no pass changes."""
    return mod.with_functions({k: _plain(f) for k, f in mod.graph_functions().items()})


def plain_variables(fn: graph.Function) -> dict[graph.Var, graph.Expr]:
    """A variable for each one that only a dataflow block has."""
    return {
        b.var: graph.Var(b.var.name, b.var.ty, span=b.var.span)
        for b in all_bindings(fn)
        if isinstance(b.var, graph.DataflowVar)
    }


def _plain(fn: graph.Function) -> graph.Function:
    def block(blk: graph.BindingBlock) -> graph.BindingBlock:
        if not isinstance(blk, graph.DataflowBlock):
            return blk
        return graph.BindingBlock(blk.bindings, span=blk.span)

    return replace_body(fn, substitute(map_blocks(fn, block).body, values=plain_variables(fn)))
