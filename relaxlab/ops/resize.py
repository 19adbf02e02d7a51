"""Images of another size (`R.image.resize2d`, `R.image.resize3d`).

The place of a new element among the old ones is a fraction of integers, so that rounding it is
exact for any extents; only regions (`tf_crop_and_resize`) are given in floating point.

Integers between which is interpolated are computed in float64 and truncated, as TVM does. What
rounding alone keeps from an integer is that integer (`_truncated`): an image of one colour stays
of that colour. What a cubic goes beyond the range of the result's type is cut off.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np

from relaxlab.ir import expr, graph
from relaxlab.ir.dtypes import is_float
from relaxlab.ir.expr import PrimExpr
from relaxlab.ir.types import ShapeType, TensorType, Type
from relaxlab.ops import scalar, te
from relaxlab.ops.define import (
    TypesOf,
    attr,
    define,
    fail,
    params,
    takes,
    tensor_arg,
)
from relaxlab.ops.layouts import SPATIAL, Layout, from_plain, layout_attr, to_plain
from relaxlab.ops.shapes import ONE, Shape, impossible

Array = np.ndarray[Any, Any]

METHODS = ("nearest_neighbor", "linear", "cubic")
MODES = ("half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel",
         "tf_half_pixel_for_nn", "tf_crop_and_resize")  # fmt: skip
ROUNDINGS = ("", "round", "floor", "ceil", "round_prefer_floor", "round_prefer_ceil")
CROP = "tf_crop_and_resize"
STEPS = float(2**20)
"""Steps between two integers to which an interpolated value is rounded before it is truncated: far
coarser than the rounding errors of float64, finer than what weights of common images differ by."""


# --- Types ------------------------------------------------------------------------------------


def shape_of_size(call: graph.Call, tys: TypesOf, dims: int) -> Shape | None:
    """The extents that the argument `size` gives; None where they are not known."""
    ty = tys[1] if len(tys) > 1 else None
    if not isinstance(ty, ShapeType) or ty.ndim not in (-1, dims):
        raise fail(call, f"size must be a shape of {dims} dimensions, is {ty}")
    return ty.values


def _choice(call: graph.Call, name: str, among: Sequence[str]) -> str:
    value = attr(call, name)
    if value not in among:
        raise fail(call, f"{name} {value!r} is not known", f"use one of {', '.join(among)}")
    return value


def _infer(call: graph.Call, tys: TypesOf, dims: int) -> Type:
    x, size = tensor_arg(call, tys, 0), shape_of_size(call, tys, dims)
    layout = layout_attr(call, "layout", f"NC{SPATIAL[dims]}")
    _choice(call, "method", METHODS)
    _choice(call, "rounding_method", ROUNDINGS)
    if _choice(call, "coordinate_transformation_mode", MODES) == CROP:
        _region(call, dims)
    if x.ndim not in (-1, layout.ndim):
        raise fail(call, f"data must have {layout.ndim} dimensions, is {x}")
    dtype = attr(call, "out_dtype") or x.dtype
    if x.shape is None or size is None:
        return TensorType(None, dtype, layout.ndim)
    batch, channels, *old = layout.sizes(call, x.shape)
    require_image(call, old)
    return TensorType(layout.shape(call, (batch, channels, *size)), dtype)


def require_image(call: graph.Call, extents: Sequence[PrimExpr]) -> None:
    """Raise, or check before the call runs, that an image has elements to read."""
    for extent in extents:
        claim = f"an image with an extent of {extent} has no elements to read"
        if impossible(call, expr.GT(extent, te.ZERO), claim):
            raise fail(call, claim)


def _region(call: graph.Call, dims: int) -> tuple[tuple[float, float], ...]:
    """Start and end along each dimension of what is resized, as parts of the image."""
    roi = attr(call, "roi")
    items = roi if isinstance(roi, tuple) else (roi,) * (2 * dims)
    if len(items) != 2 * dims or not all(isinstance(r, int | float) for r in items):
        raise fail(call, f"roi {roi} must be {2 * dims} numbers: all starts, then all ends")
    return tuple(zip(items[:dims], items[dims:], strict=True))


# --- Loops ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Place:
    """A place between elements: behind `base` by `rest / whole`, which is less than 1."""

    base: PrimExpr
    rest: PrimExpr
    whole: PrimExpr

    def part(self, dtype: str) -> PrimExpr:
        return scalar.cast(self.rest, dtype) / scalar.cast(self.whole, dtype)


def _ratio(mode: str, i: PrimExpr, old: PrimExpr, new: PrimExpr) -> tuple[PrimExpr, PrimExpr]:
    """Numerator and denominator of the place of the new element `i`."""
    match mode:
        case "align_corners":
            return i * (old - 1), expr.binary(expr.Max, new - 1, ONE)
        case "asymmetric":
            return i * old, new
        case "tf_half_pixel_for_nn":
            return (i * 2 + 1) * old, new * 2
        case "pytorch_half_pixel":
            half = (i * 2 + 1) * old - new
            return expr.Select(expr.GT(new, ONE), half, te.ZERO), new * 2
        case _:
            return (i * 2 + 1) * old - new, new * 2


def _cropped(i: PrimExpr, old: PrimExpr, new: PrimExpr, start: float, end: float) -> PrimExpr:
    """The place of the new element `i` of a region, in floating point."""
    last = scalar.cast(old - 1, "float32")
    steps = scalar.cast(expr.binary(expr.Max, new - 1, ONE), "float32")
    along = last * start + scalar.cast(i, "float32") * (last * (end - start)) / steps
    return expr.Select(expr.GT(new, ONE), along, last * (0.5 * (start + end)))


def _nearest(place: _Place, rounding: str, mode: str) -> PrimExpr:
    up = {
        "ceil": expr.GT(place.rest, expr.const(0, place.rest.dtype)),
        "round_prefer_floor": expr.GT(place.rest * 2, place.whole),
        "round": expr.GE(place.rest * 2, place.whole),
        "round_prefer_ceil": expr.GE(place.rest * 2, place.whole),
    }
    chosen = rounding or ("round" if mode == "align_corners" else "floor")
    return place.base + scalar.cast(up[chosen], "int64") if chosen in up else place.base


def cubic_weights(t: PrimExpr, a: float) -> tuple[PrimExpr, ...]:
    """The weights of the elements at -1, 0, 1 and 2 for a place at `t` (R. Keys, Cubic convolution
    interpolation for digital image processing, 1981)."""
    one = expr.const(1.0, t.dtype)

    def near(d: PrimExpr) -> PrimExpr:
        return (d * (a + 2) - (a + 3)) * d * d + 1.0

    def far(d: PrimExpr) -> PrimExpr:
        return ((d * a - 5 * a) * d + 8 * a) * d - 4 * a

    return far(t + 1.0), near(t), near(one - t), far(one + 1.0 - t)


def _taps(
    call: graph.Call, place: _Place, old: PrimExpr, dtype: str
) -> list[tuple[PrimExpr, PrimExpr | None]]:
    """The elements that are read along a dimension, and their weights; None is the weight 1."""
    method = attr(call, "method")

    def inside(p: PrimExpr) -> PrimExpr:
        return scalar.clamp(p, te.ZERO, old - 1)

    if method == "nearest_neighbor":
        mode = attr(call, "coordinate_transformation_mode")
        return [(inside(_nearest(place, attr(call, "rounding_method"), mode)), None)]
    t = place.part(dtype)
    if method == "linear":
        return [(inside(place.base), expr.const(1.0, dtype) - t), (inside(place.base + 1), t)]
    places = [place.base + k for k in (-1, 0, 1, 2)]
    weights = list(cubic_weights(t, attr(call, "cubic_alpha")))
    if attr(call, "cubic_exclude"):
        zero = expr.const(0.0, dtype)
        weights = [
            expr.Select(scalar.within([p], [old]), w, zero)
            for p, w in zip(places, weights, strict=True)
        ]
        total = weights[0] + weights[1] + weights[2] + weights[3]
        weights = [w / total for w in weights]
    return [(inside(p), w) for p, w in zip(places, weights, strict=True)]


def _emit(call: graph.Call, out: TensorType, x: te.Tensor, size: Shape, dims: int) -> te.Tensor:
    assert out.shape is not None and out.dtype is not None
    layout = layout_attr(call, "layout", f"NC{SPATIAL[dims]}")
    old = layout.sizes(call, x.shape)[2:]
    mode = attr(call, "coordinate_transformation_mode")
    nearest = attr(call, "method") == "nearest_neighbor"
    integers = not is_float(out.dtype) and not nearest
    dtype = "float64" if integers or x.dtype == "float64" else "float32"
    regions = _region(call, dims) if mode == CROP else ()

    def element(*i: PrimExpr) -> PrimExpr:
        n, c, *new = layout.take(i)
        taps: list[list[tuple[PrimExpr, PrimExpr | None]]] = []
        inside: list[PrimExpr] = []
        for d, (at, o, s) in enumerate(zip(new, old, size, strict=True)):
            if mode == CROP:
                along = _cropped(at, o, s, *regions[d])
                base = scalar.call("floor", along)
                place = _Place(scalar.cast(base, "int64"), along - base, expr.const(1.0))
                last = scalar.cast(o - 1, "float32")
                inside += [expr.GE(along, expr.const(0.0)), expr.LE(along, last)]
            else:
                above, below = _ratio(mode, at, o, s)
                place = _Place(above // below, above % below, below)
            taps.append(_taps(call, place, o, dtype))
        value = _weighted(x, layout, (n, c), taps, dtype)
        if inside:
            fill = expr.const(float(attr(call, "extrapolation_value")), value.dtype)
            value = expr.if_then_else(expr.all_of(inside), value, fill)
        if integers:
            value = scalar.clamp(_truncated(value), *_range(out.dtype or x.dtype))
        return scalar.cast(value, out.dtype or x.dtype)

    return te.compute(out.shape, element, f"T_resize{dims}d")


def _range(dtype: str) -> tuple[float, float]:
    """The least and the greatest integer of a type."""
    info = np.iinfo(dtype)
    return float(info.min), float(info.max)


def _truncated(value: PrimExpr) -> PrimExpr:
    """A float64 without its fraction, rounding errors aside."""
    return scalar.call("trunc", scalar.call("nearbyint", value * STEPS) / STEPS)


def _weighted(
    x: te.Tensor, layout: Layout, outer: Shape, taps: Sequence[Sequence[Any]], dtype: str
) -> PrimExpr:
    """The sum of the elements at all combinations of taps, each times its weights."""
    terms: list[PrimExpr] = []
    for corner in itertools.product(*taps):
        value: PrimExpr = x[layout.put((*outer, *(p for p, _ in corner)))]
        if corner[0][1] is None:
            return value
        term = scalar.cast(value, dtype)
        for _, weight in corner:
            term = term * weight
        terms.append(term)
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    return total


# --- In NumPy ---------------------------------------------------------------------------------


def _matrix(
    old: int, new: int, region: tuple[float, float] | None, attrs: dict[str, Any]
) -> tuple[Array, Array]:
    """The weights (new, old) along one dimension, and which new elements lie outside."""
    mode = attrs.get("coordinate_transformation_mode", "half_pixel")
    matrix, outside = np.zeros((new, old)), np.zeros(new, bool)
    for i in range(new):
        at = _coordinate(mode, i, old, new, region)
        outside[i] = region is not None and not 0 <= at <= old - 1
        for place, weight in _shares(at, old, mode, attrs):
            matrix[i, min(max(place, 0), old - 1)] += weight
    return matrix, outside


def _coordinate(
    mode: str, i: int, old: int, new: int, region: tuple[float, float] | None
) -> Fraction | float:
    if region is not None:
        # As the loops compute it, in float32: a place may be on the edge of the image.
        start, end = region
        last = np.float32(old - 1)
        if new == 1:
            return float(last * np.float32(0.5 * (start + end)))
        step = np.float32(i) * (last * np.float32(end - start)) / np.float32(new - 1)
        return float(last * np.float32(start) + step)
    match mode:
        case "align_corners":
            return Fraction(i * (old - 1), max(new - 1, 1))
        case "asymmetric":
            return Fraction(i * old, new)
        case "tf_half_pixel_for_nn":
            return Fraction((2 * i + 1) * old, 2 * new)
        case "pytorch_half_pixel" if new == 1:
            return Fraction(0)
        case _:
            return Fraction((2 * i + 1) * old - new, 2 * new)


def _shares(
    at: Fraction | float, old: int, mode: str, attrs: dict[str, Any]
) -> list[tuple[int, float]]:
    base = math.floor(at)
    t = float(at - base)
    match attrs.get("method", "linear"):
        case "nearest_neighbor":
            rounding = attrs.get("rounding_method", attrs["rounding"])
            rounding = rounding or ("round" if mode == "align_corners" else "floor")
            up = {"floor": False, "ceil": t > 0, "round_prefer_floor": t > 0.5}
            return [(base + up.get(rounding, t >= 0.5), 1.0)]
        case "linear":
            return [(base, 1 - t), (base + 1, t)]
        case _:
            a = attrs.get("cubic_alpha", -0.75)
            shares = [(base + k, cubic_share(abs(t - k), a)) for k in (-1, 0, 1, 2)]
            if attrs.get("cubic_exclude", 0):
                shares = [(p, w) for p, w in shares if 0 <= p < old]
                total = np.float64(sum(w for _, w in shares))  # 0 far outside: NaN
                shares = [(p, w / total) for p, w in shares]
            return shares


def cubic_share(x: float, a: float) -> float:
    """The weight of an element at a distance of up to 2; see `cubic_weights`."""
    if x <= 1:
        return ((a + 2) * x - (a + 3)) * x * x + 1
    return (((x - 5) * x + 8) * x - 4) * a


def _reference(data: Array, size: tuple[int, ...], *, dims: int, **attrs: Any) -> Array:
    letters = f"NC{SPATIAL[dims]}"
    layout = attrs.get("layout") or letters
    x = to_plain(data, layout, letters)
    roi: Any = attrs.get("roi")
    items: tuple[float, ...] = roi if isinstance(roi, tuple) else (roi,) * (2 * dims)
    crop = attrs.get("coordinate_transformation_mode") == CROP
    attrs["rounding"] = "round" if dims == 2 else ""
    outside = np.zeros(size, bool)
    nearest = attrs.get("method") == "nearest_neighbor"
    result = x if nearest else x.astype(np.float64)
    for d, new in enumerate(size):
        region = (items[d], items[dims + d]) if crop else None
        matrix, off = _matrix(x.shape[2 + d], new, region, attrs)
        result = np.moveaxis(np.tensordot(result, matrix.T, (2 + d, 0)), -1, 2 + d)
        outside |= off.reshape([-1 if k == d else 1 for k in range(dims)])
    result = np.where(outside, attrs.get("extrapolation_value", 0.0), result)
    dtype = np.dtype(attrs.get("out_dtype") or data.dtype)
    if not (nearest or is_float(dtype.name)):
        result = np.clip(np.trunc(np.rint(result * STEPS) / STEPS), *_range(dtype.name))
    return from_plain(result, layout, letters).astype(dtype)


for _dims, _rounding in ((2, "round"), (3, "")):
    define(
        f"image.resize{_dims}d",
        params(
            "data size", roi=None, layout=f"NC{SPATIAL[_dims]}", method="linear",
            coordinate_transformation_mode="half_pixel", rounding_method=_rounding,
            cubic_alpha=-0.75, cubic_exclude=0, extrapolation_value=0.0, out_dtype=None,
        ),
        partial(_infer, dims=_dims),
        needs=[takes("a number")],
        emit=partial(_emit, dims=_dims),
        reference=partial(_reference, dims=_dims),
    )  # fmt: skip
