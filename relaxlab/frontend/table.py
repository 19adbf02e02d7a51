"""Tables of a source's primitives, and the report of those that a program needs and none has."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from relaxlab.ir.errors import UserError, counted
from relaxlab.ir.span import Span

Row = Callable[..., Any]
"""Emits a primitive: `row(b, *operands, **attributes)`, with an `Emitter` as `b`."""

SHOWN_PLACES = 3


class Table:
    """One row for each primitive of a source, by the name that the source gives it.

    A row may be for versions of a primitive: `since` is the first, and the row with the greatest
    one that is not above a program's version is its row.

        row = Table("PyTorch").row
        row("aten.relu.default", lambda b, x: b.relu(x))

        @row("aten.silu.default", "aten.silu_.default")
        def silu(b, x): ...
    """

    def __init__(self, source: str) -> None:
        self.source = source
        self._rows: dict[str, dict[int, Row]] = {}

    def row(self, *names: Any, since: int = 0) -> Any:
        """Add a row under each of the names: the last argument is its function, or `row` decorates
        it. Raises ValueError for a name that is taken."""
        *given, last = names
        if callable(last):
            return self._add(given, since, last)
        return lambda fn: self._add(names, since, fn)

    def _add(self, names: Iterable[str], since: int, fn: Row) -> Row:
        for name in names:
            versions = self._rows.setdefault(name, {})
            if since in versions:
                raise ValueError(f"the table of {self.source} has a row for {name} already")
            versions[since] = fn
        return fn

    def find(self, name: str, version: int = 0) -> Row | None:
        """The row of a primitive, None where there is none for this version."""
        versions = self._rows.get(name, {})
        known = [since for since in versions if since <= version]
        return versions[max(known)] if known else None

    def __contains__(self, name: object) -> bool:
        return name in self._rows

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._rows))

    def __len__(self) -> int:
        return len(self._rows)


@dataclass(frozen=True, slots=True)
class Problem:
    """A primitive of a program that cannot be imported, why, and where the user's source has it."""

    name: str
    reason: str
    span: Span | None = None


class Refused(Exception):
    """Raised by a row for operands or attributes that it cannot express, with the reason."""


class UnsupportedOperators(UserError):
    """Primitives of a program that cannot be imported: all of them, with the places in the source.

    `problems` lists them, one for each place.
    """

    def __init__(self, source: str, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        by_cause: dict[tuple[str, str], list[Problem]] = {}
        for p in self.problems:
            by_cause.setdefault((p.name, p.reason), []).append(p)
        most_first = sorted(by_cause.items(), key=lambda item: (-len(item[1]), item[0]))
        title = counted(len({p.name for p in self.problems}), "operator")
        lines = [f"{title} of this {source} program cannot be imported:"]
        for (name, reason), found in most_first:
            lines.append(f"  {name}: {reason} ({counted(len(found), 'call')})")
            places = dict.fromkeys(_place(p.span) for p in found if p.span is not None)
            lines += [f"    {place}" for place in list(places)[:SHOWN_PLACES]]
            if len(places) > SHOWN_PLACES:
                lines.append(f"    and {counted(len(places) - SHOWN_PLACES, 'other place')}")
        super().__init__("\n".join(lines))


def _place(span: Span) -> str:
    return f"{span.source.name}:{span.line}: {span.source.line(span.line).strip()}"
