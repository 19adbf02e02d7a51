"""Declare that pure functions are pure although calls in them may have effects."""

from __future__ import annotations

from relaxlab.ir.module import Module
from relaxlab.ir.node import replace
from relaxlab.passes.base import NoOptions, module_pass

FORCED = "relax.force_pure"


@module_pass("force_purity")
def force_purity(mod: Module, _: NoOptions) -> Module:
    """Set the attribute `relax.force_pure` of functions that are pure, before passes whose calls
    write into memory that the function allocated."""
    updates = {
        name: replace(fn, attrs=fn.attrs.with_(**{FORCED: True}))
        for name, fn in mod.graph_functions().items()
        if fn.is_pure and not fn.attrs.get(FORCED)
    }
    return mod.with_functions(updates)
