"""Views opened in a browser."""

from __future__ import annotations

from typing import Any

import pytest


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
