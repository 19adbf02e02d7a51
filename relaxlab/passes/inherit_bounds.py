"""Upper bounds of symbols reach the functions that are called with them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TypeAlias

from relaxlab.analysis.arith import Analyzer
from relaxlab.analysis.deduce import dim_pairs
from relaxlab.ir import expr, graph, types
from relaxlab.ir.module import Module
from relaxlab.ir.node import Attrs, replace, walk
from relaxlab.ir.substitute import symbols_in
from relaxlab.passes.base import NoOptions, module_pass
from relaxlab.passes.bindings import leaf_type
from relaxlab.passes.effects import used_as_values
from relaxlab.tracing import remark

RULE = "inherit_bounds"
BOUNDS = "tir_var_upper_bound"
ROUNDS = 8
"""Most rounds over all calls: in each, a bound reaches one more level of callees. The bound of a
function that calls itself with ever larger sizes would never settle."""

Bounds: TypeAlias = "dict[str, int]"


@module_pass(RULE, needs=("normalize",))
def inherit_bounds(mod: Module, _: NoOptions) -> Module:
    """Declare upper bounds for the symbols of private functions: the largest that the calls pass,
    where each of them passes a bounded size. Functions that are used as values are left alone."""
    functions = mod.graph_functions()
    values = used_as_values(mod)
    inner = [n for n, f in functions.items() if f.private and n not in values]
    called = {n: list(_calls_of(n, mod)) for n in inner}
    known = {n: _declared(f) for n, f in functions.items() if n not in inner}
    for _round in range(ROUNDS):
        before = dict(known)
        for name in inner:
            calls = [(caller, call) for caller, call in called[name] if caller in before]
            if calls:
                fn = functions[name]
                known[name] = {**_passed(fn, calls, before), **_declared(fn)}
        if known == before:
            break
    else:
        return mod
    updates: dict[str, graph.Function] = {}
    for name in inner:
        if name in known and known[name] != _declared(functions[name]):  # else nothing calls it
            text = ", ".join(f"{s} <= {bound}" for s, bound in known[name].items())
            remark(RULE, name, f"every call has {text}")
            attrs = functions[name].attrs.with_(**{BOUNDS: Attrs(known[name])})
            updates[name] = replace(functions[name], attrs=attrs)
    return mod.with_functions(updates)


def _declared(fn: graph.Function) -> Bounds:
    return dict(fn.attrs.get(BOUNDS, {}))


def _calls_of(name: str, mod: Module) -> Iterator[tuple[str, graph.Call]]:
    """The calls of a function, with the names of the functions that they are in."""
    for caller, fn in mod.graph_functions().items():
        for n in walk(fn.body):
            if isinstance(n, graph.Call) and n.op == graph.GlobalVar(name):
                yield caller, n


def _passed(
    fn: graph.Function, calls: list[tuple[str, graph.Call]], known: Mapping[str, Bounds]
) -> Bounds:
    """The bounds of the symbols that are parameters' dimensions, over all calls. Bounds go by name:
    one that several symbols have gets none."""
    counts = Counter(s.name for s in symbols_in(fn))
    largest: dict[str, int | None] = {}
    for caller, call in calls:
        for symbol, size in _sizes(fn, call).items():
            upper = None
            if size is not None and counts[symbol.name] == 1:
                upper = Analyzer.for_shapes(size, upper=known[caller]).upper_bound(size)
            before = largest.get(symbol.name, 0)
            if before is None or upper is None:
                largest[symbol.name] = None
            else:
                largest[symbol.name] = max(before, upper)
    return {name: bound for name, bound in largest.items() if bound is not None}


def _sizes(fn: graph.Function, call: graph.Call) -> dict[expr.Var, expr.PrimExpr | None]:
    """Return the size that a call passes for each symbol that is a dimension of a parameter; None
    where it is not known."""
    found: dict[expr.Var, expr.PrimExpr | None] = {}
    for p, arg in zip(fn.params, call.args, strict=True):
        assert p.ty is not None
        for pair in dim_pairs(p.ty, leaf_type(arg) or types.ObjectType(), ""):
            if isinstance(pair.declared, expr.Var):
                found[pair.declared] = found.get(pair.declared) or pair.actual
    return found
