"""Decisions: defaults, deciders, keys, what a trace keeps of them, and errors."""

from __future__ import annotations

from pathlib import Path
from runpy import run_path

import pytest

from relaxlab.ir.equal import assert_structural_equal
from relaxlab.ir.expr import Var
from relaxlab.ir.loops import PrimFunc
from relaxlab.schedule import Schedule, ScheduleError, apply_trace
from relaxlab.schedule.decisions import (
    Decided,
    Decider,
    DecisionError,
    Sampled,
    perfect_tiles,
)
from tests.schedule.programs import PROGRAMS, matmul, sized


def by_versions(func: PrimFunc, decider: Decider | None = None) -> Schedule:
    """A program with a decision for all versions and one in each."""
    sch = Schedule(func, decider=decider)
    rows = sch.sample_categorical("rows", [2, 4, 8], 4)

    def version(one: Schedule, most: int | None) -> Schedule:
        i, _, k = one.get_loops(one.get_block("C"))
        assert one.sample_categorical("rows", [2, 4, 8], 4) == rows
        one.split(i, factors=[None, rows])
        one.split(k, factors=[None, one.sample_categorical("terms", [1, 2, 3], 2)])
        return one

    sch.guarded_versions(func.buffers[0].shape[0], [1, 8], version)
    return sch


def tiled(func: PrimFunc, decider: Decider | None = None) -> Schedule:
    """A program with a tile, a location and a flag, on which it branches."""
    sch = Schedule(func, decider=decider)
    block = sch.get_block("C")
    j = sch.get_loops(block)[1]
    sch.split(j, factors=sch.sample_perfect_tile("columns", j, 2, 8, [COLUMNS, 1]))
    at = sch.sample_compute_location("place", block, 0)
    if at is not None:
        sch.compute_at(block, at)
    if sch.sample_categorical("share_out", [False, True], True):
        sch.parallel(sch.get_loops(sch.get_block("D"))[0])
    return sch


COLUMNS = 24


def constant() -> PrimFunc:
    return sized(matmul, 6, 8, COLUMNS)


def symbolic() -> PrimFunc:
    return matmul(Var("n"), Var("k"), Var("m"))


def values(sch: Schedule) -> dict[str, object]:
    return {key: d.value for key, d in sch.decisions.items()}


def test_without_a_decider_decisions_are_defaults() -> None:
    sch = by_versions(symbolic())
    assert values(sch) == {
        "rows": 4, "any n / terms": 2, "n = 1 / terms": 2, "n ≤ 8 / terms": 2,
    }  # fmt: skip
    assert sch.decisions["n ≤ 8 / terms"].name == "terms"
    assert sch.decisions["n ≤ 8 / terms"].candidates == (1, 2, 3)


def test_a_decider_of_values_takes_these_and_defaults() -> None:
    given = {"rows": 8, "n ≤ 8 / terms": 3}
    sch = by_versions(symbolic(), Decided(given))
    assert values(sch) == {**values(by_versions(symbolic())), **given}


def test_a_seed_draws_every_candidate_and_always_the_same() -> None:
    drawn = [values(by_versions(symbolic(), Sampled(seed))) for seed in range(40)]
    for key in drawn[0]:
        assert len({d[key] for d in drawn}) == 3
    assert drawn[7] == values(by_versions(symbolic(), Sampled(7)))
    assert any(len({v for k, v in d.items() if "terms" in k}) > 1 for d in drawn)


@pytest.mark.parametrize("program", [by_versions, tiled])
@pytest.mark.parametrize("seed", range(6))
def test_traces_replay_decisions_and_steps(program: object, seed: int, tmp_path: Path) -> None:
    assert callable(program)
    func = symbolic() if program is by_versions else constant()
    sch = program(func, Sampled(seed))
    again = apply_trace(func, sch.trace_json())
    assert_structural_equal(again.func, sch.func)
    assert again.decisions == sch.decisions
    assert again.trace == sch.trace
    assert_structural_equal(program(func, Decided(values(again))).func, sch.func)  # type: ignore[arg-type]
    file = tmp_path / "scheduled.py"
    file.write_text(sch.as_python())
    made = run_path(str(file))["sch"]
    assert made.decisions == sch.decisions
    assert_structural_equal(made.func, sch.func)


def test_locations_are_those_that_compute_at_allows() -> None:
    drawn = [tiled(constant(), Sampled(seed)) for seed in range(20)]
    assert {sch.decisions["place"].value for sch in drawn} == {0, 1, 2}
    (decision,) = {sch.decisions["place"] for sch in drawn if sch.decisions["place"].value == 0}
    assert decision.candidates == (0, 1, 2)
    with_no_reader = Schedule(constant())
    last = with_no_reader.get_block("E")
    assert with_no_reader.sample_compute_location("place", last) is None


def test_tiles_are_perfect() -> None:
    assert perfect_tiles(12, 2, 4) == ((3, 4), (4, 3), (6, 2), (12, 1))
    tiles = perfect_tiles(360, 3, 9)
    assert len(set(tiles)) == len(tiles)
    assert all(a * b * c == 360 and c <= 9 for a, b, c in tiles)
    assert len(tiles) == sum(1 for c in range(1, 10) for a in range(1, 361) if 360 % (a * c) == 0)
    sch = Schedule(symbolic())
    with pytest.raises(ScheduleError, match="its extent is a constant"):
        sch.sample_perfect_tile("t", sch.get_loops(sch.get_block("C"))[0], 2, 4, [1, 1])


def test_decisions_are_no_steps_of_their_own_for_bisection() -> None:
    sch = Schedule(PROGRAMS["chain"]())
    sch.sample_categorical("a", [1, 2], 1)
    assert repr(sch) == "Schedule(0 steps)"


def test_a_value_that_is_no_candidate_is_an_error() -> None:
    for wrong in (5, True, "4"):
        with pytest.raises(DecisionError, match="`rows` is no candidate; these are: 2, 4, 8"):
            by_versions(symbolic(), Decided({"rows": wrong}))
    sch = Schedule(PROGRAMS["chain"]())
    with pytest.raises(DecisionError, match="default 3 of the decision `a`"):
        sch.sample_categorical("a", [1, 2], 3)
    with pytest.raises(DecisionError, match="value 3 of the decision `a`"):
        sch.sample_categorical("a", [1, 2], 1, decision=3)


def test_asked_again_a_decision_stays_and_is_recorded_once() -> None:
    sch = Schedule(PROGRAMS["chain"](), decider=Sampled(0))
    found = {sch.sample_categorical("a", range(99), 1) for _ in range(3)}
    copied = sch.copy()
    found.add(copied.sample_categorical("a", range(99), 1))
    assert len(found) == 1 and len(sch.trace) == len(copied.trace) == 1
    with pytest.raises(DecisionError, match="was made among other candidates"):
        sch.sample_categorical("a", [1, 2], 1)
    with pytest.raises(DecisionError, match="with another default"):
        sch.sample_categorical("a", range(99), 2)
    copied.sample_categorical("b", [1, 2], 1)
    assert "b" not in sch.decisions
