"""The tuning explorer: what is read out of records, a live view while a search runs, and the view
in Chromium."""

from __future__ import annotations

import json
import zlib
from dataclasses import replace
from pathlib import Path

import pytest

import relaxlab as rl
from relaxlab.lab.tuning import tuning
from relaxlab.lab.view import View
from relaxlab.runtime.cache import compiler_version
from relaxlab.tuning.database import Record
from relaxlab.tuning.kernels import kernels_of
from relaxlab.tuning.matrix import Matrix, Row
from relaxlab.tuning.statistics import Interval

MOD = rl.parse("""
@R.function
def main(x: R.Tensor((4, 64), "float32"), y: R.Tensor((4, 64), "float32")):
    return R.add(x, y)
""")


def record(time: float, outcome: str, value: int | None, middle: float | None, reason="") -> Record:
    (kernel,), _ = kernels_of(MOD, rl.Target.host(), {})
    point = {} if value is None else {"vectors_at_once": value}
    interval = None if middle is None else (middle, middle / 1.02, middle * 1.02)
    args = {"name": "vectors_at_once", "decision": 2}
    trace = json.dumps([{"name": "decide", "args": args, "outputs": []}])
    return Record(kernel.key, "machine", 1, compiler_version(), "cpu", time, outcome, reason, point,
                  ({},), interval, trace)  # fmt: skip


@pytest.fixture(scope="module")
def database(tmp_path_factory) -> rl.Database:
    made = rl.Database(tmp_path_factory.mktemp("tuned") / "tuning.db")
    made.add(
        record(1.0, "accepted", 8, 1.5),  # of an earlier search
        record(2.0, "measured", 1, 0.8),
        record(3.0, "measured", 4, 1.25),
        record(4.0, "failed", 8, None, "wrong: <b>the result</b> differs"),
        record(5.0, "accepted", 4, 1.2),
    )
    return made


@pytest.fixture(scope="module")
def view(database) -> View:
    return tuning(database, MOD)


def test_the_last_search_is_shown_with_what_matters(view):
    (kernel,) = view.state["kernels"]
    assert kernel["name"] == "add"
    assert [t["outcome"] for t in kernel["trials"]] == ["measured", "measured", "failed"]
    assert [t["best"] for t in kernel["trials"]] == [1.0, 1.25, 1.25]
    assert kernel["end"]["interval"][0] == 1.2
    (decision,) = kernel["decisions"]
    assert decision["key"] == "vectors_at_once" and decision["values"] == ["1", "4", "8"]
    assert decision["effect"] == pytest.approx(1.25 / 0.8, rel=1e-3)
    assert "confirmed: 1.2" in view.text and "wrong: <b>the result</b> differs" in view.text
    tabs = [t["title"] for t in view.state["details"]["0:1"]["tabs"]]
    assert tabs == ["Difference from the default", "Loops", "Code"]


def test_sizes_and_predictions_of_records_are_shown(tmp_path):
    database = rl.Database(tmp_path / "tuning.db")
    sizes = ({"n": 1}, {"n": 64})
    ratios = [[Interval(r, r / 1.01, r * 1.01) for r in row] for row in ((1, 1), (0.9, 1.4))]
    points = ({}, {"vectors_at_once": 4})
    rows = tuple(Row(p, tuple(r)) for p, r in zip(points, ratios, strict=True))
    matrix = Matrix(sizes, rows, (0, 1))
    trial = replace(record(1.0, "measured", 4, 1.2), sizes=sizes, predicted=1.3)
    end = replace(record(2.0, "accepted", 4, 1.2), sizes=sizes, matrix=matrix)
    database.add(trial, end)
    (kernel,) = tuning(database).state["kernels"]
    assert [t["predicted"] for t in kernel["trials"]] == [1.3]
    shown = kernel["end"]["matrix"]
    assert shown["sizes"] == ["n=1", "n=64"] and shown["chosen"] == [0, 1]
    assert [(name, [i[0] for i in r]) for name, r in shown["rows"]] == [
        ("default", [1, 1]), ("vectors_at_once = 4", [0.9, 1.4])]  # fmt: skip


def test_without_the_program_there_are_no_loops_and_a_note_says_so(database):
    view = tuning(database.path)
    assert view.state["details"] == {} and "rl.explore.tuning(database, mod)" in view.text
    with pytest.raises(FileNotFoundError):
        tuning(database.path.with_name("none.db"))


def test_a_live_view_follows_a_search(tmp_path: Path, monkeypatch):
    made = rl.Database(tmp_path / "tuning.db")
    live = tuning(made, MOD).live()
    sent = []
    updates = live.refresh.__func__.__closure__[0].cell_contents
    monkeypatch.setattr(updates, "send", lambda message, parts=(): sent.append((message, *parts)))

    def shown():
        return json.loads(zlib.decompress(sent[-1][1]))["kernels"]

    live.refresh()
    assert shown() == []
    made.add(record(1.0, "measured", 4, 1.25))
    live.refresh("a report")
    assert len(sent) == 1, "a moment ago"
    live.refresh()
    assert [len(k["trials"]) for k in shown()] == [1]
    updates.answer({"trial": "0:0"})
    assert [m["type"] for m, *_ in sent[-2:]] == ["started", "state"]
    assert "0:0" in json.loads(zlib.decompress(sent[-1][1]))["details"]
    made.path.write_text("no database")
    live.refresh()
    assert sent[-1][0]["type"] == "error"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_trial_opens_by_the_keyboard_and_headings_sort(open_view, audit, scheme, view):
    page = open_view(view, scheme)
    assert audit(page) == []
    first = page.locator("tr[data-trial]").first
    page.get_by_role("button", name="times as fast").click()
    assert first.get_attribute("data-trial") == "0"
    page.get_by_role("button", name="times as fast").press("Enter")
    assert first.get_attribute("data-trial") == "1"
    assert page.locator("th[aria-sort=descending]").inner_text().startswith("times as fast")
    page.get_by_role("button", name="trial 2", exact=True).press("Enter")
    assert "Trial 2 of add" in page.locator("section h3").first.inner_text()
    page.get_by_role("tab", name="Loops", exact=True).click()
    assert page.locator(".tree").count() > 0
    page.get_by_role("tab", name="Decisions", exact=True).click()
    assert page.locator("path.way").count() == 3
    page.locator("tr[data-trial='2']").click()
    assert "failed: wrong: <b>the result</b> differs" in page.locator("section .facts").inner_text()
    assert audit(page) == []


def test_a_narrow_column_is_enough(open_view, view):
    page = open_view(view, width=500)
    root = page.locator(".root").first
    assert root.evaluate("e => e.scrollWidth - e.clientWidth") <= 1
    # Where the drawing has less room than its texts need, it scrolls.
    number = page.locator("svg.tuning text").first
    assert number.evaluate("e => e.getBoundingClientRect().height") >= 9
