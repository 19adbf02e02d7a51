"""Intervals, and what is concluded from planted clocks."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator

import pytest

from relaxlab.tuning.measured import DROPPED, LOOKS, Measured, in_turns
from relaxlab.tuning.statistics import CONFIDENCE, FEWEST, median_interval


@pytest.mark.parametrize("count", range(FEWEST, 13))
def test_an_interval_holds_the_median_as_often_as_it_says(count: int) -> None:
    """All ways in which values fall below and above the median of their distribution."""
    held = 0
    for signs in itertools.product((-1.0, 1.0), repeat=count):
        interval = median_interval([s * (i + 1) for i, s in enumerate(signs)])
        held += interval.low <= 0 <= interval.high
    assert held / 2**count >= CONFIDENCE
    # The next narrower one would not do.
    values = [float(i) for i in range(count)]
    cut = int(median_interval(values).low)
    below = sum(sum(s) <= cut + 1 for s in itertools.product((0, 1), repeat=count))
    assert 2 * below / 2**count > 1 - CONFIDENCE


def test_an_interval_takes_enough_values() -> None:
    with pytest.raises(ValueError, match="takes 6 values at least, got 5"):
        median_interval([1.0] * 5)
    interval = median_interval([3.0, 1.0, 2.0, 5.0, 4.0, 6.0])
    assert interval.as_tuple() == (3.5, 1.0, 6.0) and str(interval) == "3.5 (1–6)"


def clock(seconds: float, noise: float = 0.0, seed: int = 0) -> Iterator[float]:
    drawn = random.Random(seed)
    while True:
        yield seconds * (1 + noise * drawn.random())


def measured(*pairs: tuple[Iterator[float], Iterator[float]], rounds: int = 15) -> Measured:
    base, other = zip(*pairs, strict=True)
    return in_turns([b.__next__ for b in base], [o.__next__ for o in other], rounds)


def test_a_faster_program_is_seen_through_noise() -> None:
    found = measured((clock(1.2, 0.1, 1), clock(1.0, 0.1, 2)))
    assert len(found.rounds) == 15 and found.is_faster
    assert 1.1 < found.ratio < 1.3
    assert found.interval is not None and found.interval.low <= 1.2 <= found.interval.high


def test_noise_alone_is_not_faster() -> None:
    accepted = sum(
        measured((clock(1.0, 0.3, seed), clock(1.0, 0.3, 1000 + seed))).is_faster
        for seed in range(200)
    )
    assert accepted <= 200 * (1 - CONFIDENCE)
    assert not measured((clock(1.005), clock(1.0))).is_faster  # faster, but by less than 1 %


def test_faster_at_one_size_and_slower_at_another_is_refused() -> None:
    quick, slow = (clock(2.0), clock(1.0)), (clock(1.0), clock(1.1))
    found = measured(quick, slow)
    assert found.ratio > 1.3 and not found.is_faster
    assert measured(quick, (clock(1.0), clock(1.0))).is_faster


def test_what_is_slow_is_dropped_early() -> None:
    found = measured((clock(1.0), clock(DROPPED * 1.1)))
    assert len(found.rounds) == 1 and found.interval is None and not found.is_faster
    assert len(measured((clock(1.0), clock(1.2))).rounds) == LOOKS
    assert len(measured((clock(1.0), clock(1.0))).rounds) == 15


def test_a_size_that_is_slower_is_measured_no_further() -> None:
    found = measured(
        (clock(1.0), clock(DROPPED * 1.1)), (clock(1.0), clock(1.2)), (clock(2.0), clock(1.0))
    )
    assert [len(ratios) for ratios in found.ratios] == [1, LOOKS, 15]
    assert found.at(0).low == found.at(0).high == found.ratios[0][0]
    assert not found.is_faster and found.over([2]).is_faster


def test_programs_take_turns_in_going_first() -> None:
    order: list[str] = []

    def sampler(name: str) -> float:
        order.append(name)
        return 1.0

    in_turns([lambda: sampler("a")], [lambda: sampler("b")], 4)
    assert "".join(order) == "abbaabba"
