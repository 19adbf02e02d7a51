"""Golden texts are compared, updated on demand, and none is left behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.golden import GOLDENS, Golden

TESTS = Path(__file__).parent


def test_texts_of_a_file(tmp_path: Path) -> None:
    check, write = (Golden(update, tmp_path) for update in (False, True))
    with pytest.raises(AssertionError, match="--update-goldens"):
        check.file("room/errors", {"one": "a"})
    write.file("room/errors", {"one": "a\n", "two": "b\nc"})
    assert (tmp_path / "room/errors.txt").read_text() == "## one\na\n\n## two\nb\nc\n"
    check.file("room/errors", {"one": "a", "two": "b\nc"})
    for other in ({"one": "a"}, {"one": "a", "two": "b"}):
        with pytest.raises(AssertionError, match="another text"):
            check.file("room/errors", other)


def test_texts_of_a_page(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    text = "## E1 One\n\n```text\na\n```\n\n## E12 Two\n\n```python\nx\n```\n\n```text\nb\n```\n"
    page.write_text(text)
    check, write = Golden(update=False), Golden(update=True)
    check.page(page, "E12", "b\n")
    with pytest.raises(AssertionError, match="another text"):
        check.page(page, "E1", "b")
    with pytest.raises(AssertionError, match="no text block"):
        check.page(page, "E2", "b")
    write.page(page, "E12", "c\nd")
    assert page.read_text() == text.replace("b\n", "c\nd\n")


def test_every_file_belongs_to_a_test() -> None:
    files = {p.relative_to(GOLDENS).with_suffix("").as_posix() for p in GOLDENS.rglob("*.txt")}
    tests = "".join(p.read_text("utf-8") for p in TESTS.rglob("test_*.py"))
    assert files == {name for name in files if f'golden.file("{name}"' in tests}
