"""Say where storages, tensors and objects are used last."""

from __future__ import annotations

from relaxlab.ir import graph
from relaxlab.ir.module import Module
from relaxlab.ir.types import ObjectType, TensorType, TupleType
from relaxlab.passes.base import NoOptions, module_pass
from relaxlab.passes.bindings import map_seq, replace_body, vars_in, with_bindings

STORAGES = ("memory.alloc_storage", "vm.alloc_storage")
ALIASES = graph.Var | graph.Tuple | graph.If


@module_pass("kill_after_last_use", needs=("normalize",))
def kill_after_last_use(mod: Module, _: NoOptions) -> Module:
    """Write `memory.kill_storage`, `memory.kill_tensor` and `vm.kill_object` after the binding that
    reads a storage, a tensor or another object last, in the sequence that binds it. What a function
    returns, or only renames, stays, and so does what a branch reads."""
    return mod.with_functions({k: _function(f) for k, f in mod.graph_functions().items()})


def _function(fn: graph.Function) -> graph.Function:
    ends = dict[int, list[graph.Binding]]()
    _collect(fn.body, ends)
    if not ends:
        return fn

    def block(blk: graph.BindingBlock) -> graph.BindingBlock:
        return with_bindings(blk, [x for b in blk.bindings for x in (b, *ends.get(id(b.var), ()))])

    return replace_body(fn, map_seq(fn.body, block))


def _collect(seq: graph.SeqExpr, ends: dict[int, list[graph.Binding]]) -> None:
    """The kills of what a sequence and the branches in it bind, by the variables of the bindings
    that they follow. Who uses a tuple, or another name, uses what it is made of."""
    bindings = [b for blk in seq.blocks for b in blk.bindings]
    made: dict[graph.Var, str] = {}
    parts: dict[graph.Var, set[graph.Var]] = {}
    last: dict[graph.Var, graph.Binding] = {}

    def used(e: graph.Expr) -> set[graph.Var]:
        return {v for var in vars_in(e) for v in (var, *parts.get(var, ()))}

    for b in bindings:
        if isinstance(b.value, graph.If):
            _collect(b.value.true_branch, ends)
            _collect(b.value.false_branch, ends)
        last |= dict.fromkeys(used(b.value), b)
        if isinstance(b.value, ALIASES):
            parts[b.var] = used(b.value)
        elif (kill := _kill(b)) is not None:
            made[b.var] = kill
    kept = used(seq.body)
    for var, kill in made.items():
        end = last.get(var)
        if end is None or var in kept or isinstance(end.value, graph.If):
            continue
        if ".kill_" in _operator(end.value):  # by the program itself
            continue
        call = graph.Call(graph.Op(kill), (var,))
        ends.setdefault(id(end.var), []).append(
            graph.VarBinding(call, graph.Var("_", TupleType(())))
        )


def _kill(b: graph.Binding) -> str | None:
    """The operator that ends what a binding makes; None where nothing does."""
    if _operator(b.value) in STORAGES:
        return "memory.kill_storage"
    match b.var.ty:
        case TensorType():
            return "memory.kill_tensor"
        case ObjectType() | TupleType(fields=(_, *_)):
            return "vm.kill_object"
        case _:
            return None


def _operator(value: graph.Expr) -> str:
    """The name of the operator that is called; empty for anything else."""
    called = value.op if isinstance(value, graph.Call) else None
    return called.name if isinstance(called, graph.Op) else ""
