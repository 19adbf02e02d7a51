"""The layout explorer: steps, conflicts, and the view in Chromium."""

from __future__ import annotations

import pytest

import relaxlab as rl
from relaxlab.batching.layout import Layout, Operand, Pattern, layout
from relaxlab.lab.block_layout import FITS, FOLLOWS, REDUCED, layout_view
from tests.batching.cells import gru_cell, lstm_cell

HOSTILE = "<img src=x onerror='window.bad = 1'>"


@pytest.fixture(scope="module")
def conflict() -> Layout:
    first = Operand("results", (0, 1, 2), 4)
    orders = ((3, 4, 5), (5, 3, 4))
    kernels = [
        Pattern(n, (first, Operand("operand 1", o, 4))) for n, o in zip("pq", orders, strict=True)
    ]
    return layout([*"abcde", HOSTILE], kernels)


def test_steps_lead_to_the_tree_of_the_layout():
    kernels = gru_cell(64)
    state = layout_view(kernels).state
    found = rl.block_layout(kernels)
    steps = state["steps"]
    assert steps[0]["pattern"] is None and steps[0]["tree"] == ["P", list(range(len(kernels)))]
    assert {s["why"] for s in steps[1:]} == {REDUCED, FITS}
    assert state["order"] == list(found.order) and state["after"] == 0 < state["before"]
    for step in steps[1:]:
        operand = state["kernels"][step["pattern"]]["operands"][step["operand"]]
        assert set(step["wanted"]) <= set(operand["lanes"])


def test_what_follows_from_a_reduction_is_told_apart():
    whole = (Operand("results", (0, 1, 2), 4), Operand("operand 1", (3, 4, 5), 4))
    found = layout("abcdef", [Pattern("p", whole), Pattern("q", (Operand("results", (0, 1), 4),))])
    (step,) = [s for s in layout_view(found).state["steps"] if s["outcome"] == "follows"]
    assert step["wanted"] == [3, 4] and step["why"] == FOLLOWS


def test_conflicts_are_shown_with_the_tree_before(conflict):
    state = layout_view(conflict).state
    (step,) = [s for s in state["steps"] if s["outcome"] == "copied"]
    assert step["why"] == "its lanes would lie in another order than those of the other operands"
    before = state["steps"][state["steps"].index(step) - 1]
    assert step["tree"] == before["tree"]
    copied = [o["after"] for k in state["kernels"] for o in k["operands"]]
    assert copied.count(True) == 1


def test_the_text_has_orders_and_outcomes(conflict):
    text = layout_view(conflict).text
    assert "bytes copied per row: 12 in program order, 12 laid out" in text
    assert text.count("in place") == 3 and text.count("copied: its lanes") == 1


def test_a_block_of_nothing():
    assert layout_view([]).state["order"] == []


def test_colours_and_names_in_the_dark(open_view, audit, conflict):
    assert audit(open_view(layout_view(conflict), "dark")) == []


def test_reductions_are_stepped_through(open_view, audit):
    page = open_view(layout_view(lstm_cell(64)))
    page.get_by_role("button", name="First step").click()
    assert page.locator("svg.pq circle").count() == 1 and "every order" in page.inner_text(
        ".root > p:nth-of-type(2)"
    )
    page.get_by_role("button", name="Next step").press("Enter")
    assert page.locator("svg.pq .wanted").count() == 3
    page.get_by_role("button", name="multiply x 2, operand 1").click()
    assert page.locator("svg.memory g.lane").count() == 4
    assert page.locator(".is-copied").count() > 0
    assert audit(page) == []


def test_hostile_names_and_a_narrow_column(open_view, conflict):
    page = open_view(layout_view(conflict), width=700)
    assert page.locator("svg.pq .refused").count() == 3
    assert page.evaluate("window.bad") is None
    root = page.locator(".root").first
    assert root.evaluate("e => e.scrollWidth - e.clientWidth") <= 1
