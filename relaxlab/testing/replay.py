"""Replays of the schedules of a compilation: the recorded trace of each makes its kernel again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from relaxlab.ir.equal import assert_structural_equal, structural_key
from relaxlab.ir.loops import IS_SCHEDULED, Block, PrimFunc
from relaxlab.ir.module import Module
from relaxlab.ir.node import replace, walk
from relaxlab.passes.base import Pipeline
from relaxlab.schedule.replay import apply_trace
from relaxlab.schedule.rules.context import FACTS
from relaxlab.schedule.trace import to_json
from relaxlab.tracing import Remark, Trace

UNRECORDED = ("already scheduled", "left as it is", "its loops have no iterations")
"""Beginnings of the remarks on kernels that no rule schedules."""


def replay_kernels(trace: Trace) -> int:
    """Replay the schedules of all kernels of a compilation, and return how many kernels it has.

    Raises AssertionError where a kernel has no record of its schedule, or is not what the JSON of
    the record makes of the unscheduled function.
    """
    count = 0
    for record in trace.passes:
        if record.name == "schedule_kernels":
            before = record.before.loop_functions()
            made = record.after.loop_functions()
            kernels = {
                name: func
                for name, func in made.items()
                if not before[name].attrs.get(IS_SCHEDULED)
            }
            replay_remarks(record.remarks, kernels)
            count += len(kernels)
    return count


def replay_for(mod: Module, pipeline: Pipeline) -> int:
    """`replay_kernels` of a program's compilation. A program that places values on another device
    than the pipeline's has no kernels for it."""
    trace, error = pipeline.attempt(mod)
    if error is not None:
        if trace.passes[-1].name != "realize_devices":
            raise error
        return 0
    return replay_kernels(trace)


def replay_remarks(remarks: Iterable[Remark], kernels: Mapping[str, PrimFunc]) -> None:
    """Replay the schedules that the remarks of the rules hold, of the kernels of these names.

    Raises AssertionError where `replay_kernels` does.
    """
    found = {w.subject: w for w in remarks if "does not fit" not in w.reason}
    for name, kernel in kernels.items():
        about: dict[str, Any] = dict(found[name].about) if name in found else {}
        if "steps" not in about:
            reason = found[name].reason if name in found else "nothing"
            assert reason.startswith(UNRECORDED), f"{name} has no record of a schedule: {reason}"
            continue
        unscheduled, steps = about["unscheduled"], to_json(about["steps"].trace)
        blocks = tuple(n.name for n in walk(unscheduled.body) if isinstance(n, Block))
        replay = structural_key(unscheduled), structural_key(kernel), blocks, str(steps)
        if replay in _replayed:
            continue
        again = apply_trace(unscheduled, steps).func
        # The pass takes the facts of the context away again.
        restored = {key: kernel.attrs.get(key) for key in (*FACTS, IS_SCHEDULED)}
        again = replace(again, attrs=again.attrs.with_(**restored))
        assert_structural_equal(again, kernel)
        _replayed.add(replay)


_replayed: set[tuple[str, str, tuple[str, ...], str]] = set()
"""The replays that made their kernels: function, kernel, names of blocks, and steps. Models have
many kernels in common, and replaying a schedule takes as long as making it."""
