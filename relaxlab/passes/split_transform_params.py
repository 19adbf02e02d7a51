"""Give the parts of a large weight transformation functions of their own."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from relaxlab.ir import graph, types
from relaxlab.ir.equal import structural_key
from relaxlab.ir.module import Module
from relaxlab.ir.node import replace
from relaxlab.ir.substitute import substitute
from relaxlab.passes.base import NoOptions, module_pass
from relaxlab.passes.bindings import vars_in
from relaxlab.tracing import may_apply

MAX_WHOLE = 8
"""Most weights that one call transforms: a model of so few is loaded without parts."""

Part: TypeAlias = tuple[str, tuple[int, ...], tuple[int, ...]]
"""A function, the numbers of the weights it takes, and the numbers of the results it returns; the
name is empty for weights that are returned as they are."""


@module_pass("split_transform_params", needs=("lift_transform_params",))
def split_transform_params(mod: Module, _: NoOptions) -> Module:
    """Split each function that transforms more than `MAX_WHOLE` weights: write a function for each
    distinct part, bindings that share no intermediate value with the others.

    The attribute `parts` of the function lists the calls of these that compute all its results. A
    loader then transforms a weight as soon as it is read, and never holds all of them twice.
    """
    updates: dict[str, graph.Function] = {}
    functions = mod.graph_functions()
    transforms = {
        f.attrs["transform_params"] for f in functions.values() if "transform_params" in f.attrs
    }
    for name, fn in functions.items():
        if name not in transforms or "parts" in fn.attrs:
            continue
        parts = list(_parts(fn))
        if len(parts) <= MAX_WHOLE:
            continue
        if not may_apply("split_transform_params", name, f"{len(parts)} weights are transformed"):
            continue
        known: dict[str, str] = {}
        listed = _returned(fn)
        for part, inputs, outputs in parts:
            key = structural_key(part)
            if key not in known:
                known[key] = mod.with_functions(updates).fresh_name(f"{name}_part")
                updates[known[key]] = part
            listed.append((known[key], inputs, outputs))
        updates[name] = replace(fn, attrs=fn.attrs.with_(parts=tuple(listed)))
    return mod.with_functions(updates)


def _returned(fn: graph.Function) -> list[Part]:
    """The weights that a transformation returns as they are, as a part."""
    bindings = [b for block in fn.body.blocks for b in block.bindings]
    number = {
        b.var: b.value.index
        for b in bindings
        if isinstance(b, graph.VarBinding)
        and isinstance(b.value, graph.TupleGetItem)
        and b.value.tuple_value == fn.params[0]
    }
    result = bindings[-1].value if isinstance(bindings[-1], graph.VarBinding) else None
    fields = result.fields if isinstance(result, graph.Tuple) else ()
    found = [
        (number[v], i) for i, v in enumerate(fields) if isinstance(v, graph.Var) and v in number
    ]
    return [("", tuple(w for w, _ in found), tuple(i for _, i in found))] if found else []


def _parts(
    fn: graph.Function,
) -> Iterable[tuple[graph.Function, tuple[int, ...], tuple[int, ...]]]:
    """The parts of a transformation, with the weights they take and the results they return."""
    bindings = [b for block in fn.body.blocks for b in block.bindings]
    *computed, last = bindings
    if not isinstance(last, graph.VarBinding) or not isinstance(last.value, graph.Tuple):
        return
    weights: dict[graph.Var, int] = {}
    number_of: dict[graph.Var, int] = {}
    groups: dict[int, list[graph.VarBinding]] = {}
    for b in computed:
        if not isinstance(b, graph.VarBinding):
            return
        if isinstance(b.value, graph.TupleGetItem) and b.value.tuple_value == fn.params[0]:
            weights[b.var] = b.value.index
            continue
        joined = {number_of[v] for v in vars_in(b.value) if v in number_of}
        number = min(joined, default=len(number_of))
        members = [m for n in sorted(joined) for m in groups.pop(n)]
        groups[number] = [*members, b]
        number_of.update({m.var: number for m in groups[number]})
    results: dict[graph.Var, list[int]] = {}
    for number, field in enumerate(last.value.fields):
        if isinstance(field, graph.Var):
            results.setdefault(field, []).append(number)
    for group in groups.values():
        wanted = [(b.var, n) for b in group for n in results.get(b.var, ())]
        if wanted:
            inputs = [v for b in group for v in vars_in(b.value) if v in weights]
            taken = list(dict.fromkeys(inputs))
            part = _function(taken, group, [v for v, _ in wanted])
            yield part, tuple(weights[v] for v in taken), tuple(n for _, n in wanted)


def _function(
    weights: list[graph.Var], group: list[graph.VarBinding], results: list[graph.Var]
) -> graph.Function:
    params = {v: graph.Var(f"w{i}", v.ty) for i, v in enumerate(weights)}
    made = {b.var: graph.DataflowVar(b.var.name, b.var.ty) for b in group}
    values: dict[graph.Var, graph.Expr] = {**params, **made}
    bindings = [graph.VarBinding(substitute(b.value, values=values), made[b.var]) for b in group]
    ty = types.TupleType(tuple(v.ty or types.ObjectType() for v in results))
    out = graph.Var("transformed", ty)
    last = graph.VarBinding(graph.Tuple(tuple(made[v] for v in results)), out)
    body = graph.SeqExpr((graph.DataflowBlock((*bindings, last)),), out)
    return graph.Function(tuple(params.values()), body, ty)
