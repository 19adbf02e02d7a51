"""The explorer of batches: what is recorded of instances, and the view in Chromium."""

from __future__ import annotations

import numpy as np
import pytest

import relaxlab as rl
from relaxlab import dynamic
from relaxlab.lab import batching
from relaxlab.lab.view import View


@pytest.fixture(scope="module")
def trees() -> tuple:
    mod = dynamic.tree_gru(4, 20)
    exe = rl.compile(mod, pipeline=rl.batched_pipeline())
    rng = np.random.default_rng(0)
    given = [dynamic.tree_value(mod, dynamic.parse_tree(rng, n, 20)) for n in (3, 6, 2)]
    exe["main"].bind(*dynamic.random_weights(mod, rng))
    return exe, given


@pytest.fixture(scope="module")
def view(trees) -> View:
    return rl.explore.batching(trees[0], "main", trees[1])


def test_batches_are_those_that_run(trees, view):
    exe, given = trees
    exe["main"].batch(given)
    report = exe["main"].last_batch
    types = view.state["types"]
    shown = [(types[b["type"]], b["size"]) for b in view.state["batches"]]
    assert shown == list(report.launches) and view.state["count"] == report.nodes
    gathered = sum(o[1] for b in view.state["batches"] for o in b["operands"] if o[2])
    assert gathered == report.bytes_gathered
    # Three instances: each node is of one, and reads earlier nodes of the same, or leaves of one
    # word that an instance before it noted.
    nodes = view.state["nodes"]
    assert {n[1] for n in nodes} == {0, 1, 2}
    for node in nodes:
        for read in node[3]:
            kind, instance, batch, reads = nodes[read]
            assert batch < node[2]
            assert instance == node[1] or (instance < node[1] and not reads)
    assert any(nodes[read][1] < node[1] for node in nodes for read in node[3])


@pytest.mark.parametrize("most", [0, 9, 20, 10_000])
def test_of_many_nodes_those_of_the_first_instances_are_drawn(trees, view, monkeypatch, most):
    monkeypatch.setattr(batching, "MOST_NODES", most)
    state = rl.explore.batching(trees[0], "main", trees[1]).state
    every = view.state["nodes"]
    sizes = [sum(n[1] == i for n in every) for i in range(3)]
    drawn = sum(sum(sizes[: i + 1]) <= most for i in range(3))
    assert state["drawn"] == drawn and bool(state["notes"]) == (drawn < 3)
    assert state["batches"] == view.state["batches"] and state["count"] == len(every)
    kept = [v for v, n in enumerate(every) if n[1] < drawn]
    expected = [[*every[v][:3], [kept.index(p) for p in every[v][3]]] for v in kept]
    assert state["nodes"] == expected


def test_instances_that_wait_have_flushes():
    mod = dynamic.nested_rnn(4)
    rng = np.random.default_rng(0)
    exe = rl.compile(mod, pipeline=rl.batched_pipeline())
    exe["main"].bind(*dynamic.random_weights(mod, rng))
    given = [dynamic.nested_items(rng, 4, 3, (1, 2)) for _ in range(3)]
    exe["main"].batch(given)
    report = exe["main"].last_batch
    state = rl.explore.batching(exe, "main", given).state
    assert len({b["round"] for b in state["batches"]}) == report.flushes
    assert len(state["batches"]) == report.batches


def test_other_programs_are_refused():
    mod = rl.parse(
        '@R.function\ndef main(x: R.Tensor((2,), "float32")):\n    y = R.exp(x)\n    return y'
    )
    with pytest.raises(TypeError, match="does not run in batches: compile the program with"):
        rl.explore.batching(rl.compile(mod), "main", [])


def test_a_batch_and_two_nodes_are_chosen(open_view, audit, view):
    page = open_view(view)
    page.get_by_role("button", name="Next step").press("Enter")
    now = page.locator("rect.node.now")
    assert now.count() == view.state["batches"][1]["size"]
    assert page.locator(".panel p").first.inner_text().startswith("Batch 2:")
    nodes = page.locator("rect.node")
    nodes.nth(0).click()
    nodes.nth(1).press("Enter")
    assert "Nodes 0 and 1: They run together" in page.locator("p[aria-live]").inner_text()
    last = view.state["count"] - 1
    nodes.nth(0).click()
    nodes.nth(last).click()
    assert page.locator("rect.chosen").count() == 2
    assert "They are different blocks" in page.locator("p[aria-live]").inner_text()
    assert audit(page) == []


def test_colours_and_names_in_the_dark(open_view, audit, view):
    assert audit(open_view(view, "dark", width=700)) == []
