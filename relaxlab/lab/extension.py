"""`%load_ext relaxlab` shows arrays as views, for which NumPy has no hook, and defines
`%%relaxlab`, which shows what a cell compiles."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import numpy as np
from IPython.display import display

from relaxlab.ir.errors import UserError
from relaxlab.lab.array import array_view
from relaxlab.lab.record import Recorder
from relaxlab.lab.view import Page
from relaxlab.runtime.arrays import ExecutionError
from relaxlab.runtime.observe import observing


class InvalidCell(UserError):
    """A cell under `%%relaxlab` is not Python."""


def load(shell: Any) -> None:
    """Show arrays as views in an IPython shell, and define the cell magic."""
    shell.display_formatter.formatters["text/html"].for_type(np.ndarray, array_html)

    def magic(line: str, cell: str) -> Page | None:
        return run_recorded(shell, line, cell)

    shell.register_magic_function(magic, "cell", "relaxlab")


def unload(shell: Any) -> None:
    """Show arrays as NumPy does; the magic is gone."""
    shell.display_formatter.formatters["text/html"].pop(np.ndarray, None)
    shell.magics_manager.magics["cell"].pop("relaxlab", None)


def run_recorded(shell: Any, line: str, cell: str) -> Page | None:
    """`%%relaxlab [PAGE.html]`: run the cell and return a page of all that it compiled, which is
    also written to the file if one is named; a file that cannot be written is reported.

    An error of the cell is raised, after the page of what it compiled before is shown: so that
    "Run All" stops there.
    """
    recorder = Recorder()
    with observing(recorder), _errors_kept(shell) as shown:
        result = shell.run_cell(cell)
    page = recorder.page()
    if page is None:
        if result.success:
            print("the cell compiled nothing")
    elif line.strip():
        try:
            page.save(line.strip())
        except (OSError, ValueError) as error:
            print(error)
    error = result.error_before_exec or result.error_in_exec
    if error is None:
        return page
    if page is not None:
        display(page)
    # The shell would show a SyntaxError with the magic's frames, whatever it says of itself.
    raised = InvalidCell(str(error)) if isinstance(error, SyntaxError) else error
    raised._render_traceback_ = lambda *_: shown
    raise raised


@contextmanager
def _errors_kept(shell: Any) -> Generator[list[str]]:
    """A block in which the shell collects the lines of tracebacks instead of printing them."""
    lines: list[str] = []
    shell._showtraceback = lambda _kind, _error, text: lines.extend(text)
    try:
        yield lines
    finally:
        del shell._showtraceback  # the class's again


def array_html(array: np.ndarray[Any, Any]) -> str | None:
    """The view of an array; None (its text is shown) for dtypes that programs do not have."""
    try:
        return array_view(array).html()
    except ExecutionError:
        return None
