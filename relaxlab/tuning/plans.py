"""Plans of programs: schedules that the process which tunes makes itself, of points in spaces.

A space is a function of the caller's, which other processes do not have. They are given the trace
of the schedule instead, as the database keeps it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from relaxlab.ir.brief import Brief
from relaxlab.ir.errors import UserError
from relaxlab.ir.loops import PrimFunc
from relaxlab.ir.target import Target
from relaxlab.schedule.compiled import made_by
from relaxlab.schedule.decisions import (
    Decided,
    Decider,
    Decision,
    is_in_space,
    versions_in,
)
from relaxlab.schedule.rules.base import Space
from relaxlab.schedule.trace import Instruction, to_json
from relaxlab.tuning.kernels import KERNEL, Kernel, context_alone
from relaxlab.tuning.points import Point, frozen


class NoPlan(UserError, ValueError):
    """No schedule has the decisions of a point, and why."""


@dataclass(frozen=True, slots=True, repr=False)
class Plan(Brief):
    """The schedule of a kernel for a point, which has no decisions but those that the schedule
    made: these are `decisions`, with the rules' choices and the defaults among them. func: the
    kernel as it is scheduled."""

    point: Point
    decisions: tuple[Decision, ...]
    steps: Sequence[Instruction]
    func: PrimFunc


@dataclass(frozen=True, slots=True, repr=False)
class Proposal(Brief):
    """A point to be built. trace: of the schedule that a space made; "" for the rules."""

    point: Point
    trace: str = ""


class Planner:
    """Makes the schedules of a kernel by its rules and by spaces, by name. refused: the reasons why
    there were none for points that a search drew, and how many had each."""

    def __init__(
        self, kernel: Kernel, target: Target, spaces: Mapping[str, Space], threads: int = 1
    ) -> None:
        """threads: of the calls that are measured."""
        self.kernel, self.target, self.spaces, self.threads = kernel, target, spaces, threads
        self._context = context_alone(kernel.program, target)
        func = kernel.program[KERNEL]
        assert isinstance(func, PrimFunc)
        self._func = func
        self._plans: dict[frozenset[tuple[str, str]], Plan | NoPlan] = {}
        self.refused: Counter[str] = Counter()

    def plan(self, point: Point) -> Plan:
        """The plan of a point. Raises NoPlan."""
        known = frozen(point)
        if known not in self._plans:
            try:
                self._plans[known] = self._made(Decided(point), point)
            except NoPlan as error:
                self._plans[known] = error
        found = self._plans[known]
        if isinstance(found, NoPlan):
            raise found
        return found

    def drawn(self, point: Point, others: Decider | None = None) -> Plan | None:
        """The plan whose decisions are those of the point, and otherwise by a decider; None where
        they do not fit each other, which is counted in `refused`."""
        try:
            made = self._made(Decided(point, others), point)
        except NoPlan as error:
            self.refused[str(error)] += 1
            return None
        self._plans[frozen(made.point)] = made
        return made

    def proposal(self, point: Point) -> Proposal:
        """The point for a process without the spaces. Raises NoPlan for one in a space where there
        is no schedule."""
        if not is_in_space(point):
            return Proposal(point)
        made = self.plan(point)
        if not is_in_space(made.point):
            raise NoPlan("the versions by spaces and rules do not make one kernel")
        return Proposal(made.point, to_json(made.steps))

    def _made(self, decider: Decider, point: Point) -> Plan:
        try:
            made = made_by(self._func, KERNEL, self._context, decider, self.spaces)
        except UserError as error:
            lines = [line.strip() for line in str(error).strip().splitlines()]
            # What was refused, and for which condition.
            raise NoPlan("; ".join(lines[:2])) from None
        versions = {key: point[key] for key in versions_in(made.steps) & point.keys()}
        found = {d.key: d.value for d in made.decisions if repr(d.value) != repr(d.default)}
        return Plan({**versions, **found}, made.decisions, made.steps, made.func)
