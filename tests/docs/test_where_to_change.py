"""The files that pages name exist, above all those of docs/where-to-change.md."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.test_repo import PACKAGE, ROOT

TEXT = (ROOT / "docs/where-to-change.md").read_text("utf-8")
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
FOLDERS = "relaxlab|tests|tools|docs|tutorials|notebooks|benchmarks"


def _missing(paths: list[str]) -> list[str]:
    return [p for p in paths if not any(True for root in (ROOT, PACKAGE) for _ in root.glob(p))]


def test_the_paths_exist() -> None:
    paths = [p for p in re.findall(r"`([\w*./]+)`", TEXT) if "/" in p and "NAME" not in p]
    assert len(paths) > 20
    assert not _missing(paths)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_paths_of_the_repository_exist(page: Path) -> None:
    paths = re.findall(rf"`((?:{FOLDERS})/[\w*./]+)`", page.read_text("utf-8"))
    assert not _missing([p for p in paths if "NAME" not in p])
