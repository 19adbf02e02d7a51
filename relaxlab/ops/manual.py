"""The texts of manual.md: what each operator does, with an example, by section."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

FILE = Path(__file__).with_name("manual.md")

_ENTRY = re.compile(r"([a-z]\w*(?:\.\w+)*): (.*)")


@dataclass(frozen=True, slots=True)
class Section:
    """A section: the text about all of its operators, and (text, example) per operator."""

    title: str
    text: str
    entries: dict[str, tuple[str, str]] = field(default_factory=dict[str, tuple[str, str]])


def _section(title: str, body: str) -> Section:
    text: list[str] = []
    entries: dict[str, tuple[str, str]] = {}
    name = ""
    for line in body.splitlines():
        entry = _ENTRY.fullmatch(line)
        if entry:
            name = entry[1]
            entries[name] = (entry[2], "")
        elif line.startswith("    "):
            doc, example = entries[name]
            is_example = line.strip().startswith("R.")
            entries[name] = (doc, line.strip()) if is_example else (f"{doc} {line.strip()}", "")
        else:
            text.append(line)
    return Section(title, "\n".join(text).strip(), entries)


@cache
def sections() -> tuple[Section, ...]:
    """The sections in the order of the file."""
    _, *parts = re.split(r"^## ", FILE.read_text("utf-8"), flags=re.M)
    return tuple(_section(*part.split("\n", 1)) for part in parts)


@cache
def entries() -> dict[str, tuple[str, str]]:
    """The text and the example of each operator, by its name."""
    return {name: entry for section in sections() for name, entry in section.entries.items()}
