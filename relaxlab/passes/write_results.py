"""Let functions that run batches write their results into memory of the caller."""

from __future__ import annotations

from dataclasses import dataclass, field

from relaxlab.ir import graph, loops, types
from relaxlab.ir.equal import structural_key
from relaxlab.ir.module import Module
from relaxlab.ir.node import Attrs, replace
from relaxlab.passes.base import NoOptions, module_pass
from relaxlab.passes.batch_blocks import BATCHED, flat_types
from relaxlab.passes.batch_loops import copy_rows
from relaxlab.passes.bindings import (
    TirCall,
    all_bindings,
    known_shape,
    leaf_type,
    map_blocks,
    replace_body,
    tir_call,
    with_bindings,
)
from relaxlab.passes.make_blocks import RECORDED
from relaxlab.tracing import remark


@module_pass("write_results", needs=("batch_blocks",))
def write_results(mod: Module, _: NoOptions) -> Module:
    """Give each function with the attribute `batched` a parameter per result, behind its inputs,
    which it overwrites and returns: so results of a batch go straight to their rows of the arena.

    A result of a kernel is written there by the kernel, any other is copied.
    """
    updates: dict[str, graph.Function | loops.PrimFunc] = {}
    copies: dict[str, str] = {}
    for name, fn in mod.graph_functions().items():
        if BATCHED in fn.attrs and "results" not in fn.attrs:
            writer = _Writer(mod, name, fn, updates, copies)
            updates[name] = writer.function()
    inputs = {n: f.attrs["num_input"] for n, f in mod.graph_functions().items() if n in updates}
    for name, fn in mod.graph_functions().items():
        if RECORDED in fn.attrs:
            updates[name] = map_blocks(fn, lambda b: _with_memory(b, inputs))
    return mod.with_functions(updates)


@dataclass(slots=True)
class _Writer:
    mod: Module
    name: str
    fn: graph.Function
    made: dict[str, graph.Function | loops.PrimFunc]
    copies: dict[str, str]
    targets: dict[graph.Var, list[tuple[int, graph.Var]]] = field(default_factory=lambda: {})
    """For the variable of a call, which of its outputs overwrite which parameters."""

    def function(self) -> graph.Function:
        fn, body = self.fn, self.fn.body.body
        results = body.fields if isinstance(body, graph.Tuple) else (body,)
        made_by = {b.var: b.value for b in all_bindings(fn)}
        params: list[graph.Var] = []
        extra: list[graph.Binding] = []
        returned: list[graph.Expr] = []
        for r, ty in zip(results, flat_types(leaf_type(body)), strict=True):
            out = graph.Var(f"out{len(params)}", ty)
            params.append(out)
            if isinstance(r, graph.Var) and r not in returned and self.written(r, out, made_by):
                returned.append(r)
                remark("write_results", f"{self.name}.{out.name}", "is written by its kernel")
            else:
                var = graph.Var(out.name, ty)
                call = TirCall(self.copy(ty), (r, out), (), (ty,), (1,))
                extra.append(graph.VarBinding(call.build(), var))
                returned.append(var)
                remark("write_results", f"{self.name}.{out.name}", "is a copy", applied=False)
        fn = map_blocks(fn, self.block)
        blocks = (*fn.body.blocks, *([graph.DataflowBlock(tuple(extra))] if extra else []))
        value = returned[0] if len(returned) == 1 else graph.Tuple(tuple(returned))
        count = fn.attrs["num_input"]
        return replace(
            replace_body(fn, replace(fn.body, blocks=blocks, body=value)),
            params=(*fn.params[:count], *params, *fn.params[count:]),
            attrs=fn.attrs.with_(num_input=count + len(params), results=len(params)),
        )

    def written(self, r: graph.Var, out: graph.Var, made_by: dict[graph.Var, graph.Expr]) -> bool:
        """True if the call that makes a result can write it to `out`, as is noted then."""
        value, index, var = made_by.get(r), 0, r
        if isinstance(value, graph.TupleGetItem) and isinstance(value.tuple_value, graph.Var):
            index, var = value.index, value.tuple_value
            value = made_by.get(var)
        call = None if value is None else tir_call(value)
        taken = self.targets.get(var, [])
        # Parameters come before the outputs that the call makes: these have to be the last.
        if call is None or call.inplace or index != len(taken):
            return False
        self.targets[var] = [*taken, (index, out)]
        return True

    def block(self, blk: graph.BindingBlock) -> graph.BindingBlock:
        return with_bindings(blk, [self.binding(b) for b in blk.bindings])

    def binding(self, b: graph.Binding) -> graph.Binding:
        targets = self.targets.get(b.var)
        call = tir_call(b.value)
        if not targets or call is None:
            return b
        args = (*call.args, *(out for _, out in targets))
        places = [-1] * len(call.outs)
        for i, _ in targets:
            places[i] = len(call.args) + i
        made = TirCall(call.callee, args, call.symbols, call.outs, tuple(places)).build()
        return replace(b, value=replace(made, span=b.value.span))

    def copy(self, ty: types.TensorType) -> str:
        """The name of the loop function that copies a batch of this type."""
        shape = known_shape(ty)
        assert shape is not None
        key = structural_key(replace(ty, shape=shape[1:]))
        if key not in self.copies:
            name = self.mod.with_functions(self.made).fresh_name("copy_rows")
            self.copies[key] = name
            self.made[name] = copy_rows(shape[1:], str(ty.dtype))
        return self.copies[key]


def _with_memory(blk: graph.BindingBlock, inputs: dict[str, int]) -> graph.BindingBlock:
    """Give calls of the functions new tensors to write to, behind so many inputs."""
    new: list[graph.Binding] = []
    for b in blk.bindings:
        match b.value:
            case graph.Call(graph.GlobalVar(name), args) if name in inputs:
                outs = [graph.Var("out", t) for t in flat_types(b.var.ty)]
                new += [graph.VarBinding(_zeros(o.ty), o) for o in outs]
                given = (*args[: inputs[name]], *outs, *args[inputs[name] :])
                new.append(replace(b, value=replace(b.value, args=given)))
            case _:
                new.append(b)
    return with_bindings(blk, new)


def _zeros(ty: types.Type | None) -> graph.Call:
    assert isinstance(ty, types.TensorType) and ty.shape is not None
    shape, attrs = graph.ShapeExpr(ty.shape), Attrs(dtype=ty.dtype)
    return graph.Call(graph.Op("zeros"), (shape,), attrs)
