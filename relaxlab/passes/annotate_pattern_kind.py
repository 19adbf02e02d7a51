"""Say of every loop function how its writes relate to its reads (Algorithm 1 of the paper)."""

from __future__ import annotations

from relaxlab.analysis.pattern_kind import pattern_kind_of
from relaxlab.ir.module import Module
from relaxlab.ir.node import replace
from relaxlab.passes.base import NoOptions, module_pass
from relaxlab.tracing import note


@module_pass("annotate_pattern_kind")
def annotate_pattern_kind(mod: Module, _: NoOptions) -> Module:
    """Set the attribute `op_pattern` of each loop function that has none."""
    updates = dict(mod.loop_functions())
    for name, func in updates.items():
        if "op_pattern" not in func.attrs:
            kind = pattern_kind_of(func)
            note("annotate_pattern_kind", name, kind.name)
            updates[name] = replace(func, attrs=func.attrs.with_(op_pattern=int(kind)))
    return mod.with_functions(updates)
