"""Explanations of refused schedule steps: the earlier steps that stand in the way, and an order of
the same steps that works. Both are found by replaying the trace in other forms."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

from relaxlab.ir.loops import PrimFunc
from relaxlab.schedule.error import ScheduleError
from relaxlab.schedule.primitive import leaves_unchanged
from relaxlab.schedule.replay import apply_trace
from relaxlab.schedule.trace import Instruction, Ref, Value

MOST_TRIALS = 100
"""Most replays of a trace for one explanation: each applies all steps again, and a reader waits."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """`causes` are the numbers of the steps without any of which (and what builds on it) the
    refused step applies. `order` is a sequence in which all steps apply, None if none was found;
    of its items, numbers of steps, `len(trace)` is the refused one. `trials` replays were made."""

    causes: tuple[int, ...]
    order: tuple[int, ...] | None
    trials: int


def explain_refusal(
    func: PrimFunc, trace: Sequence[Instruction], refused: Instruction
) -> Explanation:
    """Explain why `refused` does not apply after `trace`, which applies to `func`.

    At most `MOST_TRIALS` replays are made, the latest steps tried first.
    """
    steps = [*trace, refused]
    last = len(trace)
    trials = _Trials(func, steps)
    causes: list[int] = []
    for number in reversed(range(last)):
        if leaves_unchanged(trace[number].name):
            continue
        gone = _builds_on(steps, number)
        if last not in gone and trials.apply([i for i in range(last + 1) if i not in gone]):
            causes.append(number)
    order = next((o for o in _orders(steps, causes) if trials.apply(o)), None)
    found = None if order is None else tuple(order)
    return Explanation(tuple(sorted(causes)), found, trials.made)


@dataclass(slots=True)
class _Trials:
    func: PrimFunc
    steps: Sequence[Instruction]
    made: int = 0

    def apply(self, order: Sequence[int]) -> bool:
        """True if the steps apply in that order."""
        if self.made >= MOST_TRIALS:
            return False
        self.made += 1
        try:
            apply_trace(self.func, [self.steps[i] for i in order])
        except (ScheduleError, ValueError):  # ValueError: a handle is not there any more
            return False
        return True


def _orders(steps: Sequence[Instruction], causes: Sequence[int]) -> Iterator[list[int]]:
    """Yield orders of the steps: with the refused step earlier, as late as possible; then with the
    steps in its way after it."""
    last = len(steps) - 1
    needed = _needed_by(steps, last)
    before = list(range(last))
    for at in reversed(range(last)):
        if at in needed:
            break
        if not leaves_unchanged(steps[at].name):
            yield [*before[:at], last, *before[at:]]
    for cause in causes:
        moved = _builds_on(steps, cause) - {last}
        yield [*(i for i in range(last + 1) if i not in moved), *sorted(moved)]


def _builds_on(steps: Sequence[Instruction], number: int) -> set[int]:
    """The step and all that use, directly or not, a handle that it returned."""
    found, handles = {number}, set(steps[number].outputs)
    for i in range(number + 1, len(steps)):
        if handles & _uses(steps[i].args):
            found.add(i)
            handles |= set(steps[i].outputs)
    return found


def _needed_by(steps: Sequence[Instruction], number: int) -> set[int]:
    """The earlier steps that returned the handles that a step uses, directly or not."""
    wanted, found = _uses(steps[number].args), set[int]()
    for i in reversed(range(number)):
        if wanted & set(steps[i].outputs):
            found.add(i)
            wanted |= _uses(steps[i].args)
    return found


def _uses(value: Value) -> set[str]:
    """The names of the handles in the arguments of a step."""
    if isinstance(value, Ref):
        return {value.name}
    if isinstance(value, tuple):
        return set[str]().union(*map(_uses, cast("tuple[Any, ...]", value)))
    return set()
