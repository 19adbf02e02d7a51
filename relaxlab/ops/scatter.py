"""Writing into a copy of a tensor at the places that other tensors name.

Several updates of one place are applied in their order. Places outside of the tensor are left
out; negative ones count from the end. Rows that cannot meet are independent, the updates of one
row are a serial loop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from relaxlab.ir import expr, graph, loops
from relaxlab.ir.dtypes import is_float
from relaxlab.ir.expr import PrimExpr
from relaxlab.ir.op_table import REQUIRED
from relaxlab.ir.types import TensorType, Type
from relaxlab.ops import scalar, te
from relaxlab.ops.define import (
    Place,
    TypesOf,
    attr,
    common_dtype,
    define,
    fail,
    normal_axis,
    number,
    one_dtype,
    params,
    require_dtype,
    takes,
    tensor_arg,
    type_of_argument,
)
from relaxlab.ops.gather import depth_of, index_fields, named_points, needs_depth
from relaxlab.ops.index import require_within
from relaxlab.ops.reduce import narrow
from relaxlab.ops.shapes import (
    ONE,
    Shape,
    at_least,
    at_most,
    broadcast_index,
    broadcast_types,
    differ,
    prove,
    require_elements,
    require_equal,
    show,
    simplify,
)

Array = np.ndarray[Any, Any]
Indices = tuple[PrimExpr, ...]
Buffers = dict[te.Tensor, loops.Buffer]

REDUCTIONS: dict[str, tuple[Callable[[PrimExpr, PrimExpr], PrimExpr], Any]] = {
    "update": (lambda old, new: new, None),
    "add": (expr.Add, np.add),
    "mul": (expr.Mul, np.multiply),
    "max": (expr.Max, np.maximum),
    "min": (expr.Min, np.minimum),
    "mean": (expr.Add, np.add),
}


def _check_reduction(call: graph.Call, x: TensorType) -> None:
    reduction = attr(call, "reduction")
    if reduction not in REDUCTIONS:
        known = f"use one of {tuple(REDUCTIONS)}"
        raise fail(call, f"reduction {reduction!r} is not known", known)
    if reduction != "update":
        require_dtype(call, x, "a number")


# --- Loops ------------------------------------------------------------------------------------


def _loop_over(
    extents: Sequence[PrimExpr], name: str, body: Callable[[Indices], loops.Stmt]
) -> loops.Stmt:
    """A serial loop nest."""
    loop_vars = tuple(expr.Var(f"{name}{d}") for d in range(len(extents)))
    nest = body(loop_vars)
    for var, extent in reversed(list(zip(loop_vars, extents, strict=True))):
        nest = loops.For(var, te.ZERO, extent, "serial", nest)
    return nest


def _from_end(place: PrimExpr, extent: PrimExpr) -> PrimExpr:
    return expr.Select(expr.LT(place, te.ZERO), place + extent, place)


def _inside(places: Sequence[PrimExpr], extents: Sequence[PrimExpr]) -> PrimExpr:
    pairs = zip(places, extents, strict=True)
    return expr.all_of([c for p, e in pairs for c in (expr.GE(p, te.ZERO), expr.LT(p, e))])


class _Target:
    """The copy that is written, in float32 for halves, and how often each place was."""

    def __init__(self, x: te.Tensor, reduction: str, name: str) -> None:
        self.x, self.reduction = x, reduction
        # A value that is only replaced needs no rounding twice.
        self.dtype = x.dtype if reduction == "update" else scalar.accumulator_of(x.dtype)
        self.outputs: list[tuple[str, Shape, str]] = [(name, x.shape, self.dtype)]
        if reduction == "mean":
            self.outputs.append((f"{name}_count", x.shape, "int64"))

    def start(self, b: Buffers, tensors: tuple[te.Tensor, ...], at: Indices) -> loops.Stmt:
        """Copy one element."""
        value = scalar.cast(loops.BufferLoad(b[self.x], at), self.dtype)
        ones = [loops.BufferStore(b[t], ONE, at) for t in tensors[1:]]
        return loops.seq(loops.BufferStore(b[tensors[0]], value, at), *ones)

    def update(
        self, b: Buffers, tensors: tuple[te.Tensor, ...], at: Indices, value: PrimExpr
    ) -> loops.Stmt:
        """Combine one element with `value`."""
        combine, _ = REDUCTIONS[self.reduction]
        old = loops.BufferLoad(b[tensors[0]], at)
        new = combine(old, scalar.cast(value, self.dtype))
        counts = [loops.BufferStore(b[t], loops.BufferLoad(b[t], at) + 1, at) for t in tensors[1:]]
        return loops.seq(loops.BufferStore(b[tensors[0]], new, at), *counts)

    def result(self, tensors: tuple[te.Tensor, ...]) -> te.Tensor:
        """The written tensor in the dtype of the operator; sums divided for means."""
        if len(tensors) == 1:
            return narrow(tensors[0], self.x.dtype)
        total, count = tensors

        def mean(*i: PrimExpr) -> PrimExpr:
            divisor = scalar.cast(count[i], self.dtype)
            quotient = expr.Div if is_float(self.dtype) else expr.FloorDiv
            return scalar.cast(quotient(total[i], divisor), self.x.dtype)

        return te.compute(self.x.shape, mean, "T_mean")


def _scatter_points(
    target: _Target,
    depth: int,
    points: Shape,
    inputs: list[te.Tensor],
    place: Callable[[Buffers, int, Indices], PrimExpr],
    update: Callable[[Buffers, Indices, Indices], PrimExpr],
    name: str,
) -> te.Tensor:
    """For every point, `update(buffers, point, rest)` goes to the place whose first `depth`
    indices are `place(buffers, d, point)`; the other dimensions are independent rows."""
    extents, rest = target.x.shape[:depth], target.x.shape[depth:]

    def body(row: tuple[expr.Var, ...], b: Buffers) -> loops.Stmt:
        def one(point: Indices) -> loops.Stmt:
            named = [expr.Var(f"at{d}") for d in range(depth)]
            write = target.update(b, outputs, (*named, *row), update(b, point, row))
            # Places are data; one outside is left out, as the operator says.
            stmt: loops.Stmt = loops.IfThenElse(_inside(named, extents), write)
            for d in reversed(range(depth)):
                stmt = loops.LetStmt(named[d], _from_end(place(b, d, point), extents[d]), stmt)
            return stmt

        copy = _loop_over(extents, "c", lambda at: target.start(b, outputs, (*at, *row)))
        return loops.seq(copy, _loop_over(points, "p", one))

    outputs = te.compute_rows(rest, target.outputs, inputs, body, name)
    return target.result(outputs)


# --- scatter_elements -------------------------------------------------------------------------


def _elements_infer(call: graph.Call, tys: TypesOf) -> Type:
    x, at, updates = (tensor_arg(call, tys, i) for i in range(3))
    common_dtype(call, x, updates)
    require_dtype(call, at, "integer", 1)
    _check_reduction(call, x)
    ndims = {t.ndim for t in (x, at, updates) if t.ndim >= 0}
    if len(ndims) > 1:
        raise fail(call, f"data {x}, indices {at} and updates {updates} must have one rank")
    for d, (a, b) in enumerate(zip(at.shape or (), updates.shape or (), strict=False)):
        if differ(call, a, b, f"the extents of indices and updates in dimension {d}"):
            raise fail(call, f"indices {at} and updates {updates} must have one shape")
    return x


def _elements_needs(call: graph.Call, tys: TypesOf) -> None:
    x, at = tensor_arg(call, tys, 0), tensor_arg(call, tys, 1)
    if x.ndim < 0:
        return
    axis = normal_axis(call, attr(call, "axis"), x.ndim)
    if x.shape is not None and at.shape is not None:
        require_within(call, x.shape, at.shape, axis)


def _elements_emit(
    call: graph.Call, out: TensorType, x: te.Tensor, at: te.Tensor, updates: te.Tensor
) -> te.Tensor:
    axis = normal_axis(call, attr(call, "axis"), x.ndim)
    target = _Target(x, attr(call, "reduction"), "T_scatter_elements")
    extent = x.shape[axis]
    rows = (*x.shape[:axis], *x.shape[axis + 1 :])
    limits = (*at.shape[:axis], *at.shape[axis + 1 :])

    def body(row: tuple[expr.Var, ...], b: Buffers) -> loops.Stmt:
        def along(p: PrimExpr, row: Sequence[PrimExpr]) -> Indices:
            return (*row[:axis], p, *row[axis:])

        within = expr.all_of(
            [
                expr.LT(v, limit)
                for v, extent, limit in zip(row, rows, limits, strict=True)
                if prove(expr.LE(extent, limit)) is not True
            ]
        )

        def one(point: Indices) -> loops.Stmt:
            read = along(point[0], row)
            place = _from_end(scalar.cast(loops.BufferLoad(b[at], read), "int64"), extent)
            named = expr.Var("at")
            value = loops.BufferLoad(b[updates], read)
            write = target.update(b, outputs, along(named, row), value)
            return loops.LetStmt(named, place, loops.IfThenElse(_inside([named], [extent]), write))

        copy = _loop_over([extent], "c", lambda i: target.start(b, outputs, along(i[0], row)))
        write = _loop_over([at.shape[axis]], "p", one)
        return loops.seq(copy, write if within == te.TRUE else loops.IfThenElse(within, write))

    outputs = te.compute_rows(rows, target.outputs, [x, at, updates], body, "T_scatter_elements")
    return target.result(outputs)


def _apply(x: Array, places: tuple[Array, ...], updates: Array, reduction: str) -> Array:
    """`x` with `updates` at `places` (one array per dimension named), those outside left out."""
    extents = x.shape[: len(places)]
    at = [np.where(p < 0, p + e, p) for p, e in zip(places, extents, strict=True)]
    valid = np.all([(p >= 0) & (p < e) for p, e in zip(at, extents, strict=True)], axis=0)
    where = tuple(p[valid] for p in at)
    new = updates[valid]
    if reduction == "update":
        result = x.copy()
        for k in range(len(new)):  # in order: the last one stays
            result[tuple(p[k] for p in where)] = new[k]
        return result
    result = x.astype(scalar.accumulator_of(x.dtype.name))
    REDUCTIONS[reduction][1].at(result, where, new.astype(result.dtype))
    if reduction == "mean":
        count = np.ones(x.shape, np.int64)
        np.add.at(count, where, 1)
        kind = result.dtype
        result = result / count.astype(kind) if kind.kind == "f" else result // count
    return result.astype(x.dtype)


def _elements(
    data: Array, indices: Array, updates: Array, axis: int = 0, reduction: str = "update"
) -> Array:
    places = list(np.indices(indices.shape))
    places[axis] = indices.astype(np.int64)
    return _apply(data, tuple(places), updates, reduction)


define(
    "scatter_elements",
    params("data indices updates", axis=0, reduction="update"),
    _elements_infer,
    needs=[_elements_needs],
    emit=_elements_emit,
    reference=_elements,
)


# --- scatter_nd -------------------------------------------------------------------------------


def _nd_infer(call: graph.Call, tys: TypesOf) -> Type:
    x, at, updates = (tensor_arg(call, tys, i) for i in range(3))
    common_dtype(call, x, updates)
    _check_reduction(call, x)
    depth = depth_of(call, at)
    if depth < 0 or x.ndim < 0:
        return x
    if depth > x.ndim:
        raise fail(call, f"indices {at} name {depth} dimensions, data is {x}")
    ndim = at.ndim - 1 + x.ndim - depth
    if updates.ndim not in (-1, ndim):
        raise fail(call, f"updates must have {ndim} dimensions, is {updates}")
    if x.shape is not None and at.shape is not None and updates.shape is not None:
        wanted = (*at.shape[:-1], *x.shape[depth:])
        for a, b in zip(wanted, updates.shape, strict=True):
            if differ(call, a, b, "the extents of updates and of what they replace"):
                raise fail(call, f"updates must have shape {show(wanted)}, is {updates}")
    return x


def _nd_emit(
    call: graph.Call, out: TensorType, x: te.Tensor, at: te.Tensor, updates: te.Tensor
) -> te.Tensor:
    depth = depth_of(call, TensorType(at.shape, at.dtype))

    def place(b: Buffers, d: int, point: Indices) -> PrimExpr:
        return scalar.cast(loops.BufferLoad(b[at], (*point, expr.const(d))), "int64")

    def update(b: Buffers, point: Indices, row: Indices) -> PrimExpr:
        return loops.BufferLoad(b[updates], (*point, *row))

    target = _Target(x, attr(call, "reduction"), "T_scatter_nd")
    inputs = [x, at, updates]
    return _scatter_points(target, depth, at.shape[:-1], inputs, place, update, "T_scatter_nd")


def _nd(data: Array, indices: Array, updates: Array, reduction: str = "update") -> Array:
    places = tuple(np.moveaxis(indices.astype(np.int64), -1, 0))
    return _apply(data, places, updates, reduction)


# indices: (points…, depth), updates: (points…, the other dimensions of data).
define(
    "scatter_nd",
    params("data indices updates", reduction="update"),
    _nd_infer,
    needs=[needs_depth],
    emit=_nd_emit,
    reference=_nd,
)


# --- index_put --------------------------------------------------------------------------------


def _put_infer(call: graph.Call, tys: TypesOf) -> Type:
    x, values = tensor_arg(call, tys, 0), tensor_arg(call, tys, 2)
    common_dtype(call, x, values)
    index_fields(call, x, tys, 1)
    return x


def _put_needs(call: graph.Call, tys: TypesOf) -> None:
    x, values = tensor_arg(call, tys, 0), tensor_arg(call, tys, 2)
    points, depth = named_points(call, x, tys)
    if attr(call, "accumulate"):
        require_dtype(call, x, "a number")
    if points.shape is None and points.ndim >= 0 and x.shape is not None:
        raise fail(
            call,
            "whether the shapes of the indices broadcast depends on their symbols",
            "give them one shape with R.broadcast_to",
        )
    if x.shape is None or points.shape is None or values.shape is None:
        return
    wanted = TensorType((*points.shape, *x.shape[depth:]), x.dtype)
    spread = broadcast_types(call, x.dtype, wanted, values)
    if spread.ndim != wanted.ndim:
        raise fail(call, f"values must broadcast to {wanted}, is {values}")
    assert wanted.shape is not None
    for a, b in zip(reversed(wanted.shape), reversed(values.shape), strict=False):
        if b != ONE:
            require_equal(call, a, b, "the extents of values and of what they replace")


def _put_emit(
    call: graph.Call, out: TensorType, x: te.Tensor, ats: tuple[te.Tensor, ...], values: te.Tensor
) -> te.Tensor:
    fields = [TensorType(a.shape, a.dtype) for a in ats]
    points = broadcast_types(call, None, *fields).shape
    assert points is not None
    spread = (*points, *x.shape[len(ats) :])

    def place(b: Buffers, d: int, point: Indices) -> PrimExpr:
        at = broadcast_index(point, ats[d].shape, points)
        return scalar.cast(loops.BufferLoad(b[ats[d]], at), "int64")

    def update(b: Buffers, point: Indices, row: Indices) -> PrimExpr:
        at = broadcast_index((*point, *row), values.shape, spread)
        return loops.BufferLoad(b[values], at)

    target = _Target(x, "add" if attr(call, "accumulate") else "update", "T_index_put")
    inputs = list(dict.fromkeys((x, *ats, values)))
    return _scatter_points(target, len(ats), points, inputs, place, update, "T_index_put")


def _put(data: Array, indices: tuple[Array, ...], values: Array, accumulate: bool = False) -> Array:
    places = np.broadcast_arrays(*(a.astype(np.int64) for a in indices))
    spread = np.broadcast_to(values, (*places[0].shape, *data.shape[len(places) :]))
    return _apply(data, tuple(places), spread, "add" if accumulate else "update")


define(
    "index_put",
    params("data indices values", accumulate=False),
    _put_infer,
    needs=[_put_needs],
    emit=_put_emit,
    reference=_put,
)


# --- take_backward ----------------------------------------------------------------------------


def _take_needs(call: graph.Call, tys: TypesOf) -> None:
    grad, x, at = (tensor_arg(call, tys, i) for i in range(3))
    axis = attr(call, "axis")
    if axis is None and x.ndim not in (-1, 1):
        raise fail(call, f"axis must be given for a tensor with {x.ndim} dimensions")
    if x.ndim < 0 or at.ndim < 0:
        return
    axis = normal_axis(call, 0 if axis is None else axis, x.ndim)
    if x.shape is not None and at.shape is not None and grad.shape is not None:
        wanted = (*x.shape[:axis], *at.shape, *x.shape[axis + 1 :])
        same = len(wanted) == len(grad.shape) and not any(
            differ(call, a, b, "the extents of output_grad and of what was taken")
            for a, b in zip(wanted, grad.shape, strict=True)
        )
        if not same:
            raise fail(call, f"output_grad must have shape {show(wanted)}, is {grad}")
        require_elements(call, (x.shape[axis],), wanted)


def _take_emit(
    call: graph.Call, out: TensorType, grad: te.Tensor, x: te.Tensor, at: te.Tensor
) -> te.Tensor:
    axis = normal_axis(call, attr(call, "axis") or 0, x.ndim)
    rows = (*x.shape[:axis], *x.shape[axis + 1 :])
    wide, extent = scalar.accumulator_of(x.dtype), x.shape[axis]

    def body(row: tuple[expr.Var, ...], b: Buffers) -> loops.Stmt:
        def along(p: PrimExpr) -> Indices:
            return (*row[:axis], p, *row[axis:])

        def one(point: Indices) -> loops.Stmt:
            named = expr.Var("at")
            place = scalar.clamp(
                scalar.cast(loops.BufferLoad(b[at], point), "int64"), 0, extent - 1
            )
            value = loops.BufferLoad(b[grad], (*row[:axis], *point, *row[axis:]))
            total = loops.BufferLoad(b[result], along(named)) + scalar.cast(value, wide)
            return loops.LetStmt(named, place, loops.BufferStore(b[result], total, along(named)))

        zero = expr.const(0, wide)
        clear = _loop_over([extent], "c", lambda i: loops.BufferStore(b[result], zero, along(i[0])))
        return loops.seq(clear, _loop_over(at.shape, "p", one))

    outputs = [("T_take_backward", x.shape, wide)]
    (result,) = te.compute_rows(rows, outputs, [grad, at], body, "T_take_backward")
    return narrow(result, x.dtype)


def _take(output_grad: Array, x: Array, indices: Array, axis: int | None = None) -> Array:
    axis = (axis or 0) % x.ndim
    result = np.zeros(x.shape, scalar.accumulator_of(x.dtype.name))
    if output_grad.size == 0:  # where the axis has no elements, either, NumPy refuses the indices
        return result.astype(x.dtype)
    at = np.clip(indices.astype(np.int64), 0, x.shape[axis] - 1)
    first = np.moveaxis(result, axis, 0)
    ends = range(axis, axis + indices.ndim)
    np.add.at(first, at, np.moveaxis(output_grad, ends, range(indices.ndim)).astype(result.dtype))
    return result.astype(x.dtype)


# What `take` passes back: each gradient is added where its element was taken.
define(
    "grad.take_backward",
    params("output_grad x indices", axis=None),
    type_of_argument(1),
    needs=[one_dtype(0, 1), takes("floating point", 1), takes("integer", 2), _take_needs],
    emit=_take_emit,
    reference=_take,
)


# --- slice_scatter ----------------------------------------------------------------------------


def _slice(call: graph.Call, extent: PrimExpr) -> tuple[PrimExpr, PrimExpr, int]:
    """First index, count and step of the part that is replaced, with Python's meaning."""
    start, end = (
        _bound(number(call, n, attr(call, n), whole=True), extent) for n in ("start", "end")
    )
    step = _step(call)
    count = simplify((end - start + (step - 1)) // step)
    return start, at_least(count, te.ZERO), step


def _step(call: graph.Call) -> int:
    step = attr(call, "step")
    if not isinstance(step, int) or step < 1:
        raise fail(call, f"step must be an int of at least 1, is {step}")
    return step


def _bound(value: PrimExpr, extent: PrimExpr) -> PrimExpr:
    negative = isinstance(value, expr.IntImm) and value.value < 0
    return at_least(at_most(extent + value if negative else value, extent), te.ZERO)


def _slice_infer(call: graph.Call, tys: TypesOf) -> Type:
    x, src = tensor_arg(call, tys, 0), tensor_arg(call, tys, 1)
    common_dtype(call, x, src)
    if x.ndim < 0:
        return x
    axis = normal_axis(call, attr(call, "axis"), x.ndim)
    _step(call)
    if src.ndim not in (-1, x.ndim):
        raise fail(call, f"src must have {x.ndim} dimensions, is {src}")
    if x.shape is None or src.shape is None:
        return x
    _, count, _ = _slice(call, x.shape[axis])
    wanted = (*x.shape[:axis], count, *x.shape[axis + 1 :])
    for a, b in zip(wanted, src.shape, strict=True):
        if differ(call, a, b, "the extents of src and of what it replaces"):
            raise fail(call, f"src must have shape {show(wanted)}, is {src}")
    return x


def _slice_emit(call: graph.Call, out: TensorType, x: te.Tensor, src: te.Tensor) -> te.Tensor:
    axis = normal_axis(call, attr(call, "axis"), x.ndim)
    start, count, step = _slice(call, x.shape[axis])

    def element(*i: PrimExpr) -> PrimExpr:
        ahead = i[axis] - start
        place = ahead // step
        hit = [expr.GE(ahead, te.ZERO), expr.LT(place, count)]
        hit += [] if step == 1 else [expr.EQ(ahead % step, te.ZERO)]
        read = src[(*i[:axis], place, *i[axis + 1 :])]
        return expr.if_then_else(expr.all_of(hit), read, x[i])

    return te.compute(x.shape, element, "T_slice_scatter")


def _slice_update(
    call: graph.Call, out: TensorType, x: te.Tensor, src: te.Tensor
) -> tuple[te.Tensor, Place]:
    axis = normal_axis(call, attr(call, "axis"), x.ndim)
    start, _, step = _slice(call, x.shape[axis])
    values = te.compute(src.shape, lambda *i: src[i], "T_slice_scatter")
    return values, lambda *i: (*i[:axis], start + i[axis] * step, *i[axis + 1 :])


def _slice_reference(
    input_tensor: Array, src: Array, start: int, end: int, step: int = 1, axis: int = 0
) -> Array:
    result = input_tensor.copy()
    np.moveaxis(result, axis, 0)[slice(start, end, step)] = np.moveaxis(src, axis, 0)
    return result


define(
    "slice_scatter",
    params("input_tensor src", start=REQUIRED, end=REQUIRED, step=1, axis=0),
    _slice_infer,
    emit=_slice_emit,
    update=_slice_update,
    reference=_slice_reference,
)
