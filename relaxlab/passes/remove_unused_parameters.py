"""Remove parameters that private functions do not read."""

from __future__ import annotations

from relaxlab.ir import graph
from relaxlab.ir.module import Module
from relaxlab.ir.node import replace
from relaxlab.ir.substitute import symbols_in
from relaxlab.passes.base import NoOptions, module_pass
from relaxlab.passes.bindings import use_counts
from relaxlab.passes.patterns.rewrite import normalized
from relaxlab.passes.private_functions import called_only, map_calls
from relaxlab.tracing import may_apply, remark

RULE = "remove_unused_parameters"


@module_pass(RULE, needs=("normalize",))
def remove_unused_parameters(mod: Module, _: NoOptions) -> Module:
    """Drop the parameters of private functions that nothing in them reads, and the arguments.

    A parameter stays where only its shape defines a symbol that the function uses.
    """
    kept: dict[str, tuple[int, ...]] = {}
    for name, fn in called_only(mod).items():
        places = _read(name, fn)
        if len(places) < len(fn.params) and may_apply(
            RULE, name, f"takes {len(places)} of {len(fn.params)} parameters"
        ):
            kept[name] = places
    if not kept:
        return mod

    def shortened(name: str, call: graph.Call) -> graph.Expr:
        return replace(call, args=tuple(call.args[i] for i in kept[name]))

    updates: dict[str, graph.Function] = {}
    for name, fn in mod.graph_functions().items():
        new = map_calls(fn, {*kept}, shortened)
        if name in kept:
            new = replace(new, params=tuple(new.params[i] for i in kept[name]))
        updates[name] = new
    return normalized(mod.with_functions(updates))


def _read(name: str, fn: graph.Function) -> tuple[int, ...]:
    """The numbers of the parameters that a function needs."""
    uses = use_counts(fn)
    read = [i for i, p in enumerate(fn.params) if uses[p]]
    used = {*symbols_in(fn.body), *symbols_in(fn.ret_ty)} if fn.ret_ty else {*symbols_in(fn.body)}
    known = {s for i in read for s in symbols_in(fn.params[i])}
    for i, param in enumerate(fn.params):
        needed = {*symbols_in(param)} & used - known
        if i not in read and needed:
            remark(RULE, f"{name}.{param.name}", "defines a symbol that is used", applied=False)
            read.append(i)
            known |= needed
    return tuple(sorted(read))
