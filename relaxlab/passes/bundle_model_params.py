"""Take the weights of a model as one tuple."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from relaxlab.ir import graph, types
from relaxlab.ir.module import Module
from relaxlab.ir.names import UniqueNames
from relaxlab.ir.node import replace
from relaxlab.passes.base import module_pass
from relaxlab.passes.first_reads import Maker, before_first_reads


@dataclass(frozen=True, slots=True)
class BundleOptions:
    """`name`: that of the parameter for the tuple."""

    name: str = "model_params"


@module_pass("bundle_model_params", BundleOptions, needs=("normalize",))
def bundle_model_params(mod: Module, options: BundleOptions) -> Module:
    """Replace the weights of functions with the attribute `num_input`, the parameters after the
    first `num_input`, by a tuple of them, whose fields are taken where they are first read."""
    updates: dict[str, graph.Function] = {}
    for name, fn in mod.graph_functions().items():
        count = fn.attrs.get("num_input")
        if count is not None:
            updates[name] = _bundled(fn, count, options.name)
    return mod.with_functions(updates)


def _bundled(fn: graph.Function, count: int, name: str) -> graph.Function:
    weights = fn.params[count:]
    names = UniqueNames(p.name for p in fn.params[:count])
    known = tuple(w.ty or types.ObjectType() for w in weights)
    bundle = graph.Var(names(name), types.TupleType(known))
    makers = {w: _field(bundle, i, w) for i, w in enumerate(weights)}
    new = before_first_reads(fn, makers, {})
    return replace(new, params=(*fn.params[:count], bundle))


def _field(bundle: graph.Var, index: int, weight: graph.Var) -> Maker:
    def make(kind: type[graph.Var]) -> tuple[Sequence[graph.Binding], graph.Var]:
        var = kind(weight.name, weight.ty)
        return (graph.VarBinding(graph.TupleGetItem(bundle, index), var),), var

    return make
