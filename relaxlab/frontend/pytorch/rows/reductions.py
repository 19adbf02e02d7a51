"""Reductions, scans, sorting."""

from __future__ import annotations

from typing import Any

from relaxlab.frontend.emitter import Emitter, Tensor, dtype_of, shape_of
from relaxlab.frontend.pytorch.rows.elementwise import converted, out_dtype, truth
from relaxlab.frontend.pytorch.rows.shapes import out_shape
from relaxlab.frontend.pytorch.rows.table import row
from relaxlab.frontend.table import Refused
from relaxlab.ir import expr
from relaxlab.ir.dtypes import is_float
from relaxlab.ir.expr import PrimExpr

Axes = Any
"""None or an empty list (all dimensions), an int, or a list of ints."""


def axes_of(x: Tensor, dim: Axes) -> Any:
    """The axes of an operator of relaxlab."""
    if dim is None or (isinstance(dim, list) and not dim):
        return None
    return dim


def reduced(b: Emitter, op: str, x: Tensor, dim: Axes, keepdim: bool) -> Tensor:
    if not shape_of(x):  # PyTorch lets a number be reduced along dimension 0
        x = b.reshape(x, (1,))
        dim, keepdim = None, False
    return getattr(b, op)(x, axis=axes_of(x, dim), keepdims=keepdim)


def sum_like(name: str, op: str, *overloads: str) -> None:
    def emit(b: Emitter, x: Tensor, dim: Axes = None, keepdim: bool = False, **_: Any) -> Tensor:
        return reduced(b, op, converted(b, x, out_dtype(b)), dim, keepdim)

    for overload in overloads:
        row(f"aten.{name}.{overload}", emit)


sum_like("sum", "sum", "default", "dim_IntList")
sum_like("mean", "mean", "default", "dim")
sum_like("prod", "prod", "default", "dim_int")


def extreme(name: str, op: str, *overloads: str) -> None:
    def emit(b: Emitter, x: Tensor, dim: Axes = None, keepdim: bool = False) -> Tensor:
        return extremum(b, op, x, dim, keepdim)

    for overload in overloads:
        row(f"aten.{name}.{overload}", emit)


def extremum(b: Emitter, op: str, x: Tensor, dim: Axes, keepdim: bool) -> Tensor:
    """The largest or smallest element; of bools as integers."""
    if dtype_of(x) != "bool":
        return reduced(b, op, x, dim, keepdim)
    return b.cast(reduced(b, op, b.cast(x, "int8"), dim, keepdim), "bool")


extreme("amax", "max", "default")
extreme("amin", "min", "default")
extreme("max", "max", "default")
extreme("min", "min", "default")


@row("aten.any.default", "aten.any.dim", "aten.any.dims")
def any_(b: Emitter, x: Tensor, dim: Axes = None, keepdim: bool = False) -> Tensor:
    return converted(b, extremum(b, "max", truth(b, x), dim, keepdim), out_dtype(b))


@row("aten.all.default", "aten.all.dim", "aten.all.dims")
def all_(b: Emitter, x: Tensor, dim: Axes = None, keepdim: bool = False) -> Tensor:
    return converted(b, extremum(b, "min", truth(b, x), dim, keepdim), out_dtype(b))


def place(b: Emitter, op: str, x: Tensor, dim: int | None, keepdim: bool) -> Tensor:
    """The index of the largest or smallest element, in the flattened tensor without `dim`."""
    if dtype_of(x) == "bool":
        x = b.cast(x, "int8")
    if not shape_of(x):
        x, dim, keepdim = b.reshape(x, (1,)), 0, False
    return b.cast(getattr(b, op)(x, axis=dim, keepdims=keepdim), "int64")


row("aten.argmax.default", lambda b, x, dim=None, keep=False: place(b, "argmax", x, dim, keep))
row("aten.argmin.default", lambda b, x, dim=None, keep=False: place(b, "argmin", x, dim, keep))


def extremum_and_place(b: Emitter, op: str, x: Tensor, dim: int, keepdim: bool) -> Any:
    return extremum(b, op, x, dim, keepdim), place(b, f"arg{op}", x, dim, keepdim)


row("aten.max.dim", lambda b, x, dim, keep=False: extremum_and_place(b, "max", x, dim, keep))
row("aten.min.dim", lambda b, x, dim, keep=False: extremum_and_place(b, "min", x, dim, keep))


def variance(b: Emitter, x: Tensor, dim: Axes, correction: float | None, keepdim: bool) -> Tensor:
    """The variance, divided by the number of elements less `correction` (1 unless given)."""
    shape, correction = shape_of(x), 1 if correction is None else correction
    value = reduced(b, "variance", x, dim, keepdim)
    if correction == 0:
        return value
    axes = axes_of(x, dim)
    axes = range(len(shape)) if axes is None else [axes] if isinstance(axes, int) else axes
    count: PrimExpr = expr.const(1)
    for a in axes if shape else ():
        count = count * shape[a]
    number = b.scalar(count, dtype_of(x))
    fewer = b.maximum(b.subtract(number, float(correction)), 0.0)
    return b.multiply(value, b.divide(number, fewer))


@row("aten.var.correction")
def var_correction(
    b: Emitter, x: Tensor, dim: Axes = None, correction: Any = None, keepdim: bool = False
) -> Tensor:
    return variance(b, x, dim, correction, keepdim)


@row("aten.var.dim")
def var_dim(
    b: Emitter, x: Tensor, dim: Axes, unbiased: bool = True, keepdim: bool = False
) -> Tensor:
    return variance(b, x, dim, int(unbiased), keepdim)


@row("aten.std.correction")
def std_correction(
    b: Emitter, x: Tensor, dim: Axes = None, correction: Any = None, keepdim: bool = False
) -> Tensor:
    return b.sqrt(variance(b, x, dim, correction, keepdim))


@row("aten.var_mean.correction")
def var_mean(
    b: Emitter, x: Tensor, dim: Axes = None, correction: Any = None, keepdim: bool = False
) -> Any:
    return variance(b, x, dim, correction, keepdim), reduced(b, "mean", x, dim, keepdim)


# --- Scans and sorting --------------------------------------------------------------------------


def scan(name: str) -> None:
    def emit(b: Emitter, x: Tensor, dim: int, **_: Any) -> Tensor:
        x = converted(b, x, out_dtype(b))
        return getattr(b, name)(x, axis=dim) if shape_of(x) else x

    row(f"aten.{name}.default", emit)


scan("cumsum")
scan("cumprod")


def running(name: str, reaches: str) -> None:
    """The largest or least elements so far, and where the last of them is."""

    def emit(b: Emitter, x: Tensor, dim: int) -> Any:
        if not shape_of(x):
            return x, b.scalar(0, "int64")
        values = getattr(b, name)(x, axis=dim)
        places = place_along(b, x, dim)
        found = getattr(b, reaches)(x, values)
        if is_float(dtype_of(x)):
            found = b.logical_or(found, b.isnan(x))
        return values, b.cummax(b.where(found, places, b.const(0, "int64")), axis=dim)

    row(f"aten.{name}.default", emit)


def place_along(b: Emitter, x: Tensor, dim: int) -> Tensor:
    """The index of each element in a dimension."""
    shape = shape_of(x)
    dim %= len(shape)
    places = b.arange(0, shape[dim], 1, dtype="int64")
    ones = (1,) * len(shape)
    return b.reshape(places, (*ones[:dim], shape[dim], *ones[dim + 1 :]))


running("cummax", "greater_equal")
running("cummin", "less_equal")


@row("aten.sort.default", "aten.sort.stable")
def sort(b: Emitter, x: Tensor, dim: int = -1, descending: bool = False, stable: Any = None) -> Any:
    if not shape_of(x):
        return x, b.scalar(0, "int64")
    keys = b.cast(x, "int8") if dtype_of(x) == "bool" else x
    order = b.argsort(keys, axis=dim, descending=descending, dtype="int64")
    return b.gather_elements(x, order, axis=dim), order


@row("aten.topk.default")
def topk(
    b: Emitter, x: Tensor, k: Any, dim: int = -1, largest: bool = True, sorted: bool = True
) -> Any:
    if not isinstance(k, int):
        raise Refused(f"its k depends on symbols: {k}")
    if not shape_of(x):
        return x, b.scalar(0, "int64")
    return b.topk(x, k=k, axis=dim, largest=largest, dtype="int64")


@row("aten.logcumsumexp.default")
def logcumsumexp(b: Emitter, x: Tensor, dim: int) -> Tensor:
    """The logarithm of the running sum of exponentials, less the largest of all."""
    if not shape_of(x):
        return x
    top = b.max(x, axis=dim, keepdims=True)
    top = b.where(b.isfinite(top), top, 0.0)
    return b.add(b.log(b.cumsum(b.exp(b.subtract(x, top)), axis=dim)), top)


@row("aten.kthvalue.default")
def kthvalue(b: Emitter, x: Tensor, k: PrimExpr | int, dim: int = -1, keepdim: bool = False) -> Any:
    """The k-th smallest element along a dimension, and its place."""
    if not shape_of(x):
        return x, b.scalar(0, "int64")
    order = b.argsort(x, axis=dim, dtype="int64")
    place = b.take(order, expr.as_expr(k - 1), axis=dim)
    at = b.expand_dims(place, axis=dim)
    value = b.gather_elements(x, at, axis=dim)
    return (value, at) if keepdim else (b.squeeze(value, axis=dim), place)


@row("aten.median.dim")
def median_along(b: Emitter, x: Tensor, dim: int, keepdim: bool = False) -> Any:
    """The lower of the two middle elements along a dimension, and its place."""
    count = shape_of(x)[dim] if shape_of(x) else expr.const(1)
    return kthvalue(b, x, (count + 1) // 2, dim, keepdim)


@row("aten.median.default")
def median(b: Emitter, x: Tensor) -> Tensor:
    """The lower of the two middle elements."""
    flat = b.flatten(x)
    (count,) = shape_of(flat)
    return b.take(b.sort(flat), (count - 1) // 2, axis=0)


@row("aten.nanmedian.dim")
def nanmedian_along(b: Emitter, x: Tensor, dim: int, keepdim: bool = False) -> Any:
    """The lower of the two middle numbers along a dimension, and its place; NaN where there is no
    number. Sorting puts NaN behind numbers."""
    if not shape_of(x):
        return x, b.scalar(0, "int64")
    count = b.sum(b.cast(b.logical_not(b.isnan(x)), "int64"), axis=dim, keepdims=True)
    middle = b.floor_divide(b.subtract(b.maximum(count, b.const(1, "int64")), 1), 2)
    order = b.argsort(x, axis=dim, dtype="int64")
    at = b.gather_elements(order, middle, axis=dim)
    found = b.gather_elements(x, at, axis=dim), at
    return found if keepdim else tuple(b.squeeze(t, axis=dim) for t in found)


@row("aten.nanmedian.default")
def nanmedian(b: Emitter, x: Tensor) -> Tensor:
    return nanmedian_along(b, b.flatten(x), 0)[0]


@row("aten.mode.default")
def mode(b: Emitter, x: Tensor, dim: int = -1, keepdim: bool = False) -> Any:
    """The element that is there most often along a dimension, the least of several, and a place."""
    if not shape_of(x):
        return x, b.scalar(0, "int64")
    dim %= len(shape_of(x))
    order = b.argsort(x, axis=dim, dtype="int64")
    sorted_ = b.gather_elements(x, order, axis=dim)
    same = b.equal(b.expand_dims(sorted_, axis=dim), b.expand_dims(sorted_, axis=dim + 1))
    often = b.sum(b.cast(same, "int32"), axis=dim + 1)
    first = b.argmax(often, axis=dim, keepdims=True)  # the first of the least one
    last = b.subtract(b.add(b.cast(first, "int64"), b.cast(b.max(often, axis=dim, keepdims=True),
                                                           "int64")), 1)  # fmt: skip
    at = b.gather_elements(order, last, axis=dim)
    found = b.gather_elements(x, at, axis=dim), at
    return found if keepdim else tuple(b.squeeze(t, axis=dim) for t in found)


# --- Norms --------------------------------------------------------------------------------------


@row("aten.logsumexp.default")
def logsumexp(b: Emitter, x: Tensor, dim: Axes, keepdim: bool = False) -> Tensor:
    """The logarithm of the sum of exponentials, less the largest, which is kept where finite."""
    x = b.cast(x, out_dtype(b))
    top = reduced(b, "max", x, dim, True) if shape_of(x) else x
    top = b.where(b.isfinite(top), top, 0.0)
    total = reduced(b, "sum", b.exp(b.subtract(x, top)), dim, keepdim)
    return b.add(b.log(total), b.reshape(top, out_shape(b)))


@row("aten.count_nonzero.default", "aten.count_nonzero.dim_IntList")
def count_nonzero(b: Emitter, x: Tensor, dim: Axes = None) -> Tensor:
    return reduced(b, "sum", b.cast(truth(b, x), "int64"), dim, False)


@row("aten.histc.default")
def histc(b: Emitter, x: Tensor, bins: int = 100, low: float = 0, high: float = 0) -> Tensor:
    """The number of elements in each of some intervals of one size; others do not count."""
    dtype = out_dtype(b)
    flat = b.cast(b.reshape(x, (-1,)), "float32" if not is_float(dtype) else dtype)
    if low == high:
        raise Refused("a range that is that of the data")
    place = b.floor(b.divide(b.multiply(b.subtract(flat, float(low)), float(bins)), high - low))
    place = b.minimum(place, float(bins - 1))  # the last interval has its upper bound
    inside = b.logical_and(b.greater_equal(flat, float(low)), b.less_equal(flat, float(high)))
    place = b.cast(b.where(inside, place, -1.0), "int32")
    every = b.reshape(b.arange(0, bins, 1, dtype="int32"), (bins, 1))
    hit = b.equal(b.expand_dims(place, axis=[0]), every)
    return b.sum(b.cast(hit, dtype), axis=[1])
