"""Remove pure bindings that are not read and functions that are not reachable."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from relaxlab.ir import graph
from relaxlab.ir.module import Module
from relaxlab.ir.node import replace, walk
from relaxlab.passes.base import module_pass
from relaxlab.passes.bindings import map_blocks, use_counts, with_bindings
from relaxlab.passes.effects import is_pure
from relaxlab.tracing import may_apply


@dataclass(frozen=True, slots=True)
class EliminationOptions:
    """`entries`: functions that stay although they are private and nothing calls them."""

    entries: tuple[str, ...] = ()


@module_pass("dead_code_elimination", EliminationOptions, needs=("normalize",))
def dead_code_elimination(mod: Module, options: EliminationOptions) -> Module:
    """Drop unread pure bindings, those in local functions too; then private graph functions, and
    loop functions, that no public graph function reaches. A `match_cast` stays: it is a check.

    A module without graph functions keeps all its loop functions: they are its interface.
    """
    updates = {name: _function(name, fn, mod) for name, fn in mod.graph_functions().items()}
    return _drop_unreachable(mod.with_functions(updates), options.entries)


def remove_unread(fn: graph.Function, mod: Module | None = None) -> graph.Function:
    """A function of a module without its unread pure bindings."""
    return _function(fn.name_hint, fn, mod or Module.of({}))


def _function(name: str, fn: graph.Function, mod: Module) -> graph.Function:
    while True:
        new = _once(name, fn, mod)
        if new is fn:
            return fn
        fn = new


def _once(name: str, fn: graph.Function, mod: Module) -> graph.Function:
    uses = use_counts(fn)

    def live(b: graph.Binding) -> bool:
        dead = isinstance(b, graph.VarBinding) and not uses[b.var] and is_pure(b.value, mod)
        return not (dead and _drop(f"{name}.{b.var.name}", "nobody reads it"))

    def inner(b: graph.Binding) -> graph.Binding:
        if not isinstance(b.value, graph.Function):
            return b
        new = _function(f"{name}.{b.var.name}", b.value, mod)
        return b if new is b.value else replace(b, value=new)

    return map_blocks(
        fn, lambda blk: with_bindings(blk, [inner(b) for b in blk.bindings if live(b)])
    )


def _drop_unreachable(mod: Module, entries: tuple[str, ...]) -> Module:
    graphs = mod.graph_functions()
    if not graphs:
        return mod
    pending = [name for name, fn in graphs.items() if not fn.private or name in entries]
    if not pending:
        return mod
    reached = reachable(mod, pending)
    dead = [name for name in mod if name not in reached]
    return mod.without(*(n for n in dead if _drop(n, "no public function reaches it")))


def reachable(mod: Module, entries: Iterable[str]) -> set[str]:
    """The names of the functions that calls lead to from `entries`, these included."""
    pending, reached = list(entries), set[str]()
    while pending:
        name = pending.pop()
        if name in reached or name not in mod:
            continue
        reached.add(name)
        pending += [n.name for n in walk(mod[name]) if isinstance(n, graph.GlobalVar)]
    return reached


def _drop(subject: str, reason: str) -> bool:
    return may_apply("dead_code_elimination", subject, reason)
