"""What is wrong with a program, as data: messages, and the source they underline."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from relaxlab.ir.diagnostics import Diagnostic
from relaxlab.ir.span import Span


def diagnostics_state(diagnostics: Sequence[Diagnostic]) -> dict[str, Any]:
    """The diagnostics in order, and the sources that they are about, line by line."""
    sources: dict[tuple[str, int, str], int] = {}

    def place(span: Span | None) -> dict[str, Any] | None:
        if span is None:
            return None
        source = span.source
        key = (source.name, source.first_line, source.text)
        number = sources.setdefault(key, len(sources))
        return {
            "source": number, "line": span.line, "col": span.col,
            "end_line": span.end_line, "end_col": span.end_col, "text": str(span),
        }  # fmt: skip

    found = [
        {
            "code": d.code, "message": d.message, "place": place(d.span), "notes": list(d.notes),
            "help": d.suggestion,
            "related": [{"label": label, "place": place(span)} for label, span in d.related],
        }
        for d in diagnostics
    ]  # fmt: skip
    texts = [
        {"name": name, "first_line": first, "lines": text.split("\n")}
        for name, first, text in sources
    ]
    return {"diagnostics": found, "sources": texts}
