"""The command `relaxlab`. Each subcommand imports what it needs when it runs."""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Sequence

from relaxlab.cli.options import build_parser
from relaxlab.ir.diagnostics import DiagnosticError

INTERRUPTED = 130
"""The exit code after Ctrl-C, as shells have it: 128 and the number of SIGINT."""
FAILED = 2
"""The exit code of a command that could not do its work, which argparse uses, too."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line and return the exit code: 0, 2 after an error (one message on stderr), 130
    after Ctrl-C. Bugs of relaxlab raise."""
    _prepare_streams()
    try:
        options = build_parser().parse_args(argv)
        return _run(options)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:  # whoever reads our output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED


def _prepare_streams() -> None:
    """Let a closed standard input be an empty one, and characters that the terminal's encoding
    lacks be written as escapes."""
    if sys.stdin is None:
        sys.stdin = open(os.devnull, encoding="utf-8")  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")


def _run(options: argparse.Namespace) -> int:
    try:
        return options.run(options)
    except DiagnosticError as error:
        print(str(error).lstrip("\n"), file=sys.stderr)
        return FAILED
    except Exception as error:
        if isinstance(error, BrokenPipeError) or not _is_expected(error):
            raise
        print(f"relaxlab: {_message(error)}", file=sys.stderr)
        return FAILED


def _is_expected(error: Exception) -> bool:
    """True if the message is for who runs the command. The classes of our own are all raised on
    purpose and say what to do; of the others, only a missing file or package, too little memory
    or a text that is not UTF-8 are not bugs."""
    ours = type(error).__module__.partition(".")[0] == "relaxlab"
    return ours or isinstance(error, OSError | ImportError | MemoryError | UnicodeDecodeError)


def _message(error: Exception) -> str:
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        return f"{error.filename}: {error.strerror}"
    return str(error) or type(error).__name__
