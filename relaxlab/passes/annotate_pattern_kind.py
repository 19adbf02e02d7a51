"""Annotate every loop function with the relation of its writes to its reads (Algorithm 1 of the
paper)."""

from __future__ import annotations

from relaxlab.analysis.pattern_kind import PatternKind, pattern_kind_of
from relaxlab.ir.loops import IS_SCHEDULED
from relaxlab.ir.module import Module
from relaxlab.ir.node import replace
from relaxlab.passes.base import NoOptions, module_pass
from relaxlab.tracing import remark


@module_pass("annotate_pattern_kind")
def annotate_pattern_kind(mod: Module, _: NoOptions) -> Module:
    """Set the attribute `op_pattern` of each loop function that has none. A function scheduled by
    hand is opaque: fusion would undo its schedule."""
    updates = dict(mod.loop_functions())
    for name, func in updates.items():
        if "op_pattern" not in func.attrs:
            by_hand = func.attrs.get(IS_SCHEDULED)
            kind = PatternKind.OPAQUE if by_hand else pattern_kind_of(func)
            why = f"{kind.name}: scheduled by hand" if by_hand else kind.name
            remark("annotate_pattern_kind", name, why)
            updates[name] = replace(func, attrs=func.attrs.with_(op_pattern=int(kind)))
    return mod.with_functions(updates)
