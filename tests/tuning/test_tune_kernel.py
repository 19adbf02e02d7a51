"""The search for a kernel with planted programs and clocks: what is kept, refused and survived."""

from __future__ import annotations

import json
import random
import re
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

import relaxlab as rl
from relaxlab.runtime.cache import compiler_version, machine_key
from relaxlab.schedule.decisions import Value, key_of
from relaxlab.tuning.children import TrialFailed
from relaxlab.tuning.database import Database, Record
from relaxlab.tuning.kernels import Kernel, kernels_of
from relaxlab.tuning.measured import Measured, in_turns
from relaxlab.tuning.plans import Proposal
from relaxlab.tuning.points import Point
from relaxlab.tuning.tune_kernel import KernelTuner, Limits, TunedKernel
from relaxlab.tuning.workshop import Built, Refused, Timed
from tests.tuning.test_search import PRODUCT

HOST = rl.Target.host()
SIZES = {"n": [1, 100]}
ROWS = "any n / register_rows"


class Planted:
    """A workshop whose programs take planted times. slow: the seconds of a point at a size;
    noise(): a factor for each sample. broken: reasons by the text of a value."""

    batch = 3

    def __init__(
        self, slow: Callable[[Point, int], float], noise: Callable[[], float] = lambda: 1.0,
        broken: dict[str, str] | None = None,
    ) -> None:  # fmt: skip
        self.slow, self.noise, self.broken = slow, noise, broken or {}
        self.kernel: Kernel | None = None
        self.measured: list[tuple[Point, Point, tuple[int, ...]]] = []
        self.stop_after: int | None = None

    def open(self, kernel: Kernel) -> Built | Refused:
        self.kernel = kernel
        return Built({}, "default", "", b"")

    def build(self, proposals: Sequence[Proposal], known: Collection[str]) -> list[Built | Refused]:
        found: list[Built | Refused] = []
        for point in (p.point for p in proposals):
            digest = repr(sorted(point.items()))
            reason = self.broken.get(str(point.get(ROWS)), "")
            if reason.startswith("invalid"):
                found.append(Refused(point, "invalid", reason))
            else:
                found.append(Built(point, digest, "", b""))
        return found

    def measure(
        self, base: Built, others: Sequence[tuple[Built, Sequence[int]]], rounds: int
    ) -> Iterator[tuple[int, Timed | TrialFailed]]:
        for number, (other, sizes) in enumerate(others):
            try:
                yield number, self.timed(base, other, sizes, rounds)
            except TrialFailed as error:
                yield number, error

    def timed(self, base: Built, other: Built, sizes: Sequence[int], rounds: int) -> Timed:
        if self.stop_after is not None and len(self.measured) == self.stop_after:
            self.stop_after = None
            raise KeyboardInterrupt
        self.measured.append((base.point, other.point, tuple(sizes)))
        reason = self.broken.get(str(other.point.get(ROWS)))
        if reason is not None:
            raise TrialFailed(reason)

        def sampler(point: Point, size: int) -> Callable[[], float]:
            return lambda: self.slow(point, size) * self.noise()

        pairs = [[sampler(b.point, s) for s in sizes] for b in (base, other)]
        return Timed(in_turns(*pairs, rounds), tuple(self.slow(base.point, s) for s in sizes))


@pytest.fixture(scope="module")
def kernel() -> Kernel:
    (found,), _ = kernels_of(PRODUCT, HOST, SIZES)
    return found


def tuned(
    kernel: Kernel, shop: Planted, path: Path, trials: int = 40, resume: bool = False,
    end: float | None = None,
) -> TunedKernel:  # fmt: skip
    limits = Limits(trials, end)
    tuner = KernelTuner(
        kernel, shop, Database(path), HOST, 2, limits, lambda _: None, resume=resume
    )
    return tuner.run()


def of_rows(best: int) -> Callable[[Point, int], float]:
    """Slower by a tenth for each step of `register_rows` away from the best, at the second size."""

    def slow(point: Point, size: int) -> float:
        rows = point.get(ROWS, 3)
        return 1 + 0.1 * abs((1, 2, 3, 4, 6, 8, 12, 16).index(rows) - best) if size else 1.0

    return slow


def test_the_best_is_found_confirmed_and_kept(kernel: Kernel, tmp_path: Path) -> None:
    default = next(d for d in kernel.decisions if d.key == ROWS).default
    at = (1, 2, 3, 4, 6, 8, 12, 16).index(default)
    best = at + 2 if at < 5 else at - 2
    value = (1, 2, 3, 4, 6, 8, 12, 16)[best]

    def slow(point: Point, size: int) -> float:
        return of_rows(best)({ROWS: point.get(ROWS, default)}, size)

    shop = Planted(slow)
    result = tuned(kernel, shop, tmp_path / "a.db")
    assert result.point == {ROWS: value} and result.interval is not None
    # The sizes at which the version does not run are not measured.
    assert shop.measured[-1] == ({}, {ROWS: value}, (1,))
    assert result.interval.middle == pytest.approx(1.2)
    assert sum(result.trials.values()) < 40
    database = Database(tmp_path / "a.db", create=False)
    assert database.accepted(HOST, 2) == {kernel.key: {ROWS: value}}
    count = len(list(database.records()))
    # Again: the choice is tried first, and what has been measured is left out with `resume`.
    shop = Planted(slow)
    again = tuned(kernel, shop, tmp_path / "a.db", resume=True)
    assert again.point == result.point and shop.measured[1][1] == {ROWS: value}
    assert len(list(database.records())) <= count + 3


def test_the_rules_choice_stays_where_nothing_is_faster(kernel: Kernel, tmp_path: Path) -> None:
    result = tuned(kernel, Planted(lambda *_: 1.0), tmp_path / "a.db")
    assert result.point == {} and result.interval is None
    assert result.note == "no other choice is faster"
    assert Database(tmp_path / "a.db").accepted(HOST, 2) == {}
    assert sum(result.trials.values()) > 5  # every change of one decision


def test_time_that_the_default_takes_alone_is_said(kernel: Kernel, tmp_path: Path) -> None:
    class Slow(Planted):
        def open(self, kernel: Kernel) -> Built | Refused:
            time.sleep(1.05)
            return super().open(kernel)

    soon = time.monotonic() + 1.0
    result = tuned(kernel, Slow(lambda *_: 1.0), tmp_path / "a.db", end=soon)
    assert re.match(r"no other choice was tried: the default alone took .* s; give", result.note)
    assert not result.trials


def test_what_fails_costs_one_trial_each(kernel: Kernel, tmp_path: Path) -> None:
    broken = {
        "2": "the process was ended by SIGSEGV", "4": "no answer within 5 s",
        "6": "wrong: element (0,) is 1, expected 2", "8": "invalid: no loop",
    }  # fmt: skip
    result = tuned(kernel, Planted(lambda *_: 1.0, broken=broken), tmp_path / "a.db")
    refused = {r.reason for r in Database(tmp_path / "a.db").records() if r.reason}
    default = str(next(d for d in kernel.decisions if d.key == ROWS).default)
    expected = {reason for value, reason in broken.items() if value != default}
    assert expected <= refused
    assert result.trials["failed"] + result.trials["invalid"] == len(expected)
    assert sum(result.refusals.values()) == len(expected)


def test_luck_in_the_search_is_not_confirmed(kernel: Kernel, tmp_path: Path) -> None:
    """Samples of the base are slow by chance while the search goes on, and no longer at the end."""

    class Lucky(Planted):
        def timed(self, base: Built, other: Built, sizes: Sequence[int], rounds: int) -> Timed:
            found = super().timed(base, other, sizes, rounds)
            if rounds == 15 and base.point == {}:
                ratios = found.measured.ratios
                doubled = Measured(tuple(tuple(2 * x for x in r) for r in ratios))
                found = replace(found, measured=doubled)
            return found

    result = tuned(kernel, Lucky(lambda *_: 1.0), tmp_path / "a.db")
    assert result.point == {} and "was not confirmed: 1 times as fast" in result.note
    assert Database(tmp_path / "a.db").accepted(HOST, 2) == {}


@pytest.mark.parametrize("seed", range(2))
def test_a_planted_record_is_refused_when_it_is_measured_again(
    kernel: Kernel, tmp_path: Path, seed: int
) -> None:
    """A database says of slow decisions that they are faster, as a noisy clock does at times."""
    database = Database(tmp_path / "a.db")
    planted = {ROWS: 1 if kernel.decisions[0].default != 1 else 2}
    database.add(
        Record(
            kernel.key, machine_key(HOST), 2, compiler_version(), "m", 1.0, "accepted", "",
            planted, kernel.sizes, (3.0, 2.9, 3.1), "[]",
        )
    )  # fmt: skip
    assert database.accepted(HOST, 2) == {kernel.key: planted}
    drawn = random.Random(seed)

    def slow(point: Point, size: int) -> float:
        return 1.0 + 0.05 * len(point)

    shop = Planted(slow, lambda: 1 + 0.2 * drawn.random())
    result = tuned(kernel, shop, tmp_path / "a.db")
    assert shop.measured[1][1] == planted
    assert result.point == {}
    assert database.accepted(HOST, 2) == {}


def test_records_of_another_compiler_are_tried_first(kernel: Kernel, tmp_path: Path) -> None:
    database = Database(tmp_path / "a.db")
    old = Record(
        kernel.key, machine_key(HOST), 2, "another compiler", "m", 1.0, "accepted", "", {ROWS: 1},
        kernel.sizes, (1.5, 1.4, 1.6), "[]",
    )  # fmt: skip
    database.add(old)
    shop = Planted(lambda point, _: 0.5 if point.get(ROWS) == 1 else 1.0)
    result = tuned(kernel, shop, tmp_path / "a.db", trials=1)
    assert result.point == {ROWS: 1} and shop.measured[1][1] == {ROWS: 1}
    assert old in list(database.records())


@pytest.mark.parametrize("seed", range(3))
def test_what_is_best_at_one_size_is_kept_for_it(kernel: Kernel, tmp_path: Path, seed: int) -> None:
    """Other rows are best for few rows than for many, and slower there; measured with noise."""
    drawn = random.Random(seed)
    sizes = ({"n": 60}, {"n": 1000})
    default = next(d.default for d in kernel.decisions if d.key == ROWS)
    small, large = [v for v in (2, 4, 6) if v != default][:2]

    def rows_at(point: Point, size: int) -> Value:
        version = ("n ≤ 244", "any n")[size] if "versions(n)" in point else ""
        return point.get(key_of((version,), ROWS) if version else ROWS, default)

    def slow(point: Point, size: int) -> float:
        return {small: (0.8, 1.3)[size], large: (1.2, 0.7)[size]}.get(rows_at(point, size), 1.0)

    shop = Planted(slow, lambda: 1 + 0.05 * drawn.random())
    result = tuned(replace(kernel, sizes=sizes), shop, tmp_path / "a.db")
    assert result.point == {
        "versions(n)": (244,), key_of(("n ≤ 244",), ROWS): small, key_of(("any n",), ROWS): large
    }  # fmt: skip
    assert result.interval is not None and result.interval.low > 1.2
    assert result.matrix is not None and result.matrix.chosen in ((1, 2), (2, 1))
    assert [len(r.intervals) for r in result.matrix.rows] == [2] * 4
    for size, number in enumerate(result.matrix.chosen):
        assert result.matrix.rows[number].intervals[size].low > 1
    last = [r for r in Database(tmp_path / "a.db").records() if r.outcome == "accepted"][-1]
    assert last.matrix == result.matrix and last.sizes == sizes and last.trace == ""
    assert Record.from_json(json.loads(json.dumps(last.to_json()))) == last


def test_what_is_slower_together_is_not_kept(kernel: Kernel, tmp_path: Path) -> None:
    """Versions that cost more than they bring: the choice for each size alone is not believed."""

    def slow(point: Point, size: int) -> float:
        if "versions(n)" in point:
            return 1.2
        # Neither is the default, which is 4 or 6.
        return {2: (0.8, 1.3)[size], 3: (1.2, 0.7)[size]}.get(point.get(ROWS), 1.0)  # type: ignore[arg-type]

    sizes = ({"n": 60}, {"n": 1000})
    result = tuned(replace(kernel, sizes=sizes), Planted(slow), tmp_path / "a.db")
    assert result.point == {} and "not confirmed" in result.note
    assert result.matrix is not None and len(result.matrix.rows) == 3
    assert Database(tmp_path / "a.db").accepted(HOST, 2) == {}


@pytest.mark.parametrize("after", [1, 4])
def test_ctrl_c_keeps_the_best_so_far(kernel: Kernel, tmp_path: Path, after: int) -> None:
    shop = Planted(lambda point, _: 1.0 / (1 + len(point)))
    shop.stop_after = after
    tuner = KernelTuner(
        kernel, shop, Database(tmp_path / "a.db"), HOST, 2, Limits(40), lambda _: None
    )
    result = tuner.run()
    assert tuner.interrupted
    assert (result.interval is not None) == (after == 4)
    assert bool(Database(tmp_path / "a.db").accepted(HOST, 2)) == (after == 4)


def test_a_default_that_fails_is_said(kernel: Kernel, tmp_path: Path) -> None:
    class Broken(Planted):
        def open(self, kernel: Kernel) -> Built | Refused:
            return Refused({}, "failed", "the process was ended by SIGILL")

    result = tuned(replace(kernel), Broken(lambda *_: 1.0), tmp_path / "a.db")
    assert result.note == "the default failed: the process was ended by SIGILL"
    assert not list(Database(tmp_path / "a.db").records())
