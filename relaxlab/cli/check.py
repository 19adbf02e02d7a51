"""`relaxlab check`: compare the results of a script before and after each pass."""

from __future__ import annotations

import argparse

from relaxlab.cli.scripts import read_script
from relaxlab.runtime.check.check import check

DIFFERS = 1


def run(options: argparse.Namespace) -> int:
    """Print the report on what `FILE.py[:NAME]` defines; 1 where something differs."""
    module, name = read_script(options.file)
    report = check(
        module, name,
        target=options.target, runs=options.runs, seed=options.seed,
    )  # fmt: skip
    print(report)
    return 0 if report.ok else DIFFERS
