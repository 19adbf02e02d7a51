"""`make lab`: JupyterLab opens a copy of the course, and a lesson works in it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from relaxlab.lab.course import progress_of, write_course
from tests.lab.lab_server import jupyterlab, run_all
from tests.test_repo import ROOT

SETTINGS = ROOT / "tools/jupyter/labconfig/default_setting_overrides.json"


def test_the_makefile_uses_these_settings_and_a_lesson_that_is_there() -> None:
    text = (ROOT / "Makefile").read_text("utf-8")
    (folder,) = re.findall(r"JUPYTER_CONFIG_PATH=\$\(CURDIR\)/(\S+)", text)
    assert ROOT / folder == SETTINGS.parents[1]
    (lesson,) = re.findall(r"^FIRST_LESSON := (\S+)$", text, re.M)
    assert (ROOT / "tutorials" / lesson).with_suffix(".py").exists()


def test_a_lesson_in_jupyterlab(
    tmp_path: Path, open_page: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It opens with folded solutions; run, it shows explorers and hints; a right answer is told so,
    and is counted once the notebook is saved. Names complete, even where the kernel is slow."""
    books = tmp_path / "books"
    list(write_course(books))
    monkeypatch.setenv("JUPYTER_CONFIG_PATH", str(SETTINGS.parents[1]))
    with jupyterlab(books) as url:
        page = open_page(f"{url}lab/tree/01_tensors_to_loops.ipynb?reset", strict=False)
        page.wait_for_selector(".jp-Notebook")
        run_all(page)
        assert page.locator("details:not([open]) summary", has_text="Solution").count() == 4
        views = page.locator(".relaxlab-view:not([data-kind=drawing])")
        for i in range(views.count()):
            views.nth(i).scroll_into_view_if_needed()
            views.nth(i).locator("xpath=self::*[@data-ready='true']").wait_for()
        assert views.count() == 2
        hints = page.locator("pre", has_text="✗ not yet:")
        assert hints.count() == 4
        cell = page.locator(".jp-CodeCell", has_text="lesson1.scale_rows(ScaleRows)").first
        line = cell.locator(".cm-line", has_text="B[vi, vj] = A[vi, vj]").last
        line.click()
        page.keyboard.press("End")
        page.keyboard.type(" * s[vi]")
        page.keyboard.press("Shift+Enter")
        cell.locator("pre", has_text="✓ every row is multiplied").wait_for()
        cell.locator(".cm-line").last.click()
        page.keyboard.press("End")
        page.keyboard.press("Enter")
        page.keyboard.type("T.axis.")
        page.keyboard.press("Tab")
        page.locator(".jp-Completer-item", has_text="spatial").wait_for()
        page.keyboard.press("Escape")
        for _ in range(8):
            page.keyboard.press("Backspace")
        page.keyboard.press("Control+s")
        # A file that is being saved is empty for a moment: the mark goes when it is whole.
        page.wait_for_selector('.lm-TabBar-tab:has-text("01_tensors"):not(.jp-mod-dirty)')
    assert [(p.solved, p.exercises) for p in progress_of(books)][0] == (1, 4)
