"""The weights by which ONNX's Resize makes an element of several old ones, along one axis."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from relaxlab.frontend.known import Array


def weights_of(
    before: int, after: int, scale: float, region: tuple[float, float], *,
    mode: str = "nearest", coordinate_transformation_mode: str = "half_pixel",
    nearest_mode: str = "round_prefer_floor", cubic_coeff_a: float = -0.75, antialias: int = 0,
    exclude_outside: int = 0, **_: Any,
) -> tuple[Array, Array] | None:  # fmt: skip
    """A matrix (after, before) of float64, and which new elements lie outside of the old ones; None
    where nothing changes. The definitions are those of the operator's documentation."""
    if before == after and scale == 1 and coordinate_transformation_mode != "tf_crop_and_resize":
        return None
    matrix, outside = np.zeros((after, before)), np.zeros(after, bool)
    for i in range(after):
        at = _coordinate(i, before, after, scale, region, coordinate_transformation_mode)
        outside[i] = coordinate_transformation_mode == "tf_crop_and_resize" and not (
            0 <= at <= before - 1
        )
        if mode == "nearest":
            place = _nearest(at, nearest_mode)
            matrix[i, min(max(place, 0), before - 1)] = 1.0
            continue
        narrow = min(scale, 1.0) if antialias else 1.0
        reach = (1 if mode == "linear" else 2) / narrow
        places = range(math.floor(at - reach) + 1, math.ceil(at + reach))
        if mode == "linear":
            weights = [max(1 - abs(p - at) * narrow, 0.0) for p in places]
        else:
            weights = [_cubic((p - at) * narrow, cubic_coeff_a) for p in places]
        inside = [0 <= p < before for p in places]
        if exclude_outside:
            weights = [w if ok else 0.0 for w, ok in zip(weights, inside, strict=True)]
        total = sum(weights)
        for p, w in zip(places, weights, strict=True):
            matrix[i, min(max(p, 0), before - 1)] += w / total
    return matrix, outside


def _coordinate(
    i: int, before: int, after: int, scale: float, region: tuple[float, float], mode: str
) -> float:
    width = before * scale  # which need not be the whole number of new elements
    match mode:
        case "asymmetric":
            return i / scale
        case "align_corners":
            return 0.0 if width == 1 else i * (before - 1) / (width - 1)
        case "pytorch_half_pixel":
            return (i + 0.5) / scale - 0.5 if after > 1 else 0.0
        case "half_pixel_symmetric":
            # The centre stays where it is if the number of new elements was rounded.
            adjustment = after / width
            offset = before / 2 * (1 - adjustment)
            return offset + (i + 0.5) / scale - 0.5
        case "tf_crop_and_resize":
            start, end = region
            if after == 1:
                return 0.5 * (start + end) * (before - 1)
            return start * (before - 1) + i * (end - start) * (before - 1) / (width - 1)
        case _:
            return (i + 0.5) / scale - 0.5


def _nearest(at: float, mode: str) -> int:
    match mode:
        case "floor":
            return math.floor(at)
        case "ceil":
            return math.ceil(at)
        case "round_prefer_ceil":
            return math.floor(at + 0.5)
        case _:
            return math.ceil(at - 0.5)


def _cubic(distance: float, a: float) -> float:
    x = abs(distance)
    if x <= 1:
        return ((a + 2) * x - (a + 3)) * x * x + 1
    return (((x - 5) * x + 8) * x - 4) * a if x < 2 else 0.0
