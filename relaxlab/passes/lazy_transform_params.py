"""Load each weight when it is transformed, and store the results one by one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from relaxlab.ir import expr, graph, types
from relaxlab.ir.module import Module
from relaxlab.ir.names import UniqueNames
from relaxlab.ir.node import replace
from relaxlab.passes.base import module_pass
from relaxlab.passes.bindings import vars_in
from relaxlab.passes.to_non_dataflow import to_non_dataflow

SUFFIX = "transform_params"
ANY, NOTHING = types.ObjectType(), types.TupleType(())


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """`get_item` and `set_item`: the names of the packed functions that load a weight and store a
    result, given their number; without the latter the results are returned. `get_params` and
    `set_params`: variables, which become parameters, that they are given before."""

    get_item: str = "get_item"
    set_item: str | None = "set_item"
    get_params: tuple[graph.Var, ...] = ()
    set_params: tuple[graph.Var, ...] = ()


@module_pass("lazy_transform_params", StreamOptions, needs=("normalize",))
def lazy_transform_params(mod: Module, options: StreamOptions) -> Module:
    """Let functions whose names end with `transform_params` call packed functions for the fields
    of their tuple of weights, the parameter after the first `num_input`, and for each result as
    soon as it is computed. A weight is released after it was read last."""
    flat = to_non_dataflow(mod).graph_functions()
    return mod.with_functions(
        {k: _Streamed(f, options).function() for k, f in flat.items() if k.endswith(SUFFIX)}
    )


class _Streamed:
    """A function whose weights come one by one."""

    def __init__(self, fn: graph.Function, options: StreamOptions) -> None:
        self.fn, self.options = fn, options
        count = fn.attrs.get("num_input", 0)
        self.inputs, (self.weights, *_) = fn.params[:count], fn.params[count:]
        self.bindings = [b for block in fn.body.blocks for b in block.bindings]
        self.names = UniqueNames(v.name for v in (*fn.params, *(b.var for b in self.bindings)))
        values = {b.var: b.value for b in self.bindings}
        result = fn.body.body
        self.whole = result if isinstance(result, graph.Var) else None
        made = values.get(result) if isinstance(result, graph.Var) else result
        fields = made.fields if isinstance(made, graph.Tuple) else (result,)
        self.results: dict[graph.Expr, list[int]] = {}
        for i, field in enumerate(fields):
            self.results.setdefault(field, []).append(i)

    def function(self) -> graph.Function:
        """The function that loads, and stores where the options say how."""
        stores = self.options.set_item is not None
        extra = dict.fromkeys((*self.options.get_params, *self.options.set_params))
        block = graph.BindingBlock(tuple(x for i in range(len(self.bindings)) for x in self.at(i)))
        body = replace(self.fn.body, blocks=(block,) if block.bindings else ())
        return replace(
            self.fn,
            params=(*extra, *self.inputs),
            body=replace(body, body=graph.Tuple(())) if stores else body,
            ret_ty=NOTHING if stores else self.fn.ret_ty,
            is_pure=False,
            attrs=self.fn.attrs.with_(**{"relax.force_pure": None}),
        )

    def at(self, index: int) -> Iterator[graph.Binding]:
        """The bindings in the place of one."""
        b, stores = self.bindings[index], self.options.set_item is not None
        if stores and b.var is self.whole and isinstance(b.value, graph.Tuple):
            yield graph.VarBinding(graph.Tuple(()), graph.Var("_", NOTHING))
            return
        match b.value:
            case graph.TupleGetItem(tuple_value=source, index=number) if source is self.weights:
                yield from self.loaded(b, number)
            case _:
                yield b
        if not stores:
            return
        for var in dict.fromkeys(vars_in(b.value)):
            later = (v for x in self.bindings[index + 1 :] for v in vars_in(x.value))
            if self.is_weight(var) and var not in later:
                kill = graph.Call(graph.Op("vm.kill_object"), (var,))
                yield graph.VarBinding(kill, graph.Var("_", NOTHING))
        for number in self.results.get(b.var, ()):
            args = (*self.options.set_params, graph.PrimValue(expr.const(number)), b.var)
            yield graph.VarBinding(self.packed(self.options.set_item, args), graph.Var("_", ANY))

    def loaded(self, b: graph.Binding, number: int) -> Iterator[graph.Binding]:
        """The call that loads a weight, and the check of its type."""
        name, ty = b.var.name, b.var.ty or ANY
        untyped = graph.Var(self.names(f"{name}_untyped"), ANY)
        typed = graph.Var(self.names(f"{name}_typed"), ty)
        args = (*self.options.get_params, graph.PrimValue(expr.const(number)))
        yield graph.VarBinding(self.packed(self.options.get_item, args), untyped)
        yield graph.MatchCast(untyped, ty, typed)
        yield replace(b, value=typed)  # type: ignore[call-arg]

    def is_weight(self, var: graph.Var) -> bool:
        """True for a variable of a field of the weights."""
        return any(
            b.var is var
            and isinstance(b.value, graph.TupleGetItem)
            and b.value.tuple_value is self.weights
            for b in self.bindings
        )

    def packed(self, name: str | None, args: tuple[graph.Expr, ...]) -> graph.Call:
        return graph.Call(graph.ExternFunc(name or ""), args, ty_args=(ANY,))
