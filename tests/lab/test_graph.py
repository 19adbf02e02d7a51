"""The dataflow graph: nodes, repeated blocks, the drawing, and moving through it by keys."""

from __future__ import annotations

from xml.etree import ElementTree

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.lab.graph import CAP, _repeats, dataflow, graph_view, groups_of
from relaxlab.lab.payload import pack
from relaxlab.passes.normalize import normalize
from tests.lab.programs import CALLS, CHAIN, WRONG, decoder


@pytest.fixture(scope="module")
def calls():
    return normalize(rl.parse(CALLS))


def edges_by_name(flow) -> set[tuple[str, str]]:
    def name(i):
        return flow.nodes[i].var.name if flow.nodes[i].var is not None else "return"

    return {(name(a), name(b)) for a, b in flow.edges}


def test_nodes_say_where_they_come_from(calls):
    state = graph_view(calls).state
    assert [f["name"] for f in state["functions"]] == ["half", "main"]
    main = state["functions"][state["start"]]
    nodes = {n["name"]: n for n in main["nodes"]}
    assert {n: nodes[n]["origin"] for n in "xabcef"} == {
        "x": "parameter", "a": "operator", "b": "function", "c": "operator", "e": "loops",
        "f": "library",
    }  # fmt: skip
    assert nodes["c"]["flops"] == ["*", "n", 64]
    assert nodes["c"]["bytes"] == ["*", "n", 32]
    assert nodes["d"]["bytes"] is None  # its shape is not known
    assert nodes["f"]["flops"] is None
    assert "R.matmul(b, " in nodes["c"]["text"]
    assert main["symbols"] == ["n", "m"]


def test_edges_are_reads(calls):
    edges = edges_by_name(dataflow(calls, calls["main"]))
    assert {("x", "a"), ("a", "b"), ("b", "c"), ("e", "f"), ("d", "return")} <= edges
    assert ("x", "c") not in edges


def test_after_planning_values_flow_through_memory():
    """Kernels store into memory that they are given; what reads that memory reads them."""
    mod = rl.trace(rl.parse(CHAIN)).result
    flow = dataflow(mod, mod["main"])
    labels = [n.label for n in flow.nodes]
    kernels = [i for i, n in enumerate(flow.nodes) if n.origin == "loops"]
    assert not any("alloc" in label for label in labels)
    assert {(a, b) for a, b in flow.edges if a in kernels and b in kernels} >= set(
        zip(kernels, kernels[1:], strict=False)
    )


def test_repeats_are_found_and_the_largest_wins():
    layer = list("abcdefgh")
    ids = [ord(c) for c in ["x", *layer * 5, "y", "z"]]
    assert _repeats(np.array(ids), 0, len(ids)) == [(1, 8, 5)]
    groups = groups_of(["x", *layer * 12, "y"])
    assert [g.title for g in groups] == [f"block {k + 1} of 12" for k in range(12)]
    assert groups[0].members == range(1, 9)
    assert groups_of(list("abcabcabcabcabc")) == []  # small enough as it is


def test_at_most_so_many_are_visible():
    groups = groups_of(list(range(2000)))  # nothing repeats
    assert 2000 - sum(len(g.members) - 1 for g in groups) <= CAP
    covered = [v for g in groups for v in g.members]
    assert covered == sorted(set(covered))


def test_a_large_model_is_small_data():
    view = graph_view(decoder())
    (function,) = view.state["functions"]
    assert len(function["groups"]) == 30 and len(function["layouts"]) == 1
    assert len(function["items"]) <= CAP
    assert any("drawn as 30 groups of neighbours" in n for n in function["notes"])
    assert [g["title"] for g in function["groups"]] == [f"blocks_{i}" for i in range(30)]
    assert len(pack(view.state)) < 60_000 and len(view.html()) < 250_000
    told = [t for n in function["nodes"] for t in n["folded"]]
    assert any("weight" in t for t in told) and any(t.startswith("cache_3_1") for t in told)


def test_the_built_in_layout_gives_the_same_each_time(calls, monkeypatch):
    monkeypatch.setattr("shutil.which", lambda _: None)
    assert graph_view(calls).state == graph_view(calls).state


def test_a_name_that_is_not_there(calls):
    with pytest.raises(KeyError, match="the module has: half, main"):
        graph_view(calls, "twice")


def test_a_module_without_graph_functions(calls):
    view = graph_view(calls.without("half", "main"))
    assert view.state["functions"] == [] and "no graph functions" in view.state["notes"][0]


def test_programs_that_are_wrong_are_drawn():
    view = graph_view(WRONG)
    assert [d["code"] for d in view.state["failure"]["diagnostics"]] == ["E0203"]
    nodes = view.state["functions"][view.state["start"]]["nodes"]
    assert {"a", "b", "c", "d"} <= {n["name"] for n in nodes}
    assert "error[E0203]" in view.text
    broken = graph_view("def (")
    assert broken.state["functions"] == [] and broken.state["failure"]["pass"] is None


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_walking_with_the_keys(calls, open_view, scheme):
    page = open_view(graph_view(calls), scheme)
    facts = page.locator(".panel[aria-live]")
    page.get_by_role("button", name="x: x (parameter)").focus()
    page.keyboard.press("ArrowDown")  # a consumer
    assert "concat" in facts.inner_text()
    page.keyboard.press("ArrowDown")
    assert "graph function half" in facts.inner_text()
    page.keyboard.press("ArrowUp")
    assert "concat" in facts.inner_text()
    page.get_by_label("value of n").fill("32")
    page.keyboard.press("Tab")
    assert "1 KiB" in facts.inner_text()  # 32 * 2 * 4 * 4
    page.get_by_text("As a table").click()
    page.get_by_role("cell", name="outside").wait_for()


def test_groups_open_in_place(open_view):
    page = open_view(graph_view(decoder()))
    assert page.locator("g.group.open").count() == 1
    before = page.locator("g.node").count()
    page.get_by_role("button", name="blocks_1 ·").focus()
    page.keyboard.press("Enter")
    assert page.locator("g.group.open").count() == 2
    assert page.locator("g.node").count() == before + 19
    page.get_by_role("button", name="Collapse all").click()
    assert page.locator("g.group.open").count() == 0


def test_a_search_goes_from_value_to_value(open_view):
    page = open_view(graph_view(decoder()))
    box = page.get_by_label("find a value")
    box.fill("blocks_7 gate")  # a weight that is told where it is read
    box.press("Enter")
    assert page.locator("g.node.chosen:not(.missed)").count() == 1
    assert page.locator("g.group.open").last.get_by_text("blocks_7").count() == 1
    box.fill("nothing like this")
    assert page.locator("[role=search]").inner_text() == "not found"
    assert page.locator(".missed").count() == 0


def test_fit_shows_all_of_a_drawing(open_view):
    page = open_view(graph_view(decoder()))
    page.get_by_role("button", name="Fit").click()
    inside, outside = (page.locator(s).bounding_box() for s in ("svg.drawing", ".scroll.graph"))
    assert inside["height"] <= outside["height"] and inside["width"] <= outside["width"]


@pytest.mark.parametrize("kind", ["SVG", "PNG"])
def test_a_drawing_is_saved_as_a_picture(calls, open_view, kind):
    page = open_view(graph_view(calls))
    with page.expect_download() as found:
        page.get_by_role("button", name=kind).click()
    data = found.value.path().read_bytes()
    assert found.value.suggested_filename == f"dataflow_of_main.{kind.lower()}"
    if kind == "PNG":
        assert data.startswith(b"\x89PNG") and len(data) > 1000
    else:
        root = ElementTree.fromstring(data)
        words = {e.text for e in root.iter("{http://www.w3.org/2000/svg}text")}
        assert {"concat", "half", "return"} <= words and "fill:rgb" in data.decode()
