"""Uses of operators on images and boxes, for `check_op`."""

from __future__ import annotations

from relaxlab.ops.resize import MODES
from relaxlab.testing.op_check import OpCase, Shape, T

SIZES = ({"h": 4, "p": 7}, {"h": 5, "p": 3}, {"h": 3, "p": 1})


def resizing() -> list[OpCase]:
    """Images of another size, by every way to find an element's place."""
    op = "image.resize2d"
    data, size = T(2, 3, "h", 4), Shape("p", 5)
    cases = [
        OpCase(op, (data, size), {"method": m, "coordinate_transformation_mode": mode,
                                  "roi": (0.1, 0.2, 1.3, 0.7), "extrapolation_value": 2.0}, SIZES)
        for m in ("linear", "nearest_neighbor") for mode in MODES
    ]  # fmt: skip
    cases += [
        OpCase(op, (data, size), {"method": "nearest_neighbor", "rounding_method": r}, SIZES)
        for r in ("floor", "ceil", "round_prefer_floor", "round_prefer_ceil", "")
    ]
    cases += [
        OpCase(
            op, (data, size), {"method": "cubic", "cubic_exclude": e, "cubic_alpha": -0.5}, SIZES
        )
        for e in (0, 1)
    ]
    return [
        *cases,
        OpCase(op, (T(2, "h", 4, 3, dtype="float16"), size), {"layout": "NHWC"}, SIZES),
        OpCase(op, (T(1, 2, "h", 3, dtype="uint8", low=0, high=9), size), {"method":
               "nearest_neighbor", "out_dtype": "int32"}, SIZES),
        *(OpCase(op, (T(1, 2, "h", 3, dtype="uint8", low=low, high=256), size), {"method": m},
                 SIZES) for m in ("linear", "cubic") for low in (250, 255)),
        OpCase("image.resize3d", (T(1, 2, "h", 3, 2), Shape("p", 4, 3)), {}, SIZES),
        OpCase("image.resize3d", (T(1, "h", 2, 2, 3), Shape("p", 2, 3)),
               {"layout": "NDHWC", "method": "nearest_neighbor"}, SIZES),
    ]  # fmt: skip


def grids() -> list[OpCase]:
    """Images read at the places of a grid, and grids of such places."""
    op = "image.grid_sample"
    data, grid = T(2, 3, "h", 4), T(2, 2, "p", 3, low=-1.4, high=1.4)
    cases = [
        OpCase(op, (data, grid), {"method": method, "padding_mode": p, "align_corners": a},
               sizes)
        for method, sizes in (("bilinear", SIZES), ("bicubic", ({"h": 4, "p": 2},)))
        for p, a in (("zeros", False), ("border", True), ("reflection", False),
                     ("reflection", True))
    ]  # fmt: skip
    affine = "image.affine_grid"
    return [
        *cases,
        OpCase(op, (data, grid), {"method": "nearest"}, SIZES),
        *(OpCase(op, (data, grid), {"method": m, "padding_mode": "reflection",
                                    "align_corners": True}, ({"h": 1, "p": 2},))
          for m in ("bilinear", "nearest", "bicubic")),
        OpCase(op, (T(2, "h", 4, 3, dtype="float16"), grid), {"layout": "NHWC"}, SIZES),
        OpCase(op, (T(1, 2, 3, "h", 2), T(1, 3, 2, "p", 2, low=-1, high=1)), {"layout": "NCDHW"},
               ({"h": 3, "p": 2},)),
        OpCase(affine, (T("n", 2, 3), Shape("h", 4)), {}, ({"n": 2, "h": 3}, {"n": 1, "h": 1})),
        OpCase(affine, (T("n", 3, 4, dtype="float64"), Shape(2, "h", 3)),
               {"align_corners": False}, ({"n": 2, "h": 3},)),
    ]  # fmt: skip


def vision() -> list[OpCase]:
    """Regions in windows, boxes from offsets, and what suppression leaves of boxes."""
    rois = T("n", 5, values=(0, 1, 1, 7, 6, 1, -1, 2, 3, 9, 0, 0.5, 0, 2.25, 1.5, 1, 5, 5, 4, 4))
    # Images that the batch does not have, and one that is a fraction.
    elsewhere = T("n", 5, values=(2, 1, 1, 7, 6, -1, 1, 1, 7, 6, 1.5, 1, 1, 7, 6, -9, 1, 1, 7, 6))
    sizes = ({"n": 4},)
    data = T(2, 3, 6, 8)
    size = {"pooled_size": (2, 3), "spatial_scale": 0.75}
    cases = [
        OpCase("vision.roi_align", (data, rois), {**size, **o}, sizes)
        for o in ({}, {"aligned": True}, {"mode": "max"}, {"sample_ratio": 2, "aligned": True})
    ]  # fmt: skip
    halves = T(2, 6, 8, 3, dtype="float16"), T("n", 5, values=rois.values)
    cases += [
        OpCase("vision.roi_align", halves, {"pooled_size": 2, "spatial_scale": 1.0,
               "layout": "NHWC"}, sizes),
        OpCase("vision.roi_pool", (data, rois), size, sizes),
        OpCase("vision.roi_pool", (T(2, 3, 6, 8, dtype="int32", low=1 << 24, high=1 << 30), rois),
               size, sizes),
        *(OpCase(op, given, size, sizes)
          for op in ("vision.roi_align", "vision.roi_pool")
          for given in ((T(2, 3, 6, 8, dtype="float64"), rois), (data, elsewhere))),
    ]  # fmt: skip
    offsets, anchors = T("n", 12), T(1, 3, 4, low=0, high=1)
    multibox = "vision.multibox_transform_loc"
    cases += [
        OpCase(multibox, (T("n", 4, 3), offsets, anchors), {"threshold": 0.2, "clip": True}),
        OpCase(multibox, (T("n", 4, 3), offsets, anchors),
               {"variances": (0.1, 0.1, 0.2, 0.2), "keep_background": False,
                "apply_softmax": False}),
    ]  # fmt: skip
    return cases


def collectives() -> list[OpCase]:
    """Operators among workers, with a single one."""
    x = T("n", 4)
    return [
        OpCase("ccl.allreduce", (x,), {"op_type": "avg"}),
        OpCase("ccl.allgather", (x,), {"num_workers": 1}),
        OpCase("ccl.broadcast_from_worker0", (x,)),
        OpCase("ccl.scatter_from_worker0", (x,), {"num_workers": 1, "axis": 1}),
        OpCase("dist.redistribute_replica_to_shard", (x,), {"num_workers": 1, "axis": 0}),
    ]
