"""The fusion explorer: decisions, groups, kernels, and stepping through them."""

from __future__ import annotations

import re

import pytest

import relaxlab as rl
from relaxlab.lab.fusion import fusion
from relaxlab.lab.payload import pack
from tests.lab.programs import NETWORK, WRONG, decoder

SHARED = """
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((8, 64), "float32"), y: R.Tensor((9, 64), "float32"),
             q: R.Tensor((64, 64), "int8")):
        with R.dataflow():
            w = R.astype(q, "float32")
            a = R.matmul(x, w)
            b = R.matmul(y, w)
            R.output(a, b)
        return (a, b)
"""


@pytest.fixture(scope="module")
def network():
    return fusion(rl.parse(NETWORK))


def test_every_decision_is_there_with_its_reason(network):
    (main,) = network.state["functions"]
    names = [n["name"] for n in main["nodes"]]
    steps = [
        (names[s["source"]], None if s["target"] is None else names[s["target"]], s["applied"])
        for s in main["steps"]
    ]
    assert steps == [
        ("h", "h1", True), ("h1", "h2", True), ("h2", "y", False), ("y", "z", True),
        ("s", None, False), ("lv", "t", True),
    ]  # fmt: skip
    assert main["steps"][2]["reason"] == "a kernel keeps the loops of one of matmul and matmul1"
    assert [names[m] for m in main["steps"][1]["members"]] == ["h", "h1", "h2"]


def test_nodes_have_their_kinds(network):
    (main,) = network.state["functions"]
    kinds = {n["name"]: n["kind"] for n in main["nodes"]}
    assert kinds["h"] == "out_ewise_fusible" and kinds["h2"] == "elementwise"
    assert kinds["x"] is None


def test_groups_come_with_their_kernels(network):
    state = network.state
    (main,) = state["functions"]
    assert [g["name"] for g in main["made"]] == [
        "fused_matmul_add_gelu", "fused_matmul_add", "fused_multiply_exp",
    ]  # fmt: skip
    text = "\n".join(state["lines"][i] for i in main["made"][0]["merged"])
    assert "def fused_matmul_add_gelu(" in text and "T.match_buffer" in text
    assert 'R.func_attr({"Primitive": True})' in "\n".join(
        state["lines"][i] for i in main["made"][0]["grouped"]
    )
    assert main["made"][0]["parts"] == ["matmul", "add", "gelu"]
    assert set(main["parts"]) >= {"matmul", "add", "gelu"}


def test_copies_of_decodes_are_nodes():
    (main,) = fusion(rl.parse(SHARED)).state["functions"]
    names = [n["name"] for n in main["nodes"]]
    first = main["steps"][0]
    assert first["applied"] and "copied for its 2 readers" in first["reason"]
    assert [names[c] for c in first["copies"]] == ["w", "w_1"]
    edges = {(names[a], names[b]) for a, b in main["edges"]}
    assert {("q", "w"), ("q", "w_1"), ("w", "a"), ("w_1", "b")} <= edges
    assert ("w", "b") not in edges
    assert len(main["made"]) == 2


def test_a_trace_and_a_text_will_do(network):
    assert fusion(NETWORK).state == network.state
    trace = rl.trace(rl.parse(NETWORK))
    assert fusion(trace).state["functions"][0]["steps"] == network.state["functions"][0]["steps"]


def test_programs_that_fail_are_shown():
    state = fusion(WRONG).state
    assert state["functions"][-1]["name"] == "main"
    assert state["functions"][-1]["nodes"] and not state["functions"][-1]["steps"]
    assert state["failure"]["pass"] == "normalize"
    assert [d["code"] for d in state["failure"]["diagnostics"]] == ["E0203"]
    assert "axis 7" in fusion(WRONG).text
    assert fusion("def broken(").state["failure"]["pass"] is None


def test_wrong_use_raises():
    with pytest.raises(KeyError, match="no graph function 'other'"):
        fusion(NETWORK, "other")
    with pytest.raises(TypeError, match="cannot be shown"):
        fusion(3)  # type: ignore[arg-type]


def test_a_large_model_is_small_data():
    view = fusion(decoder())
    (prefill,) = view.state["functions"]
    assert len(prefill["steps"]) > 300 and len(prefill["groups"]) == 30
    assert len(pack(view.state)) < 100_000 and len(view.html()) < 250_000


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_stepping(network, open_view, scheme):
    page = open_view(network, scheme)
    assert "Before the first decision" in page.inner_text(".root")
    page.get_by_role("button", name="Next step").click()
    text = page.inner_text(".root")
    assert "add applied to each result of matmul" in text
    assert "fused_matmul_add_gelu, of which 2 of 3 calls are together" in text
    calls = page.get_by_role("region", name="2 calls at this step").inner_text()
    assert "def matmul(" in calls and "def add(" in calls and "def gelu(" not in calls
    assert "8 KiB of intermediates need not be stored: 1 value in 1 group" in text
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    text = page.inner_text(".root")
    assert "refused" in text and "a kernel keeps the loops of one of matmul and matmul1" in text
    assert "16 KiB of intermediates" in text
    page.get_by_label("value of n").fill("32")
    page.keyboard.press("Tab")
    assert "32 KiB of intermediates" in page.inner_text(".root")
    page.get_by_role("button", name="Step back").click()
    assert "add, gelu applied to each result of matmul" in page.inner_text(".root")
    assert page.get_by_role("tab", name="3 calls at this step").count() == 1
    page.get_by_role("tab", name="Final loops").click()
    assert "def fused_matmul_add_gelu(" in page.inner_text(".root")
    assert page.locator("g.node .tag", has_text=re.compile("· A$")).count() == 3


def test_a_failure_is_in_place(open_view):
    page = open_view(fusion(WRONG))
    text = page.inner_text(".root")
    assert "The pass normalize failed" in text and "axis 7 is out of range" in text
