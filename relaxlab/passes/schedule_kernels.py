"""Schedule every loop function by rule."""

from __future__ import annotations

from dataclasses import dataclass

from relaxlab.ir.loops import PrimFunc
from relaxlab.ir.module import Module
from relaxlab.ir.target import Target
from relaxlab.passes.base import module_pass
from relaxlab.schedule.rules import schedule_kernel


@dataclass(frozen=True, slots=True)
class ScheduleOptions:
    """The machine to schedule for; None: this one."""

    target: Target | None = None


@module_pass("schedule_kernels", ScheduleOptions)
def schedule_kernels(mod: Module, options: ScheduleOptions) -> Module:
    """Each unscheduled loop function becomes what the first fitting rule makes of it."""
    target = options.target or Target.host()
    updates = {
        name: schedule_kernel(name, f, target)
        for name, f in mod.items()
        if isinstance(f, PrimFunc)
    }
    return mod.with_functions(updates)
