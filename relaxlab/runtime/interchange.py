"""Arrays of other libraries: who passes a library's arrays is given its arrays back.

Memory is handed over by DLPack, without a copy.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

FromDlpack = Callable[[Any], Any]


def library_of(args: Sequence[Any]) -> FromDlpack | None:
    """The function that makes arrays of the library whose arrays are among the arguments; None for
    NumPy's, and where there are none. The first array of another library decides."""
    for value in args:
        if isinstance(value, np.ndarray | np.generic | int | float):
            continue
        if isinstance(value, tuple | list):
            found = library_of(value)  # type: ignore[reportUnknownArgumentType]
            if found is not None:
                return found
        elif hasattr(value, "__dlpack__"):
            return _from_dlpack(value)
    return None


def _from_dlpack(value: Any) -> FromDlpack | None:
    """The library of an array: its array namespace, or the module that its class belongs to."""
    namespace = getattr(value, "__array_namespace__", None)
    library: Any = sys.modules.get(type(value).__module__.partition(".")[0])
    return getattr(namespace() if namespace is not None else library, "from_dlpack", None)


def handed_over(result: Any, from_dlpack: FromDlpack) -> Any:
    """The result of a function with each array in it as an array of another library."""
    if isinstance(result, tuple):
        return tuple(handed_over(r, from_dlpack) for r in result)  # type: ignore[reportUnknownVariableType]
    if isinstance(result, np.ndarray) and not result.flags.writeable:
        result = result.copy()  # memory that nobody may write to cannot be handed over
    return from_dlpack(result) if hasattr(result, "__dlpack__") else result
