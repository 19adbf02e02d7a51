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
    soon as it is computed. `vm.kill_object` stands where a weight was read last; the programs that
    are compiled here keep it until the function returns.

    Raises ValueError for a function that does not take its weights as one tuple, field by field.
    """
    flat = to_non_dataflow(mod).graph_functions()
    return mod.with_functions(
        {k: _Streamed(k, f, options).function() for k, f in flat.items() if k.endswith(SUFFIX)}
    )


class _Streamed:
    """A function whose weights come one by one."""

    def __init__(self, name: str, fn: graph.Function, options: StreamOptions) -> None:
        self.fn, self.options = fn, options
        count = fn.attrs.get("num_input", 0)
        self.inputs, weights = fn.params[:count], fn.params[count:]
        if len(weights) != 1:
            raise ValueError(
                f"lazy_transform_params: `{name}` has {len(weights)} parameters after its inputs, "
                "and takes its weights as one tuple; see bundle_model_params"
            )
        self.weights = weights[0]
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
        self.unbound = [field for field in self.results if field not in values]
        read = [b.value for b in self.bindings if not self.is_field(b.value)]
        if any(self.weights in vars_in(e) for e in (*read, *self.unbound)):
            raise ValueError(
                f"lazy_transform_params: `{name}` reads the tuple `{self.weights.name}` whole; "
                "it has to read the fields"
            )

    def function(self) -> graph.Function:
        """The function that loads, and stores if the options name a setter."""
        stores = self.options.set_item is not None
        extra = dict.fromkeys((*self.options.get_params, *self.options.set_params))
        bindings = [x for i in range(len(self.bindings)) for x in self.at(i)]
        if stores:  # results that no binding makes: constants, inputs, tuples of others
            bindings += [x for field in self.unbound for x in self.stored(field)]
        block = graph.BindingBlock(tuple(bindings))
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
        if isinstance(b.value, graph.TupleGetItem) and self.is_field(b.value):
            yield from self.loaded(b, b.value.index)
        else:
            yield b
        if not stores:
            return
        left = (*(x.value for x in self.bindings[index + 1 :]), *self.unbound)
        later = {v for e in left for v in vars_in(e)}
        for var in dict.fromkeys(vars_in(b.value)):
            if self.is_weight(var) and var not in later:
                kill = graph.Call(graph.Op("vm.kill_object"), (var,))
                yield graph.VarBinding(kill, graph.Var("_", NOTHING))
        yield from self.stored(b.var)

    def stored(self, value: graph.Expr) -> Iterator[graph.Binding]:
        """The calls that store the results that a value is."""
        for number in self.results.get(value, ()):
            args = (*self.options.set_params, graph.PrimValue(expr.const(number)), value)
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
        return any(b.var is var and self.is_field(b.value) for b in self.bindings)

    def is_field(self, value: graph.Expr) -> bool:
        """True for the read of a field of the weights."""
        return isinstance(value, graph.TupleGetItem) and value.tuple_value is self.weights

    def packed(self, name: str | None, args: tuple[graph.Expr, ...]) -> graph.Call:
        return graph.Call(graph.ExternFunc(name or ""), args, ty_args=(ANY,))
