"""`%load_ext relaxlab`: arrays show themselves, too, which they do not know how to do alone."""

from __future__ import annotations

from typing import Any

import numpy as np

from relaxlab.lab.array import array_view
from relaxlab.runtime.arrays import ExecutionError


def load(shell: Any) -> None:
    """Show arrays as views in an IPython shell."""
    shell.display_formatter.formatters["text/html"].for_type(np.ndarray, array_html)


def unload(shell: Any) -> None:
    """Show arrays as NumPy does."""
    shell.display_formatter.formatters["text/html"].pop(np.ndarray, None)


def array_html(array: np.ndarray[Any, Any]) -> str | None:
    """The view of an array; None (its text is shown) for dtypes that programs do not have."""
    try:
        return array_view(array).html()
    except ExecutionError:
        return None
