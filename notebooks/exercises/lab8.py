"""The steps of lab 8 with their counts, and the checks of its exercises."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import relaxlab as rl
from relaxlab.ir.gpus import gpu_named
from relaxlab.ir.module import Module
from relaxlab.lab.verdict import Hint, exercise
from relaxlab.runtime.predict.predict import Prediction
from relaxlab.tracing import Trace

MOST = 0.9
"""The time that is asked for, as a multiple of that of the step."""
Steps = Callable[[rl.Schedule], Any]
HEAD = (
    f"{'step':16} {'us':>7}  {'bound by':14} {'TFLOP/s':>7} {'accesses':>9} {'main memory':>12} "
    f"{'banks':>6} {'warps':>6}"
)


@dataclass(repr=False)
class Staircase:
    """The steps so far of the only loop function of a module, as predicted for a GPU."""

    mod: Module
    gpu: str
    steps: dict[str, Prediction] = field(default_factory=dict[str, Prediction])

    def __repr__(self) -> str:
        return "\n".join([HEAD, *(_line(*step) for step in self.steps.items())])

    @property
    def name(self) -> str:
        """The name of the loop function."""
        (name,) = self.mod.loop_functions()
        return name

    def schedule(self) -> rl.Schedule:
        """A schedule of the loops as they are written."""
        return rl.Schedule(self.mod.loop_functions()[self.name])

    def climb(self, label: str, steps: Steps | rl.Schedule) -> None:
        """Apply steps to the loops, or take a schedule as it is; keep what is expected of it and
        print a line."""
        self.steps[label] = self.predicted(steps)
        line = _line(label, self.steps[label])
        print(f"{HEAD}\n{line}" if len(self.steps) == 1 else line)

    @cached_property
    def trace(self) -> Trace:
        """The compilation of the module, pass by pass, for GPUs without instructions of
        warpgroups."""
        return rl.trace(self.mod, target=f"cuda:{gpu_named(self.gpu).arch.rstrip('a')}")

    def predicted(self, steps: Steps | rl.Schedule) -> Prediction:
        """The times that are expected of the loops after some steps."""
        if isinstance(steps, rl.Schedule):
            sch = steps
        else:
            sch = self.schedule()
            steps(sch)
        return rl.predict(sch, self.gpu, self.name)


def _line(label: str, prediction: Prediction) -> str:
    (launch,) = prediction.launches
    counters, times = launch.work.counters, launch.times
    sectors, rounds = (
        [c for c in counters.costs.values() if c.unit == unit]
        for unit in ("sectors", "rounds of banks")
    )
    adds = counters.pipes.get("fma", 0) * 32 + counters.products / 2
    accesses = counters.pipes["lsu"] * 32 / adds * 1000
    rate = 2 * adds * launch.geometry.blocks / times.seconds / 1e12
    warps = launch.occupancy.blocks * launch.occupancy.warps
    return (
        f"{label:16} {times.seconds * 1e6:7.0f}  {times.bound:14} {rate:7.1f} {accesses:9.0f} "
        f"{_excess(sectors):>12} {_excess(rounds):>6} {warps:6}"
    )


def _excess(costs: list[Any]) -> str:
    """The accesses as a multiple of the fewest possible."""
    least = sum(c.least for c in costs)
    return f"{sum(c.count for c in costs) / least:.2f} x" if least else "none"


def by_rule(staircase: Staircase, decisions: Mapping[str, Any], leave_out: str = "") -> rl.Schedule:
    """The schedule that the compiler's rule makes with these decisions, without its steps of the
    name `leave_out`."""
    trace = staircase.trace
    made = rl.schedule_of(trace, staircase.name, lambda key, _: decisions.get(key))
    before = trace.find("schedule_kernels").before.loop_functions()[staircase.name]
    return rl.apply_trace(before, [step for step in made.trace if step.name != leave_out])


@exercise
def factors(staircase: Staircase, tile: Callable[..., Any], answer: Mapping[str, int]) -> str:
    """The results of a thread along rows and columns, in place of those of the third step."""
    for key in ("rows", "columns"):
        if answer.get(key) not in (1, 2, 4, 8):
            raise Hint(f"`{key}` should be 1, 2, 4 or 8, so that tiles divide the matrices")
    _, _, before, *_ = staircase.steps.values()
    after = staircase.predicted(lambda sch: tile(sch, **answer))
    ratio = after.seconds / before.seconds
    (launch,) = after.launches
    warps = launch.occupancy.blocks * launch.occupancy.warps
    told = f"{ratio:.2f} times as long, with {warps} warps, bound by {launch.times.bound}"
    if ratio > MOST:
        raise Hint(f"{told}; at most {MOST} times are asked for")
    return f"{told}."
