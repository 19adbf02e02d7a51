"""Reading and writing at places that tensors name."""

from __future__ import annotations

from typing import Any

from relaxlab.analysis.arith import Analyzer
from relaxlab.frontend.emitter import Emitter, Tensor, dtype_of, shape_of
from relaxlab.frontend.pytorch.rows.elementwise import as_tensor, converted, out_dtype, where
from relaxlab.frontend.pytorch.rows.shapes import out_shape, permuted
from relaxlab.frontend.pytorch.rows.table import row
from relaxlab.frontend.table import Refused
from relaxlab.ir import expr, graph
from relaxlab.ir.dtypes import is_float
from relaxlab.ir.expr import PrimExpr
from relaxlab.ir.row_major import product
from relaxlab.ir.types import ShapeType, TensorType
from relaxlab.ops import te
from relaxlab.ops.shapes import broadcast_index

Indices = list[Tensor | None]


def from_front(b: Emitter, index: Tensor, extent: PrimExpr) -> Tensor:
    """Indices counted from the front: negative ones count from the end."""
    index = b.cast(index, "int64")
    return b.where(b.less(index, 0), b.add(index, b.scalar(extent, "int64")), index)


@row("aten.embedding.default")
def embedding(b: Emitter, weight: Tensor, indices: Tensor, *_: Any) -> Tensor:
    return b.take(weight, indices, axis=0)


@row("aten.index_select.default")
def index_select(b: Emitter, x: Tensor, dim: int, index: Tensor) -> Tensor:
    if not shape_of(x):
        return x
    if not shape_of(index):
        index = b.reshape(index, (1,))
    return b.take(x, index, axis=dim)


def without_masks(b: Emitter, indices: Indices) -> Indices:
    """Bool tensors among indices as the places where they are true, a tensor of indices for each
    dimension."""
    found: Indices = []
    for index in indices:
        if index is None or dtype_of(index) not in ("bool", "uint8"):
            found.append(index)
            continue
        rank, places = len(shape_of(index)), b.nonzero(index)
        places = counted_places(b, places, rank)
        found += [b.take(places, expr.const(d), axis=0) for d in range(rank)]
    return found


def counted_places(b: Emitter, places: Tensor, rank: int) -> Tensor:
    """The result of `nonzero`, whose length PyTorch gives a new symbol."""
    counts = [d for d in out_shape(b) if isinstance(d, expr.Var) and d.name.startswith("u")]
    if not counts:
        raise Refused("the number of elements where a mask holds has no symbol")
    ty = TensorType((expr.const(rank), counts[0]), "int64")
    return b.builder.match_cast(places, ty)


def broadcast_shape(b: Emitter, tensors: list[Tensor]) -> tuple[PrimExpr, ...]:
    """The shape to which tensors broadcast."""
    rank = max(len(shape_of(t)) for t in tensors)
    found = [expr.const(1)] * rank
    for t in tensors:
        for d, extent in enumerate(reversed(shape_of(t)), 1):
            if found[-d] == expr.const(1):
                found[-d] = extent  # type: ignore[assignment]
    return tuple(found)


def places_of(indices: Indices) -> tuple[list[int], int]:
    """The dimensions that are indexed, and where the dimensions of the indices stand in the result:
    at the first where these are neighbours, else in front."""
    dims = [d for d, index in enumerate(indices) if index is not None]
    neighbours = dims == list(range(dims[0], dims[0] + len(dims)))
    return dims, dims[0] if neighbours else 0


@row("aten.index.Tensor", "aten._unsafe_index.Tensor")
def index(b: Emitter, x: Tensor, indices: Indices) -> Tensor:
    indices = without_masks(b, indices)
    dims, at = places_of(indices)
    chosen = [i for i in indices if i is not None]
    shape, points = shape_of(x), broadcast_shape(b, chosen)

    def gathered(x: te.Tensor, indices: tuple[te.Tensor, ...]) -> te.Tensor:
        def element(*i: PrimExpr) -> PrimExpr:
            rest = iter((*i[:at], *i[at + len(points) :]))
            point = i[at : at + len(points)]
            by_dim = dict(zip(dims, indices, strict=True))
            return x[tuple(
                place(by_dim[d], point, points, extent) if d in by_dim else next(rest)
                for d, extent in enumerate(shape)
            )]  # fmt: skip

        return te.compute(out_shape(b), element, "index")

    return b.te(gathered, x, tuple(chosen))


def place(
    index: te.Tensor, point: tuple[PrimExpr, ...], points: tuple[PrimExpr, ...], extent: PrimExpr
) -> PrimExpr:
    """The index that a tensor names at a point, counted from the front and inside the extent."""
    value = expr.Cast("int64", index[broadcast_index(point, index.shape, points)])
    value = expr.Select(expr.LT(value, expr.const(0)), value + extent, value)
    return expr.Max(expr.const(0), expr.Min(value, extent - 1))


@row("aten.index_put.default", "aten._unsafe_index_put.default", "aten._index_put_impl.default")
def index_put(
    b: Emitter, x: Tensor, indices: Indices, values: Tensor, accumulate: bool = False, *_: Any
) -> Tensor:
    mask = indices[0]
    values = b.cast(values, dtype_of(x))
    if len(indices) == 1 and mask is not None and dtype_of(mask) == "bool":
        if accumulate or any(d != expr.const(1) for d in shape_of(values)):
            raise Refused("it writes several values where a mask holds")
        tail = (expr.const(1),) * (len(shape_of(x)) - len(shape_of(mask)))
        mask = b.reshape(mask, (*shape_of(mask), *tail)) if tail else mask
        return where(b, mask, b.reshape(values, ()), x)
    dims, at = places_of(indices)
    chosen = [from_front(b, i, shape_of(x)[d]) for d, i in enumerate(indices) if i is not None]
    points = broadcast_shape(b, chosen)
    rest = [d for d in range(len(shape_of(x))) if d not in dims]
    order = [*dims, *rest]
    if at:  # the values have the dimensions before the indexed ones first
        spread = tuple(shape_of(x)[d] for d in rest)
        whole = b.broadcast_to(values, (*spread[:at], *points, *spread[at:]))
        lead = list(range(at, at + len(points)))
        others = [d for d in range(len(points) + len(rest)) if d not in lead]
        values = permuted(b, whole, [*lead, *others])
    changed = b.index_put(permuted(b, x, order), tuple(chosen), values, accumulate=accumulate)
    return permuted(b, changed, [order.index(d) for d in range(len(order))])


@row("aten.gather.default")
def gather(b: Emitter, x: Tensor, dim: int, index: Tensor, **_: Any) -> Tensor:
    if not shape_of(x):
        return b.broadcast_to(b.reshape(x, (1,)), out_shape(b)) if out_shape(b) else x
    if not shape_of(index):
        return b.reshape(b.gather_elements(x, b.reshape(index, (1,)), axis=dim), ())
    return b.gather_elements(x, index, axis=dim)


def scattered(
    b: Emitter, x: Tensor, dim: int, index: Tensor, source: Any, reduction: str
) -> Tensor:
    """`x` with elements of `source`, or one number, at the indices along a dimension."""
    dtype, shape = dtype_of(x), shape_of(index)
    if not shape_of(x):
        flat = [b.reshape(t, (1,)) for t in (x, index)]
        source = b.reshape(as_tensor(b, source, dtype), (1,))
        return b.reshape(scattered(b, flat[0], 0, flat[1], source, reduction), ())
    if not shape:
        shape, index = (expr.const(1),), b.reshape(index, (1,))
    updates = as_tensor(b, source, dtype)
    if not isinstance(source, graph.Expr) or (not shape_of(source) and shape):
        updates = b.broadcast_to(updates, shape)
    elif shape_of(source) != shape:
        axes = list(range(len(shape)))
        updates = b.strided_slice(updates, axes=axes, begin=[0] * len(axes), end=list(shape))
    return b.scatter_elements(x, index, updates, axis=dim, reduction=reduction)


row("aten.scatter.src", "aten.scatter.value",
    lambda b, x, dim, index, source: scattered(b, x, dim, index, source, "update"))  # fmt: skip
row("aten.scatter_add.default",
    lambda b, x, dim, index, source: scattered(b, x, dim, index, source, "add"))  # fmt: skip
REDUCTIONS = {"sum": "add", "prod": "mul", "amax": "max", "amin": "min", "add": "add",
              "multiply": "mul"}  # fmt: skip


@row("aten.scatter.reduce", "aten.scatter.value_reduce")
def scatter_reduce(
    b: Emitter, x: Tensor, dim: int, index: Tensor, source: Any, reduce: str
) -> Tensor:
    return scattered(b, x, dim, index, source, REDUCTIONS[reduce])


@row("aten.scatter_reduce.two")
def scatter_reduce_two(
    b: Emitter, x: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str,
    include_self: bool = True,
) -> Tensor:  # fmt: skip
    if reduce == "mean":
        total = scatter_reduce_two(b, x, dim, index, source, "sum", include_self)
        one = b.const(1, dtype_of(x))
        count = scattered(b, b.full(shape_of(x), one), dim, index, b.full(shape_of(source), one),
                          "add")  # fmt: skip
        if not include_self:
            count = b.maximum(b.subtract(count, one), one)
        return b.divide(total, count) if is_float(dtype_of(x)) else b.floor_divide(total, count)
    if not include_self:
        neutral = {"sum": 0.0, "prod": 1.0, "amax": float("-inf"), "amin": float("inf")}[reduce]
        x = scattered(b, x, dim, index, neutral, "update")
    return scattered(b, x, dim, index, source, REDUCTIONS[reduce])


@row("aten.masked_scatter.default")
def masked_scatter(b: Emitter, x: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """The elements of `source`, one after the other, where the mask holds."""
    shape = out_shape(b)
    x, mask = (b.broadcast_to(t, shape) for t in (x, mask))
    if not shape:
        x, mask = (b.reshape(t, (1,)) for t in (x, mask))
    chosen = b.cast(b.reshape(mask, (-1,)), "int64")
    number, (size, most) = b.cumsum(chosen, axis=0), (product(shape_of(t)) for t in (source, x))
    source = b.reshape(source, (-1,))
    if not Analyzer().prove(size >= most):  # then as many elements as are needed must be there
        count = expr.Var("count")
        needed = b.tensor_to_shape(b.reshape(b.sum(chosen), (1,)))
        b.claim(needed, ShapeType((count,)))
        source = b.strided_slice(source, [0], [0], [count], assume_inbound=True)
    # One more element, which none reads: places where nothing was true yet need one.
    source = b.concat((b.zeros((1,), dtype=dtype_of(source)), source), axis=0)
    taken = b.reshape(b.take(source, number, axis=0), shape_of(x))
    return b.reshape(b.where(mask, taken, x), shape)


@row("aten.index_reduce.default")
def index_reduce(
    b: Emitter, x: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str,
    include_self: bool = True,
) -> Tensor:  # fmt: skip
    """Slices of `source` onto those that the indices name."""
    if not shape_of(x):
        x, index, source = (b.reshape(t, (-1,)) for t in (x, index, source))
        return b.reshape(index_reduce(b, x, 0, index, source, reduce, include_self), ())
    shape, ones = shape_of(source), [expr.const(1)] * len(shape_of(source))
    dim %= len(shape)
    ones[dim] = shape[dim]
    at = b.broadcast_to(b.reshape(b.cast(index, "int64"), tuple(ones)), shape)
    return scatter_reduce_two(b, x, dim, at, source, reduce, include_self)


@row("aten.nonzero.default")
def nonzero(b: Emitter, x: Tensor) -> Tensor:
    rank = len(shape_of(x))
    if rank == 0:
        raise Refused("it is asked for the places of a number")
    places = counted_places(b, b.nonzero(converted(b, x, "bool")), rank)
    return permuted(b, places, [1, 0])


@row("aten.masked_select.default")
def masked_select(b: Emitter, x: Tensor, mask: Tensor) -> Tensor:
    """The elements where the mask holds, both broadcast to one shape."""
    shape = broadcast_shape(b, [x, mask])
    x, mask = (b.reshape(b.broadcast_to(t, shape), (-1,)) for t in (x, mask))
    places = counted_places(b, b.nonzero(mask), 1)
    return b.take(x, b.squeeze(places, axis=0), axis=0)


@row("aten._unique2.default")
def unique(
    b: Emitter, x: Tensor, _: bool = True, return_inverse: bool = False,
    return_counts: bool = False,
) -> Any:  # fmt: skip
    """The distinct elements in order, which of them each element is, and how many are each."""
    asked = return_inverse, return_counts
    found = b.fields(b.unique(b.reshape(x, (-1,)), return_inverse=True, return_counts=True))
    values, inverse, counts = found
    inverse = b.reshape(inverse, shape_of(x))
    pairs = enumerate(zip((inverse, counts), asked, strict=True), 1)
    return values, *(t if a else b.zeros(out_shape(b, i), dtype="int64") for i, (t, a) in pairs)


@row("aten.bincount.default")
def bincount(b: Emitter, x: Tensor, weights: Tensor | None = None, minlength: int = 0) -> Tensor:
    """The number of elements of each value from 0 on, or the sum of their weights."""
    (length,), dtype = out_shape(b), out_dtype(b)
    one = b.const(1, "int64")
    counted = b.maximum(b.add(b.max(b.cast(x, "int64")), one), b.const(minlength, "int64"))
    b.claim(b.tensor_to_shape(b.reshape(counted, (1,))), ShapeType((length,)))
    each = b.ones(shape_of(x), dtype=dtype) if weights is None else b.cast(weights, dtype)
    return scattered(b, b.zeros((length,), dtype=dtype), 0, b.cast(x, "int64"), each, "add")


@row("aten.bucketize.Tensor")
def bucketize(
    b: Emitter, x: Tensor, boundaries: Tensor, out_int32: bool = False, right: bool = False
) -> Tensor:
    found = b.bucketize(x, boundaries, out_int32=out_int32, right=right)
    return b.cast(found, out_dtype(b))


@row("aten.searchsorted.Tensor", "aten.searchsorted.Scalar")
def searchsorted(
    b: Emitter, boundaries: Tensor, x: Any, out_int32: bool = False, right: bool = False,
    side: str | None = None, sorter: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """The number of boundaries of a row that are less than an element, or at most as large."""
    if sorter is not None:
        boundaries = b.gather_elements(boundaries, sorter, axis=-1)
    right = right or side == "right"
    x = as_tensor(b, x, dtype_of(boundaries))
    if len(shape_of(boundaries)) == 1:
        return bucketize(b, x, boundaries, out_int32, right)
    rows, values = b.expand_dims(boundaries, axis=-2), b.expand_dims(x, axis=-1)
    below = (b.less_equal if right else b.less)(rows, values)
    return b.sum(b.cast(below, out_dtype(b)), axis=-1)


@row("aten._embedding_bag.default", "aten._embedding_bag_forward_only.default")
def embedding_bag(
    b: Emitter, weight: Tensor, indices: Tensor, offsets: Tensor, _: bool = False, mode: int = 0,
    sparse: bool = False, per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False, padding_idx: int = -1,
) -> Any:  # fmt: skip
    """Sums, means or maxima of rows of a matrix, bag by bag. What else PyTorch's call returns is
    for gradients, which are not taken."""
    (bags, width), dtype = out_shape(b), dtype_of(weight)
    if include_last_offset:
        offsets = b.strided_slice(offsets, [0], [0], [bags])
    numbers = b.arange(0, shape_of(indices)[0], 1, dtype=dtype_of(offsets))
    bag = b.subtract(b.cast(b.bucketize(numbers, offsets, right=True), "int64"), 1)
    rows = b.take(weight, indices, axis=0)
    if per_sample_weights is not None:
        rows = b.multiply(rows, b.expand_dims(per_sample_weights, axis=-1))
    counted = b.expand_dims(b.ones(shape_of(indices), dtype=dtype), axis=-1)
    neutral = float("-inf") if mode == 2 else 0.0
    if padding_idx >= 0:
        kept = b.expand_dims(b.not_equal(indices, padding_idx), axis=-1)
        rows = b.where(kept, rows, b.const(neutral, dtype))
        counted = b.where(kept, counted, b.const(0, dtype))
    bag, start = b.expand_dims(bag, axis=-1), b.full((bags, width), b.const(neutral, dtype))
    count = scattered(b, b.zeros((bags, 1), dtype=dtype), 0, bag, counted, "add")
    at = b.broadcast_to(bag, shape_of(rows))
    result = scattered(b, start, 0, at, rows, "max" if mode == 2 else "add")
    if mode == 1:
        result = b.divide(result, b.maximum(count, b.const(1, dtype)))
    if mode == 2:
        result = b.where(b.greater(count, b.const(0, dtype)), result, b.const(0, dtype))
    return result, *(b.zeros(t.shape, dtype=t.dtype) for t in b.out[1:] if t is not None)
