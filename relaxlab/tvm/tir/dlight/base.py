"""Rules that schedule loop functions, each a name for some of the core's, and the pass that applies
them."""

from __future__ import annotations

from typing import Any, ClassVar

from relaxlab.ir.loops import IS_SCHEDULED, PrimFunc
from relaxlab.ir.module import Module
from relaxlab.ir.node import replace
from relaxlab.schedule.rules.context import Context
from relaxlab.schedule.rules.table import schedule_by_rules
from relaxlab.tvm.target import core_target
from relaxlab.tvm.tir.schedule.schedule import Schedule
from relaxlab.tvm.transform import Pass, PassContext, PassInfo


class ScheduleRule:
    """Base of the rules, those of users too: `apply` returns a schedule, or None where a rule does
    not fit."""

    core: ClassVar[tuple[str, ...]] = ()
    """The names of the core's rules, of which the first that fits is applied."""

    def apply(self, func: PrimFunc, target: Any, tunable: bool = False) -> Any:
        """The function scheduled; None where no rule fits."""
        context = Context(core_target(target))
        made = schedule_by_rules(func.name_hint or "main", func, context, self.core)
        return None if made is None else Schedule(made)


class ApplyDefaultSchedule(Pass):
    """Schedules each loop function by the first of the rules that fits, for the target that it
    states or the current one; the others stay."""

    def __init__(self, *rules: ScheduleRule) -> None:
        super().__init__(self._run, PassInfo(0, "ApplyDefaultSchedule"))
        self._rules = rules

    def _run(self, mod: Module, _: PassContext) -> Module:
        found = {name: self._scheduled(func) for name, func in mod.loop_functions().items()}
        return mod.with_functions({name: func for name, func in found.items() if func is not None})

    def _scheduled(self, func: PrimFunc) -> PrimFunc | None:
        if func.attrs.get(IS_SCHEDULED):
            return None
        for rule in self._rules:
            made = rule.apply(func, func.attrs.get("target"), False)
            if made is not None:
                first = made[0] if isinstance(made, list) else made
                (new,) = first.mod.loop_functions().values()
                attrs = new.attrs.with_(**{IS_SCHEDULED: True})
                return replace(new, attrs=attrs, name_hint=func.name_hint, private=func.private)
        return None
