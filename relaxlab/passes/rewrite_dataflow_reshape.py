"""Calls of loop functions that only copy elements in their order become reshapes."""

from __future__ import annotations

import math

from relaxlab.analysis.arith import Analyzer
from relaxlab.ir import expr, graph, loops
from relaxlab.ir.module import Module
from relaxlab.ir.node import replace, walk
from relaxlab.ir.row_major import place
from relaxlab.passes.base import NoOptions, module_pass
from relaxlab.passes.bindings import known_shape, map_blocks, tir_call, with_bindings
from relaxlab.tracing import may_apply

RULE = "rewrite_dataflow_reshape"


@module_pass(RULE, needs=("normalize",))
def rewrite_dataflow_reshape(mod: Module, _: NoOptions) -> Module:
    """In dataflow blocks, replace calls of loop functions that are reshapes by `reshape`, which
    needs no copy. The loop functions are proved to write each element to its place in the order of
    memory."""
    copies = {name for name, fn in mod.loop_functions().items() if is_reshape(fn)}

    def block(name: str, blk: graph.BindingBlock) -> graph.BindingBlock:
        if not isinstance(blk, graph.DataflowBlock):
            return blk
        return with_bindings(blk, [_reshaped(name, b, copies) for b in blk.bindings])

    updates = {
        name: map_blocks(fn, lambda b, n=name: block(n, b))
        for name, fn in mod.graph_functions().items()
    }
    return mod.with_functions(updates)


def _reshaped(name: str, b: graph.Binding, copies: set[str]) -> graph.Binding:
    call = tir_call(b.value)
    if call is None or call.callee not in copies or call.inplace or len(call.args) != 1:
        return b
    shape = known_shape(call.outs[0])
    if shape is None or not may_apply(RULE, f"{name}.{b.var.name}", f"{call.callee} only copies"):
        return b
    args = (call.args[0], graph.ShapeExpr(shape))
    return replace(b, value=graph.Call(graph.Op("reshape"), args, span=b.value.span))  # type: ignore[call-arg]


def is_reshape(fn: loops.PrimFunc) -> bool:
    """True if a loop function provably copies its first buffer to its second, element by element in
    the order of memory."""
    if len(fn.buffers) != 2:
        return False
    source, target = fn.buffers
    blocks = [n for n in walk(fn.body) if isinstance(n, loops.Block) and n.iter_vars]
    stores = [n for n in walk(fn.body) if isinstance(n, loops.BufferStore)]
    if len(stores) != 1 or len(blocks) != 1 or source.dtype != target.dtype:
        return False
    (store,), (block,) = stores, blocks
    value = store.value
    if store.buffer is not target or not isinstance(value, loops.BufferLoad):
        return False
    axes = [iv.var for iv in block.iter_vars]
    spatial = all(iv.kind == "spatial" for iv in block.iter_vars)
    if value.buffer is not source or [*store.indices] != axes or not spatial:
        return False
    analyzer = Analyzer.for_shapes(source.shape, target.shape)
    for iv in block.iter_vars:
        analyzer.bind_range(iv.var, iv.dom)
    sizes = [math.prod(b.shape, start=expr.const(1)) for b in (source, target)]
    places = place(value.indices, source.shape), place(store.indices, target.shape)
    return analyzer.prove_equal(*sizes) is True and analyzer.prove_equal(*places) is True
