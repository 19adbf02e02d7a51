"""Reshaping, permuting, joining and splitting."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from relaxlab.ir import expr, graph, types
from relaxlab.ir.expr import PrimExpr
from relaxlab.ir.op_table import REQUIRED, VIEW
from relaxlab.ir.row_major import product
from relaxlab.ir.types import ShapeType, TensorType, TupleType, Type
from relaxlab.ops import scalar, te
from relaxlab.ops.define import (
    TypesOf,
    attr,
    common_dtype,
    define,
    fail,
    normal_axes,
    normal_axis,
    params,
    tensor_arg,
    tensor_tuple_arg,
)
from relaxlab.ops.shapes import (
    ONE,
    Shape,
    at_most,
    broadcast_index,
    differ,
    divide_exactly,
    impossible,
    prove_equal,
    require_count,
    show,
    simplify,
    stated,
    with_copied_extents,
)

Array = np.ndarray[Any, Any]
Indices = tuple[PrimExpr, ...]
MINUS_ONE = expr.const(-1)


# --- reshape, flatten -------------------------------------------------------------------------


def shape_arg(call: graph.Call, tys: TypesOf, index: int) -> ShapeType:
    """The type of an argument that must be a shape."""
    ty = tys[index] if index < len(tys) else None
    if not isinstance(ty, ShapeType):
        raise fail(call, f"shape must be a shape such as R.shape([n, 4]), is {ty}")
    return ty


def _reshape_infer(call: graph.Call, tys: TypesOf) -> Type:
    x, shape = stated(tensor_arg(call, tys, 0)), shape_arg(call, tys, 1)
    if shape.values is None:
        return TensorType(None, x.dtype, shape.ndim)
    dims = shape.values if x.shape is None else with_copied_extents(x.shape, shape.values)
    holes = [i for i, d in enumerate(dims) if d == MINUS_ONE]
    if len(holes) > 1:
        raise fail(call, f"shape {show(dims)} has more than one -1")
    if holes and x.shape is None:
        return TensorType(None, x.dtype, len(dims))
    if holes:
        assert x.shape is not None
        rest = tuple(d for d in dims if d != MINUS_ONE)
        missing = divide_exactly(x.shape, rest)
        counts = product(x.shape), product((*rest, missing or ONE))
        if missing is None or differ(call, *counts, "the element counts"):
            raise _reshape_error(call, x.shape, dims)
        dims = (*dims[: holes[0]], missing, *dims[holes[0] + 1 :])
    elif x.shape is not None and te.ZERO in {*x.shape} & {*shape.values} - {*dims}:
        # Nothing is moved, and sizes decide whether 0 stands for an old extent.
        return TensorType(None, x.dtype, len(dims))
    elif x.shape is not None and differ(
        call, product(x.shape), product(dims), "the element counts"
    ):
        raise _reshape_error(call, x.shape, dims)
    return TensorType(dims, x.dtype)


def _reshape_error(call: graph.Call, old: Shape, new: Shape) -> Exception:
    count = product(tuple(d for d in new if d != MINUS_ONE))
    return fail(
        call,
        f"{show(old)} has {product(old)} elements, which do not fill {show(new)} "
        f"({'multiples of ' if MINUS_ONE in new else ''}{count})",
    )


def _groups(old: Shape, new: Shape) -> list[tuple[range, range]]:
    """Consecutive dimensions of `old` and `new` with provably equal element counts, as small as
    can be proved: an index is split and joined only within a group."""
    groups: list[tuple[range, range]] = []
    start_old = start_new = 0
    for i, j in _cuts(old, new):
        groups.append((range(start_old, i), range(start_new, j)))
        start_old, start_new = i, j
    return groups


def _cuts(old: Shape, new: Shape) -> list[tuple[int, int]]:
    cuts: list[tuple[int, int]] = []
    if te.ZERO in old or te.ZERO in new:  # nothing is read
        return [(len(old), len(new))]
    i = j = 0
    while (i, j) != (len(old), len(new)):
        ends = itertools.product(range(i, len(old) + 1), range(j, len(new) + 1))
        pairs = sorted((e for e in ends if e != (i, j)), key=lambda e: e[0] + e[1])
        whole = (len(old), len(new))
        i, j = next(
            (e for e in pairs if prove_equal(product(old[i : e[0]]), product(new[j : e[1]]))),
            whole,
        )
        cuts.append((i, j))
    return cuts


def reshape_index(indices: Indices, new: Shape, old: Shape) -> Indices:
    """Return the indices in the original of the element `indices` of the reshaped tensor."""
    result: list[PrimExpr] = []
    for old_dims, new_dims in _groups(old, new):
        flat: PrimExpr = expr.const(0)
        for d in new_dims:
            flat = flat * new[d] + indices[d]
        result += _unflatten(flat, [old[d] for d in old_dims])
    return tuple(result)


def _unflatten(flat: PrimExpr, dims: list[PrimExpr]) -> list[PrimExpr]:
    indices: list[PrimExpr] = []
    for d, extent in enumerate(dims):
        stride = product(dims[d + 1 :])
        index = flat // stride
        indices.append(index % extent if any(x != ONE for x in dims[:d]) else index)
    return [expr.const(0) if e == ONE else i for i, e in zip(indices, dims, strict=True)]


def reshape_compute(x: te.Tensor, shape: Shape) -> te.Tensor:
    """`x` with another shape of the same element count."""
    return te.compute(shape, lambda *i: x[reshape_index(i, shape, x.shape)], "T_reshape")


def _reshape_emit(call: graph.Call, out: TensorType, x: te.Tensor, *_: Any) -> te.Tensor:
    assert out.shape is not None
    return reshape_compute(x, out.shape)


define(
    "reshape",
    params("x shape"),
    _reshape_infer,
    emit=_reshape_emit,
    reference=lambda x, shape: x.reshape(with_copied_extents(x.shape, shape)),
    traits=VIEW,
)


def _flatten_infer(call: graph.Call, tys: TypesOf) -> Type:
    x = tensor_arg(call, tys, 0)
    return TensorType(None if x.shape is None else (product(x.shape),), x.dtype, 1)


define(
    "flatten",
    params("x"),
    _flatten_infer,
    emit=_reshape_emit,
    reference=lambda x: x.reshape(-1),
    traits=VIEW,
)


def _expand_dims_infer(call: graph.Call, tys: TypesOf) -> Type:
    x = tensor_arg(call, tys, 0)
    axis = attr(call, "axis")
    if axis is None:
        raise fail(call, "axis must be an int or a tuple of ints, is None")
    count = len(axis) if isinstance(axis, tuple) else 1
    if x.ndim < 0:
        return TensorType(None, x.dtype)
    new = normal_axes(call, axis, x.ndim + count)
    if x.shape is None:
        return TensorType(None, x.dtype, x.ndim + count)
    rest = iter(x.shape)
    dims = tuple(ONE if d in new else next(rest) for d in range(x.ndim + count))
    return TensorType(dims, x.dtype)


def _expand_dims_emit(call: graph.Call, out: TensorType, x: te.Tensor) -> te.Tensor:
    assert out.shape is not None
    new = normal_axes(call, attr(call, "axis"), len(out.shape))

    def element(*i: PrimExpr) -> PrimExpr:
        return x[tuple(index for d, index in enumerate(i) if d not in new)]

    return te.compute(out.shape, element, "T_expand_dims")


define(
    "expand_dims",
    params("x", axis=REQUIRED),
    _expand_dims_infer,
    emit=_expand_dims_emit,
    reference=lambda x, axis: np.expand_dims(x, axis),
    traits=VIEW,
)


def _squeezed(call: graph.Call, x: TensorType) -> tuple[int, ...] | None:
    """The dimensions that go; None when it depends on unknown dimensions."""
    axis = attr(call, "axis")
    if axis is not None:
        return normal_axes(call, axis, x.ndim)
    if x.shape is None or not all(isinstance(d, expr.IntImm) for d in x.shape):
        return None
    return tuple(d for d, extent in enumerate(x.shape) if extent == ONE)


def _squeeze_infer(call: graph.Call, tys: TypesOf) -> Type:
    x = tensor_arg(call, tys, 0)
    if x.ndim < 0:
        return TensorType(None, x.dtype)
    gone = _squeezed(call, x)
    if gone is None:
        return TensorType(None, x.dtype)
    if x.shape is None:
        return TensorType(None, x.dtype, x.ndim - len(gone))
    kept = (d not in gone or prove_equal(e, ONE) is False for d, e in enumerate(x.shape))
    return TensorType(tuple(itertools.compress(x.shape, kept)), x.dtype)


def _squeeze_needs(call: graph.Call, tys: TypesOf) -> None:
    x = tensor_arg(call, tys, 0)
    if x.shape is None:
        return
    for d in _squeezed(call, x) or ():
        if differ(call, x.shape[d], ONE, "a squeezed dimension and 1"):
            raise fail(call, f"dimension {d} of {show(x.shape)} is {x.shape[d]}, not 1")


def _squeeze_emit(call: graph.Call, out: TensorType, x: te.Tensor) -> te.Tensor:
    assert out.shape is not None
    gone = _squeezed(call, TensorType(x.shape, x.dtype))
    assert gone is not None

    def element(*i: PrimExpr) -> PrimExpr:
        rest = iter(i)
        return x[tuple(expr.const(0) if d in gone else next(rest) for d in range(x.ndim))]

    return te.compute(out.shape, element, "T_squeeze")


define(
    "squeeze",
    params("x", axis=None),
    _squeeze_infer,
    needs=[_squeeze_needs],
    emit=_squeeze_emit,
    reference=lambda x, axis=None: np.squeeze(x, axis),
    traits=VIEW,
)


# --- permute_dims, broadcast_to, flip ---------------------------------------------------------


def _permutation(call: graph.Call, ndim: int) -> tuple[int, ...]:
    axes = attr(call, "axes")
    if axes is None:
        return tuple(reversed(range(ndim)))
    order = normal_axes(call, axes, ndim, "axes")
    if len(order) != ndim:
        raise fail(call, f"axes {axes} must name each of the {ndim} dimensions once")
    return order


def _permute_infer(call: graph.Call, tys: TypesOf) -> Type:
    x = tensor_arg(call, tys, 0)
    if x.ndim < 0:
        return TensorType(None, x.dtype)
    order = _permutation(call, x.ndim)
    if x.shape is None:
        return x
    return TensorType(tuple(x.shape[d] for d in order), x.dtype)


def _permute_emit(call: graph.Call, out: TensorType, x: te.Tensor) -> te.Tensor:
    assert out.shape is not None
    order = _permutation(call, x.ndim)
    place = {d: i for i, d in enumerate(order)}
    return te.compute(
        out.shape, lambda *i: x[tuple(i[place[d]] for d in range(x.ndim))], "T_transpose"
    )


define(
    "permute_dims",
    params("x", axes=None),
    _permute_infer,
    emit=_permute_emit,
    reference=lambda x, axes=None: np.transpose(x, axes),
    traits=["rounds_once"],
)


def _broadcast_to_infer(call: graph.Call, tys: TypesOf) -> Type:
    x, shape = tensor_arg(call, tys, 0), shape_arg(call, tys, 1)
    if x.ndim > shape.ndim >= 0:
        raise fail(call, f"{x} has more dimensions than {shape}")
    if shape.values is None:
        return TensorType(None, x.dtype, shape.ndim)
    if x.shape is not None:
        for a, b in zip(reversed(x.shape), reversed(shape.values), strict=False):
            if impossible(call, expr.Or(expr.EQ(a, b), expr.EQ(a, ONE)), f"{a} must be 1 or {b}"):
                raise fail(
                    call, f"{show(x.shape)} cannot become {show(shape.values)}: {a} against {b}"
                )
    return TensorType(shape.values, x.dtype)


def _broadcast_to_emit(call: graph.Call, out: TensorType, x: te.Tensor, *_: Any) -> te.Tensor:
    assert out.shape is not None
    shape = out.shape

    def element(*i: PrimExpr) -> PrimExpr:
        indices = broadcast_index(i, x.shape, shape)
        pairs = zip(indices, x.shape, shape[len(shape) - x.ndim :], strict=True)
        return x[tuple(_stay(index, d, o) for index, d, o in pairs)]

    return te.compute(shape, element, "T_broadcast_to")


def _stay(index: PrimExpr, extent: PrimExpr, out: PrimExpr) -> PrimExpr:
    """A dimension that may be 1 or the result's is read at 0 in the first case."""
    if extent == ONE or prove_equal(extent, out):
        return index
    return expr.binary(expr.Min, index, extent - 1)


define(
    "broadcast_to",
    params("x shape"),
    _broadcast_to_infer,
    emit=_broadcast_to_emit,
    reference=lambda x, shape: np.broadcast_to(x, shape).copy(),
    traits=["rounds_once"],
)


def _same_shape_infer(call: graph.Call, tys: TypesOf) -> Type:
    x = tensor_arg(call, tys, 0)
    if x.ndim >= 0:
        normal_axes(call, attr(call, "axis"), x.ndim)
    return x


def _flip_emit(call: graph.Call, out: TensorType, x: te.Tensor) -> te.Tensor:
    axes = normal_axes(call, attr(call, "axis"), x.ndim)

    def element(*i: PrimExpr) -> PrimExpr:
        return x[tuple(x.shape[d] - 1 - v if d in axes else v for d, v in enumerate(i))]

    return te.compute(x.shape, element, "T_flip")


define(
    "flip",
    params("data", axis=REQUIRED),
    _same_shape_infer,
    emit=_flip_emit,
    reference=lambda data, axis: np.flip(data, axis),
    traits=["rounds_once"],
)


# --- concat, stack, split ---------------------------------------------------------------------


def _merged(call: graph.Call, fields: tuple[TensorType, ...], skip: int | None) -> list[PrimExpr]:
    """The common dimensions of `fields`, those at `skip` excepted. All have shapes."""
    shapes = [f.shape for f in fields if f.shape is not None]
    for shape in shapes[1:]:
        for d, (a, b) in enumerate(zip(shapes[0], shape, strict=True)):
            if d != skip and differ(call, a, b, f"the extents of dimension {d}"):
                texts = " and ".join(map(show, shapes))
                raise fail(call, f"shapes {texts} differ in dimension {d}: {a} against {b}")
    return list(shapes[0])


def _common_ndim(call: graph.Call, fields: tuple[TensorType, ...]) -> int:
    ndims = {f.ndim for f in fields if f.ndim >= 0}
    if len(ndims) > 1:
        raise fail(call, f"the tensors have {' and '.join(map(str, sorted(ndims)))} dimensions")
    return ndims.pop() if ndims else -1


def _ends(extents: Sequence[PrimExpr]) -> list[PrimExpr]:
    """The sums of the first extents, one by one; equal extents are counted, so that the sum over
    hundreds of parts is a short expression."""
    counts: Counter[PrimExpr] = Counter()
    found: list[PrimExpr] = []
    for extent in extents:
        counts[extent] += 1
        terms = (e if k == 1 else e * k for e, k in counts.items())
        found.append(sum(terms, start=expr.const(0)))
    return found


def _joined(call: graph.Call, ndim: int) -> int:
    """The axis along which tensors are joined; None is the only one."""
    axis = attr(call, "axis")
    return normal_axis(call, 0 if axis is None else axis, ndim)


def _concat_infer(call: graph.Call, tys: TypesOf) -> Type:
    fields = tensor_tuple_arg(call, tys, 0)
    dtype, ndim = common_dtype(call, *fields), _common_ndim(call, fields)
    if ndim < 0:
        return TensorType(None, dtype, 1 if attr(call, "axis") is None else -1)
    if attr(call, "axis") is None and ndim != 1:
        raise fail(call, f"axis must be given for tensors with {ndim} dimensions")
    axis = _joined(call, ndim)
    shapes = [f.shape for f in fields if f.shape is not None]
    if len(shapes) < len(fields):
        return TensorType(None, dtype, ndim)
    dims = _merged(call, fields, axis)
    dims[axis] = _ends([shape[axis] for shape in shapes])[-1]
    return TensorType(tuple(dims), dtype)


def _concat_emit(call: graph.Call, out: TensorType, xs: tuple[te.Tensor, ...]) -> te.Tensor:
    assert out.shape is not None
    axis = _joined(call, len(out.shape))

    def element(*i: PrimExpr) -> PrimExpr:
        ends = _ends([x.shape[axis] for x in xs])
        starts = [expr.const(0), *ends[:-1]]
        reads = [
            x[(*i[:axis], i[axis] - start, *i[axis + 1 :])]
            for x, start in zip(xs, starts, strict=True)
        ]
        return scalar.piecewise(i[axis], ends, reads)

    return te.compute(out.shape, element, "T_concat")


define(
    "concat",
    params("tensors", axis=0),
    _concat_infer,
    emit=_concat_emit,
    reference=lambda tensors, axis=0: np.concatenate(tensors, axis),
    traits=["rounds_once"],
)


def _stack_infer(call: graph.Call, tys: TypesOf) -> Type:
    fields = tensor_tuple_arg(call, tys, 0)
    dtype, ndim = common_dtype(call, *fields), _common_ndim(call, fields)
    if ndim < 0:
        return TensorType(None, dtype)
    axis = normal_axis(call, attr(call, "axis"), ndim + 1)
    if any(f.shape is None for f in fields):
        return TensorType(None, dtype, ndim + 1)
    dims = _merged(call, fields, None)
    dims.insert(axis, expr.const(len(fields)))
    return TensorType(tuple(dims), dtype)


def _stack_emit(call: graph.Call, out: TensorType, xs: tuple[te.Tensor, ...]) -> te.Tensor:
    assert out.shape is not None
    axis = normal_axis(call, attr(call, "axis"), len(out.shape))

    def element(*i: PrimExpr) -> PrimExpr:
        reads = [x[(*i[:axis], *i[axis + 1 :])] for x in xs]
        return scalar.piecewise(i[axis], list(map(expr.const, range(1, len(xs) + 1))), reads)

    return te.compute(out.shape, element, "T_stack")


define(
    "stack",
    params("tensors", axis=0),
    _stack_infer,
    emit=_stack_emit,
    reference=lambda tensors, axis=0: np.stack(tensors, axis),
    traits=["rounds_once"],
)


MOST_PIECES = 2**16
"""Results of a split: each is a variable of the program."""


def _split_bounds(call: graph.Call, extent: PrimExpr) -> list[tuple[PrimExpr, PrimExpr]]:
    """Begin and length of each piece. A number of sections means pieces of equal length, the
    last one shorter when it does not divide; indices are where the pieces begin."""
    where = attr(call, "indices_or_sections")
    if isinstance(where, int):
        size = (extent + (where - 1)) // where
        begins: list[PrimExpr] = [expr.binary(expr.Mul, i, size) for i in range(where)]
    else:
        begins = [expr.const(0), *(require_count(call, "a split index", b) for b in where)]
    begins = [at_most(b, extent) for b in begins]  # pieces past the end are empty, as in NumPy
    ends = [*begins[1:], extent]
    pieces = [(b, simplify(e - b)) for b, e in zip(begins, ends, strict=True)]
    for _, length in pieces:
        if isinstance(length, expr.IntImm) and length.value < 0:
            raise fail(call, f"indices_or_sections {where} must not decrease")
    return pieces


def _pieces(call: graph.Call) -> int:
    """The number of pieces of a split."""
    where: object = attr(call, "indices_or_sections")
    if isinstance(where, int) and not isinstance(where, bool):
        if not 1 <= where <= MOST_PIECES:
            limits = f"at least 1 and at most {MOST_PIECES}"
            raise fail(call, f"indices_or_sections must be {limits}, is {where}")
        return where
    if not isinstance(where, tuple):
        text = f"indices_or_sections must be an integer or a list of integers, is {where!r}"
        raise fail(call, text)
    return len(where) + 1  # type: ignore[reportUnknownArgumentType]


def _split_infer(call: graph.Call, tys: TypesOf) -> Type:
    x, count = tensor_arg(call, tys, 0), _pieces(call)
    axis = normal_axis(call, attr(call, "axis"), x.ndim) if x.ndim >= 0 else 0
    if x.shape is None:
        return TupleType((TensorType(None, x.dtype, x.ndim),) * count)
    lengths = [n for _, n in _split_bounds(call, x.shape[axis])]
    return TupleType(
        tuple(TensorType((*x.shape[:axis], n, *x.shape[axis + 1 :]), x.dtype) for n in lengths)
    )


def _split_emit(call: graph.Call, out: types.TupleType, x: te.Tensor) -> tuple[te.Tensor, ...]:
    axis = normal_axis(call, attr(call, "axis"), x.ndim)

    def piece(begin: PrimExpr, length: PrimExpr) -> te.Tensor:
        shape = (*x.shape[:axis], length, *x.shape[axis + 1 :])
        return te.compute(
            shape, lambda *i: x[(*i[:axis], i[axis] + begin, *i[axis + 1 :])], "T_split"
        )

    return tuple(piece(b, n) for b, n in _split_bounds(call, x.shape[axis]))


def _split(x: Array, indices_or_sections: Any, axis: int = 0) -> tuple[Array, ...]:
    if isinstance(indices_or_sections, int):
        size = -(-x.shape[axis] // indices_or_sections)
        indices_or_sections = [size * i for i in range(1, indices_or_sections)]
    return tuple(np.split(x, [int(i) for i in indices_or_sections], axis))


define(
    "split",
    params("x", indices_or_sections=REQUIRED, axis=0),
    _split_infer,
    emit=_split_emit,
    reference=_split,
    traits=["rounds_once"],
)


# --- tile, repeat -----------------------------------------------------------------------------


def _tile_infer(call: graph.Call, tys: TypesOf) -> Type:
    x = tensor_arg(call, tys, 0)
    if x.ndim < 0:
        return TensorType(None, x.dtype)
    repeats = _repeats(call, x.ndim)
    if x.shape is None:
        return TensorType(None, x.dtype, len(repeats))
    dims = (*[ONE] * (len(repeats) - x.ndim), *x.shape)
    return TensorType(
        tuple(expr.binary(expr.Mul, d, r) for d, r in zip(dims, repeats, strict=True)), x.dtype
    )


def _repeats(call: graph.Call, ndim: int) -> tuple[PrimExpr, ...]:
    given = attr(call, "repeats")
    repeats: tuple[Any, ...] = given if isinstance(given, tuple) else (given,)
    counts = [require_count(call, "repeats", r) for r in repeats]
    return (*[ONE] * (ndim - len(counts)), *counts)


def _tile_emit(call: graph.Call, out: TensorType, x: te.Tensor) -> te.Tensor:
    assert out.shape is not None

    last = len(out.shape) - x.ndim
    made = out.shape[last:]

    def element(*i: PrimExpr) -> PrimExpr:
        axes = zip(i[last:], x.shape, made, strict=True)
        return x[tuple(0 if d == ONE else v if d == whole else v % d for v, d, whole in axes)]

    return te.compute(out.shape, element, "T_tile")


define(
    "tile",
    params("data", repeats=REQUIRED),
    _tile_infer,
    emit=_tile_emit,
    reference=lambda data, repeats: np.tile(data, repeats),
    traits=["rounds_once"],
)


def _repeat_infer(call: graph.Call, tys: TypesOf) -> Type:
    x, repeats, axis = tensor_arg(call, tys, 0), attr(call, "repeats"), attr(call, "axis")
    repeats = require_count(call, "repeats", repeats)
    if axis is None:
        known = None if x.shape is None else (product(x.shape) * repeats,)
        return TensorType(known, x.dtype, 1)
    axis = axis if x.ndim < 0 else normal_axis(call, axis, x.ndim)
    if x.shape is None:
        return TensorType(None, x.dtype, x.ndim)
    return TensorType((*x.shape[:axis], x.shape[axis] * repeats, *x.shape[axis + 1 :]), x.dtype)


def _repeat_emit(call: graph.Call, out: TensorType, x: te.Tensor) -> te.Tensor:
    assert out.shape is not None
    repeats, axis = attr(call, "repeats"), attr(call, "axis")
    if expr.as_expr(repeats) == expr.const(0):
        repeats = 1  # the result has no element, but its index is computed where no loop runs
    if axis is None:
        flat = reshape_compute(x, (product(x.shape),))
        return te.compute(out.shape, lambda i: flat[i // repeats], "T_repeat")
    axis = normal_axis(call, axis, x.ndim)
    return te.compute(
        out.shape, lambda *i: x[(*i[:axis], i[axis] // repeats, *i[axis + 1 :])], "T_repeat"
    )


define(
    "repeat",
    params("data", repeats=REQUIRED, axis=None),
    _repeat_infer,
    emit=_repeat_emit,
    reference=lambda data, repeats, axis=None: np.repeat(data, repeats, axis),
    traits=["rounds_once"],
)
