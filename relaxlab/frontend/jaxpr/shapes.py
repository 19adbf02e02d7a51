"""Rows of primitives on shapes and order, reductions, scans, windows and sorting."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from relaxlab.frontend.emitter import Emitter, dtype_of, shape_of
from relaxlab.frontend.jaxpr.rows import dtype_of_out, row, shape_of_out, takes_known
from relaxlab.frontend.known import Known, constant, named, tensor
from relaxlab.frontend.table import Refused
from relaxlab.ir import expr, graph
from relaxlab.ir.expr import PrimExpr
from relaxlab.ops import te

Dims = Sequence[Any]

# --- Shapes -----------------------------------------------------------------------------------


@row("broadcast_in_dim")
def broadcast_in_dim(
    b: Emitter, x: graph.Expr, *, shape: Dims, broadcast_dimensions: Dims, **_: Any
) -> graph.Expr:
    dims, kept = shape_of_out(b), {int(d) for d in broadcast_dimensions}
    new = [d for d in range(len(dims)) if d not in kept]
    expanded = b.expand_dims(x, axis=tuple(new)) if new and shape_of(x) else x
    return expanded if shape_of(expanded) == dims else b.broadcast_to(expanded, dims)


@row("reshape")
def reshape(b: Emitter, x: graph.Expr, *, dimensions: Dims | None = None, **_: Any) -> graph.Expr:
    if dimensions is not None:
        x = b.permute_dims(x, axes=tuple(map(int, dimensions)))
    return b.reshape(x, shape_of_out(b))


@row("transpose")
def transpose(b: Emitter, x: graph.Expr, *, permutation: Dims) -> graph.Expr:
    return b.permute_dims(x, axes=tuple(map(int, permutation)))


@row("squeeze")
def squeeze(b: Emitter, x: graph.Expr, *, dimensions: Dims) -> graph.Expr:
    return b.squeeze(x, axis=tuple(map(int, dimensions))) if len(dimensions) else x


@row("concatenate")
def concatenate(b: Emitter, *xs: graph.Expr, dimension: int) -> graph.Expr:
    return xs[0] if len(xs) == 1 else b.concat(xs, axis=int(dimension))


@row("stack")
def stack(b: Emitter, *xs: graph.Expr, axis: int) -> graph.Expr:
    return b.stack(xs, axis=int(axis))


@row("rev")
def rev(b: Emitter, x: graph.Expr, *, dimensions: Dims) -> graph.Expr:
    for d in dimensions:
        x = b.flip(x, axis=int(d))
    return x


@row("tile")
def tile(b: Emitter, x: graph.Expr, *, reps: Dims) -> graph.Expr:
    return b.tile(x, tuple(map(int, reps)))


@row("iota")
def iota(b: Emitter, *, dimension: int, **_: Any) -> graph.Expr:
    dims = shape_of_out(b)
    numbers = b.arange(0, dims[dimension], 1, dtype=dtype_of_out(b))
    if len(dims) == 1:
        return numbers
    others = tuple(d for d in range(len(dims)) if d != dimension)
    return b.broadcast_to(b.expand_dims(numbers, axis=others), dims)


@row("empty")
def empty(b: Emitter, **_: Any) -> graph.Expr:
    return b.zeros(shape_of_out(b), dtype=dtype_of_out(b))


# --- Parts ------------------------------------------------------------------------------------


def part(b: Emitter, x: Any, begin: Dims, end: Dims, steps: Dims | None = None) -> Any:
    """The slice from `begin` to `end` of all dimensions; whole dimensions are left alone."""
    shape = shape_of(x)
    axes = [
        d for d, extent in enumerate(shape)
        if not (_is(begin[d], 0) and (end[d] == extent or _is(extent, end[d]))
                and (steps is None or int(steps[d]) == 1))
    ]  # fmt: skip
    if not axes:
        return x
    starts, ends = ([expr.as_expr(v[d]) for d in axes] for v in (begin, end))
    strides = [expr.const(1 if steps is None else int(steps[d])) for d in axes]
    # JAX has proved that the slice is inside.
    return b.strided_slice(x, axes, starts, ends, strides, assume_inbound=True)


def _is(value: Any, number: Any) -> bool:
    value = value.value if isinstance(value, expr.IntImm) else value
    return not isinstance(value, PrimExpr) and not isinstance(number, PrimExpr) and value == number


@row("slice")
def slice_(
    b: Emitter, x: graph.Expr, *, start_indices: Dims, limit_indices: Dims, strides: Dims | None
) -> graph.Expr:
    return part(b, x, start_indices, limit_indices, strides)


@row("split")
def split(b: Emitter, x: graph.Expr, *, sizes: Dims, axis: int) -> tuple[graph.Expr, ...]:
    """The parts one after the other; their sizes may be symbolic."""
    start: Any = expr.const(0)
    parts: list[graph.Expr] = []
    for size in sizes:
        end = start + size
        parts.append(along(b, x, int(axis), start, end))
        start = end
    return tuple(parts)


def along(b: Emitter, x: graph.Expr, axis: int, start: Any, end: Any) -> graph.Expr:
    """The part of a tensor along one axis."""
    shape = shape_of(x)
    begin: list[Any] = [0] * len(shape)
    limit: list[Any] = list(shape)
    begin[axis], limit[axis] = start, end
    return part(b, x, begin, limit)


@row("unstack")
def unstack(b: Emitter, x: graph.Expr, *, axis: int) -> tuple[graph.Expr, ...]:
    parts = (along(b, x, axis, i, i + 1) for i in range(len(b.out)))
    return tuple(b.squeeze(p, axis=(axis,)) for p in parts)


# --- Padding ----------------------------------------------------------------------------------


@row("pad")
@takes_known
def pad_row(b: Emitter, x: Any, value: Any, *, padding_config: Sequence[Dims]) -> graph.Expr:
    return pad(b, tensor(b, x), value, padding_config)


def pad(b: Emitter, x: graph.Expr, value: Any, config: Sequence[Dims]) -> graph.Expr:
    """Margins of a value before, behind and between the elements of each dimension; negative ones
    cut elements off. `R.nn.pad` where the widths are numbers that it takes, else loops."""
    fill = constant(value) if isinstance(value, Known) else None
    plain = all(
        isinstance(w, int | np.integer) and w >= 0 for low, high, _ in config for w in (low, high)
    )
    if plain and fill is not None and dtype_of(x) != "bool" and not any(c[2] for c in config):
        widths = tuple(int(w) for low, high, _ in config for w in (low, high))
        return b.pad(x, pad_width=widths, pad_value=fill.item()) if any(widths) else x
    whole = [(expr.as_expr(low), expr.as_expr(high), int(gap)) for low, high, gap in config]
    return b.te(_padded, x, tensor(b, value), widths=whole, name="pad")


def _padded(x: te.Tensor, value: te.Tensor, widths: list[tuple[PrimExpr, PrimExpr, int]]) -> Any:
    shape = tuple(
        low + expr.binary(expr.Max, (n - 1) * (gap + 1) + 1, 0) + high
        for n, (low, high, gap) in zip(x.shape, widths, strict=True)
    )

    def element(*i: PrimExpr) -> PrimExpr:
        places: list[PrimExpr] = []
        inside: list[PrimExpr] = []
        for at, n, (low, _, gap) in zip(i, x.shape, widths, strict=True):
            place = at - low
            inside += [expr.GE(place, te.ZERO), expr.LT(place, n * (gap + 1))]
            inside += [expr.EQ(place % (gap + 1), te.ZERO)] if gap else []
            places.append(place // (gap + 1) if gap else place)
        return expr.if_then_else(expr.all_of(inside), x[tuple(places)], value[()])

    return te.compute(shape, element, "T_pad")


# --- Reductions -------------------------------------------------------------------------------


def _reduce(name: str) -> Any:
    def reduced(b: Emitter, x: graph.Expr, *, axes: Dims, **_: Any) -> graph.Expr:
        return getattr(b, name)(x, axis=tuple(map(int, axes))) if len(axes) else x

    return reduced


for _name, _ours in {"sum": "sum", "max": "max", "min": "min", "prod": "prod"}.items():
    row(f"reduce_{_name}", _reduce(_ours))


def _reduce_bool(name: str) -> Any:
    def reduced(b: Emitter, x: graph.Expr, *, axes: Dims, **_: Any) -> graph.Expr:
        if dtype_of(x) != "bool":
            raise Refused("reduces the bits of integers")
        return b.cast(_reduce(name)(b, b.cast(x, "uint8"), axes=axes), "bool")

    return reduced


row("reduce_and", _reduce_bool("min"))
row("reduce_or", _reduce_bool("max"))

MONOIDS = {
    "add": ("add", "sum"), "mul": ("multiply", "prod"), "max": ("maximum", "max"),
    "min": ("minimum", "min"), "and": ("bitwise_and", "min"), "or": ("bitwise_or", "max"),
}  # fmt: skip
"""By the primitive of a reducer: the operators of two tensors and of axes."""


def monoid(jaxpr: Any) -> tuple[str, str]:
    """The operators of a reducer that is one primitive of its two arguments. Raises Refused."""
    inner = getattr(jaxpr, "jaxpr", jaxpr)
    if len(inner.eqns) == 1 and inner.eqns[0].primitive.name in MONOIDS:
        return MONOIDS[inner.eqns[0].primitive.name]
    names = ", ".join(e.primitive.name for e in inner.eqns)
    raise Refused(f"reduces by a function of several primitives ({names})")


@row("reduce")
def reduce(b: Emitter, *operands: graph.Expr, jaxpr: Any, dimensions: Dims, **_: Any) -> graph.Expr:
    if len(operands) != 2:
        raise Refused("reduces several tensors together")
    combine, over = monoid(jaxpr)
    x, start = operands
    if dtype_of(x) == "bool":
        result = _reduce_bool(over)(b, x, axes=dimensions)
    else:
        result = _reduce(over)(b, x, axes=dimensions)
    return getattr(b, combine)(result, start)


def _arg(name: str) -> Any:
    def chosen(b: Emitter, x: graph.Expr, *, axes: Dims, **_: Any) -> graph.Expr:
        (axis,) = axes
        return b.cast(getattr(b, name)(x, axis=int(axis)), dtype_of_out(b))

    return chosen


row("argmax", _arg("argmax"))
row("argmin", _arg("argmin"))


def _scan(name: str) -> Any:
    def scanned(b: Emitter, x: graph.Expr, *, axis: int, reverse: bool) -> graph.Expr:
        x = b.flip(x, axis=axis) if reverse else x
        result = getattr(b, name)(x, axis=axis)
        return b.flip(result, axis=axis) if reverse else result

    return scanned


for _name in ("cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp"):
    row(_name, _scan(_name))


# --- Windows ----------------------------------------------------------------------------------


def _window_attrs(window: Dims, strides: Dims, dilation: Dims) -> dict[str, tuple[int, ...]]:
    if not all(isinstance(w, int | np.integer) for w in window):
        raise Refused(f"windows of symbolic sizes {tuple(map(str, window))}")
    given = {"window": window, "strides": strides, "dilation": dilation}
    return {k: tuple(map(int, v)) for k, v in given.items()}


def _flat_padding(padding: Sequence[Dims]) -> tuple[PrimExpr, ...]:
    return tuple(expr.as_expr(p[side]) for side in (0, 1) for p in padding)


START = {"sum": 0, "prod": 1, "max": -np.inf, "min": np.inf}


def windows(
    b: Emitter, x: graph.Expr, kind: str, window_dimensions: Dims, window_strides: Dims,
    padding: Sequence[Dims], base_dilation: Dims, window_dilation: Dims,
) -> graph.Expr:  # fmt: skip
    """The reductions of sliding windows of all dimensions."""
    if any(int(d) != 1 for d in base_dilation):
        start = Known.of(START[kind], dtype_of(x))
        x = pad(b, x, start, [(0, 0, int(d) - 1) for d in base_dilation])
    attrs = _window_attrs(window_dimensions, window_strides, window_dilation)
    return b.reduce_window(x, _flat_padding(padding), **attrs, reduction=kind)


for _kind in ("sum", "max", "min"):
    row(
        f"reduce_window_{_kind}",
        lambda b, x, kind=_kind, **params: windows(b, x, kind, **params),
    )


@row("reduce_window")
def reduce_window(b: Emitter, x: Any, start: Any, *, jaxpr: Any, **params: Any) -> Any:
    combine, kind = monoid(jaxpr)
    params.pop("consts", None)
    return getattr(b, combine)(windows(b, x, kind, **params), start)


@row("select_and_scatter_add")
def max_window_gradient(
    b: Emitter, grad: graph.Expr, x: graph.Expr, *, select_prim: Any, window_dimensions: Dims,
    window_strides: Dims, padding: Sequence[Dims],
) -> graph.Expr:  # fmt: skip
    if select_prim.name != "ge":
        raise Refused("the gradient of minima over windows")
    attrs = _window_attrs(window_dimensions, window_strides, (1,) * len(window_strides))
    name = "grad.reduce_window_max_backward"
    return named(b, name, grad, x, _flat_padding(padding), **attrs)


# --- Sorting ----------------------------------------------------------------------------------


@row("sort")
def sort(b: Emitter, *operands: graph.Expr, dimension: int, num_keys: int, **_: Any) -> Any:
    """Several operands are put in the order of the first `num_keys`, the first of which counts
    most: sorted stably by each, the last one first."""
    if len(operands) == 1:
        return b.sort(operands[0], axis=dimension)
    order = None
    for key in reversed(operands[:num_keys]):
        ordered = key if order is None else b.gather_elements(key, order, axis=dimension)
        by_key = b.argsort(ordered, axis=dimension)
        order = by_key if order is None else b.gather_elements(order, by_key, axis=dimension)
    return tuple(b.gather_elements(x, order, axis=dimension) for x in operands)


@row("top_k")
def top_k(b: Emitter, x: graph.Expr, *, k: int, axis: int, **_: Any) -> tuple[graph.Expr, ...]:
    return b.fields(b.topk(x, k=int(k), axis=axis))


@row("approx_top_k")
def approx_top_k(
    b: Emitter, x: graph.Expr, *, k: int, reduction_dimension: int, is_max_k: bool, **_: Any
) -> tuple[graph.Expr, ...]:
    """The exact ones, which are an approximation of any quality."""
    return b.fields(b.topk(x, k=int(k), axis=reduction_dimension, largest=is_max_k))
