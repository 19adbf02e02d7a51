"""Measurements of a program beside another one in turns, and what is concluded from them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from relaxlab.ir.brief import Brief
from relaxlab.tuning.statistics import FEWEST, Interval, median_interval

GAIN = 1.01
"""The least that a program must be faster by, with confidence, to be taken."""
DROPPED = 3.0
"""A program that takes so many times as long in its first two samples is measured no further."""
LOOKS = 6
"""Rounds after which a program that was slower in each is measured no further; one that is as fast
is so in every sixty-fourth measurement."""

Sampler = Callable[[], float]
"""Runs a program for a sample and returns the seconds of a call."""


@dataclass(frozen=True, slots=True, repr=False)
class Measured(Brief):
    """The ratios of a program's times to those of another one, which is so many times as fast: in
    `rounds` of samples next to each other, one of each size. There are fewer rounds than were asked
    for where the other program was soon seen to be slower."""

    rounds: tuple[tuple[float, ...], ...]

    @property
    def ratio(self) -> float:
        """The median over the rounds of the geometric mean over the sizes."""
        return median(self._means())

    @property
    def interval(self) -> Interval | None:
        """The same with its bounds; None for too few rounds."""
        return None if len(self.rounds) < FEWEST else median_interval(self._means())

    def _means(self) -> list[float]:
        return [math.exp(sum(map(math.log, r)) / len(r)) for r in self.rounds]

    def at(self, size: int) -> Interval:
        """The interval at one of the sizes, by number."""
        return median_interval([r[size] for r in self.rounds])

    @property
    def is_faster(self) -> bool:
        """True if it is faster by `GAIN` with confidence, and slower at none of the sizes."""
        overall = self.interval
        if overall is None or overall.low <= GAIN:
            return False
        each = [self.at(i) for i in range(len(self.rounds[0]))]
        return all(one.high >= 1 and one.middle >= 1 / GAIN for one in each)


def in_turns(base: Sequence[Sampler], other: Sequence[Sampler], rounds: int) -> Measured:
    """Measure one program beside another, each given as a sampler per size.

    Which one goes first changes from round to round: what the first leaves in caches, or a clock
    rate that it brings down, is then to the good of either.
    """
    taken: list[tuple[float, ...]] = []
    for number in range(rounds):
        ratios: list[float] = []
        for one, two in zip(base, other, strict=True):
            if number % 2:
                after = two()
                before = one()
            else:
                before = one()
                after = two()
            ratios.append(before / after)
            # Once more: the machine may have been busy with something else.
            if number == 0 and ratios[-1] < 1 / DROPPED and before < two() / DROPPED:
                return Measured((tuple(ratios),))
        taken.append(tuple(ratios))
        found = Measured(tuple(taken))
        if number + 1 == LOOKS and all(mean < 1 for mean in found._means()):
            break
    return Measured(tuple(taken))
