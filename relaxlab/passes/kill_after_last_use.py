"""Say where storages and tensors in them are used last."""

from __future__ import annotations

from relaxlab.ir import graph
from relaxlab.ir.module import Module
from relaxlab.ir.node import replace
from relaxlab.ir.types import TupleType
from relaxlab.passes.base import NoOptions, module_pass
from relaxlab.passes.bindings import vars_in

KILLS = {"memory.alloc_storage": "memory.kill_storage", "memory.alloc_tensor": "memory.kill_tensor"}
"""The operator that ends what an operator begins."""


@module_pass("kill_after_last_use", needs=("normalize",))
def kill_after_last_use(mod: Module, _: NoOptions) -> Module:
    """Write `memory.kill_storage` and `memory.kill_tensor` after the binding that reads a storage,
    or a tensor in one, last. What a function returns, or only renames, stays."""
    return mod.with_functions({k: _function(f) for k, f in mod.graph_functions().items()})


def _function(fn: graph.Function) -> graph.Function:
    bindings = [b for blk in fn.body.blocks for b in blk.bindings]
    made = {b.var: KILLS[name] for b in bindings if (name := _operator(b.value)) in KILLS}
    if not made:
        return fn
    kept = {*vars_in(fn.body.body)}
    last: dict[graph.Var, graph.Binding] = {}
    for b in bindings:
        if _operator(b.value) not in KILLS:
            aliases = isinstance(b.value, graph.Var | graph.Tuple | graph.If | graph.SeqExpr)
            kept |= {*vars_in(b.value)} if aliases else set()
        last |= dict.fromkeys(vars_in(b.value), b)
    ends: dict[int, list[graph.Binding]] = {}
    for var, kill in made.items():
        end = last.get(var)
        if end is not None and var not in kept and _operator(end.value) not in KILLS.values():
            nothing = graph.Var("_", TupleType(()))
            call = graph.Call(graph.Op(kill), (var,))
            ends.setdefault(id(end), []).append(graph.VarBinding(call, nothing))
    if not ends:
        return fn
    blocks = tuple(
        replace(blk, bindings=tuple(x for b in blk.bindings for x in (b, *ends.get(id(b), ()))))
        for blk in fn.body.blocks
    )
    return replace(fn, body=replace(fn.body, blocks=blocks))


def _operator(value: graph.Expr) -> str:
    """The name of the operator that is called; empty for anything else."""
    called = value.op if isinstance(value, graph.Call) else None
    return called.name if isinstance(called, graph.Op) else ""
