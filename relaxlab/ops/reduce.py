"""Reductions and scans along axes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from relaxlab.ir import expr, graph, loops
from relaxlab.ir.dtypes import is_float, numpy_dtype
from relaxlab.ir.expr import PrimExpr
from relaxlab.ir.row_major import product
from relaxlab.ir.types import TensorType, Type
from relaxlab.ops import scalar, te
from relaxlab.ops.datatype import dtype_attr
from relaxlab.ops.define import (
    TypesOf,
    attr,
    axis_within,
    define,
    fail,
    normal_axes,
    normal_axis,
    params,
    require_dtype,
    takes,
    tensor_arg,
)
from relaxlab.ops.elementwise import in_float32, log_add_exp
from relaxlab.ops.manipulate import reshape_compute
from relaxlab.ops.shapes import ONE, Shape, require_elements

Array = np.ndarray[Any, Any]
Indices = tuple[PrimExpr, ...]
SCAN_BLOCK = 1024
"""Elements of a block of a scan. Rounding errors are smallest where blocks are as long as there are
blocks, which is so at a million elements."""


def reduced_type(call: graph.Call, x: TensorType, axes: Any, dtype: str | None) -> TensorType:
    """The type after reducing over `axes`, with the call's `keepdims`."""
    keep = bool(attr(call, "keepdims"))
    if x.ndim < 0:
        return TensorType(() if axes is None and not keep else None, dtype)
    gone = normal_axes(call, axes, x.ndim)
    ndim = x.ndim if keep else x.ndim - len(gone)
    if x.shape is None:
        known = len(gone) == x.ndim
        return TensorType((ONE,) * ndim if known else None, dtype, ndim)
    return TensorType(reduced_shape(x.shape, gone, keep), dtype)


def reduced_shape(shape: Shape, gone: tuple[int, ...], keep: bool) -> Shape:
    """`shape` without the dimensions `gone`, or with 1 in their place."""
    if keep:
        return tuple(ONE if d in gone else e for d, e in enumerate(shape))
    return tuple(e for d, e in enumerate(shape) if d not in gone)


def reduce_axes(x: te.Tensor, gone: tuple[int, ...]) -> tuple[te.Axis, ...]:
    """A reduction axis for each dimension in `gone`, called r, or r0, r1, …."""
    names = ["r"] if len(gone) == 1 else [f"r{i}" for i in range(len(gone))]
    return tuple(te.reduce_axis(x.shape[d], n) for d, n in zip(gone, names, strict=True))


def joined(i: Indices, axes: tuple[te.Axis, ...], gone: tuple[int, ...], keep: bool) -> Indices:
    """The index into the unreduced tensor for element `i` of the result."""
    ndim = len(i) if keep else len(i) + len(gone)
    rest = iter(v for d, v in enumerate(i) if not (keep and d in gone))
    inner = dict(zip(gone, (a.var for a in axes), strict=True))
    return tuple(inner[d] if d in inner else next(rest) for d in range(ndim))


def reduction(
    x: te.Tensor,
    gone: tuple[int, ...],
    keep: bool,
    combine: Callable[..., te.Reduce],
    name: str,
    prepare: Callable[[PrimExpr], PrimExpr] = lambda v: v,
) -> te.Tensor:
    """`combine` (`te.te_sum`, …) of `prepare(x[…])` over the dimensions `gone`, taken in the order
    of memory: schedules sum in blocks along neighbours."""
    gone = tuple(sorted(gone))
    axes = reduce_axes(x, gone)
    return te.compute(
        reduced_shape(x.shape, gone, keep),
        lambda *i: combine(prepare(x[joined(i, axes, gone, keep)]), *axes),
        name,
    )


def count_of(shape: Shape, gone: tuple[int, ...], dtype: str) -> PrimExpr:
    """Return the number of elements that a reduction over `gone` combines."""
    return scalar.cast(product([shape[d] for d in gone]), dtype)


# --- sum, prod, max, min ----------------------------------------------------------------------


def _infer(call: graph.Call, tys: TypesOf) -> Type:
    x = tensor_arg(call, tys, 0)
    return reduced_type(call, x, attr(call, "axis"), x.dtype)


def _simple(name: str, combine: Callable[..., te.Reduce], reference: Callable[..., Any]) -> None:
    def emit(call: graph.Call, out: TensorType, x: te.Tensor) -> te.Tensor:
        gone = normal_axes(call, attr(call, "axis"), x.ndim)
        result = reduction(x, gone, attr(call, "keepdims"), combine, f"T_{name}", scalar.wide)
        return narrow(result, x.dtype)

    def numpy(x: Array, axis: Any = None, keepdims: bool = False) -> Any:
        return np.asarray(in_float32(reference)(x, axis=axis, keepdims=keepdims))

    define(
        name,
        params("x", axis=None, keepdims=False),
        _infer,
        needs=[takes("a number")],
        emit=emit,
        reference=numpy,
        traits=["reduction"],
    )


def narrow(x: te.Tensor, dtype: str) -> te.Tensor:
    """An intermediate, such as a sum in float32, converted to the dtype of the result."""
    if x.dtype == dtype:
        return x
    return te.compute(x.shape, lambda *i: scalar.cast(x[i], dtype), "T_cast")


def _keep_dtype(fn: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x, **kw: fn(x, dtype=x.dtype, **kw)


def _or_identity(fn: Callable[..., Any], identity: Callable[[str], PrimExpr]) -> Any:
    def wrapped(x: Array, **kw: Any) -> Any:
        return fn(x, initial=identity(x.dtype.name).value, **kw)  # type: ignore[attr-defined]

    return wrapped


_simple("sum", te.te_sum, _keep_dtype(np.sum))
_simple("prod", te.te_prod, _keep_dtype(np.prod))
_simple("max", te.te_max, _or_identity(np.max, expr.lowest))
_simple("min", te.te_min, _or_identity(np.min, expr.highest))


# --- mean, variance, std ----------------------------------------------------------------------


def mean_compute(x: te.Tensor, gone: tuple[int, ...], keep: bool) -> te.Tensor:
    """The mean in float32 for half-precision tensors, in the tensor's dtype otherwise."""
    total = reduction(x, gone, keep, te.te_sum, "T_sum", scalar.wide)
    count = count_of(x.shape, gone, total.dtype)
    return te.compute(total.shape, lambda *i: expr.Div(total[i], count), "T_mean")


def variance_compute(
    x: te.Tensor, gone: tuple[int, ...], keep: bool, mean: te.Tensor | None = None
) -> te.Tensor:
    """The mean of the squared distances from `mean` (without the axes `gone`): two passes over `x`.

    Where `mean` is not given, it is that of the distances from the first element: what is added is
    then as small as the spread of the values, so that the variance of equal values is 0 and that of
    close values far from 0 keeps its digits (Chan, Golub and LeVeque, *Algorithms for Computing the
    Sample Variance*, 1983, on shifted data).
    """
    gone = tuple(sorted(gone))  # in the order of memory, as in `reduction`
    if mean is None:
        x = _from_first(x, gone)
        mean = mean_compute(x, gone, False)
    axes = reduce_axes(x, gone)

    def element(*i: PrimExpr) -> te.Reduce:
        at = joined(i, axes, gone, keep)
        centre = mean[tuple(v for d, v in enumerate(at) if d not in gone)]
        distance = expr.Sub(scalar.wide(x[at]), centre)
        return te.te_sum(expr.Mul(distance, distance), *axes)

    total = te.compute(reduced_shape(x.shape, gone, keep), element, "T_sum_of_squares")
    count = count_of(x.shape, gone, total.dtype)
    return te.compute(total.shape, lambda *i: expr.Div(total[i], count), "T_variance")


def _from_first(x: te.Tensor, gone: tuple[int, ...]) -> te.Tensor:
    """The distance of each element from the first along the axes `gone`."""
    count = product([x.shape[d] for d in gone])

    def first(*i: PrimExpr) -> PrimExpr:
        kept = iter(i)
        value = scalar.wide(x[tuple(te.ZERO if d in gone else next(kept) for d in range(x.ndim))])
        # Known not to be empty: the element exists.
        if isinstance(count, expr.IntImm) and count.value > 0:
            return value
        return expr.if_then_else(expr.LT(te.ZERO, count), value, expr.const(0, value.dtype))

    start = te.compute(reduced_shape(x.shape, gone, False), first, "T_first")

    def distance(*i: PrimExpr) -> PrimExpr:
        own = tuple(v for d, v in enumerate(i) if d not in gone)
        return expr.Sub(scalar.wide(x[i]), start[own])

    return te.compute(x.shape, distance, "T_distance")


def _std_compute(x: te.Tensor, gone: tuple[int, ...], keep: bool) -> te.Tensor:
    variance = variance_compute(x, gone, keep)
    return te.compute(variance.shape, lambda *i: scalar.call("sqrt", variance[i]), "T_std")


def _statistic(
    name: str,
    build: Callable[[te.Tensor, tuple[int, ...], bool], te.Tensor],
    reference: Callable[..., Any],
) -> None:
    def emit(call: graph.Call, out: TensorType, x: te.Tensor) -> te.Tensor:
        gone = normal_axes(call, attr(call, "axis"), x.ndim)
        return narrow(build(x, gone, attr(call, "keepdims")), x.dtype)

    def numpy(x: Array, axis: Any = None, keepdims: bool = False) -> Any:
        with np.errstate(all="ignore"):
            return np.asarray(in_float32(reference)(x, axis=axis, keepdims=keepdims))

    define(
        name,
        params("x", axis=None, keepdims=False),
        _infer,
        needs=[takes("floating point")],
        emit=emit,
        reference=numpy,
        traits=["reduction"],
    )


def _quiet_on_empty(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Silence NumPy's warning about the mean of nothing, which is NaN."""

    def wrapped(x: Array, **kw: Any) -> Any:
        import warnings

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            return fn(x, **kw)

    return wrapped


_statistic("mean", mean_compute, _quiet_on_empty(np.mean))
_statistic("variance", variance_compute, _quiet_on_empty(np.var))
_statistic("std", _std_compute, _quiet_on_empty(np.std))


# --- argmax, argmin ---------------------------------------------------------------------------


def _arg(name: str, best: Callable[..., te.Reduce], reference: Callable[..., Any]) -> None:
    """The first place of the largest or smallest value, or of NaN, if there is one. As two
    reductions of numbers, each of which vectors and threads can share: the best value, and the
    first place that has it."""

    def infer(call: graph.Call, tys: TypesOf) -> Type:
        x = tensor_arg(call, tys, 0)
        axis = attr(call, "axis")
        if not isinstance(axis, int | None):
            raise fail(call, f"axis must be an int or None, is {axis}")
        if x.shape is not None:
            gone = normal_axes(call, axis, x.ndim)
            kept = tuple(d for i, d in enumerate(x.shape) if i not in gone)
            require_elements(call, [x.shape[i] for i in gone], kept)
        return reduced_type(call, x, axis, "int64")

    def emit(call: graph.Call, out: TensorType, x: te.Tensor) -> te.Tensor:
        assert out.shape is not None
        gone = normal_axes(call, attr(call, "axis"), x.ndim)
        keep = attr(call, "keepdims")
        axes = reduce_axes(x, gone)
        place: PrimExpr = expr.const(0)
        for a in axes:
            place = place * a.extent + a.var

        value = reduction(x, gone, keep, best, f"T_{name}_value")

        def element(*i: PrimExpr) -> te.Reduce:
            own = x[joined(i, axes, gone, keep)]
            is_best: PrimExpr = expr.EQ(own, value[i])
            if is_float(x.dtype):
                # NaN equals nothing, itself included, but NumPy's argmax returns its place.
                is_best = expr.Or(is_best, scalar.isnan(scalar.wide(own)))
            # A minimum, so that of equal values the first counts, in whatever order vectors and
            # threads look.
            return te.te_min(expr.Select(is_best, place, expr.highest("int64")), *axes)

        return te.compute(out.shape, element, f"T_{name}")

    def numpy(x: Array, axis: int | None = None, keepdims: bool = False) -> Any:
        wide = x.astype(np.float32) if x.dtype.name in scalar.HALF else x
        nothing = np.zeros(np.any(x, axis=axis, keepdims=keepdims).shape, np.int64)
        if nothing.size == 0:  # NumPy refuses an axis without elements even so
            return nothing
        return np.asarray(reference(wide, axis=axis, keepdims=keepdims), np.int64)

    define(
        name,
        params("x", axis=None, keepdims=False),
        infer,
        emit=emit,
        reference=numpy,
    )


_arg("argmax", te.te_max, np.argmax)
_arg("argmin", te.te_min, np.argmin)


# --- Scans -----------------------------------------------------------------------------------


def _scan_infer(call: graph.Call, tys: TypesOf) -> Type:
    x = tensor_arg(call, tys, 0)
    dtype = dtype_attr(call) or x.dtype
    axis = attr(call, "axis")
    if axis is None:
        return TensorType(None if x.shape is None else (product(x.shape),), dtype, 1)
    return TensorType(x.shape, dtype, x.ndim)


def _scan_needs(call: graph.Call, tys: TypesOf) -> None:
    if attr(call, "axis") is not None:
        axis_within(call, tys)
    if attr(call, "dtype") is None:
        require_dtype(call, tensor_arg(call, tys, 0), "a number")


def _scan(
    name: str,
    combiner: te.Combiner,
    reference: Callable[..., Any],
    accepts: str = "anything",
) -> None:
    def emit(call: graph.Call, out: TensorType, x: te.Tensor) -> te.Tensor:
        assert out.dtype is not None
        axis = attr(call, "axis")
        if axis is None:
            x, axis = reshape_compute(x, (product(x.shape),)), 0
        return scan_compute(
            x, normal_axis(call, axis, x.ndim), out.dtype, combiner, attr(call, "exclusive"), name
        )

    def numpy(
        x: Array, axis: int | None = None, dtype: str | None = None, exclusive: bool = False
    ) -> Array:
        x, axis = (x.reshape(-1), 0) if axis is None else (x, axis)
        out = numpy_dtype(dtype) if dtype else x.dtype
        # NumPy adds a scan up in its own dtype, one after the other; the reference is to be the
        # better one.
        wide = np.dtype("float64" if is_float(out.name) else scalar.accumulator_of(out.name))
        with np.errstate(all="ignore"):
            result = reference(x.astype(wide), axis)
        if exclusive:
            (start,) = combiner.identity((wide.name,))
            assert isinstance(start, expr.IntImm | expr.FloatImm)
            first = np.full_like(np.take(result, [0][: x.shape[axis]], axis), start.value)
            rest = np.take(result, range(max(x.shape[axis] - 1, 0)), axis)
            result = np.concatenate([first, rest], axis)
        return result.astype(out)

    define(
        name,
        params("data", axis=None, dtype=None, exclusive=False),
        _scan_infer,
        needs=[takes(accepts), _scan_needs],
        emit=emit,
        reference=numpy,
        traits=["sort_or_scan"],
    )


def scan_compute(
    x: te.Tensor,
    axis: int,
    dtype: str,
    combiner: te.Combiner,
    exclusive: bool,
    name: str,
) -> te.Tensor:
    """The running `combiner` along `axis`, each row one serial loop after the other over blocks of
    `SCAN_BLOCK` elements; half precision accumulates in float32 and is rounded at the end.

    Within a block elements are combined from its first on, and each result with what came before
    the block, so that rounding errors grow with the length and the number of blocks.
    """
    rows = (*x.shape[:axis], *x.shape[axis + 1 :])
    wide = scalar.accumulator_of(dtype)
    extent = x.shape[axis]
    (nothing,) = combiner.identity((wide,))

    def op(old: PrimExpr, new: PrimExpr) -> PrimExpr:
        return combiner.combine((old,), (new,))[0]

    def body(row: tuple[expr.Var, ...], buffers: dict[te.Tensor, loops.Buffer]) -> loops.Stmt:
        block, place = expr.Var("b"), expr.Var("s")
        first = block * SCAN_BLOCK

        def at(buffer: loops.Buffer, place: PrimExpr) -> PrimExpr:
            return loops.BufferLoad(buffer, (*row[:axis], place, *row[axis:]))

        def taken(place: PrimExpr) -> PrimExpr:
            return scalar.cast(at(buffers[x], place - 1 if exclusive else place), wide)

        def advanced(value: PrimExpr, place: PrimExpr) -> loops.Stmt:
            """Return the stores of the block's running value at `place`, and of the result
            there."""
            total = op(loops.BufferLoad(buffers[before], row), loops.BufferLoad(buffers[own], row))
            return loops.seq(
                loops.BufferStore(buffers[own], value, row),
                loops.BufferStore(buffers[out], total, (*row[:axis], place, *row[axis:])),
            )

        at_start = expr.EQ(block, te.ZERO)
        past = expr.if_then_else(at_start, nothing, at(buffers[out], first - 1))
        opening = taken(first)
        if exclusive:
            opening = expr.if_then_else(at_start, nothing, opening)
        further = op(loops.BufferLoad(buffers[own], row), taken(place))
        count = expr.Min(expr.const(SCAN_BLOCK), extent - first) - 1
        inner = loops.For(place, first + 1, count, "serial", advanced(further, place))
        one = loops.seq(
            loops.BufferStore(buffers[before], past, row), advanced(opening, first), inner
        )
        blocks = (extent + (SCAN_BLOCK - 1)) // SCAN_BLOCK
        return loops.For(block, te.ZERO, blocks, "serial", one)

    outputs = [(f"T_{name}", x.shape, wide), ("T_before", rows, wide), ("T_block", rows, wide)]
    out, before, own = te.compute_rows(rows, outputs, [x], body, f"T_{name}")
    return narrow(out, dtype)


LOG_SUM_EXP = te.Combiner(
    "logsumexp",
    lambda dtypes: (expr.const(-math.inf, dtypes[0]),),
    lambda acc, new: (log_add_exp(acc[0], new[0]),),
)

_scan("cumsum", te.SUM, lambda x, axis: np.cumsum(x, axis, x.dtype))
_scan("cumprod", te.PROD, lambda x, axis: np.cumprod(x, axis, x.dtype))
_scan("cummax", te.MAX, np.maximum.accumulate)
_scan("cummin", te.MIN, np.minimum.accumulate)
_scan("cumlogsumexp", LOG_SUM_EXP, np.logaddexp.accumulate, "floating point")
