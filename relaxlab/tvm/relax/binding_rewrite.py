"""`relax.DataflowBlockRewrite`: changes of a dataflow block and of the function around it."""

from __future__ import annotations

from typing import Any

from relaxlab.analysis.deduce import type_of
from relaxlab.ir import graph
from relaxlab.ir.module import Module
from relaxlab.ir.names import UniqueNames
from relaxlab.ir.node import Node, map_children, replace
from relaxlab.passes.bindings import all_bindings, map_blocks, use_counts, with_bindings
from relaxlab.passes.dead_code_elimination import remove_unread
from relaxlab.tvm.accessors import name_of_function


class DataflowBlockRewrite:
    """A function and one of its dataflow blocks, being changed."""

    def __init__(self, dfb: graph.DataflowBlock, root_fn: graph.Function) -> None:
        if not any(blk is dfb for blk in root_fn.body.blocks):
            raise ValueError("the dataflow block is not one of the function's")
        self._place = next(i for i, blk in enumerate(root_fn.body.blocks) if blk is dfb)
        self._before, self._fn = root_fn, root_fn

    def _update(self, fn: graph.Function) -> None:
        if len(fn.body.blocks) != len(self._fn.body.blocks):
            raise ValueError("the change leaves out a block of the function")
        self._fn = fn

    def replace_all_uses(self, old_var: graph.Var, new_var: graph.Var) -> None:
        """Read a variable in the place of another."""

        def visit(n: Node) -> Node:
            if n is old_var:
                return new_var
            if isinstance(n, graph.Binding):
                return replace(n, value=visit(n.value))  # type: ignore[call-arg]
            return map_children(n, visit)

        body: Any = visit(self._fn.body)
        self._update(replace(self._fn, body=body))

    def add_binding(self, binding: graph.Binding) -> None:
        """Append a binding to the block."""
        blocks = list(self._fn.body.blocks)
        block = blocks[self._place]
        blocks[self._place] = replace(block, bindings=(*block.bindings, binding))
        self._update(replace(self._fn, body=replace(self._fn.body, blocks=tuple(blocks))))

    def add(self, expr: graph.Expr, name: str | None = None, is_dfvar: bool = False) -> None:
        """Append a binding of a value, to a variable that only the block sees if `is_dfvar`."""
        known = (*self._fn.params, *(b.var for b in all_bindings(self._fn)))
        names = UniqueNames(v.name for v in known)
        kind = graph.DataflowVar if is_dfvar else graph.Var
        var = kind(names(name or ("lv" if is_dfvar else "gv")), type_of(expr, computable=False))
        self.add_binding(graph.VarBinding(expr, var))

    def remove_unused(self, var: graph.Var, allow_undef: bool = False) -> None:
        """Remove the binding of a variable. Raises ValueError where something reads it, or where
        there is none, unless `allow_undef`."""
        if not any(b.var is var for b in all_bindings(self._fn)):
            if allow_undef:
                return
            raise ValueError(f"the function has no binding of {var.name!r}")
        if use_counts(self._fn)[var]:
            raise ValueError(f"{var.name!r} is read")

        def block(blk: graph.BindingBlock) -> graph.BindingBlock:
            return with_bindings(blk, [b for b in blk.bindings if b.var is not var])

        self._update(map_blocks(self._fn, block))

    def remove_all_unused(self) -> None:
        """Remove all bindings that nothing reads."""
        self._update(remove_unread(self._fn))

    def mutated_dfb(self) -> graph.BindingBlock:
        """The block as it is now."""
        return self._fn.body.blocks[self._place]

    def mutated_root_fn(self) -> graph.Function:
        """The function as it is now."""
        return self._fn

    def mutate_irmodule(self, irmodule: Module) -> Module:
        """A module with the function as it is now in the place of what it was."""
        here = [name for name, f in irmodule.graph_functions().items() if f is self._before]
        return irmodule.with_functions({(here or [name_of_function(self._before)])[0]: self._fn})
