"""Views made of texts, tables, scripts and diagnostics, one under the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from relaxlab.ir.diagnostics import Diagnostic
from relaxlab.ir.module import Module
from relaxlab.ir.span import Span
from relaxlab.lab.payload import Interner
from relaxlab.lab.script import script_state
from relaxlab.lab.view import View
from relaxlab.script.printer import print_module


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of texts and numbers under headings."""

    heads: tuple[str, ...]
    rows: Sequence[tuple[str | int | float, ...]]


@dataclass(frozen=True, slots=True)
class Diagnostics:
    """Errors of a program, each at its place in the source."""

    found: tuple[Diagnostic, ...]


@dataclass(frozen=True, slots=True)
class Change:
    """A module before and after something, as one script in which the difference is marked."""

    before: Module
    after: Module
    labels: tuple[str, str]


Section: TypeAlias = str | Table | Diagnostics | Module | Change


def report(title: str, *sections: Section) -> View:
    """A view of the sections in order."""
    interner = Interner()
    states = [_state(s, interner) for s in sections]
    text = "\n\n".join(map(_text, sections))
    return View(
        "report", title, {"title": title, "sections": states, "table": interner.lines}, text
    )


def diagnostics_state(found: Sequence[Diagnostic]) -> list[dict[str, Any]]:
    """Return the data that `diagnosticList` of report.js shows: every error with its underlined
    source."""
    return [
        {
            "code": d.code,
            "message": d.message,
            "places": [
                *([{"label": "", **_place(d.span)}] if d.span else []),
                *({"label": label, **_place(span)} for label, span in d.related),
            ],
            "notes": list(d.notes),
            "help": d.suggestion,
        }
        for d in found
    ]


def _place(span: Span) -> dict[str, Any]:
    """The marked line between its neighbours: columns count from 0, `to` is exclusive."""
    text = span.source.line(span.line)
    first = max(span.source.first_line, span.line - 2)
    around = [(n, span.source.line(n)) for n in range(first, span.line + 2)]
    return {
        "at": str(span),
        "line": span.line,
        "from": span.col,
        "to": max(span.col + 1, span.end_col if span.end_line == span.line else len(text)),
        "lines": [[n, line] for n, line in around if n <= span.line or line],
    }


def _state(section: Section, interner: Interner) -> dict[str, Any]:
    match section:
        case str():
            return {"text": section}
        case Table(heads, rows):
            return {"heads": list(heads), "rows": [list(r) for r in rows]}
        case Diagnostics(found):
            return {"diagnostics": diagnostics_state(found)}
        case Change(before, after, labels):
            states = [script_state(mod, interner) for mod in (before, after)]
            lines = [s.get("full", s["lines"]) for s in states]
            return {"before": lines[0], "after": lines[1], "labels": list(labels)}
        case _:
            return script_state(section, interner)


def _text(section: Section) -> str:
    match section:
        case str():
            return section
        case Table(heads, rows):
            table = [[str(c) for c in row] for row in (heads, *rows)]
            widths = [max(len(row[i]) for row in table) for i in range(len(heads))]
            lines = (
                "  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)) for row in table
            )
            return "\n".join(line.rstrip() for line in lines).strip("\n")
        case Diagnostics(found):
            return "\n\n".join(d.render() for d in found)
        case Change(before, after, labels):
            parts = zip(labels, (before, after), strict=True)
            return "\n\n".join(f"# {label}\n{print_module(mod)}".rstrip() for label, mod in parts)
        case _:
            return print_module(section).rstrip("\n")
