"""Exported pages: whole, alive, and without the network."""

from __future__ import annotations

import re
from collections.abc import Callable
from html import escape
from pathlib import Path
from typing import Any

import pytest

from tests.tutorials.conftest import export_site

NOTEBOOKS = export_site().notebooks()

FOREIGN = re.compile(
    r"""(?:\bsrc|\bhref|\baction)\s*=\s*["']?(?:https?:)?//  # attributes
    |url\(\s*["']?(?:https?:)?//                             # style sheets
    |@import
    |\bimport\s*\(?\s*["'](?:https?:)?//                     # modules
    |\bfetch\s*\(\s*["']https?:""",
    re.X,
)


@pytest.fixture(scope="session")
def site(executed: Callable[[Any], Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All pages in a folder. The last first: another worker runs the first of them meanwhile, in
    `test_notebooks.py`."""
    folder = tmp_path_factory.mktemp("site")
    for notebook in reversed(NOTEBOOKS):
        html = export_site().to_html(notebook, executed(notebook), NOTEBOOKS)
        (folder / f"{notebook.page}.html").write_text(html, "utf-8")
    (folder / "index.html").write_text(export_site().index_html(NOTEBOOKS), "utf-8")
    return folder


def test_the_pattern_finds_what_loads_something() -> None:
    for text in (
        '<script src="https://cdn.example.org/a.js">',
        "<link href='//example.org/a.css'>",
        "@import 'a.css'",
        "background: url(https://example.org/a.png)",
        "import('https://example.org/a.js')",
    ):
        assert FOREIGN.search(text)


def test_nothing_is_loaded_and_links_lead_somewhere(site: Path) -> None:
    for path in sorted(site.glob("*.html")):
        html = path.read_text("utf-8")
        assert not FOREIGN.search(html), path.name
        links = re.findall(r'<a [^>]*href="([^"#]+)"', html)
        assert links and all((site / link).exists() for link in links), path.name
        assert len(html) < 5_000_000
    index = (site / "index.html").read_text("utf-8")
    assert all(f'href="{n.page}.html"' in index for n in NOTEBOOKS)
    assert all(n.summary and escape(n.summary) in index for n in NOTEBOOKS)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_lesson_is_alive_without_the_network(site: Path, open_page: Any, scheme: str) -> None:
    """Opened as a file: all views start, one is stepped, solutions are folded, the next page is one
    click away."""
    page = open_page(site / "01_tensors_to_loops.html", scheme)
    views = page.locator(".relaxlab-view:not([data-kind=drawing])")
    assert views.count() >= 2
    for i in range(views.count()):
        views.nth(i).scroll_into_view_if_needed()
        page.wait_for_function("v => v.dataset.ready === 'true'", arg=views.nth(i).element_handle())
    loops = views.nth(1)
    loops.scroll_into_view_if_needed()
    loops.get_by_role("button", name="Next step").click()
    said = loops.locator("[aria-live]", has_text="A[vi, vk] * B[vk, vj] at i = 0, j = 0, k = 0")
    said.first.wait_for(state="attached")
    solution = page.locator("details.solution").first
    assert not solution.locator(".highlight").is_visible()
    solution.locator("summary").click()
    assert solution.locator(".highlight").is_visible()
    page.get_by_role("link", name="next").click()
    assert "The script language" in page.title()


def test_one_file_can_be_exported(tmp_path: Path) -> None:
    """The index lists pages of earlier calls, too, and no link leads to a page that is missing."""
    earlier, lesson, *_ = NOTEBOOKS
    (tmp_path / f"{earlier.page}.html").write_text("", "utf-8")
    assert export_site().main(["-o", str(tmp_path), str(lesson.path)]) == 0
    names = {p.name for p in tmp_path.iterdir()}
    assert names == {f"{earlier.page}.html", f"{lesson.page}.html", "index.html"}
    assert f'href="{earlier.page}.html"' in (tmp_path / "index.html").read_text("utf-8")
    html = (tmp_path / f"{lesson.page}.html").read_text("utf-8")
    assert "Next: symbolic shapes." in html
    for text in (html, (tmp_path / "index.html").read_text("utf-8")):
        assert set(re.findall(r'<a [^>]*href="([^"#]+)"', text)) <= names
