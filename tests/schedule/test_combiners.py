"""Reductions of several values together, and the partial results that rfactor makes of them."""

from __future__ import annotations

import numpy as np
import pytest

from relaxlab.ir.loops import PrimFunc
from relaxlab.runtime.interpreter.interpreter import interpret_prim_func
from relaxlab.schedule import Schedule, ScheduleError
from relaxlab.schedule.combiners import combiner_of
from relaxlab.script import parse

PAIR = """
@T.prim_func
def main(
    A: T.Buffer((5, 23), "{dtype}"), N: T.Buffer((5, 23), "int32"),
    P: T.Buffer((5,), "int32"), V: T.Buffer((5,), "{dtype}"),
):
    for i, k in T.grid(5, 23):
        with T.sblock("R"):
            vi, vk = T.axis.remap("SR", [i, k])
            T.reads(N[vi, vk], A[vi, vk])
            T.writes(P[vi], V[vi])
            with T.init():
                P[vi] = {start}
                V[vi] = {first}
            p: T.let = {place}
            v: T.let = {value}
            P[vi] = p
            V[vi] = v
"""


LEAST = "T.min_value('int32')"


def pair(place: str, value: str, start: str = "-1", first: str = LEAST) -> PrimFunc:
    text = PAIR.format(dtype="int32", place=place, value=value, start=start, first=first)
    return parse(text)["main"]


def best(order: str, first: str) -> PrimFunc:
    """The place and the value of the maximum or minimum."""
    keep = f"V[vi] {order} A[vi, vk]"
    place, value = (f"T.Select({keep}, {a}[vi], {b}[vi, vk])" for a, b in ("PN", "VA"))
    return pair(place, value, "-1", first)


CASES = {
    "argmax": best(">=", LEAST),
    "argmax over a threshold": best(">", "T.int32(40)"),
    "the place of a maximum as int32": pair(
        "T.Cast('int32', T.Select(V[vi] >= A[vi, vk], T.Cast('int64', P[vi]), vk))",
        "T.Select(V[vi] >= A[vi, vk], V[vi], A[vi, vk])",
    ),
    "argmin": best("<=", "T.max_value('int32')"),
    "sum and product": pair("P[vi] + N[vi, vk]", "(A[vi, vk] % 3 + 1) * V[vi]", "0", "1"),
    "sum and maximum": pair("N[vi, vk] + P[vi]", "T.max(V[vi], A[vi, vk])", "0", "7"),
}


def run(func: PrimFunc) -> list[np.ndarray]:
    rng = np.random.default_rng(3)
    values = np.stack([rng.permutation(50)[:23] for _ in range(5)]).astype("int32")
    places = np.broadcast_to(np.arange(23, dtype="int32"), (5, 23)).copy()
    found = [np.zeros(5, "int32"), np.zeros(5, "int32")]
    interpret_prim_func(func, [values, places, *found])
    return found


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("which", [0, 1, None])
def test_partial_results_are_combined_to_the_same(name: str, which: int | None) -> None:
    sch = Schedule(CASES[name])
    loop = sch.get_loops(sch.get_block("R"))[1]
    factored = loop if which is None else sch.split(loop, [None, 4])[which]
    partial = sch.get(sch.rfactor(factored, which or 0))
    assert len(partial.writes) == 2 and (partial.init is None) == (which is None)
    for found, expected in zip(run(sch.func), run(CASES[name]), strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("P[vi] + V[vi]", "V[vi] + A[vi, vk]"),
        ("T.Select(V[vi] >= A[vi, vk], P[vi], N[vi, vk])", "V[vi] + A[vi, vk]"),
        ("T.Select(V[vi] >= N[vi, vk], P[vi], N[vi, vk])",
         "T.Select(V[vi] >= N[vi, vk], V[vi], A[vi, vk])"),
        ("T.Select(V[vi] >= A[vi, vk], N[vi, vk], P[vi])",
         "T.Select(V[vi] >= A[vi, vk], V[vi], A[vi, vk])"),
        ("P[vi] - N[vi, vk]", "V[vi] + A[vi, vk]"),
    ],
)  # fmt: skip
def test_what_does_not_combine_is_refused(place: str, value: str) -> None:
    sch = Schedule(pair(place, value))
    assert combiner_of(sch.get(sch.get_block("R"))) is None
    with pytest.raises(ScheduleError, match="a selection of accumulators by a comparison of one"):
        sch.rfactor(sch.get_loops(sch.get_block("R"))[1], 0)


def test_a_store_that_reads_what_one_before_it_wrote_is_refused() -> None:
    text = CASES["sum and maximum"].script()
    assert "P[vi] = p" in text
    now = text.replace("P[vi] = p", "P[vi] = N[vi, vk] + P[vi]")
    now = now.replace("V[vi] = v", "V[vi] = T.max(V[vi], P[vi])")
    sch = Schedule(parse(now)["main"])
    with pytest.raises(ScheduleError, match="several of them after lets"):
        sch.rfactor(sch.get_loops(sch.get_block("R"))[1], 0)


def test_one_factor_makes_one_loop_and_blocks_are_found_in_loops() -> None:
    sch = Schedule(CASES["argmax"])
    rows, terms = sch.get_loops(sch.get_block("R"))
    (same,) = sch.split(terms, [23])
    assert sch.get(same).extent.value == 23
    (longer,) = sch.split(same, [25])
    assert sch.get(longer).extent.value == 25
    for found, expected in zip(run(sch.func), run(CASES["argmax"]), strict=True):
        np.testing.assert_array_equal(found, expected)
    assert [sch.get(b).name for b in sch.get_child_blocks(rows)] == ["R"]
    with pytest.raises(ScheduleError, match="there are factors"):
        sch.split(rows, [])
