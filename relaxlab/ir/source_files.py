"""The Python files of a folder, with their sizes and times."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path


def python_files(folder: str | Path) -> Iterator[tuple[str, os.stat_result]]:
    """Yield the path and status of each Python file in a folder and in those below it."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir():
                yield from python_files(entry.path)
            elif entry.name.endswith(".py"):
                yield entry.path, entry.stat()
