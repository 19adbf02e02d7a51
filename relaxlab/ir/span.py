"""Source text and positions in it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Source:
    """A piece of program text. `name` is a file path, `<stdin>` or a notebook cell's name.

    `first_line` is the line number of the text's first line within that file (1-based).
    """

    name: str
    text: str
    first_line: int = 1

    def line(self, number: int) -> str:
        """The text of one line, by the file's numbering; empty if there is no such line."""
        lines = self.text.splitlines()
        index = number - self.first_line
        return lines[index] if 0 <= index < len(lines) else ""


@dataclass(frozen=True, slots=True)
class Span:
    """A range of source text: lines count from 1, columns from 0, the end is exclusive.

    `via` names the passes and rules that rewrote the node since it was written, oldest first.
    """

    source: Source
    line: int
    col: int
    end_line: int
    end_col: int
    via: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.source.name}:{self.line}:{self.col + 1}"
