"""The shapes explorer: events of deduction as data, and on the page."""

from __future__ import annotations

import pytest

import relaxlab as rl
from relaxlab.ir.diagnostics import DiagnosticError
from relaxlab.lab.payload import pack
from relaxlab.lab.shapes import shapes
from tests.lab.programs import CALLS, WRONG, decoder


@pytest.fixture(scope="module")
def calls():
    return shapes(rl.parse(CALLS))


NESTED = """
@I.ir_module
class M:
    @R.function
    def main(x: R.Tensor(("n", 4), "float32")):
        y = R.sum(R.nn.relu(x), axis=[0])
        lv1 = R.exp(y)
        return lv1
"""


def bindings(view, name="main"):
    function = next(f for f in view.state["functions"] if f["name"] == name)
    return {b["name"]: b for b in function["bindings"]}


def test_rules_are_named(calls):
    main = bindings(calls)
    assert main["x"]["rule"] == "annotation of the parameter" and main["x"]["defines"] == ["n"]
    assert main["a"]["rule"] == "the rule of the operator R.concat"
    assert "signature of half" in main["b"]["rule"]
    assert "the buffers of twice are unified" in main["e"]["rule"]
    assert "stated by the call of R.call_pure_packed" in main["f"]["rule"]
    assert [f["name"] for f in calls.state["functions"]] == ["half", "main"]
    assert calls.state["start"] == 1


def test_events_of_deduction(calls):
    main = bindings(calls)
    assert {"kind": "unified", "text": "k := n", "place": "dimension 0 of argument `a`"} in main[
        "b"
    ]["events"]
    assert {"kind": "asked", "text": "4 == m", "answer": "open"} in main["c"]["events"]
    (lost,) = [f for f in main["d"]["events"] if f["kind"] == "lost"]
    assert lost["remedy"] == 'd = R.match_cast(d, R.Tensor(("n",), "float32"))'
    checked = [f for b in main.values() for f in b["events"] if f["kind"] == "checked"]
    assert any("contracted dimensions" in f["text"] for f in checked)


def test_amounts_are_expressions(calls):
    main = bindings(calls)
    assert (main["c"]["dims"], main["c"]["flops"]) == (["n", 8], ["*", "n", 64])
    assert main["a"]["bytes"] == ["*", "n", 32]
    assert main["d"]["dims"] is None and main["d"]["bytes"] is None


def test_the_remedy_works():
    """The suggested line, added to the program, gives the shape back."""
    line = "        d = R.add(R.sum(x, axis=1), R.sum(w, axis=1))\n"
    remedy = '        d1 = R.match_cast(d, R.Tensor(("n",), "float32"))\n'
    assert line in CALLS
    fixed = CALLS.replace(line, line + remedy).replace("return (d, f)", "return (d1, f)")
    assert bindings(shapes(fixed))["d1"]["dims"] == ["n"]


def test_programs_that_are_wrong_keep_what_was_deduced():
    view = shapes(WRONG)
    assert [d["code"] for d in view.state["failure"]["diagnostics"]] == ["E0203"]
    main = bindings(view)
    assert main["d"]["failed"] and main["c"]["dims"] == ["n", 8]
    broken = shapes("x = = 1")
    assert broken.state["functions"] == [] and broken.state["failure"]["pass"] is None
    with pytest.raises(DiagnosticError) as raised:
        rl.parse("x = = 1")
    assert shapes(raised.value).state == broken.state | {
        "failure": shapes(raised.value).state["failure"]
    }
    with pytest.raises(TypeError, match="cannot be shown"):
        shapes(3)  # type: ignore[arg-type]


def test_a_large_model_is_small_data():
    view = shapes(decoder())
    assert len(view.state["functions"][0]["bindings"]) > 500
    assert len(pack(view.state)) < 60_000 and len(view.html()) < 250_000


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_stepping_and_sliding(calls, open_view, scheme):
    page = open_view(calls, scheme)
    assert "annotation of the parameter" in page.inner_text(".root")
    for _ in range(3):
        page.get_by_role("button", name="Next step").click()
    text = page.inner_text(".root")
    assert "k := n" in text and "Symbols found by unification" in text
    page.get_by_label("value of n").fill("100")
    page.keyboard.press("Tab")
    assert "(200, 4)" in page.inner_text("[role=listbox]")
    page.get_by_role("option", name="d Tensor").click()
    assert 'R.match_cast(d, R.Tensor(("n",), "float32"))' in page.inner_text(".root")
    page.keyboard.press("ArrowUp")
    assert page.locator("[role=option][aria-selected=true]").inner_text().startswith("lv")
    page.get_by_label("function").select_option("half")
    assert "2·k" in page.inner_text("[role=listbox]")


def test_errors_are_above(open_view):
    page = open_view(shapes(WRONG))
    text = page.inner_text(".root")
    assert "axis 7 is out of range" in text and "no type" in text


def test_values_are_found_and_filtered(calls, open_view):
    page = open_view(calls)
    rows = page.locator("[role=option]:visible")
    count = rows.count()
    page.get_by_label("values to list").select_option("parameters")
    assert 0 < rows.count() < count
    page.get_by_label("values to list").select_option("all")
    page.get_by_label("find a value or operator").fill("concat")
    assert rows.count() == 1 and "concat" in rows.inner_text()


def test_names_that_the_compiler_made_up_are_marked(open_view):
    view = shapes(rl.parse(NESTED))
    made_up = {b["name"]: b["made_up"] for b in view.state["functions"][0]["bindings"]}
    assert made_up == {"x": False, "lv": True, "y": False, "lv1": False, "return": False}
    page = open_view(view)
    assert page.locator(".made-up").all_inner_texts() == ["lv"]
    assert "named by the compiler" in page.locator(".legend").inner_text()
    assert page.locator(".legend li").count() == 1, "badges that do not occur are not explained"
