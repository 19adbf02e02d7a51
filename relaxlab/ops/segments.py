"""Reductions and softmax over the rows of each sequence, where sequences lie behind each other
(`R.nn.segment_reduce`, `R.nn.segment_softmax`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from relaxlab.ir import expr, graph, loops
from relaxlab.ir.dtypes import is_float
from relaxlab.ir.expr import PrimExpr
from relaxlab.ir.types import TensorType, Type
from relaxlab.ops import scalar, te
from relaxlab.ops.define import TypesOf, attr, define, fail, params, require_dtype, tensor_arg
from relaxlab.ops.shapes import impossible

Array = np.ndarray[Any, Any]
LENGTHS = ("int32", "int64")
MODES = ("sum", "mean", "max")


def _rows(call: graph.Call, tys: TypesOf) -> tuple[TensorType, TensorType]:
    """The types of rows and of the starts of segments."""
    data, starts = tensor_arg(call, tys, 0), tensor_arg(call, tys, 1)
    require_dtype(call, data, is_float, "floating point")
    require_dtype(call, starts, lambda d: d in LENGTHS, "int32 or int64", 1)
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


def _over(
    data: te.Tensor, starts: te.Tensor, outputs: list[tuple[str, tuple[PrimExpr, ...], str]],
    body: Callable[..., loops.Stmt], name: str,
) -> tuple[te.Tensor, ...]:  # fmt: skip
    """Tensors computed for each segment and column. `body` is given the point, the buffers, and a
    function that makes a loop over the rows of the segment."""
    count = starts.shape[0] - 1

    def row(point: tuple[expr.Var, ...], b: dict[te.Tensor, loops.Buffer]) -> loops.Stmt:
        def at(place: PrimExpr) -> PrimExpr:
            return scalar.cast(loops.BufferLoad(b[starts], (place,)), "int64")

        first = at(point[0])

        def each(do: Callable[[tuple[PrimExpr, ...]], loops.Stmt]) -> loops.Stmt:
            j = expr.Var("j")
            inside = do((first + j, *point[1:]))
            return loops.For(j, te.ZERO, at(point[0] + 1) - first, "serial", inside)

        return body(point, b, each, at(point[0] + 1) - first)

    whole = loops.Nondecreasing(te.ZERO, data.shape[0])
    dims = (count, *data.shape[1:])
    return te.compute_rows(dims, outputs, [data, starts], row, name, {starts: (whole,)})


def _reduce_emit(
    call: graph.Call, out: TensorType, data: te.Tensor, starts: te.Tensor
) -> te.Tensor:
    mode, wide = attr(call, "mode"), _accumulator(data.dtype)
    dims = (starts.shape[0] - 1, *data.shape[1:])
    start = expr.lowest(wide) if mode == "max" else expr.const(0, wide)

    def body(point: Any, b: Any, each: Any, count: PrimExpr) -> loops.Stmt:
        state = loops.BufferLoad(b[total], point)

        def step(place: tuple[PrimExpr, ...]) -> loops.Stmt:
            x = scalar.cast(loops.BufferLoad(b[data], place), wide)
            value = expr.Max(state, x) if mode == "max" else expr.Add(state, x)
            return loops.BufferStore(b[total], value, point)

        value: PrimExpr = state
        if mode == "mean":
            value = expr.Div(state, scalar.cast(expr.Max(count, expr.const(1)), wide))
        return loops.seq(
            loops.BufferStore(b[total], start, point),
            each(step),
            loops.BufferStore(b[result], scalar.cast(value, data.dtype), point),
        )

    outputs = [("T_segment", dims, data.dtype), ("T_total", dims, wide)]
    result, total = _over(data, starts, outputs, body, "T_segment_reduce")
    return result


def _softmax_emit(
    call: graph.Call, out: TensorType, data: te.Tensor, starts: te.Tensor
) -> te.Tensor:
    wide = _accumulator(data.dtype)
    dims = (starts.shape[0] - 1, *data.shape[1:])

    def body(point: Any, b: Any, each: Any, _: PrimExpr) -> loops.Stmt:
        high, sum_ = loops.BufferLoad(b[top], point), loops.BufferLoad(b[total], point)

        def load(place: tuple[PrimExpr, ...]) -> PrimExpr:
            return scalar.cast(loops.BufferLoad(b[data], place), wide)

        def exp(place: tuple[PrimExpr, ...]) -> PrimExpr:
            return scalar.call("exp", expr.Sub(load(place), high))

        def put(place: tuple[PrimExpr, ...]) -> loops.Stmt:
            share = scalar.cast(expr.Div(exp(place), sum_), data.dtype)
            return loops.BufferStore(b[result], share, place)

        return loops.seq(
            loops.BufferStore(b[top], expr.lowest(wide), point),
            loops.BufferStore(b[total], expr.const(0, wide), point),
            each(lambda p: loops.BufferStore(b[top], expr.Max(high, load(p)), point)),
            each(lambda p: loops.BufferStore(b[total], expr.Add(sum_, exp(p)), point)),
            each(put),
        )

    parts = [("T_top", dims, wide), ("T_total", dims, wide)]
    outputs = [("T_segment", data.shape, data.dtype), *parts]
    result, top, total = _over(data, starts, outputs, body, "T_segment_softmax")
    return result


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
