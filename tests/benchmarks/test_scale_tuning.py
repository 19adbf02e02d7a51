"""The simulation of tuning on a cluster: time that is added up right, and no trial twice."""

from __future__ import annotations

import random

import pytest

import relaxlab as rl
from benchmarks.scale_tuning import Durations, Row, Simulated, row_of, table
from relaxlab.tuning.children import Request
from relaxlab.tuning.kernels import kernels_of
from tests.tuning.test_search import PRODUCT

HOST = rl.Target.host()
EVEN = Durations([2.0], [1.0], [5.0], [0.0], faster=0.0)


def measured(machines: int, requests: int, faster: float) -> Simulated:
    durations = Durations([2.0], [1.0], [5.0], [0.0], faster)
    made = Simulated(machines, durations, random.Random(0))
    request = Request({"rounds": 15, "sizes": [0]}, (b"a", b"b"))
    assert [n for n, _ in made.measure([request] * requests)] == list(range(requests))
    return made


@pytest.mark.parametrize(
    ("machines", "requests", "faster", "seconds", "busy"),
    [
        (1, 4, 0.0, 9, 9),  # one opening, then one after another
        (4, 4, 0.0, 6, 24),  # each opens and measures once
        (100, 4, 0.0, 6, 24),
        (1, 4, 1.0, 9, 9),  # there is no second machine
        (4, 4, 1.0, 7, 28),  # each is measured again
    ],
)
def test_measurements(
    machines: int, requests: int, faster: float, seconds: float, busy: float
) -> None:
    made = measured(machines, requests, faster)
    assert made.seconds == pytest.approx(seconds, abs=0.1) and made.busy == busy


def test_builds_are_shared_out() -> None:
    for machines, seconds in ((1, 10), (2, 6), (5, 2), (50, 2)):
        made = Simulated(machines, EVEN, random.Random(0))
        digests = {reply[0]["digest"] for _, reply in made.build([Request({})] * 5)}  # type: ignore[index]
        assert len(digests) == 5 and made.seconds == pytest.approx(seconds, abs=0.1)


def test_more_machines_end_sooner_up_to_the_turns_of_the_search() -> None:
    kernels, _ = kernels_of(PRODUCT, HOST, {"n": [1]})
    rows = [row_of(kernels, count, EVEN, HOST, trials=12) for count in (1, 4, 64, 1000)]
    assert all(10 <= row.trials <= 12 for row in rows)
    seconds = [row.seconds for row in rows]
    assert seconds == sorted(seconds, reverse=True) and seconds[0] > 2 * seconds[-1]
    assert rows[-1].seconds == pytest.approx(rows[-2].seconds, rel=0.1)
    assert all(row.aside == pytest.approx(row.seconds) for row in rows)  # of a single kernel
    assert 0.9 < rows[0].busy <= 1 and rows[-1].busy < 0.1


def test_the_table() -> None:
    rows = [Row(1, 10, 20.0, 20.0, 0.9, 0.05), Row(8, 10, 5.0, 4.0, 0.4, 0.2)]
    assert table(rows).splitlines()[-1] == "| 8 | 10 | 5 | 2.0 | 4.0 | 40% | 20% | 4 s |"
