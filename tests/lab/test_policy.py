"""The policy explorer: what is recorded of automata and schedules, and the view in Chromium."""

from __future__ import annotations

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.batching.automaton import Automaton
from relaxlab.batching.bound import batch_bound
from relaxlab.batching.graph import GraphError
from relaxlab.batching.policies import POLICIES, PolicyError
from relaxlab.lab.policy import MOST_NODES, policy
from relaxlab.lab.view import View
from relaxlab.testing.minibatches import lattice_lstm, tree_lstm

HOSTILE = "<img src=x onerror='window.bad = 1'>"


@pytest.fixture(scope="module")
def graphs() -> list:
    rng = np.random.default_rng(0)
    return [lattice_lstm(rng, 1), lattice_lstm(rng, 2), lattice_lstm(rng, 2)]


@pytest.fixture(scope="module")
def view(graphs) -> View:
    return policy(rl.learn_policy(graphs, episodes=50), graphs)


def test_runs_are_the_policies_schedules(view, graphs):
    state = view.state
    assert state["names"] == [*POLICIES, "fsm"] and state["bound"] == batch_bound(graphs[0])
    for name, run in zip(state["names"], state["runs"], strict=True):
        if name in POLICIES:
            schedule = POLICIES[name].schedule(graphs[0])
            assert run["types"] == schedule.types.tolist()
        assert len(run["types"]) == state["bound"] + sum(run["lost"])
        assert sum(run["sizes"]) == len(graphs[0]) == len(run["batch"])
        for step, of_type in enumerate(run["types"]):
            ready, frontier = run["ready"][step], run["frontier"][step]
            assert all(r <= f for r, f in zip(ready, frontier, strict=True))
            assert run["sizes"][step] == ready[of_type] or name == "depth"
    for row, graph in zip(state["counts"], graphs, strict=True):
        assert row[:2] == [len(graph), batch_bound(graph)]
        assert row[2 : 2 + len(POLICIES)] == [len(p.schedule(graph)) for p in POLICIES.values()]


def test_states_and_moves_are_counted(view, graphs):
    automaton = view.state["automaton"]
    states = automaton["states"]
    fsm = [row[-1] for row in view.state["counts"]]
    assert sum(s["times"] for s in states) == sum(fsm)
    assert sum(count for *_, count in automaton["moves"]) == sum(fsm) - len(graphs)
    assert states == sorted(states, key=lambda s: -s["times"])
    assert all(s["action"] in s["types"] for s in states if s["values"])
    places = [tuple(place) for place in automaton["places"]]
    assert len(places) == len(states) == len(set(places))


def test_nodes_are_drawn_apart(view, graphs):
    drawing = view.state["drawing"]
    places = [tuple(node[1:]) for node in drawing["nodes"]]
    assert len(set(places)) == len(graphs[0])
    assert all(drawing["nodes"][p][1] < drawing["nodes"][v][1] for p, v in drawing["edges"])


def test_the_text_has_counts_and_states(view):
    lines = view.text.splitlines()
    assert lines[0].startswith("3 minibatches, ") and "  critical " in view.text
    assert "automaton, encoding critical:" in view.text and "[character]" in view.text


def test_without_a_policy_and_of_large_minibatches():
    graph = tree_lstm(np.random.default_rng(0), 32)
    view = policy(None, [graph])
    assert view.state["automaton"] is None and view.state["drawing"] is None
    assert f"has {len(graph)} nodes; up to {MOST_NODES} are drawn" in view.state["notes"][0]


def test_states_that_are_not_known_are_shown(graphs):
    view = policy(Automaton(graphs[0].types, "base", {}), graphs[:1])
    assert all(s["action"] is None and not s["values"] for s in view.state["automaton"]["states"])


def test_what_cannot_be_shown(graphs):
    with pytest.raises(GraphError, match="no minibatch to look at"):
        policy(None, [])
    with pytest.raises(PolicyError, match="learned for the types a; the graph has character"):
        policy(Automaton(("a",), "base", {}), graphs)


def test_colours_and_names_in_the_dark(open_view, audit, view):
    assert audit(open_view(view, "dark")) == []


def test_a_state_and_a_batch_are_chosen(open_view, audit, view):
    page = open_view(view)
    page.locator("g.state").nth(1).press("Enter")
    assert page.locator("g.state.chosen").get_attribute("aria-pressed") == "true"
    assert page.locator(".panel h4").first.inner_text().startswith("State")
    page.get_by_text("How it was learned").click()
    assert page.locator("path.checks").count() == 4
    page.get_by_role("tab", name="Batch by batch").click()
    page.get_by_role("button", name="Next step").press("Enter")
    assert page.get_by_role("cell", name="lost so far").is_visible()
    drawn = page.locator("svg [class='node now']")
    assert drawn.count() == view.state["runs"][-1]["sizes"][1]
    page.get_by_label("policy whose batches are drawn").select_option(label="depth")
    assert drawn.count() == view.state["runs"][0]["sizes"][1]
    page.locator("rect.batch").nth(5).click()
    assert page.locator(".stepper output").inner_text().startswith("6 / ")
    assert audit(page) == []
    page.get_by_role("tab", name="Numbers of batches").click()
    assert page.get_by_text("together").count() == 1


def test_hostile_names_and_a_narrow_column(open_view):
    graph = rl.minibatch_graph([HOSTILE, "b"], [0, 1], [[], [0]])
    page = open_view(policy(Automaton(graph.types, "sort", {}), [graph]), width=700)
    for name in ("Batch by batch", "Numbers of batches"):
        page.get_by_role("tab", name=name).click()
    assert page.evaluate("window.bad") is None
    root = page.locator(".root").first
    assert root.evaluate("e => e.scrollWidth - e.clientWidth") <= 1
