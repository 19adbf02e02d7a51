"""State what loop functions require of the sizes that they are called with."""

from __future__ import annotations

from relaxlab.analysis.preconditions import preconditions
from relaxlab.ir.loops import PrimFunc
from relaxlab.ir.module import Module
from relaxlab.ir.node import replace
from relaxlab.passes.base import NoOptions, module_pass
from relaxlab.tracing import remark

RULE = "state_preconditions"


@module_pass(RULE)
def state_preconditions(mod: Module, _: NoOptions) -> Module:
    """Let each loop function require what keeps its accesses inside of its buffers: `n <= m` for
    loops over `n` rows of a buffer that has `m`. `lower_shapes` makes the checks where a call does
    not imply them."""
    updates: dict[str, PrimFunc] = {}
    for name, func in mod.loop_functions().items():
        found = preconditions(func)
        if found:
            remark(RULE, name, f"requires {', '.join(str(s.condition) for s in found)}")
            updates[name] = replace(func, requires=(*func.requires, *found))
    return mod.with_functions(updates)
