"""The ragged explorer: work, bytes and threads of each step, and the view in Chromium."""

from __future__ import annotations

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.ir.errors import UserError
from relaxlab.lab.ragged import MOST_SEQUENCES, ragged

LENGTHS = [3, 17, 40, 0, 9, 25, 1, 12]


def by_name(view):
    return {step["name"]: step for step in view.state["steps"]}


@pytest.mark.parametrize("quadratic", [False, True])
def test_work_and_bytes_are_those_of_the_lengths(quadratic):
    view = rl.explore.ragged(LENGTHS, multiple=8, threads=3, row_bytes=16, quadratic=quadratic)
    steps = by_name(view)
    power = 2 if quadratic else 1
    needed = sum(n**power for n in LENGTHS)
    rounded = [-(-n // 8) * 8 for n in LENGTHS]
    assert steps["padded"]["done"] == len(LENGTHS) * 40**power
    assert steps["loop padded"]["done"] == sum(n**power for n in rounded)
    for name in ("ragged", "partitioned", "fused", "longest first", "balanced"):
        assert steps[name]["done"] == needed and steps[name]["bytes"] == 16 * sum(LENGTHS)
    assert steps["storage padded"]["bytes"] == 16 * sum(rounded)
    for step in steps.values():
        assert step["needed"] == needed and sum(step["loads"]) == step["done"]
        assert 0 < step["balance"] <= 1


def test_rows_of_a_fused_loop_are_shared_out_evenly():
    loads = by_name(ragged(LENGTHS, threads=2))["fused"]["loads"]
    assert abs(loads[0] - loads[1]) <= 1


@pytest.mark.parametrize("threads", [1, 2, 3, 50])
def test_parts_of_equal_work_differ_by_a_row_at_most(threads):
    loads = by_name(ragged(LENGTHS, threads=threads, quadratic=True))["balanced"]["loads"]
    assert len(loads) == threads and max(loads) - min(loads) <= 2 * max(LENGTHS)
    assert all(abs(n - sum(loads) / threads) <= max(LENGTHS) for n in loads)


def test_the_prelude_has_the_arrays_of_the_facts():
    steps = by_name(ragged(LENGTHS))
    arrays = {a["name"]: a["first"] for a in steps["longest first"]["prelude"]}
    assert arrays["starts"] == [0, 3, 20, 60, 60, 69, 94, 95, 107]
    assert [LENGTHS[i] for i in arrays["order"]] == sorted(LENGTHS, reverse=True)
    assert [arrays["order"][i] for i in arrays["inverse"]] == list(range(len(LENGTHS)))
    assert steps["fused"]["prelude"][1]["count"] == sum(LENGTHS)
    assert steps["longest first"]["order"] == arrays["order"]


def test_batches_and_lengths_that_cannot_be():
    batch = rl.ragged([np.zeros((n, 2), "float32") for n in (2, 5)])
    assert ragged(batch).state["lengths"] == [2, 5]
    assert by_name(ragged([0, 0]))["padded"]["balance"] == 1.0
    assert by_name(ragged([0, 0]))["balanced"]["loads"] == [0, 0]
    with pytest.raises(UserError, match=r"lengths\[1\] is -2"):
        ragged([1, -2])
    with pytest.raises(UserError, match="at least one"):
        ragged([])
    with pytest.raises(UserError, match="threads is 0"):
        ragged([1], threads=0)


def test_many_sequences_are_counted_and_some_drawn():
    view = ragged(range(100))
    steps = by_name(view)
    assert steps["ragged"]["done"] == 4950
    assert len(steps["longest first"]["order"]) == MOST_SEQUENCES
    assert "the first 64 are drawn" in view.state["notes"][0]


def test_steps_in_chromium(open_view, audit):
    page = open_view(ragged(LENGTHS, quadratic=True))
    assert page.locator(".rows rect.useful").count() == sum(n > 0 for n in LENGTHS)
    page.get_by_role("button", name="partitioned").click()
    assert page.locator(".rows rect.tail").count() == sum(n % 8 > 0 for n in LENGTHS)
    page.get_by_role("button", name="loop padded").click()
    assert page.locator(".rows rect.unheld").count() == sum(n % 8 > 0 for n in LENGTHS)
    assert audit(page) == []
    root = page.locator(".root").first
    assert root.evaluate("e => e.scrollWidth - e.clientWidth") <= 1


def test_colours_in_the_dark(open_view, audit):
    assert audit(open_view(ragged(LENGTHS), "dark")) == []
