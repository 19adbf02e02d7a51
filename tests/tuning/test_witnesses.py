"""Which of several machines' reports on a program is believed."""

from __future__ import annotations

import random

import pytest

from relaxlab.tuning.children import TrialFailed
from relaxlab.tuning.measured import measured_of
from relaxlab.tuning.witnesses import Report, Verdict, verdict_of


def report(machine: str, ratio: float, rounds: int = 15, noise: float = 0.002) -> Report:
    drawn = random.Random(machine)
    ratios = [ratio * (1 + noise * drawn.uniform(-1, 1)) for _ in range(rounds)]
    return Report(machine, ({"ratios": [ratios], "seconds": [1.0]}, []))


def failed(machine: str) -> Report:
    return Report(machine, TrialFailed("wrong: element (0,) is 1, expected 2"))


def ratio_of(verdict: Verdict | None) -> float:
    assert verdict is not None and not isinstance(verdict.reply, TrialFailed)
    return measured_of(verdict.reply[0]["ratios"]).ratio


@pytest.mark.parametrize("ratio", [1.0, 0.7, 1.005])
def test_one_machine_is_enough_where_nothing_follows(ratio: float) -> None:
    one = report("a", ratio)
    assert verdict_of([one], 5) == Verdict(one.reply)
    dropped = report("a", 0.3, rounds=1)
    assert verdict_of([dropped], 5) == Verdict(dropped.reply)


@pytest.mark.parametrize("claim", [report("a", 1.2), failed("a")])
def test_a_claim_is_asked_of_a_second_machine(claim: Report) -> None:
    assert verdict_of([claim], 1) is None
    # There is no other machine.
    assert verdict_of([claim], 0) == Verdict(claim.reply)
    second = report("b", 1.2) if claim.ratio else failed("b")
    assert verdict_of([claim, second], 1) == Verdict(second.reply)


@pytest.mark.parametrize(
    ("first", "second"),
    [(report("a", 3.0), report("b", 1.0)), (failed("a"), report("b", 1.1)),
     (report("a", 1.2), failed("b")), (report("a", 1.3), report("b", 0.3, rounds=1))],
)  # fmt: skip
def test_a_contradiction_is_decided_by_a_third(first: Report, second: Report) -> None:
    assert verdict_of([first, second], 1) is None
    for liar, honest in ((first, second), (second, first)):
        third = Report("c", honest.reply)
        assert verdict_of([first, second, third], 1) == Verdict(third.reply, liar.machine)


def test_without_a_majority_the_least_is_believed() -> None:
    found = verdict_of([report("a", 3.0), report("b", 1.1)], 0)
    assert ratio_of(found) == pytest.approx(1.1, rel=0.01)
    three = [report("a", 3.0), report("b", 1.5), report("c", 1.1)]
    assert ratio_of(verdict_of(three, 7)) == pytest.approx(1.1, rel=0.01)
    broken = failed("b")
    assert verdict_of([report("a", 3.0), broken], 0) == Verdict(broken.reply)


def test_luck_is_no_lie() -> None:
    """A program that was faster by luck at first is not; nobody lied."""
    lucky = report("a", 1.02)
    slower = report("b", 1.0, noise=0.03)
    assert lucky.is_claim and not slower.is_claim
    assert verdict_of([lucky, slower], 1) == Verdict(slower.reply)
