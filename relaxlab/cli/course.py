"""`relaxlab course`: the course as notebooks in a folder of one's own."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path

from relaxlab.lab.course import progress_of, write_course


def run(options: argparse.Namespace) -> int:
    """Write the missing files of the course, or sum up the solved exercises."""
    folder = Path(options.folder)
    if options.summary:
        return _sum_up(folder)
    files = list(write_course(folder, solutions=not options.no_solutions))
    new = sum(not f.kept for f in files)
    kept = ", kept the others" if new < len(files) else ""
    print(f"wrote {new} of {len(files)} notebooks to {folder}{kept}")
    print(f"open them with: jupyter lab {shlex.quote(str(folder))}")
    return 0


def _sum_up(folder: Path) -> int:
    found = progress_of(folder)
    width = max(len(p.lesson) for p in found)
    for p in found:
        print(f"{p.lesson:{width}}  {p.solved} of {p.exercises}")
    solved, exercises = sum(p.solved for p in found), sum(p.exercises for p in found)
    print(f"{'solved':{width}}  {solved} of {exercises}")
    return 0
