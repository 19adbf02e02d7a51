"""The pages under `docs` and the README: their links lead somewhere, their lists are the code's."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from relaxlab.passes.pipeline import cpu_pipeline
from relaxlab.schedule.rules import rules
from tests.test_repo import ABOVE_ALL, LAYERS, PACKAGE, PACKAGE_FILES, ROOT, package_of

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
ARCHITECTURE = (ROOT / "docs/architecture.md").read_text("utf-8")


def rows_of(section: str) -> list[str]:
    """The names in the first column of the section's first table."""
    text = ARCHITECTURE.split(f"\n## {section}\n", 1)[1].split("\n## ", 1)[0]
    return re.findall(r"^\| `(\w+)` \|", text, re.M)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_somewhere(page: Path) -> None:
    prose = re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text("utf-8"), flags=re.S)
    targets = re.findall(r"\]\(([^)#\s]+)[^)]*\)", prose)
    local = [t for t in targets if "://" not in t]
    missing = [t for t in local if not (page.parent / t).exists()]
    assert not missing


def test_passes_are_listed_in_order() -> None:
    order = [p.name for p in cpu_pipeline().passes]
    assert list(dict.fromkeys(rows_of("Passes"))) == list(dict.fromkeys(order))


def test_rules_are_listed_in_order() -> None:
    assert rows_of("Schedules") == [name for name, _ in rules()]


def test_packages_are_listed_from_the_bottom_up() -> None:
    there = {package_of(p) for p in PACKAGE_FILES if p.parent != PACKAGE} - ABOVE_ALL
    assert rows_of("Packages") == [r for layer in LAYERS for r in sorted(layer & there)]
