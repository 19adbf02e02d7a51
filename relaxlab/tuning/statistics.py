"""The median of a sample and an interval for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass
from math import comb
from statistics import median

CONFIDENCE = 0.95
FEWEST = 6
"""Fewest values with a confidence interval: of five, all are on one side of the median in every
sixteenth sample."""


@dataclass(frozen=True, slots=True)
class Interval:
    """The median of a sample, and bounds between which that of all values lies with a probability
    of at least `CONFIDENCE`."""

    middle: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.middle:.3g} ({self.low:.3g}–{self.high:.3g})"

    def as_tuple(self) -> tuple[float, float, float]:
        """The middle, the lower and the upper bound."""
        return astuple(self)


def median_interval(values: Sequence[float]) -> Interval:
    """The interval between two order statistics that holds the median, whatever the values'
    distribution: as many values are below it as heads fall in as many tosses (W. J. Conover,
    *Practical Nonparametric Statistics*, section 3.2).

    Raises ValueError for fewer than `FEWEST` values.
    """
    ordered, count = sorted(values), len(values)
    if count < FEWEST:
        raise ValueError(f"an interval takes {FEWEST} values at least, got {count}")
    outside, cut = 1, 0  # samples, of 2 ** count, with at most `cut` values below the median
    while 2 * (outside + comb(count, cut + 1)) <= (1 - CONFIDENCE) * 2**count:
        cut += 1
        outside += comb(count, cut)
    return Interval(median(ordered), ordered[cut], ordered[-1 - cut])
