"""Give each use of a function with other weights a function of its own (ACRoBat's duplication)."""

from __future__ import annotations

from dataclasses import dataclass

from relaxlab.ir import expr, graph, types
from relaxlab.ir.module import Module
from relaxlab.ir.node import Node, replace, rewrite
from relaxlab.ir.substitute import substitute, symbols_in
from relaxlab.passes.base import NoOptions, module_pass
from relaxlab.passes.bindings import all_bindings, leaf_paths
from relaxlab.passes.host_values import host_values, scalar_value
from relaxlab.passes.make_blocks import RECORDED, entry_of
from relaxlab.passes.shared_values import Leaf, SharedValues, Source, shared_values
from relaxlab.tracing import may_apply

ROUNDS = 3
"""Most levels of functions that are cloned one after the other: clones of callers call their
callees from sites of their own."""

Key = tuple[Source | None, ...]
"""The weights that a call site gives, one per leaf of the parameters; None for other values."""


@module_pass("clone_by_weights", needs=("normalize", "lambda_lifting"))
def clone_by_weights(mod: Module, _: NoOptions) -> Module:
    """Clone functions that are called with different weights for one parameter.

    Without that, the kernels of both uses would share batches in which each row has its own copy of
    a weight. A clone is made for each distinct tuple of weights, of the function and of those with
    which it calls itself; a call inside of a clone stays inside.
    """
    entry = entry_of(mod)
    if RECORDED in mod[entry].attrs:  # type: ignore[union-attr]
        return mod
    for _round in range(ROUNDS):
        before = mod
        for name in host_values(mod, entry).functions:
            if name != entry:
                mod = _with_clones(mod, entry, name)
        if mod is before:
            break
    return mod


def _with_clones(mod: Module, entry: str, name: str) -> Module:
    """The module with the clones that a function needs."""
    shared, calls = shared_values(mod, entry), _calls(mod, entry)
    cycle = _cycle(name, calls)
    sites = [s for s in calls if s.callee == name and s.caller not in cycle]
    keys = {s: _key(mod, shared, s) for s in sites}
    if not _differ(set(keys.values())) or not _runs_kernels(mod, name, calls):
        return mod
    return _cloned(mod, name, cycle, keys)


@dataclass(frozen=True, slots=True)
class _Site:
    caller: str
    var: graph.Var
    callee: str


def _calls(mod: Module, entry: str) -> list[_Site]:
    """The calls in all functions that the entry reaches."""
    return [
        _Site(name, b.var, b.value.op.name)
        for name in host_values(mod, entry).functions
        for b in all_bindings(mod[name])  # type: ignore[arg-type]
        if isinstance(b.value, graph.Call)
        and isinstance(b.value.op, graph.GlobalVar)
        and isinstance(mod.get(b.value.op.name), graph.Function)
    ]


def _reached(name: str, calls: list[_Site]) -> set[str]:
    """The functions that calls lead to from one."""
    found: set[str] = set()
    work = [name]
    while work:
        here = work.pop()
        new = {s.callee for s in calls if s.caller == here} - found
        found |= new
        work += new
    return found


def _cycle(name: str, calls: list[_Site]) -> set[str]:
    """The function, and those with which it calls itself."""
    return {name} | {n for n in _reached(name, calls) if name in _reached(n, calls)}


def _key(mod: Module, shared: SharedValues, site: _Site) -> Key:
    fn = mod[site.callee]
    assert isinstance(fn, graph.Function)
    found: list[Source | None] = []
    for p in fn.params:
        given = shared.in_contexts(site.callee, p).get(site.var)
        for path in leaf_paths(p.ty):
            leaf = given
            for index in path:
                leaf = leaf[index] if isinstance(leaf, tuple) else leaf
            known = isinstance(leaf, Leaf) and leaf.constant and len(leaf.sources) == 1
            found.append(next(iter(leaf.sources)) if known and isinstance(leaf, Leaf) else None)
    scalars = [_is_scalar(p.ty, path) for p in fn.params for path in leaf_paths(p.ty)]
    return tuple(None if small else s for s, small in zip(found, scalars, strict=True))


def _is_scalar(ty: types.Type | None, path: tuple[int, ...]) -> bool:
    for index in path:
        ty = ty.fields[index] if isinstance(ty, types.TupleType) else ty
    return isinstance(ty, types.TensorType) and ty.ndim == 0


def _differ(keys: set[Key]) -> bool:
    """True if some parameter gets different weights."""
    return any(len({s for s in column if s is not None}) > 1 for column in zip(*keys, strict=True))


def _runs_kernels(mod: Module, name: str, calls: list[_Site]) -> bool:
    """True for a function that computes tensors, itself or through others."""
    for n in {name, *_reached(name, calls)}:
        for b in all_bindings(mod[n]):  # type: ignore[arg-type]
            match b.value:
                case graph.Call(graph.Op()) as call if scalar_value(call, b.var, mod) is None:
                    return True
                case _:
                    pass
    return False


def _cloned(mod: Module, name: str, cycle: set[str], keys: dict[_Site, Key]) -> Module:
    """The module with a clone for each key but the first, which the sites with that key call."""
    groups: dict[Key, list[_Site]] = {}
    for site, key in keys.items():
        groups.setdefault(key, []).append(site)
    _, *others = groups.values()
    for sites in others:
        where = ", ".join(f"{s.caller}.{s.var.name}" for s in sites)
        if not may_apply("clone_by_weights", name, f"a clone for {where}, which has other weights"):
            continue
        names: dict[str, str] = {}
        for n in sorted(cycle):
            taken = mod.with_functions({new: mod[n] for new in names.values()})
            names[n] = taken.fresh_name(f"{n}_clone")
        clones = {new: _renamed(mod, n, names) for n, new in names.items()}
        redirected = {s.var for s in sites}
        callers: dict[str, graph.Function] = {
            s.caller: _redirected(mod, s.caller, redirected, names[name]) for s in sites
        }
        mod = mod.with_functions({**clones, **callers})
    return mod


def _renamed(mod: Module, name: str, names: dict[str, str]) -> graph.Function:
    """A copy of a function, with variables and symbols of its own, that calls other copies."""
    fn = mod[name]
    assert isinstance(fn, graph.Function)
    values: dict[graph.Var, graph.Expr] = {
        v: type(v)(v.name, v.ty, span=v.span)
        for v in (*fn.params, *(b.var for b in all_bindings(fn)))
    }
    symbols: dict[expr.Var, expr.PrimExpr] = {s: expr.Var(s.name, s.dtype) for s in symbols_in(fn)}
    # One after the other: variables whose types mention symbols are declared once more.
    copy = substitute(substitute(fn, values=values), symbols)

    def callee(n: Node) -> Node | None:
        if isinstance(n, graph.GlobalVar) and n.name in names:
            return graph.GlobalVar(names[n.name])
        return None

    return replace(rewrite(copy, callee), private=True, name_hint=names[name])


def _redirected(mod: Module, caller: str, sites: set[graph.Var], callee: str) -> graph.Function:
    def visit(n: Node) -> Node | None:
        if isinstance(n, graph.VarBinding) and n.var in sites and isinstance(n.value, graph.Call):
            return replace(n, value=replace(n.value, op=graph.GlobalVar(callee)))
        return None

    return rewrite(mod[caller], visit)
