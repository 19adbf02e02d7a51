"""Give functions the names that they are to be known by."""

from __future__ import annotations

from collections.abc import Mapping

from relaxlab.ir import graph, loops
from relaxlab.ir.module import BaseFunc, Module
from relaxlab.ir.names import UniqueNames
from relaxlab.ir.node import Node, replace, rewrite
from relaxlab.passes.base import NoOptions, module_pass

SYMBOL = "global_symbol"


@module_pass("rename_functions")
def rename_functions(mod: Module, _: NoOptions) -> Module:
    """Rename each public function to its attribute `global_symbol`, and private ones that
    have that name already to another.

    Raises ValueError where two public functions are to have one name.
    """
    public = {k: _symbol(f) or k for k, f in mod.items() if not _is_private(f)}
    for name, symbol in public.items():
        others = [k for k, s in public.items() if s == symbol and k != name]
        if others:
            raise ValueError(f"rename_functions: `{name}` and `{others[0]}` are both {symbol!r}")
    unique = UniqueNames(public.values())
    return renamed(mod, {k: public[k] if k in public else unique(k) for k in mod})


def renamed(mod: Module, names: Mapping[str, str]) -> Module:
    """A module with its functions under other names, which its calls use, too; the module itself
    where all names stay."""
    changed = {old: new for old, new in names.items() if old != new}
    if not changed:
        return mod

    def visit(n: Node) -> Node | None:
        if isinstance(n, graph.GlobalVar) and n.name in changed:
            return replace(n, name=changed[n.name])
        return None

    def named(name: str, fn: BaseFunc) -> BaseFunc:
        new = rewrite(fn, visit)
        if name not in changed or isinstance(new, graph.ExternFunc):
            return new
        return replace(new, name_hint=changed[name], attrs=new.attrs.with_(**{SYMBOL: None}))

    functions = tuple((names.get(k, k), named(k, f)) for k, f in mod.items())
    return replace(mod, functions=functions)


def _symbol(fn: BaseFunc) -> str | None:
    return fn.attrs.get(SYMBOL) if isinstance(fn, graph.Function | loops.PrimFunc) else None


def _is_private(fn: BaseFunc) -> bool:
    return isinstance(fn, graph.Function | loops.PrimFunc) and fn.private
