"""Source text and positions in it."""

from __future__ import annotations

import re
from dataclasses import dataclass


def lines_of(text: str) -> list[str]:
    """Return the lines of a program as Python counts them: unlike for `str.splitlines`, form feeds
    and the separators of Unicode end none."""
    return re.split(r"\r\n|\r|\n", text)


def title_of(file: str) -> str:
    """Return the name of a file for a reader: that of a notebook's cell is a temporary file."""
    return "cell" if "ipykernel" in file or file.startswith("<ipython") else file


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
        lines = lines_of(self.text)
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
        return f"{title_of(self.source.name)}:{self.line}:{self.col + 1}"
