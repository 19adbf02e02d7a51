"""The decisions of a kernel's rule in the loops explorer: what is recorded, what a kernel adds, and
the controls in Chromium."""

from __future__ import annotations

from dataclasses import asdict

import pytest

import relaxlab as rl
from relaxlab.codegen.cuda import nvrtc
from relaxlab.lab import assets, decisions
from relaxlab.lab.decisions import PREFIX
from relaxlab.lab.loops import loops
from relaxlab.lab.payload import Interner, pack
from relaxlab.lab.script import script_state
from relaxlab.lab.view import View
from relaxlab.schedule.compiled import schedule_of
from relaxlab.schedule.decisions import Decided, Decision, other_choices

ADD = """
@R.function
def main(x: R.Tensor((2, 64), "float32"), y: R.Tensor((2, 64), "float32")):
    return R.add(x, y)
"""
SCALAR = """
@R.function
def main(x: R.Tensor((), "float32")):
    return R.exp(x)
"""
SUM = """
@R.function
def main(x: R.Tensor((4, 8), "int32")):
    return R.sum(x, axis=1)
"""


@pytest.fixture(scope="module")
def trace():
    return rl.trace(rl.parse(ADD))


@pytest.fixture(scope="module")
def view(trace) -> View:
    return loops(trace)


def row(view: View, key: str):
    return next(r for r in view.state["decisions"]["rows"] if r["key"] == key)


def test_the_nearest_of_each_decision_comes_first():
    found = other_choices(
        [Decision("a", (1, 2, 4), 2, 4), Decision("b", (False, True), True, True)]
    )
    assert [(d.key, value) for d, value in found] == [("a", 2), ("b", False), ("a", 1)]


def test_each_other_choice_has_the_loops_that_the_rule_makes(view, trace):
    vectors = row(view, "vectors_at_once")
    assert vectors["value"] == vectors["default"] == "2"
    assert vectors["meaning"].startswith("vectors of a step")
    forms, table = (view.state["decisions"][k] for k in ("forms", "table"))
    for value, form in vectors["choices"]:
        if value == "2":
            continue
        expected = schedule_of(trace, "add", Decided({"vectors_at_once": int(value)}))
        interner = Interner()
        lines = script_state(expected.func, interner)["lines"]
        made = [table[i] for i in forms[form]["script"]]
        assert made == [interner.lines[i] for i in lines]
    assert view.state["decisions"]["measured"] is None


def test_what_is_over_the_budget_is_not_recorded(monkeypatch, trace):
    monkeypatch.setattr(decisions, "MOST_FORMS", 1)
    state = loops(trace).state["decisions"]
    assert len(state["forms"]) == 1
    made = [form for r in state["rows"] for _, form in r["choices"] if isinstance(form, int)]
    assert made == [0]


def test_live_a_choice_is_scheduled_and_measured(view):
    assert view.again is not None
    values = {c.name: c.value for c in view.controls} | {f"{PREFIX}vectors_at_once": "4"}
    made = view.again(**values)
    assert row(made, "vectors_at_once")["value"] == "4"
    assert row(made, "vectors_at_once")["default"] == "2"
    measured = made.state["decisions"]["measured"]
    assert measured["error"] == "" and measured["code"] and measured["language"] == "Assembly"
    assert [t[0] for t in measured["times"]] == ["defaults", "this choice"]
    assert made.again is not None and made.again(**values).state["title"] == "add"


def test_a_kernel_is_named_and_a_rule_without_decisions_says_so(trace):
    with pytest.raises(ValueError, match="the kernels that rules scheduled are: add; 'mul'"):
        loops(trace, "mul")
    made = loops(rl.trace(rl.parse(SCALAR)))
    assert "asks for no decisions" in made.state["notes"][0]


def test_kernels_for_gpus_have_decisions_and_no_time_on_another_machine(monkeypatch):
    monkeypatch.setattr(nvrtc, "is_available", lambda: False)  # the code is CUDA C then
    view = loops(rl.trace(rl.parse(SUM), target="cuda"))
    threads = row(view, "threads_per_row")
    assert threads["value"] == "32" and threads["meaning"] == "threads that share a row"
    assert isinstance(dict(threads["choices"])["64"], int)
    assert view.again is not None
    values = {c.name: c.value for c in view.controls}
    for choice, block in (("32", 128), ("64", 256)):
        again = view.again(**values | {f"{PREFIX}threads_per_row": choice})
        measured = again.state["decisions"]["measured"]
        assert measured["times"] == [] and "the kernel is for cuda" in measured["error"]
        assert sum(f"__launch_bounds__({block})" in line for line in measured["code"]) == 1


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_recorded_choice_shows_its_loops(open_view, audit, scheme, view):
    page = open_view(view, scheme)
    assert audit(page) == []
    select = page.get_by_label("vectors_at_once")
    assert "2 (default)" in select.inner_text()
    select.select_option("4")
    assert (
        "The loops with vectors_at_once = 4" in page.locator(".choices [role=status]").inner_text()
    )
    assert page.locator(".tree .new, .tree .other").count() > 0
    page.get_by_role("listbox", name="steps of the schedule").get_by_text("as given").click()
    assert select.input_value() == "2", "a step is one of the schedule as it is"


def test_a_live_view_with_a_choice_has_times_and_assembly(open_view, audit, view):
    assert view.again is not None
    page = open_view(view.again(**{f"{PREFIX}vectors_at_once": "1"}))
    assert page.get_by_role("row", name="this choice").count() == 1
    page.get_by_role("tab", name="Assembly").click()
    assert "ret" in page.locator(".assembly").inner_text()
    assert audit(page) == []


LIVE = """async ([code, controls, state]) => {
  const bytes = Uint8Array.from(atob(state), (c) => c.charCodeAt(0));
  const { default: live, views } = await import(
    URL.createObjectURL(new Blob([code], { type: "text/javascript" })));
  window.sent = [];
  let heard = null;
  const values = { controls, kind: "loops", place: "here" };
  const model = {
    get: (key) => values[key], off() {}, on: (_, f) => { heard = f; },
    send(message) {
      window.sent.push(message.values);
      queueMicrotask(() => heard({ type: "state" }, [bytes]));
    },
  };
  const el = document.createElement("div");
  document.body.replaceChildren(el);
  live.render({ model, el, views });
}"""


def test_live_a_choice_is_sent_to_the_kernel(open_view, view):
    page = open_view(view)
    controls = [asdict(c) for c in view.controls]
    page.evaluate(LIVE, [assets.link("live", "loops"), controls, pack(view.state)])
    select = page.get_by_label("vectors_at_once")
    select.wait_for()
    assert page.locator(".choices option:disabled").count() == 0
    assert page.get_by_role("group", name="options").locator("select").count() == 0
    select.select_option("8")
    assert page.evaluate("window.sent.at(-1)")[f"{PREFIX}vectors_at_once"] == "8"
