"""Rows of operators that read images at places between their elements."""

from __future__ import annotations

from typing import Any

from relaxlab.frontend.emitter import Emitter, shape_of
from relaxlab.frontend.onnx.rows import row
from relaxlab.ir import graph
from relaxlab.ops.layouts import SPATIAL

METHODS = {"linear": "bilinear", "cubic": "bicubic"}


@row("GridSample")
def grid_sample(
    b: Emitter, x: graph.Expr, grid: graph.Expr, *, mode: str = "linear",
    padding_mode: str = "zeros", align_corners: int = 0, **_: Any,
) -> graph.Expr:  # fmt: skip
    """The elements at the places of a grid, whose last dimension has the coordinates."""
    dims = len(shape_of(x)) - 2
    places = b.permute_dims(grid, axes=(0, dims + 1, *range(1, dims + 1)))
    return b.grid_sample(
        x, places, method=METHODS.get(mode, mode), layout=f"NC{SPATIAL[dims]}",
        padding_mode=padding_mode, align_corners=bool(align_corners),
    )  # fmt: skip
