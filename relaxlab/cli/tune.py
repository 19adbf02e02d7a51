"""`relaxlab tune`: search for faster schedules of a script's kernels, keep them, and pass them on
as JSON."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path

from relaxlab.cli.options import UsageError
from relaxlab.cli.progress import Progress
from relaxlab.cli.scripts import read_script
from relaxlab.ir.errors import counted
from relaxlab.tuning.database import Database, DatabaseError
from relaxlab.tuning.tune import tune
from relaxlab.tuning.tune_kernel import State
from relaxlab.tuning.workshop import sizes_text


def run(options: argparse.Namespace) -> int:
    """Add records that were exported, print the table of what was found, export all records: each
    if asked for. Ctrl-C ends the search with the best so far."""
    if options.file is None and options.taken is None and options.export is None:
        raise UsageError("there is nothing to do without a script, --import or --export")
    # Only exporting makes no database.
    only = options.file is None and options.taken is None
    database = Database(options.database, create=not only)
    if options.taken is not None:
        _import(Path(options.taken), database)
    if options.file is not None:
        _search(options, database)
    if options.export is not None:
        text = database.to_json()
        Path(options.export).write_text(text, "utf-8")
        print(f"{counted(text.count(_END), 'record')} written to {options.export}")
    return 0


_END = "\n"
"""The end of a record's line."""


def _import(file: Path, database: Database) -> None:
    try:
        found = database.add_json(file.read_text("utf-8"))
    except (DatabaseError, UnicodeDecodeError) as error:
        raise DatabaseError(f"{file}: {error}") from None
    print(f"{counted(found, 'record')} of {file} are in {database.path}")


def _search(options: argparse.Namespace, database: Database) -> None:
    module, _ = read_script(options.file)
    shapes = dict(map(_shape, options.shapes))
    with Progress() as progress:
        found = tune(
            module, trials=options.trials, seconds=options.seconds, shapes=shapes,
            database=database, threads=options.threads, workers=options.workers,
            search=options.search, resume=options.resume, scheduler=options.scheduler,
            report=lambda state: progress(state_text(state)),
        )  # fmt: skip
    print(found.table())
    print(f"{found!r}; rl.compile(mod, tuned={str(found.database.path)!r}) uses it")


def state_text(state: State) -> str:
    """A line on a search that is running."""
    kernel, limits = state.kernel, state.limits
    shapes = "; ".join(filter(None, map(sizes_text, kernel.sizes)))
    name = f"{kernel.name} ({shapes})" if shapes else kernel.name
    trials = f"{state.trials} of {limits.trials} trials, {state.rate:.1f} per second"
    left = "" if limits.left is None else f", {limits.left:.0f} s left"
    return f"{name}: best {state.ratio:.2f}x, {trials}{left}"


def _shape(text: str) -> tuple[str, list[int]]:
    """A symbol's name and its values."""
    name, _, values = text.partition("=")
    found: Iterable[str] = values.split(",")
    if not name.isidentifier() or not all(v.isdecimal() for v in found):
        raise UsageError(f"--shape is a name and numbers, such as n=1,16; it is {text!r}")
    return name, [int(v) for v in found]
