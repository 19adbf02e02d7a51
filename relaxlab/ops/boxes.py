"""Boxes that a detector found (`R.vision.multibox_transform_loc`, `R.vision.get_valid_counts`,
`R.vision.non_max_suppression`, `R.vision.all_class_non_max_suppression`).

Suppression looks at one box after the other; like other operators whose work depends on the data
it runs by its reference.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from relaxlab.ir import expr, graph
from relaxlab.ir.expr import PrimExpr
from relaxlab.ir.types import TensorType, TupleType, Type
from relaxlab.ops import scalar, te
from relaxlab.ops.define import (
    TypesOf,
    attr,
    common_dtype,
    define,
    expression_of,
    fail,
    params,
    require_dtype,
    takes,
    tensor_arg,
)
from relaxlab.ops.elementwise import in_float32
from relaxlab.ops.shapes import ONE, differ, simplify

Array = np.ndarray[Any, Any]
FOUR = expr.const(4)


def _ranked(call: graph.Call, tys: TypesOf, index: int, ndim: int, what: str) -> TensorType:
    ty = tensor_arg(call, tys, index)
    if ty.ndim not in (-1, ndim):
        raise fail(call, f"{what} must have {ndim} dimensions, is {ty}")
    return ty


def _same(call: graph.Call, a: PrimExpr, b: PrimExpr, what: str) -> None:
    if differ(call, a, b, what):
        raise fail(call, f"{what} differ: {a} and {b}")


# --- multibox_transform_loc -------------------------------------------------------------------


def _multibox_infer(call: graph.Call, tys: TypesOf) -> Type:
    scores = _ranked(call, tys, 0, 3, "cls_pred")
    offsets = _ranked(call, tys, 1, 2, "loc_pred")
    anchors = _ranked(call, tys, 2, 3, "anchor")
    common_dtype(call, scores, offsets, anchors)
    dtype = scores.dtype
    variances = _four(attr(call, "variances"))
    if len(variances) != 4 or not all(isinstance(v, int | float) for v in variances):
        raise fail(call, f"variances {variances} must be one number, or four")
    if offsets.shape is not None and anchors.shape is not None:
        _same(call, offsets.shape[1], anchors.shape[1] * 4, "the offsets and those of the anchors")
    if anchors.shape is not None:
        _same(call, anchors.shape[0], ONE, "the first dimension of anchor and 1")
        _same(call, anchors.shape[2], FOUR, "the last dimension of anchor and 4")
    if scores.shape is None:
        return TupleType((TensorType(None, dtype, 3),) * 2)
    batch, _, count = scores.shape
    if anchors.shape is not None:
        _same(call, anchors.shape[1], count, "the numbers of anchors and of scores")
    if offsets.shape is not None:
        _same(call, offsets.shape[0], batch, "the batch sizes of cls_pred and loc_pred")
        _same(call, offsets.shape[1], simplify(count * 4), "the offsets and four per score")
    return TupleType((TensorType((batch, count, FOUR), dtype), TensorType(scores.shape, dtype)))


def _four(variances: Any) -> tuple[Any, ...]:
    """The factors of x, y, width and height; one number stands for all."""
    return variances if isinstance(variances, tuple) else (variances,) * 4


def _multibox_emit(
    call: graph.Call, out: TupleType, scores: te.Tensor, offsets: te.Tensor, anchors: te.Tensor
) -> tuple[te.Tensor, ...]:
    batch, _, count = scores.shape
    vx, vy, vw, vh = (float(v) for v in _four(attr(call, "variances")))

    def box(b: PrimExpr, n: PrimExpr, k: PrimExpr) -> PrimExpr:
        left, top, right, bottom = (
            scalar.wide(anchors[te.ZERO, n, expr.const(c)]) for c in range(4)
        )
        dx, dy, dw, dh = (scalar.wide(offsets[b, n * 4 + c]) for c in range(4))

        def ends(low: PrimExpr, high: PrimExpr, move: PrimExpr, grow: PrimExpr) -> list[PrimExpr]:
            extent = high - low
            centre = move * extent + (low + high) * 0.5
            half = scalar.call("exp", grow) * extent * 0.5
            return [centre - half, centre + half]

        (x1, x2), (y1, y2) = (
            ends(left, right, dx * vx, dw * vw),
            ends(top, bottom, dy * vy, dh * vh),
        )
        value = scalar.piecewise(k, [expr.const(e) for e in (1, 2, 3)], [y1, x1, y2, x2])
        if attr(call, "clip"):
            value = scalar.clamp(value, expr.const(0.0, value.dtype), expr.const(1.0, value.dtype))
        return scalar.cast(value, anchors.dtype)

    boxes = te.compute((batch, count, FOUR), box, "T_boxes")
    made = expression_of("nn.softmax", scores, axis=1) if attr(call, "apply_softmax") else scores
    assert isinstance(made, te.Tensor)
    zero = expr.const(0.0, scores.dtype)

    def kept(b: PrimExpr, c: PrimExpr, n: PrimExpr) -> PrimExpr:
        value: PrimExpr = made[b, c, n]
        threshold = expr.const(float(attr(call, "threshold")), "float32")
        wide = scalar.wide(value)
        value = expr.Select(expr.GE(wide, scalar.cast(threshold, wide.dtype)), value, zero)
        if attr(call, "keep_background"):
            return value
        return expr.Select(expr.EQ(c, te.ZERO), zero, value)

    return boxes, te.compute(scores.shape, kept, "T_scores")


def _multibox(
    cls_pred: Array, loc_pred: Array, anchor: Array, *, clip: bool = False, threshold: float = 0.0,
    variances: Any = (1.0, 1.0, 1.0, 1.0), keep_background: bool = True,
    apply_softmax: bool = True,
) -> tuple[Array, Array]:  # fmt: skip
    dtype = cls_pred.dtype
    scores, offsets, anchors = (
        a.astype(scalar.accumulator_of(dtype.name)) for a in (cls_pred, loc_pred, anchor[0])
    )
    moved = offsets.reshape(len(scores), len(anchors), 4) * np.asarray(
        _four(variances), scores.dtype
    )
    low, high = anchors[:, :2], anchors[:, 2:]
    centre = moved[..., :2] * (high - low) + (low + high) / 2
    half = np.exp(moved[..., 2:]) * (high - low) / 2
    boxes = np.concatenate([(centre - half)[..., ::-1], (centre + half)[..., ::-1]], -1)
    if apply_softmax:
        scores = np.exp(scores - scores.max(1, keepdims=True))
        scores = (scores / scores.sum(1, keepdims=True)).astype(dtype)
    scores = np.where(scores >= np.float32(threshold), scores, 0)
    if not keep_background:
        scores[:, 0] = 0
    return (np.clip(boxes, 0, 1) if clip else boxes).astype(dtype), scores.astype(dtype)


define(
    "vision.multibox_transform_loc",
    params("cls_pred loc_pred anchor", clip=False, threshold=0.0, variances=(1.0, 1.0, 1.0, 1.0),
           keep_background=True, apply_softmax=True),
    _multibox_infer,
    needs=[takes("floating point")],
    emit=_multibox_emit,
    reference=_multibox,
)  # fmt: skip


# --- get_valid_counts -------------------------------------------------------------------------


def _columns(call: graph.Call, x: TensorType, **least: int) -> None:
    """Check attributes that name columns of the boxes; `coord_start` names four."""
    width = x.shape[2] if x.shape is not None else None
    if not isinstance(width, expr.IntImm):
        return
    for name, low in least.items():
        end = width.value - (3 if name == "coord_start" else 0)
        if not low <= attr(call, name) < end:
            raise fail(call, f"{name} {attr(call, name)} is not from {low} to {end - 1}")


def _valid_infer(call: graph.Call, tys: TypesOf) -> Type:
    x = _ranked(call, tys, 0, 3, "data")
    _columns(call, x, id_index=-1, score_index=0)
    if x.shape is None:
        counts, places = TensorType(None, "int32", 1), TensorType(None, "int32", 2)
        return TupleType((counts, TensorType(None, x.dtype, 3), places))
    counts, places = TensorType(x.shape[:1], "int32"), TensorType(x.shape[:2], "int32")
    return TupleType((counts, x, places))


@in_float32
def _valid_rows(data: Array, threshold: float, id_index: int, score_index: int) -> Array:
    valid = data[..., score_index] > threshold
    return valid if id_index < 0 else valid & (data[..., id_index] >= 0)


def _valid(
    data: Array, *, score_threshold: float = 0, id_index: int = 0, score_index: int = 1
) -> tuple[Array, Array, Array]:
    """Boxes that count before the others, which are -1."""
    valid = _valid_rows(data, score_threshold, id_index, score_index)
    moved, places = np.full_like(data, -1), np.full(data.shape[:2], -1, np.int32)
    for b, row in enumerate(valid):
        (at,) = np.nonzero(row)
        moved[b, : len(at)], places[b, : len(at)] = data[b, at], at
    return valid.sum(1).astype(np.int32), moved, places


define(
    "vision.get_valid_counts",
    params("data", score_threshold=0.0, id_index=0, score_index=1),
    _valid_infer,
    reference=_valid,
)


# --- non_max_suppression ----------------------------------------------------------------------


def _suppress_infer(call: graph.Call, tys: TypesOf) -> Type:
    x = _ranked(call, tys, 0, 3, "data")
    counts, places = _ranked(call, tys, 1, 1, "valid_count"), _ranked(call, tys, 2, 2, "indices")
    for i, ty in ((1, counts), (2, places)):
        require_dtype(call, ty, "int32", i)
    _columns(call, x, coord_start=0, score_index=0, id_index=-1)
    if x.shape is not None:
        batch, count, _ = x.shape
        if counts.shape is not None:
            _same(call, counts.shape[0], batch, "the batch sizes of valid_count and data")
        if places.shape is not None:
            _same(call, places.shape[0], batch, "the batch sizes of indices and data")
            _same(call, places.shape[1], count, "the numbers of indices and of boxes")
    if not attr(call, "return_indices"):
        return x if x.shape is not None else TensorType(None, x.dtype, 3)
    if x.shape is None:
        found = (TensorType(None, "int32", 2),) * 2
        data = TensorType(None, x.dtype, 3)
    else:
        found = (TensorType(x.shape[:2], "int32"), TensorType((x.shape[0], ONE), "int32"))
        data = x
    return TupleType((data, *found) if attr(call, "soft_nms_sigma") > 0 else found)


def _overlap(a: Array, b: Array) -> float:
    """The area that two boxes share over that of both, whichever of their corners come first."""
    corners = np.stack([a, b]).reshape(2, 2, 2)
    low, high = corners.min(1), corners.max(1)
    shared = float(np.maximum(high.min(0) - low.max(0), 0).prod())
    union = float((high - low).prod(1).sum()) - shared
    return shared / union if union > 0 else 0.0


def _kept(
    boxes: Array,
    scores: Array,
    classes: Array,
    limit: int,
    *,
    overlap: float,
    sigma: float = 0.0,
    least: float = -math.inf,
) -> Iterator[int]:
    """Boxes by descending score, without those that overlap a better one of their class by more
    than `overlap`. With `sigma` those that overlap less lose score (N. Bodla and others, Soft-NMS,
    2017), and go when it is not above `least`; `scores` is changed."""
    left = [int(i) for i in np.argsort(-scores, kind="stable") if scores[i] > least]
    while left and limit != 0:
        best = max(left, key=lambda i: (scores[i], -i)) if sigma else left[0]
        left.remove(best)
        yield best
        limit -= 1
        rest: list[int] = []
        for i in left:
            shared = _overlap(boxes[best], boxes[i]) if classes[i] == classes[best] else 0.0
            if sigma:
                scores[i] *= math.exp(-0.5 * shared * shared / sigma)
            rest += [i] if shared <= overlap and scores[i] > least else []
        left = rest


def _suppress(
    data: Array, valid_count: Array, indices: Array, *, max_output_size: int = -1,
    iou_threshold: float = 0.5, force_suppress: bool = False, top_k: int = -1, coord_start: int = 2,
    score_index: int = 1, id_index: int = 0, return_indices: bool = True,
    invalid_to_bottom: bool = False, soft_nms_sigma: float = 0.0, score_threshold: float = 0.0,
) -> Any:  # fmt: skip
    wide = data.astype(scalar.accumulator_of(data.dtype.name))
    result = np.full_like(data, -1)
    places = np.full(data.shape[:2], -1, np.int32)
    counts = np.zeros((len(data), 1), np.int32)
    for b, count in enumerate(valid_count):
        order = np.argsort(-wide[b, :count, score_index], kind="stable")
        order = order[:top_k] if top_k > 0 else order
        boxes = wide[b, order]
        apart = id_index >= 0 and not force_suppress
        classes = boxes[:, id_index] if apart else np.zeros(len(boxes))
        scores = boxes[:, score_index].copy()
        kept = list(_kept(
            boxes[:, coord_start : coord_start + 4], scores, classes, max_output_size,
            overlap=iou_threshold, sigma=soft_nms_sigma,
            least=score_threshold if soft_nms_sigma > 0 else -math.inf,
        ))  # fmt: skip
        counts[b] = len(kept)
        places[b, : len(kept)] = indices[b, order[kept]]
        dense = invalid_to_bottom or return_indices
        rows = np.arange(len(kept)) if dense else np.asarray(sorted(kept), np.int64)
        chosen = kept if dense else sorted(kept)
        result[b, rows] = data[b, order[chosen]]
        result[b, rows, score_index] = scores[chosen].astype(data.dtype)
    if not return_indices:
        return result
    return (result, places, counts) if soft_nms_sigma > 0 else (places, counts)


define(
    "vision.non_max_suppression",
    params("data valid_count indices", max_output_size=-1, iou_threshold=0.5, force_suppress=False,
           top_k=-1, coord_start=2, score_index=1, id_index=0, return_indices=True,
           invalid_to_bottom=False, soft_nms_sigma=0.0, score_threshold=0.0),
    _suppress_infer,
    reference=_suppress,
)  # fmt: skip


# --- all_class_non_max_suppression ------------------------------------------------------------


def _all_class_infer(call: graph.Call, tys: TypesOf) -> Type:
    boxes, scores = _ranked(call, tys, 0, 3, "boxes"), _ranked(call, tys, 1, 3, "scores")
    for i, what in ((2, "integer"), (3, "floating point"), (4, "floating point")):
        limit = tensor_arg(call, tys, i)
        require_dtype(call, limit, what, i)
        if limit.ndim not in (-1, 0, 1):
            raise fail(call, f"a limit must have one element, is {limit}")
    style = attr(call, "output_format")
    if style not in ("onnx", "tensorflow"):
        raise fail(call, f"output_format {style!r} is not known", 'use "onnx" or "tensorflow"')
    if boxes.shape is None or scores.shape is None:
        if style == "onnx":
            return TupleType((TensorType(None, "int64", 2), TensorType((ONE,), "int64")))
        return TupleType((TensorType(None, "int64", 3), TensorType(None, "float32", 2),
                          TensorType(None, "int64", 1)))  # fmt: skip
    _same(call, boxes.shape[0], scores.shape[0], "the batch sizes of boxes and scores")
    _same(call, boxes.shape[1], scores.shape[2], "the numbers of boxes and of scores")
    _same(call, boxes.shape[2], FOUR, "the last dimension of boxes and 4")
    batch, each = scores.shape[0], simplify(scores.shape[1] * boxes.shape[1])
    if style == "onnx":
        all_rows = TensorType((simplify(batch * each), expr.const(3)), "int64")
        return TupleType((all_rows, TensorType((ONE,), "int64")))
    return TupleType((
        TensorType((batch, each, expr.const(2)), "int64"), TensorType((batch, each), "float32"),
        TensorType((batch,), "int64"),
    ))  # fmt: skip


def _all_class(
    boxes: Array, scores: Array, max_output_boxes_per_class: Array, iou_threshold: Array,
    score_threshold: Array, *, output_format: str = "onnx",
) -> tuple[Array, ...]:  # fmt: skip
    batch, classes, count = scores.shape
    limit, overlap, least = (
        np.asarray(v).reshape(-1)[0]
        for v in (max_output_boxes_per_class, iou_threshold, score_threshold)
    )
    wide, areas = scores.astype(np.float32), boxes.astype(np.float32)
    found = np.zeros((batch, classes * count, 2), np.int64)
    values = np.zeros((batch, classes * count), np.float32)
    counts = np.zeros(batch, np.int64)
    for b, c in np.ndindex(batch, classes):
        options = {"overlap": float(overlap), "least": float(least)}
        for i in _kept(areas[b], wide[b, c], np.zeros(count), int(limit), **options):
            found[b, counts[b]], values[b, counts[b]] = (c, i), wide[b, c, i]
            counts[b] += 1
    if output_format == "tensorflow":
        return found, values, counts
    rows = [(b, *found[b, k]) for b in range(batch) for k in range(counts[b])]
    flat = np.zeros((batch * classes * count, 3), np.int64)
    flat[: len(rows)] = np.asarray(rows, np.int64).reshape(-1, 3)
    return flat, np.asarray([len(rows)], np.int64)


define(
    "vision.all_class_non_max_suppression",
    params("boxes scores max_output_boxes_per_class iou_threshold score_threshold",
           output_format="onnx"),
    _all_class_infer,
    reference=_all_class,
)  # fmt: skip
