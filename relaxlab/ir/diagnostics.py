"""Errors as values: code, message, underlined source, notes and a suggestion.

Analyses and the parser collect diagnostics and raise them together; nothing writes to stderr.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from relaxlab.ir.arguments import methods_name_arguments
from relaxlab.ir.brief import Brief, cut
from relaxlab.ir.display import Displayed
from relaxlab.ir.errors import UserError
from relaxlab.ir.span import Span


@dataclass(frozen=True, slots=True, repr=False)
class Diagnostic(Displayed, Brief):
    """One problem. `code` (like `E0104`) has a documented example; `notes` have the reasons."""

    code: str
    message: str
    span: Span | None = None
    notes: tuple[str, ...] = ()
    suggestion: str | None = None
    related: tuple[tuple[str, Span], ...] = field(default=())

    def __repr__(self) -> str:
        where = f" at {self.span}" if self.span is not None else ""
        return f"Diagnostic({self.code}{where}: {cut(self.message, 200)})"

    def render(self) -> str:
        """Plain text: the headline, the underlined source, then notes and suggestion."""
        lines = [f"error[{self.code}]: {self.message}"]
        if self.span is not None:
            lines += _underline(self.span)
        for label, span in self.related:
            lines += [f"  {label}", *_underline(span)]
        lines += [f"  = note: {note}" for note in self.notes]
        if self.suggestion:
            lines.append(f"  = help: {self.suggestion}")
        return "\n".join(lines)


def _underline(span: Span) -> list[str]:
    text = span.source.line(span.line).expandtabs(1)
    gutter = " " * len(str(span.line))
    end = span.end_col if span.end_line == span.line else len(text)
    marks = "^" * max(1, end - span.col)
    return [
        f" {gutter}--> {span}",
        f" {gutter} |",
        f" {span.line} | {text}",
        f" {gutter} | {' ' * span.col}{marks}",
    ]


@methods_name_arguments
class DiagnosticError(Displayed, UserError):
    """One or more diagnostics; `str()` renders all of them."""

    def __init__(self, diagnostics: Iterable[Diagnostic]) -> None:
        self.diagnostics = tuple(diagnostics)
        super().__init__(*self.diagnostics)

    def __str__(self) -> str:
        count = len(self.diagnostics)
        tail = [f"{count} errors"] if count > 1 else []
        return "\n" + "\n\n".join([d.render() for d in self.diagnostics] + tail)

    def _render_traceback_(self, *_: object) -> list[str]:
        """Return the lines that IPython prints when it is raised: the program's errors without the
        compiler's frames."""
        return str(self).strip("\n").splitlines()
