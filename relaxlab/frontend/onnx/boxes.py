"""Rows of what detectors do with boxes, of distinct elements, and of caches that are written to."""

from __future__ import annotations

from typing import Any

from relaxlab.frontend.emitter import Emitter, dtype_of, shape_of
from relaxlab.frontend.known import named
from relaxlab.frontend.onnx.rows import rank, row
from relaxlab.frontend.table import Refused
from relaxlab.ir import expr, graph
from relaxlab.ir.expr import PrimExpr
from relaxlab.ir.types import TensorType
from relaxlab.ops import te


def _counted(b: Emitter, x: graph.Expr, shape: list[Any], name: str) -> graph.Expr:
    """A tensor whose extents that are None depend on data: each is a symbol of its own."""
    used = set(b.symbols.names)
    dims: list[PrimExpr] = []
    for d in shape:
        number = sum(n.startswith(name) for n in used)
        dims.append(b.symbols(f"{name}_{number}") if d is None else expr.as_expr(d))
        used.add(f"{name}_{number}")
    return b.claim(x, TensorType(tuple(dims), dtype_of(x)))


@row("NonMaxSuppression")
def non_max_suppression(
    b: Emitter, boxes: graph.Expr, scores: graph.Expr, most: Any = None, overlap: Any = None,
    least: Any = None, *, center_point_box: int = 0, **_: Any,
) -> graph.Expr:  # fmt: skip
    """Image, class and number of each box that is kept."""
    if center_point_box:
        centre, size = b.fields(b.split(boxes, 2, axis=-1))
        half = b.multiply(size, 0.5)
        boxes = b.concat([b.subtract(centre, half), b.add(centre, half)], axis=-1)
    limits = (
        b.const(0, "int64") if most is None else most,
        b.const(0.0, "float32") if overlap is None else overlap,
        b.const(float("-inf"), "float32") if least is None else least,
    )
    rows, count = b.fields(named(b, "vision.all_class_non_max_suppression", boxes, scores, *limits))
    start, steps = b.const([0, 0], "int64"), b.const([1, 1], "int64")
    end = b.concat([count, b.const([3], "int64")], axis=0)
    return _counted(b, b.dynamic_strided_slice(rows, start, end, steps), [None, 3], "selected")


@row("RoiAlign")
def roi_align(
    b: Emitter, x: graph.Expr, rois: graph.Expr, images: graph.Expr, *, mode: str = "avg",
    coordinate_transformation_mode: str = "", output_height: int = 1, output_width: int = 1,
    sampling_ratio: int = 0, spatial_scale: float = 1.0, version: int = 0, **_: Any,
) -> graph.Expr:  # fmt: skip
    """Regions are shifted by half an element from version 16 on, unless a model says otherwise."""
    if mode != "avg":
        raise Refused("the greatest of weighted elements; only their mean is there")
    usual = "half_pixel" if version >= 16 else "output_half_pixel"
    aligned = (coordinate_transformation_mode or usual) == "half_pixel"
    rois = b.subtract(rois, 0.5 / spatial_scale) if aligned else rois
    places = b.expand_dims(b.cast(images, dtype_of(rois)), axis=[1])
    return named(
        b, "vision.roi_align", x, b.concat([places, rois], axis=1),
        pooled_size=(output_height, output_width), spatial_scale=float(spatial_scale),
        sample_ratio=sampling_ratio or -1, layout="NCHW", aligned=aligned,
    )  # fmt: skip


@row("Unique")
def unique(
    b: Emitter, x: graph.Expr, *, axis: int | None = None, sorted: int = 1, **_: Any
) -> tuple[graph.Expr, ...]:
    """The distinct elements, where each is first, which one each element is, and how many."""
    if not sorted:
        raise Refused("distinct elements in the order of their appearance")
    options = {"return_index": True, "return_inverse": True, "return_counts": True}
    values, first, inverse, counts = b.fields(b.unique(x, axis=axis, **options))
    shape: list[Any] = [None] if axis is None else list(shape_of(x))
    extent = expr.const(1)
    if axis is None:
        for d in shape_of(x):
            extent = extent * d
    else:
        shape[axis % rank(x)], extent = None, shape_of(x)[axis]
    values = _counted(b, values, shape, "distinct")
    (count,) = (shape_of(values)[d] for d, e in enumerate(shape) if e is None)
    others = ((first, count), (inverse, extent), (counts, count))
    return (values, *(b.claim(t, TensorType((d,), "int64")) for t, d in others))


@row("TensorScatter")
def tensor_scatter(
    b: Emitter, cache: graph.Expr, update: graph.Expr, starts: Any = None, *, axis: int = -2,
    mode: str = "linear", **_: Any,
) -> graph.Expr:  # fmt: skip
    """The cache with an update of each element of the batch written from its start on, at the
    beginning again where it is circular and ends."""
    axis %= rank(cache)
    starts = b.zeros((shape_of(cache)[0],), dtype="int64") if starts is None else starts

    def written(cache: te.Tensor, update: te.Tensor, starts: te.Tensor) -> te.Tensor:
        def element(*i: PrimExpr) -> PrimExpr:
            at = i[axis] - starts[i[0]]
            at = at % cache.shape[axis] if mode == "circular" else at
            inside = expr.And(expr.GE(at, expr.const(0)), expr.LT(at, update.shape[axis]))
            new = update[(*i[:axis], at, *i[axis + 1 :])]
            return expr.if_then_else(inside, new, cache[i])

        return te.compute(cache.shape, element, "written")

    return b.te(written, cache, update, starts, name="written")
