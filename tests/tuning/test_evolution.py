"""Evolution of points, and the models that it goes by."""

from __future__ import annotations

import math
import sys

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.ir.loops import PrimFunc
from relaxlab.schedule import Schedule
from relaxlab.schedule.decisions import SPACE
from relaxlab.tuning.cost_model import Analytic, Array, Learned, LightGBMNotFound
from relaxlab.tuning.evolution import Evolution, Inherited
from relaxlab.tuning.features import FEATURES, features_of
from relaxlab.tuning.kernels import Kernel, kernels_of
from relaxlab.tuning.methods import METHODS
from relaxlab.tuning.plans import Planner
from relaxlab.tuning.points import Point, frozen
from tests.tuning.test_spaces import tiles

HOST = rl.Target.host()
SIZES = (1, 2, 4, 8, 16)
SMALL = """
@R.function
def main(x: R.Tensor((64, 64), "float32"), w: R.Tensor((64, 64), "float32")):
    return R.matmul(x, w)
"""


def dials(sch: Schedule) -> None:
    """A space of four decisions, each of which makes another program."""
    product = sch.get_block("T_matmul")
    i, j, k = sch.get_loops(product)
    for loop, name in ((i, "rows"), (j, "columns"), (k, "terms")):
        _, inner = sch.split(loop, factors=[None, 2 * sch.sample_categorical(name, SIZES, 1)])
        if name == "columns" and sch.sample_categorical("unroll", (False, True), False):
            sch.unroll(inner)


def cost(point: Point) -> float:
    """Least for rows = 8, columns = 4, terms = 16, without unrolling."""
    if SPACE not in point:
        return 12.0
    at = {name: SIZES.index(point.get(name, 1)) for name in ("rows", "columns", "terms")}
    wrong = abs(at["rows"] - 3) + abs(at["columns"] - 2) + abs(at["terms"] - 4)
    return 5.0 + wrong + 2 * bool(point.get("unroll", False))


class Guess:
    """A model that knows nothing."""

    def update(self, features: Array, ratios: Array) -> None:
        assert features.shape == (len(ratios), len(FEATURES))

    def predict(self, features: Array) -> Array:
        return np.ones(len(features))


@pytest.fixture(scope="module")
def kernel() -> Kernel:
    (found,), _ = kernels_of(rl.parse(SMALL), HOST, {})
    return found


def searched(kernel: Kernel, turns: int, model: Guess | Learned) -> list[Point]:
    search = Evolution(Planner(kernel, HOST, {"dials": dials}, 2), model=model)
    found: list[Point] = []
    for _ in range(turns):
        points = search.propose(3)
        assert 0 < len(points) <= 3
        for point in points:
            assert search.predicted(point) is not None or point == {SPACE: "dials"}
            search.learn(point, 12.0 / cost(point))
        found += points
    return found


def test_evolution_finds_what_is_fast_and_tries_nothing_twice(kernel: Kernel) -> None:
    found = searched(kernel, 12, Guess())
    assert found[0] == {SPACE: "dials"}
    assert len({frozen(p) for p in found}) == len(found)
    # 250 points, 36 trials.
    assert min(map(cost, found)) <= 6.0
    first, last = found[:12], found[-12:]
    assert sum(map(cost, last)) < sum(map(cost, first))


def test_it_learns_what_the_analytic_model_misses(kernel: Kernel) -> None:
    found = searched(kernel, 10, Learned())
    # As fast as three of a hundred points, which it has no reason to find first.
    assert min(map(cost, found)) <= 7.0


def test_points_that_fail_are_not_learnt_from(kernel: Kernel) -> None:
    search = Evolution(Planner(kernel, HOST, {"tiles": tiles}, 2), model=Guess())
    for _ in range(3):
        for point in search.propose(4):
            search.learn(point, None)
    # All are drawn anew: nothing was fast enough to go on from.
    assert len(search._population) == 1


def test_inherited_decisions_are_those_that_are_candidates() -> None:
    decider = Inherited({"a": 2, "b": True})
    assert decider("a", (1, 2)) == 2 and decider("a", (1, 3)) is None
    assert decider("b", (0, 1)) is None and decider("c", (1,)) is None


def row(**values: float) -> Array:
    return np.array([values.get(name, 0.0) for name in FEATURES])


def test_the_analytic_model_is_scaled_to_what_was_measured() -> None:
    model = Analytic()
    rows = np.array([row(cycles=3.0), row(cycles=4.0)])
    assert model.predict(rows)[0] == pytest.approx(math.e * model.predict(rows)[1])
    model.update(rows[:1], np.array([1.0]))
    assert model.predict(rows) == pytest.approx([1.0, 1 / math.e])


def test_the_learned_model_corrects_it() -> None:
    drawn = np.random.default_rng(0)
    rows = np.array([row(cycles=c, registers=r) for c, r in drawn.uniform(0, 4, (60, 2))])
    registers = rows[:, FEATURES.index("registers")]
    ratios = np.exp(-rows[:, 0]) * np.where(registers > 2, 0.5, 1.0)
    model, analytic = Learned(), Analytic()
    errors = []
    for one in (model, analytic):
        one.update(rows[:40], ratios[:40])
        errors.append(np.abs(np.log(one.predict(rows[40:]) / ratios[40:])).mean())
    assert errors[0] < errors[1] / 2


def test_without_lightgbm_the_search_says_how_to_get_it(
    kernel: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "lightgbm", None)
    with pytest.raises(LightGBMNotFound, match=r"pip install 'relaxlab\[tune\]'"):
        METHODS["evolution"]([], [], Planner(kernel, HOST, {}))


def scheduled(steps: str) -> PrimFunc:
    """A sum of products of 64 rows and columns, whose loops are i, j, k, after some steps."""
    (kernel,), _ = kernels_of(rl.parse(SMALL), HOST, {})
    sch = Schedule(kernel.program, "kernel")
    product = sch.get_block("T_matmul")
    i, j, k = sch.get_loops(product)
    exec(steps, {"sch": sch, "i": i, "j": j, "k": k, "product": product})
    return sch.mod["kernel"]


def test_features_say_what_a_schedule_does() -> None:
    def of(steps: str, threads: int = 2) -> dict[str, float]:
        found = features_of(scheduled(steps), HOST, {}, threads)
        return dict(zip(FEATURES, found, strict=True))

    plain = of("")
    assert plain["vector operations"] == 0 and plain["scalar operations"] > math.log(64**3)
    vectors = of("sch.reorder(i, k, j); sch.vectorize(j)")
    assert vectors["scalar operations"] == 0
    assert 0 < vectors["vector operations"] < plain["scalar operations"]
    assert vectors["cycles"] < plain["cycles"] and vectors["loads apart"] == 0
    rows = of("sch.reorder(j, k, i); sch.vectorize(i)")
    assert rows["loads apart"] > 0 and rows["cycles"] > vectors["cycles"]
    shared = of("sch.reorder(i, k, j); sch.vectorize(j); sch.parallel(i)")
    assert shared["cycles"] == pytest.approx(vectors["cycles"] - math.log(2), rel=1e-3)
    tile = of(
        "o, r = sch.split(i, factors=[None, 4]); sch.reorder(o, k, r, j)\n"
        "sch.vectorize(j); sch.unroll(r)"
    )
    lanes = HOST.lanes("float32")
    assert tile["registers"] == pytest.approx(math.log1p(4 * 64 / lanes))
    assert plain["least independent sums"] == 1 and plain["registers"] == pytest.approx(math.log(2))
