"""Winners at every size, and the versions that are made of them."""

from __future__ import annotations

import random

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.schedule.compiled import decisions_of, schedule_of, steps_of
from relaxlab.schedule.trace import to_json
from relaxlab.tuning.kernels import KERNEL, kernels_of, schedule_alone
from relaxlab.tuning.matrix import TOLERANCE, Row, joined, ranges_of
from relaxlab.tuning.points import Point
from relaxlab.tuning.search import keys_at
from relaxlab.tuning.statistics import Interval
from tests.tuning.test_search import PRODUCT

HOST = rl.Target.host()


def row(name: int, *ratios: float) -> Row:
    """Ratios that are known to the tenth of a percent."""
    return Row({"x": name}, tuple(Interval(r, r * 0.999, r * 1.001) for r in ratios))


def values(*given: int) -> tuple[dict[str, int], ...]:
    return tuple({"n": n} for n in given)


DEFAULT = row(0, 1, 1, 1, 1)
SIZES = values(1, 16, 128, 1024)


def parts_of(*rows: Row) -> list[tuple[int | None, int]]:
    return [(part.bound, part.row) for part in ranges_of(SIZES, rows).parts]


def test_the_fewest_ranges_within_the_tolerance() -> None:
    small, large = row(1, 1.5, 1.4, 0.8, 0.9), row(2, 0.7, 0.8, 1.3, 1.2)
    assert parts_of(DEFAULT, small, large) == [(45, 1), (None, 2)]
    # Within two percent of the best everywhere, one version is enough.
    assert parts_of(DEFAULT, row(1, 1.2, 1.0, 1.0, 1.0), row(2, 1.19, 1.1, 1.3, 1.2)) == [(None, 2)]
    assert parts_of(DEFAULT, row(1, 1.2, 0.9, 1.3, 0.9)) == [(4, 1), (45, 0), (362, 1), (None, 0)]
    assert parts_of(DEFAULT) == [(None, 0)]


def test_what_is_faster_without_confidence_counts_as_the_default() -> None:
    unsure = Row({"x": 1}, (Interval(1.1, 0.95, 1.3),) * 4)
    assert parts_of(DEFAULT, unsure) == [(None, 0)]
    slow = Row({"x": 1}, (Interval(1.5, 1.4, 1.6), *[Interval(0.985, 0.97, 1.01)] * 3))
    assert parts_of(DEFAULT, slow) == [(4, 1), (None, 0)]


@pytest.mark.parametrize("seed", range(20))
def test_no_size_is_slower_than_the_default(seed: int) -> None:
    drawn = random.Random(seed)
    rows = [DEFAULT, *(row(i, *(drawn.uniform(0.7, 1.6) for _ in SIZES)) for i in range(1, 5))]
    found = ranges_of(SIZES, rows)
    for size, number in enumerate(found.chosen):
        best = max(r.intervals[size].middle for r in rows)
        assert rows[number].intervals[size].middle * TOLERANCE >= best >= 1
    bounds = [part.bound for part in found.parts]
    ends = [b for b in bounds if b is not None]
    assert bounds == [*sorted(ends), None]
    for part in found.parts:
        for size in part.sizes:
            n = SIZES[size]["n"]
            assert next(p for p in found.parts if p.bound is None or n <= p.bound) is part


def test_the_symbol_that_tells_sizes_apart() -> None:
    sizes = tuple({"m": m, "n": n} for n in (8, 64) for m in (8, 64))
    found = ranges_of(sizes, [DEFAULT, row(1, 1.5, 1.5, 0.8, 0.8)])
    assert found.symbol == "n" and [p.bound for p in found.parts] == [22, None]
    # Where no symbol does, the kernel keeps the one program that is slower nowhere.
    assert ranges_of(sizes, [DEFAULT, row(1, 1.5, 0.8, 0.8, 1.5)]).chosen == (0, 0, 0, 0)


def test_bounds_of_neighbours() -> None:
    rows = [row(0, 1, 1), row(1, 1.5, 0.8)]
    found = [ranges_of(values(*pair), rows).parts[0].bound for pair in ((1, 2), (1, 3), (7, 8))]
    assert found == [1, 2, 7]


def test_versions_of_the_rule_need_no_others() -> None:
    ranges = ranges_of(values(1, 100), [row(0, 1, 1), row(1, 1.5, 0.8), row(2, 0.8, 1.5)])
    keys = {0: {"a", "one / x"}, 1: {"a", "any / x"}}
    points: list[Point] = [{}, {"one / x": 1, "any / x": 3}, {"one / x": 2, "any / x": 4}]
    assert joined(ranges, points, lambda _, size: keys[size]) == {"one / x": 1, "any / x": 4}
    points[2]["a"] = 5  # which makes a difference at both
    assert joined(ranges, points, lambda _, size: keys[size]) == {
        "versions(n)": (10,), "n ≤ 10 / one / x": 1, "n ≤ 10 / any / x": 3,
        "any n / one / x": 2, "any n / any / x": 4, "any n / a": 5,
    }  # fmt: skip


@pytest.mark.parametrize("bound", [1, 20])
def test_versions_are_made_and_replayed(bound: int) -> None:
    """The rule has versions of its own within them."""
    (kernel,), _ = kernels_of(PRODUCT, HOST, {"n": [1, 100]})
    values: Point = {"any n / any n / register_rows": 2}
    if bound > 1:
        values["n ≤ 20 / any n / register_rows"] = 4
    point: Point = {"versions(n)": (bound,), **values}
    trace = schedule_alone(kernel.program, HOST, point)
    made, steps = decisions_of(trace, KERNEL), steps_of(trace, KERNEL)
    assert {key: made[key] for key in values} == values
    sch = schedule_of(trace, KERNEL)
    rl.assert_structural_equal(rl.apply_trace(sch.original, to_json(steps)).func, sch.func)
    low = "n = 1 /" if bound == 1 else "n ≤ 20 /"
    at_500 = keys_at(steps, {"n": 500})
    assert at_500 and not any(key.startswith(low) for key in at_500)
    assert all(key.startswith(low) for key in keys_at(steps, {"n": 1}))
    exe = rl.compile(PRODUCT, decisions={"matmul": point}, threads=1, use_cache=False)
    rng = np.random.default_rng(0)
    w = rng.normal(size=(64, 64)).astype("float32")
    for n in (1, 2, bound + 1, 50):
        x = rng.normal(size=(n, 64)).astype("float32")
        np.testing.assert_allclose(exe["main"](x, w), x @ w, atol=1e-4)
