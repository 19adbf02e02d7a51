"""The spaces that a search goes through."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from relaxlab.schedule import schedule as core
from relaxlab.tvm.tir.schedule.schedule import Schedule


@dataclass(frozen=True)
class ScheduleFn:
    """The space of the schedules that a function makes, whose sampling primitives choose."""

    sch_fn: Callable[[Schedule], object]

    def make(self, sch: core.Schedule, name: str) -> core.Schedule:
        """Make the steps on a schedule of the core, which decides what is sampled, of the function
        that has this name in the user's module."""
        around = Schedule.around(sch, name)
        made = self.sch_fn(around)
        return (made if isinstance(made, Schedule) else around).of(name)


@dataclass(frozen=True)
class PostOrderApply:
    """The space of relaxlab's own rules, which every search goes through."""
