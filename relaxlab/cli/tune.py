"""`relaxlab tune`: search for faster schedules of a script's kernels, and keep them."""

from __future__ import annotations

import argparse
from collections.abc import Iterable

from relaxlab.cli.options import UsageError
from relaxlab.cli.progress import Progress
from relaxlab.cli.scripts import read_script
from relaxlab.tuning.tune import tune
from relaxlab.tuning.tune_kernel import State
from relaxlab.tuning.workshop import sizes_text


def run(options: argparse.Namespace) -> int:
    """Print the table of what was found; Ctrl-C ends the search with the best so far."""
    module, _ = read_script(options.file)
    shapes = dict(map(_shape, options.shapes))
    with Progress() as progress:
        found = tune(
            module, trials=options.trials, seconds=options.seconds, shapes=shapes,
            database=options.database, threads=options.threads, workers=options.workers,
            resume=options.resume, report=lambda state: progress(state_text(state)),
        )  # fmt: skip
    print(found.table())
    print(f"{found!r}; rl.compile(mod, tuned={str(found.database.path)!r}) uses it")
    return 0


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
