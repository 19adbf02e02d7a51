"""Rows of primitives that read and write at computed places."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from relaxlab.frontend.emitter import Emitter, dtype_of, shape_of
from relaxlab.frontend.jaxpr.rows import row, takes_known
from relaxlab.frontend.jaxpr.shapes import monoid, part
from relaxlab.frontend.known import Known, tensor
from relaxlab.frontend.table import Refused
from relaxlab.ir import expr, graph
from relaxlab.ir.dtypes import is_float, is_uint
from relaxlab.ir.expr import PrimExpr

Dims = Sequence[Any]


def _mode(mode: Any) -> str:
    return str(mode).rpartition(".")[2]


def _within(b: Emitter, start: graph.Expr, last: PrimExpr) -> graph.Expr:
    """Indices moved into [0, last]."""
    return b.maximum(b.minimum(b.cast(start, "int64"), _size(b, last)), 0)


def _size(b: Emitter, value: Any) -> graph.Expr:
    return b.scalar(expr.as_expr(value), "int64")


def _window(b: Emitter, start: graph.Expr, size: PrimExpr, dims: int, at: int) -> graph.Expr:
    """Indices of a window: those of its start plus 0, 1, ... along dimension `at` of `dims`."""
    steps = b.arange(0, size, 1, dtype="int64")
    others = tuple(d for d in range(dims) if d != at)
    return b.add(start, b.expand_dims(steps, axis=others) if others else steps)


# --- Slices at computed places ----------------------------------------------------------------


@row("dynamic_slice")
@takes_known
def dynamic_slice(b: Emitter, x: Any, *starts: Any, slice_sizes: Dims, **_: Any) -> graph.Expr:
    """Dimension by dimension: a slice where the start is known, else the elements at `start + i`;
    JAX moves slices into the tensor."""
    x = tensor(b, x)
    shape = shape_of(x)
    sizes = [expr.as_expr(s) for s in slice_sizes[-len(shape) :]] if shape else []
    begin: list[Any] = [0] * len(shape)
    end: list[Any] = list(shape)
    later: list[tuple[int, graph.Expr]] = []
    for d, (start, size) in enumerate(zip(starts, sizes, strict=False)):
        if size == shape[d]:
            continue
        if isinstance(start, Known):
            begin[d] = _clamped(start.number, shape[d] - size)
            end[d] = begin[d] + size
        else:
            later.append((d, start))
    x = part(b, x, begin, end)
    for d, start in later:
        places = _window(b, _within(b, start, shape[d] - sizes[d]), sizes[d], 1, 0)
        x = b.take(x, places, axis=d, mode="clip")
    return x


def _clamped(start: Any, last: PrimExpr) -> PrimExpr:
    return expr.binary(expr.Max, expr.binary(expr.Min, expr.as_expr(start), last), 0)


@row("dynamic_update_slice")
@takes_known
def dynamic_update_slice(b: Emitter, x: Any, update: Any, *starts: Any) -> graph.Expr:
    """`R.slice_scatter` where one dimension is written in part and its start is known, which works
    in place where it can; else a choice, element by element."""
    x, update = tensor(b, x), tensor(b, update)
    shape, sizes = shape_of(x), shape_of(update)
    parts = [d for d in range(len(shape)) if shape[d] != sizes[d]]
    if not parts:
        return update
    if len(parts) == 1 and isinstance(starts[parts[0]], Known):
        (d,) = parts
        begin = _clamped(starts[d].number, shape[d] - sizes[d])
        return b.slice_scatter(x, update, begin, begin + sizes[d], 1, axis=d)
    inside: graph.Expr | None = None
    for d in parts:
        start = _within(b, tensor(b, starts[d]), shape[d] - sizes[d])
        offset = b.subtract(b.arange(0, shape[d], 1, dtype="int64"), start)
        here = b.logical_and(b.greater_equal(offset, 0), b.less(offset, _size(b, sizes[d])))
        update = b.take(update, offset, axis=d, mode="clip")
        others = tuple(range(1, len(shape) - d))
        here = b.expand_dims(here, axis=others) if others else here
        inside = here if inside is None else b.logical_and(inside, here)
    return b.where(inside, update, x)


# --- Gather -----------------------------------------------------------------------------------


def _starts(b: Emitter, indices: graph.Expr) -> list[graph.Expr]:
    """The columns of an index tensor, whose last dimension is the depth."""
    shape = shape_of(indices)
    depth = shape[-1]
    assert isinstance(depth, expr.IntImm)
    axis = len(shape) - 1
    begin, end = [0] * len(shape), list(shape)
    columns: list[graph.Expr] = []
    for k in range(depth.value):
        begin[axis], end[axis] = k, expr.const(k + 1)
        columns.append(b.squeeze(part(b, indices, begin, end), axis=(axis,)))
    return columns


@row("gather")
@takes_known
def gather(
    b: Emitter, x: Any, indices: Any, *, dimension_numbers: Any, slice_sizes: Dims, mode: Any,
    fill_value: Any, **_: Any,
) -> graph.Expr:  # fmt: skip
    x, numbers = tensor(b, x), dimension_numbers
    sizes = [expr.as_expr(s) for s in slice_sizes]
    if isinstance(indices, Known) and indices.values.ndim == 1 and _mode(mode) != "FILL_OR_DROP":
        return _known_slice(b, x, indices, numbers, sizes)
    x, indices = _without_parts(b, x, numbers, sizes), tensor(b, indices)
    shape, columns = shape_of(x), _starts(b, indices)
    points = shape_of(indices)[:-1]
    places, valid = _places(b, shape, sizes, columns, numbers, mode, "start_index_map",
                            "operand_batching_dims", "start_indices_batching_dims")  # fmt: skip
    # First the dimensions that are indexed, so that the others stay as they are.
    order = [*places, *(d for d in range(len(shape)) if d not in places)]
    windows = [d for d in places if d not in _collapsed(numbers)]
    read = _read(b, x, order, [places[d] for d in places], len(points), windows, sizes)
    if valid is not None:
        fill = b.const(_fill(fill_value, dtype_of(x)), dtype_of(x))
        rank = len(shape_of(read)) - len(points)
        valid = b.expand_dims(valid, axis=tuple(range(-rank, 0))) if rank else valid
        read = b.where(valid, read, fill)
    kept = [*windows, *(d for d in range(len(shape)) if d not in places)]
    return _arranged(b, read, kept, numbers, len(points))


def _collapsed(numbers: Any) -> tuple[int, ...]:
    return (*numbers.collapsed_slice_dims, *numbers.operand_batching_dims)


def _known_slice(
    b: Emitter, x: graph.Expr, indices: Known, numbers: Any, sizes: list[PrimExpr]
) -> graph.Expr:
    """One window at a known place is a slice."""
    shape = shape_of(x)
    begin: list[PrimExpr] = [expr.const(0)] * len(shape)
    for d, start in zip(numbers.start_index_map, indices.flat(), strict=True):
        begin[d] = _clamped(start, shape[d] - sizes[d])
    end = [at + size for at, size in zip(begin, sizes, strict=True)]
    x = part(b, x, begin, end)
    gone = tuple(int(d) for d in numbers.collapsed_slice_dims)
    return b.squeeze(x, axis=gone) if gone else x


def _without_parts(
    b: Emitter, x: graph.Expr, numbers: Any, sizes: list[PrimExpr]
) -> graph.Expr:
    """The tensor with dimensions that are not indexed cut to the slice."""
    shape = shape_of(x)
    moved = {*map(int, numbers.start_index_map), *map(int, numbers.operand_batching_dims)}
    end = [e if d in moved else s for d, (e, s) in enumerate(zip(shape, sizes, strict=True))]
    return part(b, x, [0] * len(shape), end)


def _places(
    b: Emitter, shape: Sequence[PrimExpr], sizes: list[PrimExpr], columns: list[graph.Expr],
    numbers: Any, mode: Any, index_map: str, batching: str, index_batching: str,
) -> tuple[dict[int, graph.Expr], graph.Expr | None]:  # fmt: skip
    """The first index of the window by dimension of the tensor, one for each point, and where all
    of it is inside, unless the mode moves windows into the tensor. Batching dimensions come first;
    each is indexed by its own place."""
    points = len(shape_of(columns[0])) if columns else 0
    places: dict[int, graph.Expr] = {}
    for d, at in zip(getattr(numbers, batching), getattr(numbers, index_batching), strict=True):
        own = b.arange(0, shape[int(d)], 1, dtype="int64")
        others = tuple(range(1, points - int(at)))
        places[int(d)] = b.expand_dims(own, axis=others) if others else own
    valid: graph.Expr | None = None
    for column, d in zip(columns, map(int, getattr(numbers, index_map)), strict=True):
        start, last = b.cast(column, "int64"), shape[d] - sizes[d]
        places[d] = _within(b, start, last)
        if _mode(mode) == "FILL_OR_DROP":
            inside = b.logical_and(
                b.greater_equal(start, 0), b.less_equal(start, _size(b, last))
            )
            valid = inside if valid is None else b.logical_and(valid, inside)
    return places, valid


def _read(
    b: Emitter, x: graph.Expr, order: list[int], starts: list[graph.Expr], points: int,
    windows: list[int], sizes: list[PrimExpr],
) -> graph.Expr:  # fmt: skip
    """The elements at all points and window places: dimensions of the points, then of the windows,
    then those that are not indexed."""
    dims = points + len(windows)
    moved = x if order == sorted(order) else b.permute_dims(x, axes=tuple(order))
    indexed = order[: len(starts)]
    indices: list[graph.Expr] = []
    for d, start in zip(indexed, starts, strict=True):
        lead = points - len(shape_of(start))
        axes = (*range(lead), *range(points, dims))
        start = b.expand_dims(start, axis=axes) if axes else start
        if d in windows:
            start = _window(b, start, sizes[d], dims, points + windows.index(d))
        indices.append(start)
    if len(indices) == 1 and points + len(windows) == len(shape_of(indices[0])):
        return b.take(moved, indices[0], axis=0, mode="clip")
    if not indices:
        return moved
    return b.index_tensor(moved, tuple(indices))


def _arranged(
    b: Emitter, read: graph.Expr, kept: list[int], numbers: Any, points: int
) -> graph.Expr:
    """The result with the window's dimensions, in the order of the tensor, at `offset_dims`."""
    offsets = [int(d) for d in numbers.offset_dims]
    place = {d: points + kept.index(d) for d in kept}
    axes: list[int] = [-1] * (points + len(kept))
    for d, target in zip(sorted(kept), offsets, strict=True):
        axes[target] = place[d]
    rest = iter(range(points))
    axes = [a if a >= 0 else next(rest) for a in axes]
    return read if axes == sorted(axes) else b.permute_dims(read, axes=tuple(axes))


def _fill(fill_value: Any, dtype: str) -> Any:
    """Return the value to fill with, by default JAX's: NaN, the smallest integer, the largest
    unsigned one."""
    if fill_value is not None:
        return fill_value
    if is_float(dtype):
        return math.nan
    if dtype == "bool":
        return True
    bound = expr.highest(dtype) if is_uint(dtype) else expr.lowest(dtype)
    assert isinstance(bound, expr.IntImm)
    return bound.value


# --- Scatter ----------------------------------------------------------------------------------

REDUCTIONS = {"sum": "add", "prod": "mul", "max": "max", "min": "min"}


def _scatter(reduction: str | None) -> Any:
    def scattered(
        b: Emitter, x: graph.Expr, indices: graph.Expr, updates: graph.Expr, *,
        dimension_numbers: Any, mode: Any, update_jaxpr: Any = None, **_: Any,
    ) -> graph.Expr:  # fmt: skip
        kind = reduction
        if kind is None:
            replaced = update_jaxpr is None or not getattr(update_jaxpr, "jaxpr", update_jaxpr).eqns
            kind = "update" if replaced else REDUCTIONS[monoid(update_jaxpr)[1]]
        if kind == "sub":
            updates, kind = b.negative(updates), "add"
        return scatter(b, x, indices, updates, dimension_numbers, mode, kind)

    return scattered


row("scatter", _scatter(None))
for _name in ("add", "sub", "mul", "min", "max"):
    row(f"scatter-{_name}", _scatter(_name))


def scatter(
    b: Emitter, x: graph.Expr, indices: graph.Expr, updates: graph.Expr, numbers: Any, mode: Any,
    kind: str,
) -> graph.Expr:  # fmt: skip
    """`R.scatter_nd` into the tensor with its indexed dimensions first, then back."""
    shape, points = shape_of(x), len(shape_of(indices)) - 1
    sizes = _window_sizes(shape, shape_of(updates), numbers)
    columns = _starts(b, indices)
    places, valid = _places(b, shape, sizes, columns, numbers, mode, "scatter_dims_to_operand_dims",
                            "operand_batching_dims", "scatter_indices_batching_dims")  # fmt: skip
    if not places:  # a single window at the start
        raise Refused("scatters without indices")
    gone = {*map(int, numbers.inserted_window_dims), *map(int, numbers.operand_batching_dims)}
    partial = [d for d in range(len(shape)) if d not in gone and d not in places
               and sizes[d] != shape[d]]  # fmt: skip
    for d in partial:
        places[d] = b.const(0, "int64")
    order = [*places, *(d for d in range(len(shape)) if d not in places)]
    windows = [d for d in places if d not in gone]
    if valid is not None:  # beyond the tensor, where updates are left out
        (first, start) = next(iter(places.items()))
        places[first] = b.where(valid, start, _size(b, shape[first]))
    dims = points + len(windows)
    at = [_spread(b, s, points, dims, d, windows, sizes) for d, s in places.items()]
    extents = [*shape_of(indices)[:-1], *(sizes[d] for d in windows)]
    whole = b.stack([b.broadcast_to(i, extents) for i in at], axis=dims)
    moved = x if order == sorted(order) else b.permute_dims(x, axes=tuple(order))
    values = _updates_in_order(b, updates, numbers, points, windows, order[len(places) :])
    result = b.scatter_nd(moved, whole, values, reduction=kind)
    back = tuple(order.index(d) for d in range(len(shape)))
    return result if order == sorted(order) else b.permute_dims(result, axes=back)


def _spread(
    b: Emitter, start: graph.Expr, points: int, dims: int, d: int, windows: list[int],
    sizes: list[PrimExpr],
) -> graph.Expr:  # fmt: skip
    """The indices along one dimension at all points and window places."""
    lead = points - len(shape_of(start))
    axes = (*range(lead), *range(points, dims))
    start = b.expand_dims(start, axis=axes) if axes else start
    if d in windows:
        return _window(b, start, sizes[d], dims, points + windows.index(d))
    return start


def _window_sizes(
    shape: Sequence[PrimExpr], updates: Sequence[PrimExpr], numbers: Any
) -> list[PrimExpr]:
    """The extents of an update in the dimensions of the tensor."""
    gone = {*map(int, numbers.inserted_window_dims), *map(int, numbers.operand_batching_dims)}
    given = iter(int(d) for d in numbers.update_window_dims)
    return [expr.const(1) if d in gone else updates[next(given)] for d in range(len(shape))]


def _updates_in_order(
    b: Emitter, updates: graph.Expr, numbers: Any, points: int, windows: list[int], rest: list[int]
) -> graph.Expr:
    """The updates with the dimensions of the points first, then of the windows, then the others."""
    gone = {*map(int, numbers.inserted_window_dims), *map(int, numbers.operand_batching_dims)}
    window_dims = [int(d) for d in numbers.update_window_dims]
    count = len(shape_of(updates))
    operand_dims = [d for d in range(count + len(gone)) if d not in gone][: len(window_dims)]
    place = dict(zip(operand_dims, window_dims, strict=True))
    lead = [d for d in range(count) if d not in window_dims]
    axes = (*lead, *(place[d] for d in (*windows, *rest)))
    return updates if list(axes) == sorted(axes) else b.permute_dims(updates, axes=axes)
