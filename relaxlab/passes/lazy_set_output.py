"""Hand out results when they are computed."""

from __future__ import annotations

from collections.abc import Sequence

from relaxlab.ir import expr, graph, types
from relaxlab.ir.module import Module
from relaxlab.ir.names import UniqueNames
from relaxlab.ir.node import replace
from relaxlab.passes.base import NoOptions, module_pass
from relaxlab.passes.lazy_get_input import INDEX
from relaxlab.passes.to_non_dataflow import to_non_dataflow

NOTHING = types.TupleType(())


@module_pass("lazy_set_output", needs=("normalize",))
def lazy_set_output(mod: Module, _: NoOptions) -> Module:
    """Give public functions a function as parameter, after the first `num_input` where they have
    this attribute, which is called with the number and the value of each result as soon as it is
    computed. They return nothing.
    """
    public = {k: f for k, f in mod.graph_functions().items() if not f.private}
    flat = to_non_dataflow(mod).graph_functions()  # the calls have effects
    return mod.with_functions({k: _lazy(flat[k]) for k in public})


def _lazy(fn: graph.Function) -> graph.Function:
    names = UniqueNames(p.name for p in fn.params)
    ty = types.FuncType((INDEX, types.ObjectType()), NOTHING, is_pure=False)
    setter = graph.Var(names("fset_output"), ty)
    result = fn.body.body
    fields = result.fields if isinstance(result, graph.Tuple) else (result,)
    calls = [_call(setter, i, field) for i, field in enumerate(fields)]
    ready = dict[graph.Var, list[graph.Binding]]()
    last: list[graph.Binding] = []
    bound = {b.var for block in fn.body.blocks for b in block.bindings}
    for field, call in zip(fields, calls, strict=True):
        if isinstance(field, graph.Var):
            ready.setdefault(field, []).append(call)
        else:
            last.append(call)
    first = [c for v, of in ready.items() if v not in bound for c in of]
    blocks = [graph.BindingBlock(tuple(first))] if first else []
    blocks += [_after(block, ready) for block in fn.body.blocks]
    blocks += [graph.BindingBlock(tuple(last))] if last else []
    count = fn.attrs.get("num_input")
    at = len(fn.params) if count is None else count
    return replace(
        fn,
        params=(*fn.params[:at], setter, *fn.params[at:]),
        body=replace(fn.body, blocks=_joined(blocks), body=graph.Tuple(())),
        ret_ty=NOTHING,
        is_pure=False,
        attrs=fn.attrs if count is None else fn.attrs.with_(num_input=count + 1),
    )


def _call(setter: graph.Var, index: int, value: graph.Expr) -> graph.Binding:
    call = graph.Call(setter, (graph.PrimValue(expr.const(index)), value))
    return graph.VarBinding(call, graph.Var("_", NOTHING))


def _after(
    block: graph.BindingBlock, calls: dict[graph.Var, list[graph.Binding]]
) -> graph.BindingBlock:
    """A block with calls behind the bindings of variables."""
    new = tuple(x for b in block.bindings for x in (b, *calls.get(b.var, ())))
    return replace(block, bindings=new)


def _joined(blocks: Sequence[graph.BindingBlock]) -> tuple[graph.BindingBlock, ...]:
    """One plain block of all bindings."""
    return (graph.BindingBlock(tuple(b for block in blocks for b in block.bindings)),)
