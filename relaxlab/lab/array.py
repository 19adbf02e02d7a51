"""The array view: shape, statistics, a histogram, and the values of a corner as a heat map."""

from __future__ import annotations

from typing import Any

import numpy as np

from relaxlab.lab.run_values import number_text, tensor_state
from relaxlab.lab.view import View
from relaxlab.runtime.arrays import as_array

CORNER = (16, 24)
"""Rows and columns that are shown one by one."""
PIXELS = 128
"""Pixels of the picture of a whole array along an axis, at most."""


def array_view(value: Any) -> View:
    """Look at an array (NumPy's, or anything with DLPack or the array protocol).

    The values of the first `CORNER` rows and columns, the last two axes, are shown, at index 0 of
    the others, and where there are more, all of them as a picture of `PIXELS` by `PIXELS`.
    Raises ExecutionError for a dtype that programs do not have.
    """
    array = as_array(value)
    state = tensor_state(array)
    corner = array[(0,) * (array.ndim - 2)] if array.size else array
    corner = corner[tuple(slice(n) for n in CORNER[-corner.ndim :][: corner.ndim])]
    numbers = corner.reshape(-1).astype(np.float64)
    finite = numbers[np.isfinite(numbers)]
    low, high = (finite.min(), finite.max()) if finite.size else (0.0, 0.0)
    signed = bool(low < 0 < high)
    shown = zip(corner.shape, array.shape[max(array.ndim - 2, 0) :], strict=True)
    place = ["0"] * (array.ndim - 2) + [f":{n}" if n < all_ else ":" for n, all_ in shown]
    state["corner"] = {
        "name": f"values[{', '.join(place)}]" if corner.size < array.size else "values",
        "shape": list(corner.shape),
        "text": [number_text(v) for v in corner.reshape(-1)],
        "heat": _heat(numbers, low, high, signed=signed),
    }
    if array.ndim >= 2 and array.size and corner.size < array.shape[-1] * array.shape[-2]:
        state["picture"] = _picture(array[(0,) * (array.ndim - 2)])
    text = f"{state['dtype']} array of shape {array.shape}\n{array}"
    return View("array", f"array {array.shape}", state, text)


def _picture(matrix: Any) -> dict[str, Any]:
    """A matrix of any size as pixels: means of blocks of its finite elements, in rows, and their
    colours."""
    numbers = matrix.astype(np.float64)
    finite = np.isfinite(numbers)
    steps = [-(-n // PIXELS) for n in matrix.shape]
    starts = [np.arange(0, n, step) for n, step in zip(matrix.shape, steps, strict=True)]

    def summed(of: Any) -> Any:
        return np.add.reduceat(np.add.reduceat(of, starts[0], axis=0), starts[1], axis=1)

    counts = summed(finite.astype(np.float64))
    means = (summed(np.where(finite, numbers, 0.0)) / np.maximum(counts, 1)).reshape(-1)
    low, high = means.min(), means.max()
    return {
        "shape": [len(s) for s in starts], "of": list(matrix.shape), "block": steps,
        "heat": _heat(means, low, high, signed=bool(low < 0 < high)),
        "text": [number_text(v) for v in means],
    }  # fmt: skip


def _heat(numbers: Any, low: float, high: float, *, signed: bool) -> list[int]:
    """Return a colour for each number: from 0 for the smallest to 100 for the largest; of numbers
    of both signs from -100 to 100, with 0 at zero."""
    if signed:
        share = numbers / max(-low, high)
        lowest = -1.0
    else:
        share = (numbers - low) / (high - low if high > low else 1.0)
        lowest = 0.0
    clean = np.nan_to_num(share, nan=0, posinf=1, neginf=lowest)
    return [round(100 * float(h)) for h in clean]
