"""The command `relaxlab`. Each subcommand imports what it needs when it runs."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from relaxlab.cli.options import build_parser
from relaxlab.ir.diagnostics import DiagnosticError

INTERRUPTED = 130
FAILED = 2


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line; the exit code: 0, 2 after an error (one message on stderr), 130 after
    Ctrl-C."""
    try:
        options = build_parser().parse_args(argv)
        return _run(options)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:  # whoever reads our output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED


def _run(options: argparse.Namespace) -> int:
    try:
        return options.run(options)
    except BrokenPipeError:
        raise
    except DiagnosticError as error:
        print(str(error).lstrip("\n"), file=sys.stderr)
        return FAILED
    except (ValueError, OSError, ImportError, MemoryError) as error:
        # Bad input, a missing file or package, too large a model: the message says what to do.
        print(f"relaxlab: {_message(error)}", file=sys.stderr)
        return FAILED


def _message(error: Exception) -> str:
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        return f"{error.filename}: {error.strerror}"
    return str(error) or type(error).__name__
