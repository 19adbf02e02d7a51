"""Golden texts: messages and displays that tests compare word for word.

`pytest --update-goldens` writes what the program says now; the difference is read in `git diff`.
Texts stand in `tests/goldens`, and those of documented examples in the pages themselves. Tests that
are about something else compare codes and key phrases, so that rewording changes goldens alone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

GOLDENS = Path(__file__).with_name("goldens")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-goldens", action="store_true", help="write texts, compare none")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--update-goldens") and config.getoption("numprocesses", None):
        raise pytest.UsageError("--update-goldens: processes would overwrite each other's texts")


@dataclass(frozen=True, slots=True)
class Golden:
    """Compares texts with the golden ones, or writes them."""

    update: bool
    folder: Path = GOLDENS

    def file(self, name: str, texts: Mapping[str, str]) -> None:
        """Compare all texts of one file, `tests/goldens/NAME.txt`, by title."""
        path = self.folder / f"{name}.txt"
        found = "\n\n".join(f"## {title}\n{text.strip()}" for title, text in texts.items()) + "\n"
        if self.update:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(found, "utf-8")
        self._compare(path, found, path.read_text("utf-8") if path.exists() else "")

    def page(self, page: Path, title: str, text: str) -> None:
        """Compare the first `text` block under the heading of a Markdown page that begins with
        `title`."""
        section = re.compile(rf"(^## {re.escape(title)}\b.*?^```text\n)(.*?)(^```$)", re.M | re.S)
        found = text.strip("\n") + "\n"
        before = page.read_text("utf-8")
        match = section.search(before)
        assert match, f"{page} has no text block under {title}"
        if self.update and match[2] != found:
            page.write_text(before[: match.start(2)] + found + before[match.end(2) :], "utf-8")
        else:
            self._compare(page, found, match[2])

    @staticmethod
    def _compare(path: Path, found: str, golden: str) -> None:
        assert found == golden, f"{path} has another text; `pytest --update-goldens` writes it"


@pytest.fixture
def golden(pytestconfig: pytest.Config) -> Golden:
    return Golden(pytestconfig.getoption("--update-goldens"))
