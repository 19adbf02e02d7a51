"""`relaxlab explore`: a page that shows what the compiler does to a script, without a kernel."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from relaxlab.cli.options import UsageError
from relaxlab.cli.scripts import read_script
from relaxlab.ir.diagnostics import DiagnosticError
from relaxlab.ir.module import Module
from relaxlab.lab.explore import explore

WRONG = 1


def run(options: argparse.Namespace) -> int:
    """Write the page; 1 where it shows errors of the program."""
    program: Module | DiagnosticError
    try:
        program, _ = read_script(options.file)
    except DiagnosticError as error:
        print(str(error).strip(), file=sys.stderr)
        program = error
    names = [name.strip() for name in options.views.split(",") if name.strip()]
    try:
        path = explore(program, options.target, names).save(Path(options.output))
    except ValueError as error:
        raise UsageError(str(error)) from None
    print(f"{path} ({path.stat().st_size:,} bytes)")
    return WRONG if isinstance(program, DiagnosticError) else 0
