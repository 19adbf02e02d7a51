"""The explorer of batches: what is recorded of instances, and the view in Chromium."""

from __future__ import annotations

import re

import numpy as np
import pytest

import relaxlab as rl
from relaxlab import dynamic
from relaxlab.batching.policies import POLICIES
from relaxlab.lab import batching
from relaxlab.lab.recorded_program import program_lines
from relaxlab.lab.view import View

MODELS = (
    dynamic.tree_lstm, dynamic.mv_rnn, dynamic.bi_rnn, dynamic.bi_lstm_tagger, dynamic.lattice_lstm,
    dynamic.nested_rnn, dynamic.drnn, dynamic.stack_rnn, dynamic.berxit,
)  # fmt: skip


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


def test_policies_and_the_bound_stand_beside_what_ran(trees, view):
    exe, given = trees
    graph = rl.recorded_graph(exe["main"].record(given))
    found = dict(view.state["policies"])
    assert found.pop("lower bound") == rl.batch_bound(graph)
    assert found == {name: len(rl.schedule_batches(graph, name)) for name in POLICIES}


def test_the_program_says_what_decides_each_line(trees, view):
    exe, _ = trees
    program = exe["main"].program
    lines = {code.strip(): (remark, block) for code, remark, block in view.state["program"]}
    notes = {program.blocks[block].name: remark for remark, block in lines.values() if block >= 0}
    assert notes.keys() == {b.name for b in program.blocks}
    leaf, inner, root = (notes[n] for n in ("cell_block", "cell_block1", "main_block"))
    assert leaf == "depth 0 in all contexts; once for equal operands; same for all: E, Wl, bl"
    assert inner == "depth counted; same for all: U, bu, C, bc"
    assert root.startswith("depth counted; same for all: ")
    assert lines["phase"] == ("waits until all instances are here", -1)
    assert "side by side:" in lines and "left = field 0 of t" in lines
    assert all(code in view.text for code in lines)


@pytest.mark.parametrize("make", MODELS, ids=lambda m: m.__name__)
def test_every_network_is_printed_with_a_name_for_each_variable(make):
    program = rl.compile(make(4), pipeline=rl.batched_pipeline())["main"].program
    text = "\n".join(line.code for line in program_lines(program))
    for part in text.split("def ")[1:]:
        made = re.findall(r"^ *([\w, ]+) = ", part, re.M)
        # Both arms of a conditional give its results the same names.
        names = [n for m in dict.fromkeys(made) for n in m.split(", ")]
        assert len(names) == len(set(names)), part
    ghosts = [line for line in program_lines(program) if line.code.strip() == "ghost"]
    assert all("the other branch is longer" in line.remark for line in ghosts)


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
    noted = page.locator(".recorded .now")
    assert view.state["types"][view.state["batches"][1]["type"]] in noted.inner_text()
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
