"""Tables of primitives."""

from __future__ import annotations

import pytest

from relaxlab.frontend.table import Problem, Table, UnsupportedOperators


def test_rows_by_name_and_version() -> None:
    table = Table("Test")
    table.row("a", "b", str)
    table.row("a", int, since=13)

    @table.row("c")
    def c(b: object) -> None: ...

    assert (table.find("a"), table.find("a", 12), table.find("a", 13)) == (str, str, int)
    assert table.find("c") is c and table.find("d") is None
    assert list(table) == ["a", "b", "c"] and len(table) == 3 and "b" in table
    with pytest.raises(ValueError, match="table of Test has a row for a already"):
        table.row("a", str)


def test_a_row_that_is_too_new_is_none() -> None:
    table = Table("Test")
    table.row("a", str, since=7)
    assert table.find("a", 6) is None


def test_problems_are_counted() -> None:
    problems = [Problem("x", "it has no row")] * 2 + [Problem("y", "it has no row")]
    lines = str(UnsupportedOperators("Test", problems)).splitlines()
    assert lines == [
        "2 operators of this Test program cannot be imported:",
        "  x: it has no row (2 calls)",
        "  y: it has no row (1 call)",
    ]
