"""The tree of nodes: its fields, its links to the text, and the nodes left out."""

from __future__ import annotations

import pytest

import relaxlab as rl
from relaxlab.lab import ir_tree
from relaxlab.lab.ir_tree import tree
from tests.lab.test_loops import MATMUL
from tests.lab.test_run import CHAIN


def find(node, *labels):
    """The node that is reached by the labels of its fields."""
    for label in labels:
        (node,) = (child for child in node[4] if child[0] == label)
    return node


def test_nodes_have_fields_values_and_lines():
    view = tree(CHAIN)
    root = view.state["root"]
    text = [view.state["table"][i] for i in view.state["lines"]]
    assert root[:2] == ["", "Module"] and [c[0] for c in root[4]] == ["main"]
    binding = find(root, "main", "body", "blocks[0]", "bindings[1]")
    assert binding[1] == "VarBinding" and "R.nn.softmax" in text[binding[3][0]]
    call = find(binding, "value")
    assert call[1:3] == ["Call", "attrs=Attrs(axis=0)"]
    assert find(call, "args[0]")[1:3] == ["DataflowVar", "a"]
    assert "      blocks[0]: DataflowBlock" in view.text.splitlines()


def test_a_function_of_a_module_and_what_is_none():
    mod = rl.parse(MATMUL)
    (name,) = mod.loop_functions()
    view = tree(mod, name)
    assert view.state["root"][1] == "PrimFunc" and "For" in view.text
    assert tree(mod[name]).text == view.text
    with pytest.raises(KeyError, match="no function 'nothing'; there are: "):
        tree(mod, "nothing")
    with pytest.raises(TypeError, match="expected a module, a function or a script, got int"):
        tree(3)


def test_large_programs_are_cut(monkeypatch):
    monkeypatch.setattr(ir_tree, "MOST_NODES", 10)
    view = tree(CHAIN)
    assert view.state["notes"] == ["The first 10 nodes are shown."]
    assert len(view.text.splitlines()) == 10


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pointing_at_a_node_lights_its_text(scheme, open_view, audit):
    page = open_view(rl.explore.tree(CHAIN.replace("axis=0", "axis=1")), scheme)
    page.get_by_role("button", name="Open all").click()
    page.locator(".nodes summary", has_text="bindings[2]").hover()
    linked = page.locator(".ln.linked")
    assert linked.count() == 1 and "R.matmul(b, w)" in linked.inner_text()
    page.get_by_role("button", name="Close all").click()
    assert page.locator(".nodes details[open]").count() == 1
    assert audit(page) == []


def test_a_program_can_be_edited_in_the_live_view():
    view = tree(CHAIN)
    (control,) = view.controls
    assert view.again is not None and control.kind == "program"
    changed = view.again(program=str(control.value).replace("R.nn.softmax", "R.nn.log_softmax"))
    assert "nn.log_softmax" in changed.text
    assert tree(rl.parse(CHAIN)["main"]).again is None


def test_constants_are_shown_with_their_data():
    mod = rl.parse("""
@R.function
def main():
    return R.const([1.0, 2.0], "float32")
""")
    assert "data=array([1., 2.], dtype=float32)" in tree(mod).text
