"""Pass the fields of tuples to private functions, instead of the tuples."""

from __future__ import annotations

from collections.abc import Iterator

from relaxlab.ir import graph, types
from relaxlab.ir.module import Module
from relaxlab.ir.node import replace
from relaxlab.ir.substitute import substitute
from relaxlab.passes.base import NoOptions, module_pass
from relaxlab.passes.patterns.rewrite import normalized
from relaxlab.passes.private_functions import called_only, map_calls
from relaxlab.tracing import may_apply

RULE = "expand_tuple_arguments"


@module_pass(RULE, needs=("normalize",))
def expand_tuple_arguments(mod: Module, _: NoOptions) -> Module:
    """Replace each parameter of a private function that is a tuple by its fields, those that are
    tuples by theirs; calls pass them one by one. A tuple then need not be made for the call."""
    chosen = {
        name: fn
        for name, fn in called_only(mod).items()
        if any(isinstance(p.ty, types.TupleType) for p in fn.params)
        and may_apply(RULE, name, "takes the fields of its tuples")
    }
    if not chosen:
        return mod

    def expanded(name: str, call: graph.Call) -> graph.Expr:
        pairs = zip(call.args, chosen[name].params, strict=True)
        return replace(call, args=tuple(f for arg, p in pairs for f in _fields(arg, p.ty)))

    updates: dict[str, graph.Function] = {}
    for name, fn in mod.graph_functions().items():
        new = map_calls(fn, {*chosen}, expanded)
        updates[name] = _taking_fields(new) if name in chosen else new
    return normalized(mod.with_functions(updates))


def _fields(value: graph.Expr, ty: types.Type | None) -> Iterator[graph.Expr]:
    """The fields of an argument, in order; the argument itself where it is no tuple."""
    if not isinstance(ty, types.TupleType):
        yield value
        return
    for i, field in enumerate(ty.fields):
        one = value.fields[i] if isinstance(value, graph.Tuple) else graph.TupleGetItem(value, i)
        yield from _fields(one, field)


def _parameters(name: str, ty: types.Type | None) -> tuple[graph.Expr, list[graph.Var]]:
    """A parameter's value made of new parameters, and these."""
    if not isinstance(ty, types.TupleType):
        var = graph.Var(name, ty)
        return var, [var]
    parts = [_parameters(f"{name}_{i}", f) for i, f in enumerate(ty.fields)]
    return graph.Tuple(tuple(v for v, _ in parts)), [p for _, ps in parts for p in ps]


def _taking_fields(fn: graph.Function) -> graph.Function:
    values: dict[graph.Var, graph.Expr] = {}
    params: list[graph.Var] = []
    for p in fn.params:
        if isinstance(p.ty, types.TupleType):
            values[p], new = _parameters(p.name, p.ty)
            params += new
        else:
            params.append(p)
    return replace(fn, params=tuple(params), body=substitute(fn.body, values=values))
