"""Rules that draw calls of operators on images and boxes."""

from __future__ import annotations

from relaxlab.ir import expr, graph
from relaxlab.ops import grid_sample, resize
from relaxlab.ops.define import builder
from relaxlab.testing.draw import Draw
from relaxlab.testing.draw_rules import rule, shape_expr


def _extents(d: Draw, count: int) -> list[expr.PrimExpr]:
    """Extents of small images, symbols among them."""
    symbols = [s for s in d.symbols if 1 <= d.size(s) <= 12]
    return [
        d.choice(symbols) if symbols and d.chance(0.3) else expr.const(d.choice((1, 2, 3, 5, 8)))
        for _ in range(count)
    ]


def _image(d: Draw, spatial: str, dtype: str) -> tuple[str, graph.Var]:
    """A layout, and a batch of 3 images in it."""
    order = list(f"NC{spatial}")
    if d.flag():
        d.rng.shuffle(order)
    sizes = dict(zip(f"NC{spatial}", [3, d.choice((1, 2, 4)), *_extents(d, len(spatial))],
                     strict=True))  # fmt: skip
    return "".join(order), d.new([sizes[c] for c in order], dtype)


@rule("image.resize2d", "image.resize3d")
def _resize(d: Draw, op: str) -> graph.Call:
    dims = 2 if op == "image.resize2d" else 3
    layout, x = _image(d, "DHW"[3 - dims :], d.dtype())
    low = [d.choice((0.0, 0.25)) for _ in range(dims)]
    attrs = d.some(
        method=d.choice(resize.METHODS), coordinate_transformation_mode=d.choice(resize.MODES),
        rounding_method=d.choice(resize.ROUNDINGS), cubic_alpha=d.choice((-0.5, -0.75)),
        cubic_exclude=d.choice((0, 1)), extrapolation_value=d.choice((0.0, 1.5)),
        out_dtype=d.choice(("float32", "float64", "int32")),
    )  # fmt: skip
    if attrs.get("coordinate_transformation_mode") == resize.CROP or d.flag():
        attrs["roi"] = (*low, *(v + d.choice((0.5, 1.25)) for v in low))
    else:
        attrs["roi"] = d.choice((0.0, 0.5))
    size = shape_expr(*_extents(d, dims))
    return builder(op)(x, size, layout=layout, **attrs)


@rule("image.grid_sample")
def _sample(d: Draw, op: str) -> graph.Call:
    spatial = d.choice(("W", "HW", "DHW"))
    dtype = d.dtype()
    layout, x = _image(d, spatial, dtype)
    grid = d.new((3, len(spatial), *_extents(d, len(spatial))), dtype, -1.5, 1.5)
    attrs = d.some(method=d.choice(grid_sample.METHODS), align_corners=d.flag(),
                   padding_mode=d.choice(grid_sample.PADDINGS))  # fmt: skip
    return builder(op)(x, grid, layout=layout, **attrs)


@rule("image.affine_grid")
def _affine(d: Draw, op: str) -> graph.Call:
    dims = d.choice((2, 3))
    x = d.new((d.small(), dims, dims + 1), d.dtype())
    return builder(op)(x, shape_expr(*_extents(d, dims)), **d.some(align_corners=d.flag()))


@rule("vision.roi_align", "vision.roi_pool")
def _regions(d: Draw, op: str) -> graph.Call:
    dtype = d.dtype()
    layout, x = _image(d, "HW", dtype)
    rois = d.new((d.small(), 5), dtype, -1.5, 3.9)
    attrs = {"pooled_size": (d.choice((1, 2)), d.choice((1, 3))),
             "spatial_scale": d.choice((0.5, 1.0, 3.0))}  # fmt: skip
    if op == "vision.roi_align":
        attrs |= d.some(sample_ratio=d.choice((-1, 1, 2)), aligned=d.flag(),
                        mode=d.choice(("avg", "max")))  # fmt: skip
    return builder(op)(x, rois, layout=layout, **attrs)


@rule("vision.multibox_transform_loc")
def _boxes(d: Draw, op: str) -> graph.Call:
    dtype, batch, count = d.choice(("float32", "float64")), d.small(), d.choice((1, 3, 5))
    attrs = d.some(
        clip=d.flag(), threshold=d.choice((0.0, 0.3)), keep_background=d.flag(),
        variances=d.choice((0.5, (0.1, 0.1, 0.2, 0.3))), apply_softmax=d.flag(),
    )  # fmt: skip
    scores, offsets = d.new((batch, 3, count), dtype), d.new((batch, count * 4), dtype)
    return builder(op)(scores, offsets, d.new((1, count, 4), dtype, 0, 1), **attrs)


@rule("vision.get_valid_counts")
def _valid(d: Draw, op: str) -> graph.Call:
    attrs = d.some(score_threshold=d.choice((0, 0.5)), id_index=d.choice((-1, 0, 2)),
                   score_index=d.choice((1, 3)))  # fmt: skip
    return builder(op)(d.new((d.small(), d.small(), 6), "float32"), **attrs)


@rule("vision.non_max_suppression")
def _suppression(d: Draw, op: str) -> graph.Call:
    batch, count = d.small(), d.choice((1, 3, 6))
    boxes = d.new((batch, count, 7), "float32", 0, 3)
    numbers = d.new((batch,), "int32", 0, count)
    indices = d.new((batch, count), "int32", 0, 9)
    attrs = d.some(
        max_output_size=d.choice((-1, 2)), iou_threshold=d.choice((0.1, 0.5)),
        force_suppress=d.flag(), top_k=d.choice((-1, 2)), coord_start=d.choice((2, 3)),
        score_index=d.choice((0, 1)), id_index=d.choice((-1, 0)), return_indices=d.flag(),
        invalid_to_bottom=d.flag(), soft_nms_sigma=d.choice((0.0, 0.5)),
        score_threshold=d.choice((0.0, 0.3)),
    )  # fmt: skip
    return builder(op)(boxes, numbers, indices, **attrs)


@rule("vision.all_class_non_max_suppression")
def _all_classes(d: Draw, op: str) -> graph.Call:
    batch, count = d.small(), d.choice((1, 3, 6))
    limits = (d.new((), "int64", 0, 4), d.new((1,), "float32", 0, 1), d.new((), "float32", 0, 1))
    attrs = d.some(output_format=d.choice(("onnx", "tensorflow")))
    boxes = d.new((batch, count, 4), "float32", 0, 3)
    return builder(op)(boxes, d.new((batch, 2, count), "float32", 0, 1), *limits, **attrs)
