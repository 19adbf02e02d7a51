"""Schedule every loop function by rule, telling the rules which parameters are weights."""

from __future__ import annotations

from dataclasses import dataclass

from relaxlab.ir import graph
from relaxlab.ir.graph import Call, Constant, GlobalVar, Op
from relaxlab.ir.loops import PrimFunc
from relaxlab.ir.module import Module
from relaxlab.ir.node import replace, walk
from relaxlab.ir.target import Target
from relaxlab.passes.base import module_pass
from relaxlab.schedule import rules, rules_gpu

IS_SCHEDULED = "tir.is_scheduled"
"""The attribute of a loop function that needs no schedule any more."""


@dataclass(frozen=True, slots=True)
class ScheduleOptions:
    """The machine to schedule for; None: this one."""

    target: Target | None = None


@module_pass("schedule_kernels", ScheduleOptions)
def schedule_kernels(mod: Module, options: ScheduleOptions) -> Module:
    """Each loop function becomes what the first fitting rule makes of it, once: it has the
    attribute `tir.is_scheduled` afterwards."""
    target = options.target or Target.host()
    schedule_kernel = rules_gpu.schedule_kernel if target.kind == "cuda" else rules.schedule_kernel
    weights = _weight_params(mod)
    updates: dict[str, PrimFunc] = {}
    for name, f in mod.items():
        if isinstance(f, PrimFunc) and not f.attrs.get(IS_SCHEDULED):
            told = f
            if weights.get(name):
                told = replace(f, attrs=f.attrs.with_(weight_params=tuple(sorted(weights[name]))))
            new = schedule_kernel(name, told, target)
            done = new.attrs.with_(**{"weight_params": None, IS_SCHEDULED: True})
            updates[name] = replace(new, attrs=done)
    return mod.with_functions(updates)


def _weight_params(mod: Module) -> dict[str, set[int]]:
    """Per loop function, the parameters that every call passes a weight or a constant."""
    found: dict[str, set[int]] = {}
    for f in mod.graph_functions().values():
        count = f.attrs.get("num_input")
        given = set(f.params[count:]) if count is not None else set[graph.Var]()
        for call in walk(f):
            match call:
                case Call(Op("call_tir"), (GlobalVar(name), graph.Tuple(args), *_)):
                    mine = {i for i, a in enumerate(args) if isinstance(a, Constant) or a in given}
                    found[name] = found.get(name, mine) & mine
                case _:
                    pass
    return found
