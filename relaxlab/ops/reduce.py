"""Reductions and scans along axes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from relaxlab.ir import expr, graph, loops
from relaxlab.ir.dtypes import is_float, numpy_dtype
from relaxlab.ir.expr import PrimExpr
from relaxlab.ir.types import TensorType, Type
from relaxlab.ops import scalar, te
from relaxlab.ops.datatype import dtype_attr
from relaxlab.ops.define import (
    TypesOf,
    attr,
    define,
    fail,
    normal_axes,
    normal_axis,
    params,
    require_dtype,
    tensor_arg,
)
from relaxlab.ops.elementwise import in_float32
from relaxlab.ops.manipulate import reshape_compute
from relaxlab.ops.shapes import ONE, Shape, product, require_elements

Array = np.ndarray[Any, Any]
Indices = tuple[PrimExpr, ...]


def reduced_type(call: graph.Call, x: TensorType, axes: Any, dtype: str | None) -> TensorType:
    """The type after reducing over `axes`, with the call's `keepdims`."""
    keep = bool(attr(call, "keepdims"))
    if x.ndim < 0:
        return TensorType(None, dtype, 0 if axes is None and not keep else -1)
    gone = normal_axes(call, axes, x.ndim)
    ndim = x.ndim if keep else x.ndim - len(gone)
    if x.shape is None:
        return TensorType(None, dtype, ndim)
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
    """`combine` (`te.te_sum`, …) of `prepare(x[…])` over the dimensions `gone`."""
    axes = reduce_axes(x, gone)
    return te.compute(
        reduced_shape(x.shape, gone, keep),
        lambda *i: combine(prepare(x[joined(i, axes, gone, keep)]), *axes),
        name,
    )


def count_of(shape: Shape, gone: tuple[int, ...], dtype: str) -> PrimExpr:
    """How many elements a reduction over `gone` combines."""
    return scalar.cast(product([shape[d] for d in gone]), dtype)


# --- sum, prod, max, min ----------------------------------------------------------------------


def _infer(accepts: Callable[[str], bool], what: str) -> Callable[[graph.Call, TypesOf], Type]:
    def infer(call: graph.Call, tys: TypesOf) -> Type:
        x = tensor_arg(call, tys, 0)
        require_dtype(call, x, accepts, what)
        return reduced_type(call, x, attr(call, "axis"), x.dtype)

    return infer


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
        _infer(lambda d: d != "bool", "a number"),
        emit=emit,
        reference=numpy,
    )


def narrow(x: te.Tensor, dtype: str) -> te.Tensor:
    """A float32 intermediate as the result's half-precision dtype."""
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
_simple("max", te.te_max, _or_identity(np.max, te.lowest))
_simple("min", te.te_min, _or_identity(np.min, te.highest))


# --- mean, variance, std ----------------------------------------------------------------------


def mean_compute(x: te.Tensor, gone: tuple[int, ...], keep: bool) -> te.Tensor:
    """The mean in float32 for half-precision tensors, in the tensor's dtype otherwise."""
    total = reduction(x, gone, keep, te.te_sum, "T_sum", scalar.wide)
    count = count_of(x.shape, gone, total.dtype)
    return te.compute(total.shape, lambda *i: expr.Div(total[i], count), "T_mean")


def variance_compute(
    x: te.Tensor, gone: tuple[int, ...], keep: bool, mean: te.Tensor | None = None
) -> te.Tensor:
    """The mean of the squared distances from the mean (two passes over `x`); `mean` (without the
    axes `gone`) is computed unless it is given."""
    mean = mean_compute(x, gone, False) if mean is None else mean
    axes = reduce_axes(x, gone)

    def element(*i: PrimExpr) -> te.Reduce:
        at = joined(i, axes, gone, keep)
        centre = mean[tuple(v for d, v in enumerate(at) if d not in gone)]
        distance = expr.Sub(scalar.wide(x[at]), centre)
        return te.te_sum(expr.Mul(distance, distance), *axes)

    total = te.compute(reduced_shape(x.shape, gone, keep), element, "T_sum_of_squares")
    count = count_of(x.shape, gone, total.dtype)
    return te.compute(total.shape, lambda *i: expr.Div(total[i], count), "T_variance")


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
        _infer(is_float, "floating point"),
        emit=emit,
        reference=numpy,
    )


def _quiet_on_empty(fn: Callable[..., Any]) -> Callable[..., Any]:
    """NumPy warns about the mean of nothing, which is NaN here without a word."""

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


def _arg(name: str, combiner: te.Combiner, reference: Callable[..., Any]) -> None:
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

        def element(*i: PrimExpr) -> te.Reduce:
            return te.Reduce(combiner, (x[joined(i, axes, gone, keep)], place), axes)

        return te.compute_many(out.shape, element, (f"{name}_value", f"T_{name}"), f"T_{name}")[1]

    def numpy(x: Array, axis: int | None = None, keepdims: bool = False) -> Any:
        wide = x.astype(np.float32) if x.dtype.name in scalar.HALF else x
        return np.asarray(reference(wide, axis=axis, keepdims=keepdims), np.int64)

    define(
        name,
        params("x", axis=None, keepdims=False),
        infer,
        emit=emit,
        reference=numpy,
    )


_arg("argmax", te.ARGMAX, np.argmax)
_arg("argmin", te.ARGMIN, np.argmin)


# --- cumsum, cumprod --------------------------------------------------------------------------


def _scan_type(call: graph.Call, tys: TypesOf) -> Type:
    x = tensor_arg(call, tys, 0)
    require_dtype(call, x, lambda d: d != "bool" or attr(call, "dtype") is not None, "a number")
    dtype = dtype_attr(call) or x.dtype
    axis = attr(call, "axis")
    if axis is None:
        return TensorType(None if x.shape is None else (product(x.shape),), dtype, 1)
    if x.ndim >= 0:
        normal_axis(call, axis, x.ndim)
    return TensorType(x.shape, dtype, x.ndim)


def _scan(name: str, op: type[expr.BinaryOp], start: int, reference: Callable[..., Any]) -> None:
    def emit(call: graph.Call, out: TensorType, x: te.Tensor) -> te.Tensor:
        assert out.dtype is not None
        axis = attr(call, "axis")
        if axis is None:
            x, axis = reshape_compute(x, (product(x.shape),)), 0
        return scan_compute(
            x, normal_axis(call, axis, x.ndim), out.dtype, op, start, attr(call, "exclusive"), name
        )

    def numpy(
        x: Array, axis: int | None = None, dtype: str | None = None, exclusive: bool = False
    ) -> Array:
        x, axis = (x.reshape(-1), 0) if axis is None else (x, axis)
        out = numpy_dtype(dtype) if dtype else x.dtype
        wide = np.dtype(scalar.accumulator_of(out.name))
        result = reference(x.astype(wide), axis=axis, dtype=wide)
        if exclusive:
            first = np.full_like(np.take(result, [0][: x.shape[axis]], axis), start)
            rest = np.take(result, range(max(x.shape[axis] - 1, 0)), axis)
            result = np.concatenate([first, rest], axis)
        return result.astype(out)

    define(
        name,
        params("data", axis=None, dtype=None, exclusive=False),
        _scan_type,
        emit=emit,
        reference=numpy,
    )


def scan_compute(
    x: te.Tensor,
    axis: int,
    dtype: str,
    op: type[expr.BinaryOp],
    start: int,
    exclusive: bool,
    name: str,
) -> te.Tensor:
    """The running `op` along `axis`, one serial loop per row; half precision accumulates in
    float32 and is rounded at the end."""
    rows = (*x.shape[:axis], *x.shape[axis + 1 :])
    wide = scalar.accumulator_of(dtype)

    def body(row: tuple[expr.Var, ...], buffers: dict[te.Tensor, loops.Buffer]) -> loops.Stmt:
        s = expr.Var("s")

        def at(buffer: loops.Buffer, place: PrimExpr) -> PrimExpr:
            return loops.BufferLoad(buffer, (*row[:axis], place, *row[axis:]))

        read = scalar.cast(at(buffers[x], s - 1 if exclusive else s), wide)
        first = expr.const(start, wide) if exclusive else read
        further = op(at(buffers[out], s - 1), read)
        value = scalar.if_then_else(expr.EQ(s, te.ZERO), first, further)
        store = loops.BufferStore(buffers[out], value, (*row[:axis], s, *row[axis:]))
        return loops.For(s, te.ZERO, x.shape[axis], "serial", store)

    (out,) = te.compute_rows(rows, [(f"T_{name}", x.shape, wide)], [x], body, f"T_{name}")
    return narrow(out, dtype)


_scan("cumsum", expr.Add, 0, np.cumsum)
_scan("cumprod", expr.Mul, 1, np.cumprod)
