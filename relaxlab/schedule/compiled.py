"""The schedules that the compiler made of its kernels."""

from __future__ import annotations

from typing import Any

from relaxlab.schedule.decisions import Value, values_in
from relaxlab.schedule.replay import apply_trace
from relaxlab.schedule.schedule import Schedule
from relaxlab.tracing import Trace


def schedule_of(trace: Trace, kernel: str) -> Schedule:
    """The schedule of a kernel in the trace of a compilation, step by step as its rule made it.

    Raises KeyError where no rule scheduled a kernel of that name.
    """
    about = _record_of(trace, kernel)
    sch = apply_trace(about["unscheduled"], about["steps"].trace)
    sch.name = kernel
    return sch


def decisions_of(trace: Trace, kernel: str) -> dict[str, Value]:
    """The values of the decisions that the schedule of a kernel has, by key.

    Raises KeyError where `schedule_of` does.
    """
    return values_in(_record_of(trace, kernel)["steps"].trace)


def _record_of(trace: Trace, kernel: str) -> dict[str, Any]:
    """The nodes that the remark on the schedule of a kernel holds."""
    found: dict[str, dict[str, Any]] = {
        remark.subject: dict(remark.about)
        for record in trace.passes
        for remark in record.remarks
        if remark.applied and "steps" in remark.about
    }
    if kernel not in found:
        names = ", ".join(found) or "none"
        raise KeyError(f"no rule scheduled a kernel {kernel!r}; there are: {names}")
    return found[kernel]
