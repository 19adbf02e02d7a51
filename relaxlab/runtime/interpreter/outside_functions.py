"""Functions that a caller in Python passes to a program."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from relaxlab.runtime.arrays import ExecutionError, apart


@dataclass(frozen=True, slots=True)
class OutsideFunction:
    """A Python function as a value of the program. It sees its arguments read-only, and a result
    that shares memory with one of them is copied: the program knows nothing of what it does, and
    may read the arguments again or overwrite the result.

    A call raises ExecutionError for a function that writes to its arguments.
    """

    fn: Callable[..., Any]

    def __call__(self, *args: Any) -> Any:
        given = tuple(map(_read_only, args))
        try:
            result = self.fn(*given)
        except ValueError as error:
            if "read-only" not in str(error):
                raise
            name = getattr(self.fn, "__name__", repr(self.fn))
            raise ExecutionError(
                f"the function `{name}` was passed as an argument and writes to its own arguments, "
                "which the program may read again; let it work on copies"
            ) from error
        return apart(result, given)


def outside(value: Any) -> Any:
    """Return a Python function as an `OutsideFunction`, any other value unchanged."""
    known = not callable(value) or isinstance(value, OutsideFunction)
    return value if known else OutsideFunction(value)


def _read_only(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(_read_only, value))  # type: ignore[reportUnknownArgumentType]
    if not isinstance(value, np.ndarray):
        return value
    view: np.ndarray[Any, Any] = value.view()
    view.flags.writeable = False
    return view
