"""A real Chromium without a network, and views opened in it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = next(
    (p for p in map(shutil.which, ("chromium", "chromium-browser", "google-chrome")) if p), None
)


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """The browser itself, started once."""
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="needs playwright (pip install -e '.[dev]')"
    )
    if CHROMIUM is None:
        pytest.skip("needs Chromium (apt-get install chromium)")
    with playwright.sync_playwright() as p:
        arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
        instance = p.chromium.launch(executable_path=CHROMIUM, args=arguments)
        yield instance
        instance.close()


@pytest.fixture
def open_page(chromium) -> Iterator[Any]:
    """`open_page(path_or_url, scheme="light")`: a page whose requests beyond this machine are
    aborted. Errors on the page or in its console and foreign requests fail the test,
    unless the page is JupyterLab's or nbconvert's (`strict=False`)."""
    contexts, failures = [], []

    def open_(
        target: Path | str, scheme: str = "light", width: int = 1100, strict: bool = True
    ) -> Any:
        context = chromium.new_context(
            color_scheme=scheme, viewport={"width": width, "height": 900}
        )
        context.set_default_timeout(90_000)  # a machine with much to do is no error
        contexts.append(context)
        wrong = failures if strict else []

        def decide(route: Any) -> None:
            url = route.request.url
            if url.startswith(("file:", "blob:", "data:", "http://localhost", "http://127.0.0.1")):
                route.continue_()
            else:
                wrong.append(f"request to {url}")
                route.abort()

        context.route("**/*", decide)
        page = context.new_page()
        page.on("pageerror", lambda error: wrong.append(f"error: {error}"))
        page.on(
            "console", lambda m: wrong.append(f"console: {m.text}") if m.type == "error" else None
        )
        page.goto(target.as_uri() if isinstance(target, Path) else target)
        return page

    yield open_
    for context in contexts:
        context.close()
    assert not failures, failures


@pytest.fixture
def open_view(open_page, tmp_path):
    """`open_view(view, scheme="light")`: the view's saved page, started."""
    count = iter(range(1000))

    def open_(view: Any, scheme: str = "light", width: int = 1100) -> Any:
        page = open_page(view.save(tmp_path / f"view{next(count)}.html"), scheme, width)
        page.wait_for_selector(".relaxlab-view[data-ready=true]")
        return page

    return open_


@pytest.fixture
def audit():
    """`audit(page)`: what axe finds serious or critical, as one line each."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()

    def run(page: Any) -> list[str]:
        found = axe.run(page).response["violations"]
        return [
            f"{v['impact']} {v['id']}: {v['help']}: {node['html'][:160]} {node['target']}"
            for v in found
            if v["impact"] in ("serious", "critical")
            for node in v["nodes"]
        ]

    return run
