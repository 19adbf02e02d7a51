"""Proofs about dimensions: equality, broadcasting, element counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from relaxlab.analysis.arith import Analyzer
from relaxlab.analysis.subtype import equal_dims
from relaxlab.ir import expr, graph
from relaxlab.ir.expr import PrimExpr
from relaxlab.ir.node import replace
from relaxlab.ir.op_table import require
from relaxlab.ir.row_major import product
from relaxlab.ir.types import TensorType, lengths_in
from relaxlab.ops.define import fail, op_name
from relaxlab.tracing.deduction import Asked, emit, is_recording

Shape = tuple[PrimExpr, ...]
ONE = expr.const(1)


def prove_equal(a: PrimExpr, b: PrimExpr) -> bool | None:
    """True if two dimensions are equal; None when it depends on the symbols."""
    if a == b:
        return True
    if isinstance(a, expr.IntImm) and isinstance(b, expr.IntImm):
        return False
    answer = equal_dims(a, b, Analyzer.for_shapes((a, b)))
    if is_recording():
        emit(Asked(expr.EQ(a, b), answer))
    return answer


def prove(condition: PrimExpr) -> bool | None:
    """Return True for a condition on dimensions that holds for all values of their symbols, False
    for one that never does, else None."""
    answer = Analyzer.for_shapes((condition,)).prove(condition)
    if is_recording():
        emit(Asked(condition, answer))
    return answer


def impossible(call: graph.Call, condition: PrimExpr, claim: str) -> bool:
    """True if a condition that the call needs never holds. If that depends on the symbols, it is
    checked at run time, and `claim` is the message when it fails."""
    truth = prove(condition)
    if truth is None:
        require(condition, f"{op_name(call)}: {claim}")
    return truth is False


def require_window(
    call: graph.Call, extent: PrimExpr, rest: PrimExpr, stride: int, window: str
) -> None:
    """Require a padded extent to be no smaller than a window; `rest` is what it has besides. That
    of a sequence may be, by a stride at most: its result has no elements then. See `impossible`."""
    least = expr.const(-stride if lengths_in(extent) else 0)
    claim = f"the padded extent of {extent} is smaller than the {window}"
    if impossible(call, expr.GE(rest, least), claim):
        raise fail(call, claim)


def differ(call: graph.Call, a: PrimExpr, b: PrimExpr, what: str) -> bool:
    """True if two dimensions that must be equal never are; see `impossible`."""
    equal = prove_equal(a, b)
    if equal is None:
        require(expr.EQ(a, b), f"{op_name(call)}: {what} must be equal, {a} and {b}")
    return equal is False


def require_elements(call: graph.Call, extents: Sequence[PrimExpr], points: Shape) -> None:
    """Require an element along each of `extents` unless one of `points` is 0.

    For operators that choose places by data: `points` are the extents of the elements that are
    chosen, `extents` the dimensions that they are chosen in. A place outside is moved to the
    nearest element, and a dimension of extent 0 has none. Raises `TypeDeductionError` where it is
    provably so; what depends on the symbols is checked at run time.
    """
    none_chosen = [expr.EQ(d, expr.const(0)) for d in points if d != ONE]
    for extent in extents:
        condition: PrimExpr = expr.GE(extent, ONE)
        for none in none_chosen:
            condition = expr.Or(condition, none)
        claim = f"there is nothing to read along a dimension of {extent}"
        if impossible(call, condition, claim):
            raise fail(call, claim)


def require_equal(call: graph.Call, a: PrimExpr, b: PrimExpr, what: str) -> None:
    """Require that two dimensions are equal; `what` names them. Raises `TypeDeductionError` where
    they never are; what depends on the symbols is checked at run time."""
    if differ(call, a, b, what):
        raise fail(call, f"{what} must be equal, {a} and {b}")


def with_copied_extents(old: Sequence[Any], new: Sequence[Any]) -> tuple[Any, ...]:
    """The new shape of a reshaped tensor, where 0 stands for the old extent at that place, as in
    Relax; but 0 is 0 where the tensor has no elements and such extents would say that it has.
    Extents are expressions or numbers."""
    if not any(d in (0, expr.const(0)) for d in new):
        return tuple(new)
    copied = tuple(
        old[i] if d in (0, expr.const(0)) and i < len(old) else d for i, d in enumerate(new)
    )
    counts = [product([expr.as_expr(d) for d in dims]) for dims in (old, copied)]
    inferred = any(d in (-1, expr.const(-1)) for d in new)
    return copied if inferred or prove_equal(*counts) is not False else tuple(new)


def require_count(call: graph.Call, name: str, value: object) -> PrimExpr:
    """An attribute that counts: an integer, at least 0 where it is known."""
    whole = isinstance(value, int) or (isinstance(value, PrimExpr) and value.dtype == "int64")
    if not whole or isinstance(value, bool):
        raise fail(call, f"{name} must be an integer, is {value}")
    count = expr.as_expr(value)  # type: ignore[arg-type]
    if impossible(call, expr.GE(count, expr.const(0)), f"{name} is negative"):
        raise fail(call, f"{name} must be at least 0, is {value}")
    return count


def simplify(dim: PrimExpr) -> PrimExpr:
    """A dimension in its shortest form."""
    if isinstance(dim, expr.IntImm | expr.Var):
        return dim
    return Analyzer.for_shapes((dim,)).simplify(dim)


def at_most(value: PrimExpr, limit: PrimExpr) -> PrimExpr:
    """`value`, or `limit` where it may be larger."""
    if prove(expr.LE(value, limit)) is True:
        return value
    return expr.binary(expr.Min, value, limit)


def at_least(value: PrimExpr, limit: PrimExpr) -> PrimExpr:
    """`value`, or `limit` where it may be smaller."""
    if prove(expr.GE(value, limit)) is True:
        return value
    return expr.binary(expr.Max, value, limit)


def _factors(dims: Sequence[PrimExpr]) -> tuple[int, Counter[PrimExpr]]:
    """The product of `dims` as a constant and the other factors with their powers."""
    count, atoms, stack = 1, Counter[PrimExpr](), list(dims)
    while stack:
        match stack.pop():
            case expr.Mul(a, b):
                stack += [a, b]
            case expr.IntImm(value):
                count *= value
            case other:
                atoms[other] += 1
    return count, atoms


def divide_exactly(dims: Sequence[PrimExpr], by: Sequence[PrimExpr]) -> PrimExpr | None:
    """Return the product of `dims` divided by that of `by`: exact where the factors cancel, a floor
    division where that depends on the symbols, None where it provably leaves a remainder."""
    (count, atoms), (divisor, divisor_atoms) = _factors(dims), _factors(by)
    common = atoms & divisor_atoms
    rest, divisor_rest = atoms - common, divisor_atoms - common
    if divisor and count % divisor == 0:
        count, divisor = count // divisor, 1
    elif not rest and not divisor_rest:
        return None
    if divisor == 0:
        return None
    above = product([*rest.elements(), expr.const(count)])
    below = product([*divisor_rest.elements(), expr.const(divisor)])
    return above // below


def show(shape: Sequence[PrimExpr]) -> str:
    """A shape in Python's spelling."""
    return f"({', '.join(map(str, shape))}{',' if len(shape) == 1 else ''})"


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


def stated(ty: TensorType) -> TensorType:
    """The type with the dimensions that a variable holds, where it has none else."""
    return ty if ty.shape is not None or ty.held is None else replace(ty, shape=ty.held)


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
                if isinstance(shape[-back], expr.IntImm):  # which other constants do not match
                    result[-back] = shape[-back]
    return TensorType(tuple(result), dtype) if known else TensorType(None, dtype, ndim)


def _mismatch(call: graph.Call, shapes: list[Shape], a: PrimExpr, b: PrimExpr) -> Exception:
    texts = " and ".join(show(s) for s in shapes)
    fix = (
        "dimensions, matched from the last one back, must be equal or 1; "
        "use R.reshape or R.expand_dims"
    )
    for part, whole in ((a, b), (b, a)):
        if isinstance(part, expr.Min) and lengths_in(whole) and whole in (part.a, part.b):
            most = part.b if whole == part.a else part.a  # a table of positions, say
            fix = f"state that no sequence is longer: R.Lengths(…, at_most={most})"
    return fail(call, f"shapes {texts} do not broadcast: {a} against {b}", fix)


def broadcast_index(indices: Sequence[PrimExpr], shape: Shape, out: Shape) -> Shape:
    """Return the indices at which a tensor of `shape` is read for the element `indices` of a result
    of shape `out`."""
    offset = len(out) - len(shape)
    return tuple(
        expr.const(0) if d == ONE and out[offset + i] != ONE else indices[offset + i]
        for i, d in enumerate(shape)
    )
