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
    """The ratios of a program's times to those of another one, which is so many times as fast: per
    size, of samples next to each other. A size at which the program was soon seen to be slower has
    fewer of them."""

    ratios: tuple[tuple[float, ...], ...]

    @property
    def rounds(self) -> tuple[tuple[float, ...], ...]:
        """The ratios at all sizes, of each round in which all were measured."""
        return tuple(zip(*self.ratios, strict=False))

    @property
    def ratio(self) -> float:
        """The median over the rounds of the geometric mean over the sizes."""
        return median(self._means())

    @property
    def interval(self) -> Interval | None:
        """The same with its bounds; None for too few rounds."""
        means = self._means()
        return None if len(means) < FEWEST else median_interval(means)

    def _means(self) -> list[float]:
        return [math.exp(sum(map(math.log, r)) / len(r)) for r in self.rounds]

    def at(self, size: int) -> Interval:
        """The interval at one of the sizes, by number; of one that was dropped after its first
        samples, the ratio in these alone."""
        found = self.ratios[size]
        return Interval(*3 * found[-1:]) if len(found) < FEWEST else median_interval(found)

    def over(self, sizes: Sequence[int]) -> Measured:
        """The measurement of some of the sizes, by number."""
        return Measured(tuple(self.ratios[i] for i in sizes))

    @property
    def is_faster(self) -> bool:
        """True if it is faster by `GAIN` with confidence, and slower at none of the sizes."""
        overall = self.interval
        return overall is not None and overall.low > GAIN and not self.is_slower_somewhere

    @property
    def is_slower_somewhere(self) -> bool:
        """True if it is slower at one of the sizes."""
        return any(is_slower(self.at(i)) for i in range(len(self.ratios)))


def measured_of(ratios: Sequence[Sequence[float]]) -> Measured:
    """The measurement with these ratios, as a message has them."""
    return Measured(tuple(map(tuple, ratios)))


def is_slower(ratio: Interval) -> bool:
    """True if a program is slower, with confidence or by more than `GAIN`."""
    return ratio.high < 1 or ratio.middle < 1 / GAIN


def in_turns(base: Sequence[Sampler], other: Sequence[Sampler], rounds: int) -> Measured:
    """Measure one program beside another, each given as a sampler per size.

    Which one goes first changes from round to round: what the first leaves in caches, or a clock
    rate that it brings down, is then to the good of either. A size at which the other one is slower
    in a way that chance does not explain is measured no further.
    """
    ratios: list[list[float]] = [[] for _ in base]
    going = list(range(len(ratios)))
    for number in range(rounds):
        for i in going:
            one, two = base[i], other[i]
            if number % 2:
                after = two()
                before = one()
            else:
                before = one()
                after = two()
            ratios[i].append(before / after)
        going = [i for i in going if not _is_hopeless(ratios[i], base[i], other[i])]
    return Measured(tuple(map(tuple, ratios)))


def _is_hopeless(ratios: Sequence[float], base: Sampler, other: Sampler) -> bool:
    if len(ratios) == LOOKS:
        return all(ratio < 1 for ratio in ratios)
    # Once more: the machine may have been busy with something else.
    return len(ratios) == 1 and ratios[0] < 1 / DROPPED and base() < other() / DROPPED
