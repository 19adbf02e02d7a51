"""The subtype relation, and the least common supertype of two types."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from enum import IntEnum

from relaxlab.analysis.arith import Analyzer
from relaxlab.ir import expr, types
from relaxlab.ir.equal import structural_equal
from relaxlab.ir.expr import IntImm, PrimExpr
from relaxlab.ir.substitute import substitute, symbols_in
from relaxlab.ir.types import (
    DataType,
    FuncType,
    LengthsType,
    ObjectType,
    PrimType,
    ShapeType,
    TensorType,
    TupleType,
    Type,
    lengths_in,
)


class Verdict(IntEnum):
    """The verdict on "a value of this type is a value of that type" (the paper, section 4.1).

    In order of severity: the verdict on a tuple is the worst of its fields'.
    """

    PASS = 0
    CHECK_AT_RUNTIME = 1
    STATIC_MISMATCH = 2
    DISJOINT = 3


def equal_dims(a: PrimExpr, b: PrimExpr, analyzer: Analyzer) -> bool | None:
    """Return True for dimensions that are equal, False for those that never are; None where that
    depends on symbols. Lengths of sequences are equal to themselves alone."""
    if isinstance(a, IntImm) and isinstance(b, IntImm):
        return a.value == b.value
    equal = True if a == b else analyzer.prove_equal(a, b)
    return False if equal is None and lengths_in((a, b)) else equal


def check_subtype(actual: Type, expected: Type, analyzer: Analyzer) -> Verdict:
    """Return the verdict on "a value of type `actual` is a value of type `expected`".

    `Object` accepts everything; a value of type `Object` needs a check. Dimensions are compared
    with `analyzer`, whose facts about symbols are used.
    """
    match actual, expected:
        case DataType(), DataType():
            return Verdict.PASS if actual.name == expected.name else Verdict.DISJOINT
        case (DataType(), TensorType() | PrimType() | ShapeType() | TupleType() | FuncType()) | (
            TensorType() | PrimType() | ShapeType() | TupleType() | FuncType(),
            DataType(),
        ):
            return Verdict.DISJOINT
        case _, DataType():
            return Verdict.CHECK_AT_RUNTIME
        case _, ObjectType():
            return Verdict.PASS
        case ObjectType(), _:
            return Verdict.CHECK_AT_RUNTIME
        case PrimType(d, v), PrimType(e, w):
            if d != e:
                return Verdict.STATIC_MISMATCH
            known = None if v is None else (v,)
            return _dims(known, 1, None if w is None else (w,), 1, analyzer)
        case ShapeType(values, n), ShapeType(claimed, m):
            return _dims(values, n, claimed, m, analyzer)
        case TensorType(shape, dtype, n), TensorType(claimed, claimed_dtype, m):
            dims = _dims(shape, n, claimed, m, analyzer)
            return max(dims, _same(dtype, claimed_dtype))
        case TupleType(fields), TupleType(claimed):
            if len(fields) != len(claimed):
                return Verdict.STATIC_MISMATCH
            pairs = zip(fields, claimed, strict=True)
            return max((check_subtype(a, e, analyzer) for a, e in pairs), default=Verdict.PASS)
        case FuncType(), FuncType():
            return _functions(actual, expected, analyzer)
        case _:
            return Verdict.DISJOINT


def _same(dtype: str | None, claimed: str | None) -> Verdict:
    if claimed is None or dtype == claimed:
        return Verdict.PASS
    return Verdict.CHECK_AT_RUNTIME if dtype is None else Verdict.STATIC_MISMATCH


def _dims(
    dims: tuple[PrimExpr, ...] | None,
    ndim: int,
    claimed: tuple[PrimExpr, ...] | None,
    claimed_ndim: int,
    analyzer: Analyzer,
) -> Verdict:
    if claimed_ndim < 0:
        return Verdict.PASS
    if ndim < 0:
        return Verdict.CHECK_AT_RUNTIME
    if ndim != claimed_ndim:
        return Verdict.STATIC_MISMATCH
    if claimed is None:
        return Verdict.PASS
    if dims is None:
        return Verdict.CHECK_AT_RUNTIME
    found = [equal_dims(a, b, analyzer) for a, b in zip(dims, claimed, strict=True)]
    if False in found:
        return Verdict.STATIC_MISMATCH
    return Verdict.CHECK_AT_RUNTIME if None in found else Verdict.PASS


def _functions(actual: FuncType, expected: FuncType, analyzer: Analyzer) -> Verdict:
    """Parameters the other way round; symbols of a signature are bound there, so signatures that
    are equal up to their names pass and all others are left to the call."""
    if expected.is_pure and not actual.is_pure:
        return Verdict.STATIC_MISMATCH
    if expected.params is None:
        return check_subtype(actual.ret, expected.ret, analyzer)
    if actual.params is None:
        return Verdict.CHECK_AT_RUNTIME
    if len(actual.params) != len(expected.params):
        return Verdict.STATIC_MISMATCH
    if structural_equal((actual.params, actual.ret), (expected.params, expected.ret),
                        map_free_vars=True):  # fmt: skip
        return Verdict.PASS
    plain = Analyzer()
    pairs = [*zip(expected.params, actual.params, strict=True), (actual.ret, expected.ret)]
    verdicts = [check_subtype(coarsen(a, ()), coarsen(e, ()), plain) for a, e in pairs]
    worst = max(verdicts, default=Verdict.PASS)
    return max(worst, Verdict.CHECK_AT_RUNTIME)


def lca(a: Type, b: Type, analyzer: Analyzer) -> Type:
    """The finest type that has the values of both `a` and `b` (of an `If`'s branches)."""
    match a, b:
        case PrimType(d, v), PrimType(e, w) if d == e:
            same = v is not None and w is not None and equal_dims(v, w, analyzer)
            return a if same else PrimType(d)
        case ShapeType(values, n), ShapeType(others, m):
            common = _common(values, others, analyzer)
            return ShapeType(common, n if n == m else -1)
        case TensorType(shape, dtype, n), TensorType(other, other_dtype, m):
            common = _common(shape, other, analyzer)
            return TensorType(common, dtype if dtype == other_dtype else None, n if n == m else -1)
        case DataType(), DataType() if a.name == b.name:
            return a
        case TupleType(fields), TupleType(others) if len(fields) == len(others):
            pairs = zip(fields, others, strict=True)
            return TupleType(tuple(lca(x, y, analyzer) for x, y in pairs))
        case FuncType(), FuncType() if structural_equal(a, b, map_free_vars=True):
            return a
        case FuncType(params, ret, pure), FuncType(others, other, other_pure):
            if params is None or not structural_equal(params, others, map_free_vars=True):
                ret, other, params = coarsen(ret, ()), coarsen(other, ()), None
            else:
                here = dict(zip(symbols_in(others), symbols_in(params), strict=True))
                other = substitute(other, here)
            return FuncType(params, lca(ret, other, analyzer), pure and other_pure)
        case _:
            return ObjectType()


def _common(
    a: tuple[PrimExpr, ...] | None, b: tuple[PrimExpr, ...] | None, analyzer: Analyzer
) -> tuple[PrimExpr, ...] | None:
    if a is None or b is None or len(a) != len(b):
        return None
    same = all(equal_dims(x, y, analyzer) for x, y in zip(a, b, strict=True))
    return a if same else None


def coarsen(ty: Type, known: Collection[expr.Var]) -> Type:
    """`ty` without shapes and values that mention symbols outside `known`: only ranks stay."""

    def keeps(dims: Iterable[PrimExpr] | None) -> bool:
        return dims is not None and all(s in known for d in dims for s in symbols_in(d))

    match ty:
        case PrimType(dtype, value) if value is not None and not keeps((value,)):
            return PrimType(dtype)
        case ShapeType(values, ndim) if values is not None and not keeps(values):
            return ShapeType(None, ndim)
        case TensorType(shape, dtype, ndim) if shape is not None and not keeps(shape):
            return TensorType(None, dtype, ndim)
        case TupleType(fields):
            coarse = tuple(coarsen(f, known) for f in fields)
            same = all(a is b for a, b in zip(coarse, fields, strict=True))
            return ty if same else TupleType(coarse)
        case FuncType(params, ret) if params is not None:
            inside = {*known, *symbols_in(params)}
            coarse = coarsen(ret, inside)
            return ty if coarse is ret else FuncType(params, coarse, ty.is_pure)
        case _:
            return ty


def dims_of(ty: Type, where: str) -> Iterable[tuple[PrimExpr, str]]:
    """The dimensions that `ty` states, each with its place: `dimension 0 of x`."""
    match ty:
        case TensorType(shape) if shape is not None:
            yield from ((d, f"dimension {i} of {where}") for i, d in enumerate(shape))
            if isinstance(ty, LengthsType) and ty.each is not None and ty.total is not None:
                yield ty.total, f"the number of rows of {where}"
                yield ty.each, where
        case ShapeType(values) if values is not None:
            yield from ((d, f"value {i} of {where}") for i, d in enumerate(values))
        case PrimType(_, value) if value is not None:
            yield value, f"the value of {where}"
        case TupleType(fields):
            for i, f in enumerate(fields):
                yield from dims_of(f, f"field {i} of {where}")
        case _:
            return


def defined_symbols(ty: types.Type) -> tuple[expr.Var, ...]:
    """The symbols that a value of type `ty` determines: those of its dimensions (the paper lets
    compound dimensions be checked once their symbols are known elsewhere)."""
    found = (s for d, _ in dims_of(ty, "") for s in symbols_in(d))
    return tuple(dict.fromkeys(found))
