"""Traces of schedules of modules."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from relaxlab.schedule.replay import apply_steps
from relaxlab.schedule.schedule import Schedule
from relaxlab.schedule.trace import Instruction, from_json, to_json

_KINDS = {
    "get_block": "GetSBlock", "partition": "LoopPartition", "reindex": "ReIndex",
    "rfactor": "RFactor",
}  # fmt: skip


@dataclass(frozen=True)
class InstructionKind:
    """The primitive of a step, by TVM's name: "GetLoops"."""

    name: str

    @staticmethod
    def of(step: Instruction) -> InstructionKind:
        """The primitive of a step."""
        return InstructionKind(_KINDS.get(step.name) or step.name.title().replace("_", ""))


class Scheduled(Protocol):
    """Loop functions being scheduled."""

    def of(self, func_name: str | None) -> Schedule:
        """The core's schedule of a function."""
        ...


@dataclass(frozen=True)
class Trace:
    """The steps made on each function of a module, by its name."""

    steps: Mapping[str, tuple[Instruction, ...]]

    @property
    def insts(self) -> list[Instruction]:
        """The steps, those of one function after those of another."""
        return [step for steps in self.steps.values() for step in steps]

    @property
    def decisions(self) -> dict[Instruction, Any]:
        """The values that were drawn, by the step that drew it."""
        named = ((step, dict(step.args)) for step in self.insts)
        return {step: args["decision"] for step, args in named if "decision" in args}

    def get_decision(self, inst: Instruction) -> Any:
        """The value that a step drew; None for one that draws nothing."""
        return dict(inst.args).get("decision")

    def as_json(self, remove_postproc: bool = False) -> dict[str, Any]:
        """The trace as JSON has it."""
        return {name: json.loads(to_json(steps)) for name, steps in self.steps.items()}

    def as_python(self, remove_postproc: bool = False) -> list[str]:
        """The steps as lines of a program over a schedule `sch`."""
        return [str(step) for step in self.insts]

    def simplified(self, remove_postproc: bool = False) -> Trace:
        """The trace itself: it holds no step that is not needed."""
        return self

    def apply_to_schedule(self, sch: Scheduled, remove_postproc: bool = False) -> None:
        """Make the steps on another schedule, of functions of the same names and structure."""
        for name, steps in self.steps.items():
            apply_steps(sch.of(name), steps)

    @staticmethod
    def apply_json_to_schedule(json_obj: Mapping[str, Any], sch: Scheduled) -> None:
        """Make the steps that `as_json` gave on another schedule."""
        for name, steps in json_obj.items():
            apply_steps(sch.of(name), from_json(json.dumps(steps)))

    def show(self, *args: Any, **kwargs: Any) -> None:
        """Print the steps."""
        print(self)

    def __str__(self) -> str:
        lines = ["def apply_trace(sch):", *(f"    {line}" for line in self.as_python())]
        return "\n".join(lines)
