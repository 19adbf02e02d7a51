"""A real Chromium without a network."""

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
