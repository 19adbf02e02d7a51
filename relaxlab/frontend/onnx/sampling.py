"""Rows of operators that read images at places between their elements."""

from __future__ import annotations

import itertools
from typing import Any

from relaxlab.frontend.emitter import Emitter
from relaxlab.frontend.onnx.rows import row
from relaxlab.ir import expr, graph
from relaxlab.ir.expr import PrimExpr
from relaxlab.ops import scalar, te

CUBIC = -0.75
"""The coefficient of the cubic convolution, R. Keys, Cubic convolution interpolation for digital
image processing (1981)."""


@row("GridSample")
def grid_sample(
    b: Emitter, x: graph.Expr, grid: graph.Expr, *, mode: str = "linear",
    padding_mode: str = "zeros", align_corners: int = 0, **_: Any,
) -> graph.Expr:  # fmt: skip
    """The elements at the places of a grid, whose last dimension has them from the last spatial
    dimension to the first, -1 and 1 being the ends."""
    kind = {"bilinear": "linear", "bicubic": "cubic"}.get(mode, mode)
    options = {"mode": kind, "padding": padding_mode, "align": bool(align_corners)}
    return b.te(_sampled, x, grid, **options, name="grid_sample")


def _sampled(x: te.Tensor, grid: te.Tensor, mode: str, padding: str, align: bool) -> te.Tensor:
    dims, dtype = x.ndim - 2, x.dtype

    def element(*i: PrimExpr) -> PrimExpr:
        n, c, *points = i
        taps: list[list[tuple[PrimExpr, PrimExpr]]] = []
        for d in range(dims):
            extent = x.shape[2 + d]
            size = scalar.cast(extent, dtype)
            at = scalar.cast(grid[(n, *points, expr.const(dims - 1 - d))], dtype)
            place = (at + 1.0) * 0.5 * (size - 1.0) if align else ((at + 1.0) * size - 1.0) * 0.5
            if mode != "cubic":
                place = _moved(place, size, padding, align)
            taps.append(_taps(place, mode))
        total = expr.const(0.0, dtype)
        for corner in itertools.product(*taps):
            weight: PrimExpr = expr.const(1.0, dtype)
            places: list[PrimExpr] = []
            for d, (place, share) in enumerate(corner):
                size = scalar.cast(x.shape[2 + d], dtype)
                place = _moved(place, size, padding, align) if mode == "cubic" else place
                places.append(scalar.cast(scalar.call("nearbyint", place), "int64"))
                weight = weight * share
            inside = expr.all_of(
                [t for p, e in zip(places, x.shape[2:], strict=True)
                 for t in (expr.GE(p, te.ZERO), expr.LT(p, e))]
            )  # fmt: skip
            read = scalar.if_then_else(inside, x[(n, c, *places)], expr.const(0.0, dtype))
            total = total + weight * read
        return total

    return te.compute((*x.shape[:2], *grid.shape[1:-1]), element, "T_grid_sample")


def _moved(place: PrimExpr, size: PrimExpr, padding: str, align: bool) -> PrimExpr:
    """A place outside of the image moved to its border, or mirrored there."""
    if padding == "border":
        return scalar.clamp(place, expr.const(0.0, place.dtype), size - 1.0)
    if padding != "reflection":
        return place
    low = 0.0 if align else -0.5
    span = size - 1.0 if align else size
    offset = scalar.call("abs", place - low)
    turns = scalar.call("floor", offset / span)
    rest = offset - turns * span
    even = expr.EQ(turns - scalar.call("floor", turns * 0.5) * 2.0, expr.const(0.0, place.dtype))
    mirrored = expr.Select(even, rest + low, span - rest + low)
    return scalar.clamp(mirrored, expr.const(0.0, place.dtype), size - 1.0)


def _near(d: PrimExpr) -> PrimExpr:
    """The weight of an element at most one away."""
    return ((CUBIC + 2) * d - (CUBIC + 3)) * d * d + 1.0


def _far(d: PrimExpr) -> PrimExpr:
    """The weight of an element between one and two away."""
    return ((d * CUBIC - 5 * CUBIC) * d + 8 * CUBIC) * d - 4 * CUBIC


def _taps(place: PrimExpr, mode: str) -> list[tuple[PrimExpr, PrimExpr]]:
    """The places that are read along one dimension, and their weights."""
    one = expr.const(1.0, place.dtype)
    if mode == "nearest":
        return [(scalar.call("nearbyint", place), one)]
    first = scalar.call("floor", place)
    t = place - first
    if mode == "linear":
        return [(first, one - t), (first + 1.0, t)]
    weights = (_far(t + 1.0), _near(t), _near(one - t), _far(one + 1.0 - t))
    return [(first + float(k - 1), w) for k, w in enumerate(weights)]
