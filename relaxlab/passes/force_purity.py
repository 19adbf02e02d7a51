"""Declare that pure functions are pure although calls in them may have effects."""

from __future__ import annotations

from relaxlab.ir.graph import Call, ExternFunc, Function, Op
from relaxlab.ir.module import Module
from relaxlab.ir.node import Node, replace, rewrite
from relaxlab.passes.base import NoOptions, module_pass

FORCED = "relax.force_pure"


@module_pass("force_purity")
def force_purity(mod: Module, _: NoOptions) -> Module:
    """Set the attribute `relax.force_pure` of functions that are pure, local ones too, before
    passes whose calls write into memory that the function allocated. Calls in them need not say
    that they are pure then: those of registered functions and closures are plain ones."""
    return mod.with_functions({k: rewrite(f, _forced) for k, f in mod.graph_functions().items()})


def _forced(n: Node) -> Node | None:
    if not isinstance(n, Function) or not n.is_pure or n.attrs.get(FORCED):
        return None
    return replace(rewrite(n, _plain), attrs=n.attrs.with_(**{FORCED: True}))


def _plain(n: Node) -> Node | None:
    match n:
        case Call(Op("call_pure_packed"), (ExternFunc() as callee, *args)):
            return replace(n, op=callee, args=tuple(args))
        case Call(Op("invoke_pure_closure")):
            return replace(n, op=Op("invoke_closure"))
        case _:
            return None
