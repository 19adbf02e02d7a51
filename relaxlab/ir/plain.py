"""NumPy's numbers as Python's, which take the dtype of what they stand beside."""

from __future__ import annotations

from typing import Any, cast

import numpy as np


def plain(value: Any) -> Any:
    """The value with Python's numbers and lists for NumPy's numbers and arrays, also inside lists,
    tuples and dictionaries."""
    match value:
        case np.generic() if value.dtype.char == "g":  # type: ignore[reportUnknownMemberType]  # longdouble
            return float(cast("Any", value))
        case np.generic() | np.ndarray():
            return cast("Any", value).tolist()
        case list() | tuple() if type(value) in (list, tuple):  # type: ignore[reportUnknownArgumentType]
            return type(value)(map(plain, value))  # type: ignore[reportUnknownVariableType]
        case dict():
            return {k: plain(v) for k, v in value.items()}  # type: ignore[reportUnknownVariableType]
        case _:
            return value
