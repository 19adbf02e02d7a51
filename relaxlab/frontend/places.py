"""Places in the user's source: spans from names of files and numbers of lines."""

from __future__ import annotations

import linecache
from functools import lru_cache

from relaxlab.ir.span import Source, Span


def span_at(file: str, line: int) -> Span:
    """The span of a line of a file or notebook cell; its text is empty where the file is not
    found."""
    source = _source(file, "".join(linecache.getlines(file)))
    text = source.line(line)
    start = len(text) - len(text.lstrip())
    return Span(source, line, start, line, len(text.rstrip()))


@lru_cache(maxsize=256)
def _source(file: str, text: str) -> Source:
    return Source(file, text)
