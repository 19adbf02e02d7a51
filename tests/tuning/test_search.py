"""Searches over planted costs, and which decisions make a difference at a size."""

from __future__ import annotations

from dataclasses import replace

import pytest

import relaxlab as rl
from relaxlab.schedule.compiled import schedule_of, steps_of
from relaxlab.schedule.decisions import Decision
from relaxlab.tuning.kernels import TuneError, kernels_of
from relaxlab.tuning.points import Point, frozen
from relaxlab.tuning.search import CoordinateDescent, RandomSearch, keys_at

DECISIONS = (
    Decision("unroll", (1, 2, 4, 8, 16), 4, 4),
    Decision("rows", (1, 2, 3, 4), 1, 1),
    Decision("copy", (False, True), True, True),
)
PRODUCT = rl.parse("""
@R.function
def main(x: R.Tensor(("n", 64), "float32"), w: R.Tensor((64, 64), "float32")):
    R.func_attr({"num_input": 1})
    return R.matmul(x, w)
""")


def cost(point: Point) -> float:
    """Least for unroll = 16, rows = 3, copy = False."""
    at = {d.key: d.candidates.index(point.get(d.key, d.default)) for d in DECISIONS}
    return 10 + abs(at["unroll"] - 4) + 2 * abs(at["rows"] - 2) + at["copy"]


def with_values(point: Point) -> list[Decision]:
    return [replace(d, value=point.get(d.key, d.default)) for d in DECISIONS]


def test_coordinate_descent_goes_to_the_best() -> None:
    search, best, trials = CoordinateDescent(DECISIONS), Point(), 0
    seen = set()
    while points := search.propose(3):
        trials += len(points)
        assert not seen & {frozen(p) for p in points}
        seen |= {frozen(p) for p in points}
        # Each differs from the best in one decision.
        assert all(len(frozen(p) ^ frozen(best)) in (1, 2) for p in points)
        faster = min(points, key=cost)
        if cost(faster) < cost(best):
            best = faster
            search.improve(best, with_values(best), [])
    assert best == {"unroll": 16, "rows": 3, "copy": False}
    assert trials < 5 * 4 * 2


def test_it_goes_on_in_the_same_direction_and_with_what_was_promising() -> None:
    search = CoordinateDescent(DECISIONS)
    assert search.propose(1) == [{"unroll": 2}]
    search.improve({"unroll": 2}, with_values({"unroll": 2}), [("copy", False)])
    assert search.propose(2) == [{"unroll": 2, "copy": False}, {"unroll": 1}]


def test_random_search_draws_each_point_once() -> None:
    search = RandomSearch(DECISIONS, [{"unroll": 1}])
    found = [frozen(p) for _ in range(30) for p in search.propose(4)]
    assert len(found) == len(set(found)) == 5 * 4 * 2 - 2
    assert frozen({}) not in found and frozen({"unroll": 1}) not in found


@pytest.mark.parametrize("method", [CoordinateDescent, RandomSearch])
def test_what_was_tried_is_left_out(
    method: type[CoordinateDescent] | type[RandomSearch],
) -> None:
    tried: list[Point] = [{"copy": False}]
    assert method([DECISIONS[2]], tried).propose(8) == []


def test_decisions_of_versions_that_do_not_run_make_no_difference() -> None:
    trace = rl.trace(PRODUCT)
    decisions = schedule_of(trace, "matmul").decisions
    steps = steps_of(trace, "matmul")
    one, many = (keys_at(steps, {"n": n}) for n in (1, 500))
    assert one and many and one | many <= set(decisions)
    assert all("n = 1" in key for key in one - many)
    assert not any("n = 1" in key for key in many)
    assert keys_at(steps, {}) == set(decisions)


def test_a_kernel_alone_is_the_same_kernel() -> None:
    (kernel,), left = kernels_of(PRODUCT, rl.Target.host(), {"n": [1, 8]})
    assert kernel.name == "matmul" and not left
    assert kernel.sizes == ({"n": 1}, {"n": 8})
    assert kernel.decisions == tuple(schedule_of(rl.trace(PRODUCT), "matmul").decisions.values())
    again = rl.parse(kernel.program.script())
    rl.assert_structural_equal(again, kernel.program)


def test_sizes_follow_from_calls() -> None:
    mod = rl.parse("""
@R.function
def main(x: R.Tensor(("n", 64), "float32")):
    R.func_attr({"tir_var_upper_bound": {"n": 100}})
    y = R.sum(x, axis=1)
    z = R.sum(R.concat((x, x), axis=0), axis=1)
    return (y, z)
""")
    kernels, _ = kernels_of(mod, rl.Target.host(), {})
    assert {tuple(s.values()) for k in kernels for s in k.sizes} >= {(100,)}
    for shapes, message in (
        ({"m": [1]}, "no symbol `m`; it has: n"), ({"n": [101]}, "cannot be 101"),
        ({"n": [0]}, "cannot be 0"),
    ):  # fmt: skip
        with pytest.raises(TuneError, match=message):
            kernels_of(mod, rl.Target.host(), shapes)
