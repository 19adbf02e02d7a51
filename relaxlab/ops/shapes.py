"""What is provable about dimensions: equality, broadcasting, element counts."""

from __future__ import annotations

from collections.abc import Sequence

from relaxlab.ir import expr, graph
from relaxlab.ir.expr import PrimExpr
from relaxlab.ir.types import TensorType
from relaxlab.ops.define import fail

Shape = tuple[PrimExpr, ...]
ONE = expr.const(1)


def prove_equal(a: PrimExpr, b: PrimExpr) -> bool | None:
    """Whether two dimensions are equal; None when it depends on the symbols."""
    if a == b:
        return True
    if isinstance(a, expr.IntImm) and isinstance(b, expr.IntImm):
        return a.value == b.value
    return None


def show(shape: Sequence[PrimExpr]) -> str:
    """A shape in Python's spelling."""
    return f"({', '.join(map(str, shape))}{',' if len(shape) == 1 else ''})"


def product(dims: Sequence[PrimExpr]) -> PrimExpr:
    """The product of the dimensions."""
    result: PrimExpr = ONE
    for d in dims:
        result = result * d
    return result


def broadcast_dim(a: PrimExpr, b: PrimExpr) -> PrimExpr | bool | None:
    """The broadcast of two dimensions; False when they cannot match, None when unknown."""
    if a == ONE:
        return b
    if b == ONE:
        return a
    equal = prove_equal(a, b)
    if equal:
        return a if isinstance(a, expr.IntImm) else b
    if equal is False and prove_equal(a, ONE) is False and prove_equal(b, ONE) is False:
        return False
    return None


def broadcast_types(call: graph.Call, dtype: str | None, *tys: TensorType) -> TensorType:
    """The type of an elementwise result. Raises `TypeDeductionError` when two shapes provably
    do not broadcast; only the rank is known where equality depends on the symbols."""
    if any(t.ndim < 0 for t in tys):
        return TensorType(None, dtype)
    ndim = max((t.ndim for t in tys), default=0)
    shapes = [t.shape for t in tys if t.shape is not None]
    result: list[PrimExpr] = [ONE] * ndim
    known = len(shapes) == len(tys)
    for shape in shapes:
        for back in range(1, len(shape) + 1):
            dim = broadcast_dim(result[-back], shape[-back])
            if dim is False:
                raise _mismatch(call, shapes, result[-back], shape[-back])
            if isinstance(dim, PrimExpr):
                result[-back] = dim
            else:
                known = False
    return TensorType(tuple(result), dtype) if known else TensorType(None, dtype, ndim)


def _mismatch(call: graph.Call, shapes: list[Shape], a: PrimExpr, b: PrimExpr) -> Exception:
    texts = " and ".join(show(s) for s in shapes)
    return fail(
        call,
        f"shapes {texts} do not broadcast: {a} against {b}",
        "dimensions, matched from the last one back, must be equal or 1; "
        "use R.reshape or R.expand_dims",
    )


def broadcast_index(indices: Sequence[PrimExpr], shape: Shape, out: Shape) -> Shape:
    """Where to read a tensor of `shape` for the element `indices` of a result of shape `out`."""
    offset = len(out) - len(shape)
    return tuple(
        expr.const(0) if d == ONE and out[offset + i] != ONE else indices[offset + i]
        for i, d in enumerate(shape)
    )
