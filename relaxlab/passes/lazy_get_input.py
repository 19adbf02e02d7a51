"""Ask for weights when they are first read."""

from __future__ import annotations

from collections.abc import Sequence

from relaxlab.analysis.subtype import dims_of
from relaxlab.ir import expr, graph, types
from relaxlab.ir.module import Module
from relaxlab.ir.names import UniqueNames
from relaxlab.ir.node import replace
from relaxlab.ir.substitute import symbols_in
from relaxlab.passes.base import NoOptions, module_pass
from relaxlab.passes.first_reads import Maker, before_first_reads
from relaxlab.passes.patterns.rewrite import normalized

INDEX = types.PrimType("int64")


@module_pass("lazy_get_input", needs=("normalize",))
def lazy_get_input(mod: Module, _: NoOptions) -> Module:
    """Give functions with the attribute `num_input` a function in the place of their weights, the
    parameters after the first `num_input`. It is called with the number and the name of a weight
    where the weight is first read, and its result is checked to have the weight's type. What it
    returned is kept until the function returns.
    """
    updates = {
        name: _lazy(fn, fn.attrs["num_input"])
        for name, fn in mod.graph_functions().items()
        if "num_input" in fn.attrs
    }
    return normalized(mod.with_functions(updates)) if updates else mod


def _lazy(fn: graph.Function, count: int) -> graph.Function:
    inputs, weights = fn.params[:count], fn.params[count:]
    names = UniqueNames(p.name for p in fn.params)
    getter = graph.Var(
        names("fget_param"),
        types.FuncType((INDEX, types.ObjectType()), types.ObjectType(), is_pure=True),
    )
    known = symbols_in(inputs)
    makers = {w: _maker(getter, i, w, names) for i, w in enumerate(weights)}
    dims = {w: [d for d, _ in dims_of(w.ty, "")] if w.ty else [] for w in weights}
    new = before_first_reads(fn, makers, dims, known)
    unknown = fn.ret_ty is not None and {*symbols_in(fn.ret_ty)}.difference(known)
    return replace(
        new,
        params=(*inputs, getter),
        attrs=fn.attrs.with_(num_input=count + 1),
        ret_ty=None if unknown else fn.ret_ty,
    )


def _maker(getter: graph.Var, index: int, weight: graph.Var, names: UniqueNames) -> Maker:
    def make(kind: type[graph.Var]) -> tuple[Sequence[graph.Binding], graph.Var]:
        given = graph.Var if kind is graph.Var else graph.DataflowVar
        untyped = given(names(f"{weight.name}_untyped"), types.ObjectType())
        args = (graph.PrimValue(expr.const(index)), graph.StringImm(weight.name))
        var, ty = kind(weight.name, weight.ty), weight.ty or types.ObjectType()
        asked = graph.VarBinding(graph.Call(getter, args), untyped)
        return (asked, graph.MatchCast(untyped, ty, var)), var

    return make
