"""Views in JupyterLab: run, step, restart, reload, save, export."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.lab.lab_server import jupyterlab, menu, notebook, run_all

PROGRAM = """
import relaxlab as rl
from relaxlab.script import ir as I, relax as R

@I.ir_module
class Layer:
    @R.function
    def main(x: R.Tensor(("n", 4), "float32"), w: R.Tensor((4, 8), "float32")):
        with R.dataflow():
            y = R.matmul(x, w)
            z = R.nn.relu(y)
            R.output(z)
        return z
"""
LIVE = """
from relaxlab.lab.view import Control, View

def made(size, letter):
    if size < 0:
        raise ValueError("a size is at least 0")
    lines = [f"{letter} = {i}" for i in range(size)]
    state = {"lines": list(range(size)), "table": lines, "title": f"{size} lines"}
    controls = (Control("size", "number", 3), Control("letter", "choice", "a", ("a", "b")))
    return View("module", "lines", state, "\\n".join(lines), controls, made)

made(3, "a").live()
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    pytest.importorskip("jupyterlab", reason="needs JupyterLab (pip install -e '.[lab]')")
    folder = tmp_path_factory.mktemp("jupyterlab") / "books"
    folder.mkdir()
    with jupyterlab(folder) as url:
        yield url, folder


def test_displays_survive_a_restart_and_a_reload(server, open_page):
    url, folder = server
    notebook(folder / "display.ipynb", PROGRAM, "Layer", "rl.compile(Layer)", "rl.parse('def')")
    page = open_page(f"{url}lab/tree/display.ipynb?reset", strict=False)
    page.wait_for_selector(".jp-Notebook")
    run_all(page)
    view = page.locator(".relaxlab-view[data-ready=true]").first
    view.wait_for()
    view.locator("[data-n=n]").first.click()
    assert view.locator(".lit").count() == 2, "the symbol's uses are lit"
    view.locator("input[type=search]").fill("relu")
    page.keyboard.press("Enter")
    assert page.locator(".jp-Notebook").count() == 1, "the notebook did not take the keys"
    assert "error[E0" in page.locator(".jp-OutputArea").last.inner_text(), "a short error, in place"

    menu(page, "File", "Save Notebook")
    page.wait_for_selector('.lm-TabBar-tab:has-text("display.ipynb"):not(.jp-mod-dirty)')
    menu(page, "Kernel", "Restart Kernel…")
    page.locator(".jp-Dialog button:has-text('Restart')").click()
    page.reload()
    view = page.locator(".relaxlab-view[data-ready=true]").first
    view.wait_for()
    view.locator("[data-n=x]").first.click()
    assert view.locator(".lit").count() == 2


def test_an_edited_program_runs_after_a_pause(server, open_page):
    url, folder = server
    notebook(folder / "edit.ipynb", PROGRAM, "rl.explore.graph(Layer).live()")
    page = open_page(f"{url}lab/tree/edit.ipynb?reset", strict=False)
    page.wait_for_selector(".jp-Notebook")
    run_all(page)
    editor = page.locator("textarea[aria-label=program]")
    editor.fill(editor.input_value().replace("R.nn.relu", "R.tanh"))
    page.wait_for_selector("text=changed, not run yet")
    page.locator("g.node", has_text="tanh").wait_for()
    assert page.locator("text=changed, not run yet").count() == 0


def test_a_live_view_is_made_anew_by_the_kernel(server, open_page):
    url, folder = server
    notebook(folder / "live.ipynb", PROGRAM, LIVE)
    page = open_page(f"{url}lab/tree/live.ipynb?reset", strict=False)
    page.wait_for_selector(".jp-Notebook")
    run_all(page)
    page.wait_for_selector("text=3 lines")
    number = page.locator("input[type=number]")
    number.fill("5")
    number.press("Tab")
    page.wait_for_selector("text=5 lines")
    page.locator("select[aria-label=letter]").select_option("b")
    page.wait_for_selector("text=b = 4")
    number.fill("-1")
    number.press("Tab")
    page.wait_for_selector("text=ValueError: a size is at least 0")
    assert page.locator("text=5 lines").count() == 1, "what was there stays"

    menu(page, "File", "Save Notebook")
    page.wait_for_selector('.lm-TabBar-tab:has-text("live.ipynb"):not(.jp-mod-dirty)')
    page.reload()  # the kernel goes on
    number.wait_for()
    assert page.locator("text=3 lines").count() == 1, "the recorded view"
    number.fill("4")
    number.press("Tab")
    page.wait_for_selector("text=4 lines")

    menu(page, "Kernel", "Restart Kernel…")
    page.locator(".jp-Dialog button:has-text('Restart')").click()
    page.wait_for_selector(".jp-StatusBar-TextItem:has-text('| Idle')")
    number.fill("6")
    number.press("Tab")
    page.wait_for_selector("text=the kernel no longer knows this view; run the cell again")
    page.reload()
    page.wait_for_selector(".relaxlab-view >> text=3 lines")
    assert page.locator("text=Error displaying widget").count() == 0


def test_a_live_view_after_an_interrupt_and_a_restart_in_between(server, open_page):
    """Neither leaves it waiting for ever."""
    url, folder = server
    wait = "    if letter == 'b':\n        time.sleep(99)\n"
    slow = LIVE.replace("    lines = [", f"{wait}    lines = [")
    notebook(folder / "slow.ipynb", f"{PROGRAM}\nimport time", slow)
    page = open_page(f"{url}lab/tree/slow.ipynb?reset", strict=False)
    page.wait_for_selector(".jp-Notebook")
    run_all(page)
    page.wait_for_selector("text=3 lines")
    letter, number = page.locator("select[aria-label=letter]"), page.locator("input[type=number]")
    letter.select_option("b")
    page.wait_for_selector("[role=status]:has-text('running …')")
    page.wait_for_timeout(1000)
    menu(page, "Kernel", "Interrupt Kernel")
    page.wait_for_selector("text=interrupted; the view is that of before")
    letter.select_option("a")
    number.fill("5")
    number.press("Tab")
    page.wait_for_selector("text=5 lines")
    letter.select_option("b")
    page.wait_for_timeout(1000)
    menu(page, "Kernel", "Restart Kernel…")
    page.locator(".jp-Dialog button:has-text('Restart')").click()
    page.wait_for_timeout(5500)
    number.fill("6")
    number.press("Tab")
    page.wait_for_selector("text=the kernel no longer knows this view; run the cell again")
    assert page.locator("text=5 lines").count() == 1, "what was there stays"


EXPLORE = ("rl.explore.pipeline(Layer)", "rl.explore.shapes(Layer)")


def explorers_of(page):
    """The views of pipeline and shapes, started: each when it is scrolled to."""
    views = [page.locator(f".relaxlab-view[data-kind={kind}]") for kind in ("pipeline", "shapes")]
    for view in views:
        view.scroll_into_view_if_needed()
        view.and_(page.locator("[data-ready=true]")).wait_for()
    return views


def step_through(page, pipeline, shapes):
    """Choose the next pass by keyboard; give a symbol another value with its slider."""
    chosen = pipeline.locator("[role=option][aria-selected=true]").first
    before = chosen.inner_text()
    chosen.focus()
    page.keyboard.press("ArrowDown")
    assert pipeline.locator("[role=option][aria-selected=true]").first.inner_text() != before
    slider = shapes.get_by_label("n, powers of two")
    slider.focus()
    page.keyboard.press("End")
    value = shapes.get_by_label("value of n").input_value()
    assert value == str(2 ** int(slider.get_attribute("max")))
    assert f"({value}, 4)" in shapes.locator(".root").inner_text()


def test_explorers_step_before_and_after_a_restart(server, open_page):
    url, folder = server
    notebook(folder / "explore.ipynb", PROGRAM, *EXPLORE)
    page = open_page(f"{url}lab/tree/explore.ipynb?reset", strict=False)
    page.wait_for_selector(".jp-Notebook")
    run_all(page)
    step_through(page, *explorers_of(page))
    menu(page, "File", "Save Notebook")
    page.wait_for_selector('.lm-TabBar-tab:has-text("explore.ipynb"):not(.jp-mod-dirty)')
    menu(page, "Kernel", "Restart Kernel…")
    page.locator(".jp-Dialog button:has-text('Restart')").click()
    page.reload()
    page.wait_for_selector(".jp-Notebook")
    step_through(page, *explorers_of(page))


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_an_exported_notebook_works_without_network(server, open_page, theme):
    _, folder = server
    path = notebook(folder / f"export-{theme}.ipynb", PROGRAM, "Layer", *EXPLORE)
    command = [
        sys.executable,
        "-m",
        "nbconvert",
        "--execute",
        "--to",
        "html",
        f"--theme={theme}",
        path,
    ]
    subprocess.run(command, check=True, capture_output=True)
    page = open_page(path.with_suffix(".html"), strict=False)
    view = page.locator(".relaxlab-view[data-ready=true]").first
    view.wait_for()
    assert view.locator(".ln").count() > 5
    background = view.locator(".root").evaluate("e => getComputedStyle(e).backgroundColor")
    assert (sum(map(int, background[4:-1].split(","))) > 380) == (theme == "light")
    view.locator("[data-n=n]").first.click()
    assert view.locator(".lit").count() == 2
    step_through(page, *explorers_of(page))


def test_a_notebook_that_is_not_trusted_shows_the_text(server, open_page):
    url, folder = server
    path = notebook(folder / "untrusted.ipynb", PROGRAM, "Layer")
    command = [
        sys.executable,
        "-m",
        "nbconvert",
        "--execute",
        "--to",
        "notebook",
        "--inplace",
        path,
    ]
    subprocess.run(command, check=True, capture_output=True)
    page = open_page(f"{url}lab/tree/untrusted.ipynb?reset", strict=False)
    text = page.locator(".jp-OutputArea pre").first
    text.wait_for()
    assert "def main(" in text.inner_text()
    assert page.locator("[data-ready]").count() == 0
