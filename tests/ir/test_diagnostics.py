"""How diagnostics are rendered: the line, the marks, notes, the help, related places."""

from __future__ import annotations

import pytest

from relaxlab.ir.diagnostics import Diagnostic, DiagnosticError
from relaxlab.ir.span import Source, Span, lines_of
from relaxlab.script import parse
from tests.golden import Golden

TEXT = "first = 1\n\tsecond(a, b)\nthird(\n    c,\n)\n"
SOURCE = Source("file.py", TEXT, first_line=9)


def problem(*where: int, **more: object) -> Diagnostic:
    return Diagnostic("E0000", "something is wrong", Span(SOURCE, *where), **more)  # type: ignore


def test_texts(golden: Golden) -> None:
    place = Span(SOURCE, 9, 0, 9, 5)
    cases = {
        "without a place": Diagnostic("E0000", "something is wrong", notes=("one", "two")),
        "part of a line": problem(9, 8, 9, 9),
        "after a tab, with another width of line numbers": problem(10, 8, 10, 9),
        "several lines": problem(11, 0, 13, 1),
        "nothing": problem(9, 3, 9, 3),
        "no such line": problem(40, 0, 40, 3),
        "all of it": problem(9, 0, 9, 5, notes=("why",), suggestion="do something else",
                             related=(("the other one is here:", place),)),
    }  # fmt: skip
    several = DiagnosticError([cases["part of a line"], cases["nothing"]])
    texts = {title: case.render() for title, case in cases.items()}
    golden.file("ir/diagnostics", {**texts, "several": str(several)})
    assert repr(cases["part of a line"]) == "Diagnostic(E0000 at file.py:9:9: something is wrong)"


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("inside", ["", "\f", "\v", "\x1c", "\x85", "\u2028", "é漢"])
def test_lines_are_counted_as_python_counts_them(end: str, inside: str) -> None:
    """A form feed or a separator of Unicode in a comment does not move the lines after it."""
    lines = [
        f"# a{inside}b", "@R.function", 'def main(x: R.Tensor((4,), "float32")):',
        f'    return R.add(x, "{inside.strip()}", missing)', "",
    ]  # fmt: skip
    with pytest.raises(DiagnosticError) as caught:
        parse(end.join(lines))
    found = next(d for d in caught.value.diagnostics if "missing" in d.message)
    assert found.span is not None and found.span.line == 4
    assert found.span.source.line(4)[found.span.col : found.span.end_col] == "missing"


def test_lines_of() -> None:
    assert lines_of("a\r\nb\rc\n\fd\x85e") == ["a", "b", "c", "\fd\x85e"]
    assert [SOURCE.line(n) for n in (8, 9, 12, 14, 15)] == ["", "first = 1", "    c,", "", ""]
