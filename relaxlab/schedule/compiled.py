"""The schedules that the compiler made of its kernels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from relaxlab.ir.arguments import names_arguments
from relaxlab.ir.brief import Brief
from relaxlab.ir.errors import UserError, expect
from relaxlab.ir.loops import PrimFunc
from relaxlab.ir.names import among
from relaxlab.schedule.decisions import Decider, Decision, Value, values_in
from relaxlab.schedule.replay import apply_trace
from relaxlab.schedule.rules import schedule_kernel
from relaxlab.schedule.rules.base import Space
from relaxlab.schedule.rules.context import Context
from relaxlab.schedule.schedule import Schedule
from relaxlab.schedule.trace import Instruction
from relaxlab.tracing import Remark, Trace, recording


@names_arguments
def schedule_of(trace: Trace, kernel: str, decider: Decider | None = None) -> Schedule:
    """The schedule of a kernel in the trace of a compilation, step by step as its rule made it.

    decider: makes the decisions anew, for a schedule that the rules make instead in the same
    context; another rule than before where that one does not fit.

    Raises KeyError where no rule scheduled a kernel of that name.
    """
    about = _record_of(trace, kernel)
    if decider is not None:
        made = made_by(about["unscheduled"], kernel, about["context"], decider)
        sch = apply_trace(made.unscheduled, made.steps)
    else:
        sch = apply_trace(about["unscheduled"], about["steps"].trace)
    sch.name = kernel
    return sch


@dataclass(frozen=True, slots=True, repr=False)
class MadeSchedule(Brief):
    """A schedule that rules or spaces made: the function before and after, its steps and the
    decisions among them."""

    unscheduled: PrimFunc
    func: PrimFunc
    steps: tuple[Instruction, ...]
    decisions: tuple[Decision, ...]


class NoSchedule(UserError, ValueError):
    """Neither a rule nor a space schedules a kernel, and why."""


def made_by(
    func: PrimFunc, kernel: str, context: Context, decider: Decider,
    spaces: Mapping[str, Space] = MappingProxyType({}),
) -> MadeSchedule:  # fmt: skip
    """The schedule that rules or spaces make of a kernel.

    Raises NoSchedule with the last reason where none fits.
    """
    with recording() as remarks:
        made = schedule_kernel(kernel, func, context, decider, spaces)
    found = _records(remarks)
    if kernel not in found:
        reasons = [r.reason for r in remarks if not r.applied]
        raise NoSchedule(reasons[-1] if reasons else f"no rule fits {kernel}")
    about = found[kernel]
    return MadeSchedule(about["unscheduled"], made, about["steps"].trace, about["decisions"])


def decisions_of(trace: Trace, kernel: str) -> dict[str, Value]:
    """The values of the decisions that the schedule of a kernel has, by key.

    Raises KeyError where `schedule_of` does.
    """
    return values_in(_record_of(trace, kernel)["steps"].trace)


def steps_of(trace: Trace, kernel: str) -> tuple[Instruction, ...]:
    """The trace of the schedule of a kernel. Raises KeyError where `schedule_of` does."""
    return _record_of(trace, kernel)["steps"].trace


def context_of(trace: Trace, kernel: str) -> Context:
    """The context in which a kernel was scheduled. Raises KeyError where `schedule_of` does."""
    return _record_of(trace, kernel)["context"]


def scheduled_kernels(trace: Trace) -> list[str]:
    """The names of the kernels in the trace of a compilation that rules scheduled."""
    return list(_records(r for record in trace.passes for r in record.remarks))


def _record_of(trace: Trace, kernel: str) -> dict[str, Any]:
    """The facts that the remark on the schedule of a kernel holds."""
    expect(trace, Trace, "a schedule is taken from the trace of a compilation (rl.trace(mod))")
    found = _records(r for record in trace.passes for r in record.remarks)
    if kernel not in found:
        names = among(kernel, found)
        raise KeyError(f"no rule scheduled a kernel {kernel!r}; there are: {names}")
    return found[kernel]


def _records(remarks: Iterable[Remark]) -> dict[str, dict[str, Any]]:
    """The facts that remarks on schedules hold, by kernel."""
    return {r.subject: dict(r.about) for r in remarks if r.applied and "steps" in r.about}
