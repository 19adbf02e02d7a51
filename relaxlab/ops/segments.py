"""Reductions and softmax over the rows of each sequence, where sequences lie behind each other
(`R.nn.segment_reduce`, `R.nn.segment_softmax`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from relaxlab.ir import expr, graph, loops
from relaxlab.ir.expr import PrimExpr
from relaxlab.ir.types import TensorType, Type
from relaxlab.ops import scalar, te
from relaxlab.ops.define import TypesOf, attr, define, fail, params, require_dtype, tensor_arg
from relaxlab.ops.shapes import impossible

Array = np.ndarray[Any, Any]
MODES = ("sum", "mean", "max")


def _rows(call: graph.Call, tys: TypesOf) -> tuple[TensorType, TensorType]:
    """The types of rows and of the starts of segments."""
    data, starts = tensor_arg(call, tys, 0), tensor_arg(call, tys, 1)
    require_dtype(call, data, "floating point")
    require_dtype(call, starts, "int32 or int64", 1)
    if data.ndim == 0:
        raise fail(call, f"data must have rows, is {data}")
    if starts.ndim not in (-1, 1):
        raise fail(call, f"starts must have 1 dimensions, is {starts}")
    if starts.shape is not None:
        claim = "starts must have the end of the last segment"
        if impossible(call, expr.GE(starts.shape[0], expr.const(1)), claim):
            raise fail(call, claim)
    return data, starts


def _reduce_infer(call: graph.Call, tys: TypesOf) -> Type:
    data, starts = _rows(call, tys)
    if attr(call, "mode") not in MODES:
        raise fail(call, f"mode must be one of {', '.join(MODES)}, is {attr(call, 'mode')!r}")
    if data.shape is None or starts.shape is None:
        return TensorType(None, data.dtype, data.ndim)
    return TensorType((starts.shape[0] - 1, *data.shape[1:]), data.dtype)


def _softmax_infer(call: graph.Call, tys: TypesOf) -> Type:
    return _rows(call, tys)[0]


def _accumulator(dtype: str) -> str:
    return "float64" if dtype == "float64" else "float32"


class _Segments:
    """Segments of rows, and the columns of each: `dims` are of what there is once for each
    segment, `facts` those that its loops count on."""

    def __init__(self, data: te.Tensor, starts: te.Tensor) -> None:
        self.data, self.starts = data, starts
        self.wide = _accumulator(data.dtype)
        self.dims = (starts.shape[0] - 1, *data.shape[1:])
        self.facts = {starts: (loops.Nondecreasing(te.ZERO, data.shape[0]),)}

    def first(self, segment: PrimExpr) -> PrimExpr:
        """The first row of a segment."""
        return scalar.cast(self.starts[segment], "int64")

    def count(self, segment: PrimExpr) -> PrimExpr:
        """The number of its rows."""
        return self.first(segment + 1) - self.first(segment)

    def row(self, segment: PrimExpr, row: PrimExpr) -> PrimExpr:
        """The number of one of its rows, among those of all segments."""
        return self.first(segment) + row

    def reduced(
        self, reduce: Callable[..., te.Reduce],
        term: Callable[[PrimExpr, tuple[PrimExpr, ...]], PrimExpr], name: str,
    ) -> te.Tensor:  # fmt: skip
        """A reduction, over the rows of each segment, of the terms of an element and its segment
        and column."""

        def value(*at: PrimExpr) -> te.Reduce:
            rows = te.reduce_axis(self.count(at[0]), "j")
            x = scalar.cast(self.data[(self.row(at[0], rows.var), *at[1:])], self.wide)
            return reduce(term(x, at), rows)

        return te.compute(self.dims, value, name, self.facts)


def _reduce_emit(
    call: graph.Call, out: TensorType, data: te.Tensor, starts: te.Tensor
) -> te.Tensor:
    mode, segments = attr(call, "mode"), _Segments(data, starts)
    combine = te.te_max if mode == "max" else te.te_sum
    total = segments.reduced(combine, lambda x, _: x, "T_segment_reduce")
    if mode != "mean" and segments.wide == data.dtype:
        return total

    def value(*at: PrimExpr) -> PrimExpr:
        rows = expr.Max(segments.count(at[0]), expr.const(1))
        of_all = scalar.cast(rows, segments.wide)
        return scalar.cast(total[at] / of_all if mode == "mean" else total[at], data.dtype)

    return te.compute(segments.dims, value, "T_segment", segments.facts)


def _softmax_emit(
    call: graph.Call, out: TensorType, data: te.Tensor, starts: te.Tensor
) -> te.Tensor:
    segments = _Segments(data, starts)
    top = segments.reduced(te.te_max, lambda x, _: x, "T_segment_max")

    def exp(x: PrimExpr, at: tuple[PrimExpr, ...]) -> PrimExpr:
        return scalar.call("exp", x - top[at])

    total = segments.reduced(te.te_sum, exp, "T_segment_sum")
    segment = te.Axis.named("i", segments.dims[0])
    row = te.Axis.named("j", segments.count(segment.var))
    columns = [te.Axis.named(f"c{d}", size) for d, size in enumerate(data.shape[1:])]
    at = tuple(c.var for c in columns)
    place = (segments.row(segment.var, row.var), *at)
    each = (segment.var, *at)
    value = exp(scalar.cast(data[place], segments.wide), each) / total[each]
    return te.compute_packed(
        data.shape, (segment, row, *columns), place, scalar.cast(value, data.dtype),
        "T_segment_softmax", segments.facts,
    )  # fmt: skip


def _parts(data: Array, starts: Array) -> list[Array]:
    wide = data if data.dtype == np.float64 else data.astype(np.float32)
    return [wide[a:b] for a, b in zip(starts[:-1], starts[1:], strict=True)]


def _reduce(data: Array, starts: Array, mode: str = "sum") -> Array:
    lowest = {"initial": -np.inf} if mode == "max" else {}
    sums = [getattr(np, "max" if mode == "max" else "sum")(p, 0, **lowest)
            for p in _parts(data, starts)]  # fmt: skip
    if mode == "mean":
        sums = [s / max(1, n) for s, n in zip(sums, np.diff(starts), strict=True)]
    return np.array(sums).reshape(len(starts) - 1, *data.shape[1:]).astype(data.dtype)


def _softmax(data: Array, starts: Array) -> Array:
    result = np.zeros_like(data)
    for first, part in zip(starts[:-1], _parts(data, starts), strict=True):
        if len(part):
            weights = np.exp(part - part.max(0))
            result[first : first + len(part)] = (weights / weights.sum(0)).astype(data.dtype)
    return result


# data: rows behind each other; starts: the first row of each segment, and the number of all rows.
define(
    "nn.segment_reduce", params("data starts", mode="sum"), _reduce_infer, emit=_reduce_emit,
    reference=_reduce,
)  # fmt: skip
define(
    "nn.segment_softmax", params("data starts"), _softmax_infer, emit=_softmax_emit,
    reference=_softmax,
)  # fmt: skip
