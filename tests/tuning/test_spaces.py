"""Spaces of schedules beside the rules: tried, refused with reasons, kept, and compiled again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.runtime.cache import compiler_version, machine_key
from relaxlab.schedule import Schedule
from relaxlab.schedule.compiled import decisions_of
from relaxlab.schedule.decisions import RULES, SPACE, Decision
from relaxlab.tuning.database import Database, Record
from relaxlab.tuning.generic import GENERIC
from relaxlab.tuning.kernels import KERNEL, Kernel, TuneError, kernels_of, schedule_alone
from relaxlab.tuning.methods import METHODS
from relaxlab.tuning.plans import NoPlan, Planner
from relaxlab.tuning.points import changed
from relaxlab.tuning.search import RandomSearch
from relaxlab.tuning.tune_kernel import KernelTuner, Limits
from tests.tuning.test_search import PRODUCT
from tests.tuning.test_tune_kernel import Planted

HOST = rl.Target.host()


def tiles(sch: Schedule) -> None:
    """Tiles of rows and columns of the product, the rows shared out to threads."""
    product = sch.get_block("T_matmul")
    i, j, k = sch.get_loops(product)
    rows = sch.sample_categorical("rows", (2, 4), 2)
    columns = sch.sample_perfect_tile("columns", j, 2, 32, (8, 8))
    outer, row = sch.split(i, factors=[None, rows])
    panel, lane = sch.split(j, factors=columns)
    sch.reorder(outer, panel, k, row, lane)
    sch.decompose_reduction(product, k)
    sch.vectorize(lane)
    if sch.sample_categorical("by_panels", (False, True), False):
        sch.parallel(k)  # refused: its iterations add to the same elements
    sch.parallel(outer)


@pytest.fixture(scope="module")
def kernel() -> Kernel:
    (found,), _ = kernels_of(PRODUCT, HOST, {"n": [1, 70]})
    return found


def test_a_planner_makes_the_rules_schedule_and_a_spaces(kernel: Kernel) -> None:
    planner = Planner(kernel, HOST, {"tiles": tiles})
    rule = planner.plan({})
    assert rule.point == {}
    assert rule.decisions[0] == Decision(SPACE, (RULES, "tiles"), RULES, RULES)
    own = planner.plan({SPACE: "tiles", "rows": 4, "columns": (2, 32), "panel_vectors": 1})
    # What the space does not ask for is left out.
    assert own.point == {SPACE: "tiles", "rows": 4, "columns": (2, 32)}
    assert [d.name for d in own.decisions] == [SPACE, "rows", "columns", "by_panels"]
    assert planner.proposal({"panel_vectors": 1}).trace == ""
    trace = planner.proposal(own.point).trace
    made = schedule_alone(kernel.program, HOST, trace)
    assert decisions_of(made, KERNEL)["columns"] == (2, 32)
    with pytest.raises(NoPlan, match="parallel refused at loop .*; condition: "):
        planner.plan({SPACE: "tiles", "by_panels": True})
    with pytest.raises(NoPlan, match="'other' of the decision `space` is no candidate"):
        planner.plan({SPACE: "other"})
    assert planner.drawn({SPACE: "tiles", "by_panels": True}) is None
    assert sum(planner.refused.values()) == 1


def test_a_search_may_stay_in_a_kernels_own_space(kernel: Kernel) -> None:
    planner = Planner(kernel, HOST, {GENERIC: tiles, "tiles": tiles})
    points = METHODS["own"](planner.plan({}).decisions, (), planner).propose(4)
    assert points and all(point[SPACE] == "tiles" for point in points)
    # Without one, all decisions are drawn.
    planner = Planner(kernel, HOST, {GENERIC: tiles})
    points = METHODS["own"](planner.plan({}).decisions, (), planner).propose(8)
    assert {point.get(SPACE) for point in points} == {None, GENERIC}


def test_another_space_drops_the_decisions_of_the_one_before() -> None:
    space = Decision(SPACE, (RULES, "a", "b"), RULES, "a")
    point = {SPACE: "a", "rows": 2, f"any n / {SPACE}": "a"}
    assert changed(point, SPACE, "b", [space]) == {SPACE: "b"}
    assert changed(point, SPACE, RULES, [space]) == {}
    inner = replace(space, key=f"n ≤ 4 / {SPACE}")
    point = {"n ≤ 4 / rows": 1, inner.key: "a", "any n / rows": 2}
    assert changed(point, inner.key, "b", [inner]) == {inner.key: "b", "any n / rows": 2}


def test_random_points_of_spaces_have_all_their_decisions(kernel: Kernel) -> None:
    planner = Planner(kernel, HOST, {"tiles": tiles})
    search = RandomSearch(planner.plan({}).decisions, (), planner)
    points = search.propose(20)
    own = [p for p in points if SPACE in p]
    assert 0 < len(own) < 20 and any("columns" in p for p in own)
    assert all("register_rows" not in key for p in own for key in p)


def test_the_search_takes_a_space_that_is_faster(kernel: Kernel, tmp_path: Path) -> None:
    def slow(point: dict[str, object], size: int) -> float:
        return 0.5 + 0.1 * (point.get("rows") != 4) if SPACE in point else 1.0

    shop, database = Planted(slow), Database(tmp_path / "a.db")
    spaces = {"tiles": tiles}
    tuner = KernelTuner(
        kernel, shop, database, HOST, 2, Limits(40), lambda _: None, spaces=spaces
    )
    result = tuner.run()
    assert result.point == {SPACE: "tiles", "rows": 4}
    assert result.interval is not None and result.interval.middle == pytest.approx(2)
    refused = [r for r in database.records() if r.outcome == "invalid"]
    assert refused and all("parallel refused" in r.reason for r in refused)
    assert any("parallel refused" in reason for reason in result.refusals)
    # A search without the space leaves the record as it is.
    again = KernelTuner(kernel, Planted(slow), database, HOST, 2, Limits(4), lambda _: None)
    assert again.run().interval is None
    assert [r for r in database.records() if r.outcome == "default"] == []


def test_compile_replays_the_trace_of_a_space(kernel: Kernel, tmp_path: Path) -> None:
    planner = Planner(kernel, HOST, {"tiles": tiles})
    point = {SPACE: "tiles", "rows": 4}
    trace = planner.proposal(point).trace
    database = Database(tmp_path / "tuning.db")
    accepted = Record(
        kernel.key, machine_key(HOST), 1, compiler_version(), "m", 1.0, "accepted", "",
        point, kernel.sizes, (1.5, 1.4, 1.6), trace,
    )  # fmt: skip
    database.add(accepted)
    rng = np.random.default_rng(0)
    x, w = (rng.normal(size=s).astype("float32") for s in ((7, 64), (64, 64)))
    exe = rl.compile(PRODUCT, tuned=database, threads=1)
    np.testing.assert_allclose(exe["main"](x, w), x @ w, atol=1e-4)
    mod, pipeline = exe.compiled_from
    made = rl.trace(mod, pipeline=pipeline)
    assert decisions_of(made, "matmul")["rows"] == 4 and "tuned: by a trace" in str(made)
    # What is given by the caller wins; a trace that does not fit leaves the rules.
    given = {"matmul": {"panel_vectors": 2}}
    exe = rl.compile(PRODUCT, tuned=database, threads=1, decisions=given)
    assert "rows" not in decisions_of(rl.trace(PRODUCT, pipeline=exe.compiled_from[1]), "matmul")
    database.add(replace(accepted, time=2.0, trace=trace.replace("T_matmul", "gone")))
    exe = rl.compile(PRODUCT, tuned=database, threads=1)
    np.testing.assert_allclose(exe["main"](x, w), x @ w, atol=1e-4)
    mod, pipeline = exe.compiled_from
    assert "the trace does not fit" in str(rl.trace(mod, pipeline=pipeline))


def test_a_program_is_tuned_in_a_users_space(tmp_path: Path) -> None:
    path = tmp_path / "tuning.db"
    found = rl.tune(
        PRODUCT, trials=12, shapes={"n": [70]}, database=path, threads=1, workers=1,
        spaces={"matmul": tiles}, search="random",
    )  # fmt: skip
    tried = {r.point.get(SPACE, RULES): r for r in found.database.records()}
    assert "tiles" in tried and "generic" in tried
    assert {r.outcome for r in tried.values()} <= {"measured", "accepted", "default", "same"}
    with pytest.raises(TuneError, match="no kernel 'conv' for a space; it has: matmul"):
        rl.tune(PRODUCT, spaces={"conv": tiles}, database=path)


def test_versions_are_made_by_different_spaces(kernel: Kernel) -> None:
    point = {"versions(n)": (8,), "any n / space": "tiles", "any n / rows": 4}
    # The rule packs the weights, and the space does not.
    with pytest.raises(NoPlan, match="do not make one kernel"):
        Planner(kernel, HOST, {"tiles": tiles}).proposal(point)
    unpacked = rl.parse(PRODUCT.script().replace('R.func_attr({"num_input": 1})', ""))
    (kernel,), _ = kernels_of(unpacked, HOST, {"n": [1, 70]})
    planner = Planner(kernel, HOST, {"tiles": tiles})
    plan = planner.plan(point)
    assert plan.point == point
    made = schedule_alone(kernel.program, HOST, planner.proposal(point).trace)
    found = decisions_of(made, KERNEL)
    assert found["any n / rows"] == 4 and found[f"n ≤ 8 / {SPACE}"] == RULES
    assert any(key.startswith("n ≤ 8 / ") and "rows" in key for key in found)
