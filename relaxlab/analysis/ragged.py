"""Ragged tensors: what types of operators' results may be, and how their elements lie in memory.

A tensor whose shape mentions the lengths of sequences holds one element for each of them along its
first dimension. An operator on such tensors means, for each sequence, that element of its result on
a batch of sequences that are all as long. The elements lie behind each other, each row-major (CoRa,
MLSys 2022, section 5.3, for one outer dimension): where the second dimension is the ragged one,
they are the rows of a dense tensor, else a flat array.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from relaxlab.analysis.arith import Analyzer
from relaxlab.ir import graph
from relaxlab.ir.expr import PrimExpr, Var, const
from relaxlab.ir.module import Module
from relaxlab.ir.node import replace, rewrite
from relaxlab.ir.op_table import TypeDeductionError, has_trait
from relaxlab.ir.substitute import substitute
from relaxlab.ir.types import (
    Length,
    LengthsType,
    TensorType,
    TupleType,
    Type,
    is_ragged,
    lengths_in,
)

Totals = Mapping[Length, PrimExpr]
"""The number of rows of all sequences, by their lengths."""
ZERO, ONE = const(0), const(1)


def tensors_in(*tys: Type | None) -> list[TensorType]:
    """The tensors of types, those in tuples included."""
    found: list[TensorType] = []
    for ty in tys:
        if isinstance(ty, TupleType):
            found += tensors_in(*ty.fields)
        elif isinstance(ty, TensorType):
            found.append(ty)
    return found


def mentions_ragged(*tys: Type | None) -> bool:
    """True if one of the tensors in types is ragged."""
    return any(is_ragged(t) for t in tensors_in(*tys))


def mentions_lengths(mod: Module) -> bool:
    """True for a module with lengths of sequences that tensors may be ragged by."""
    params = (p.ty for f in mod.graph_functions().values() for p in f.params)
    return any(isinstance(ty, LengthsType) and ty.each is not None for ty in params)


def totals_of(fn: graph.Function) -> dict[Length, PrimExpr]:
    """The numbers of rows of the lengths that a function has as parameters."""
    given = [p.ty for p in fn.params if isinstance(p.ty, LengthsType)]
    return {ty.each: ty.total for ty in given if ty.each is not None and ty.total is not None}


def check_ragged_result(call: graph.Call, arg_types: Sequence[Type], result: Type) -> None:
    """Check that an operator on ragged tensors has one element of its result for each sequence, or
    combines all of them. Raises TypeDeductionError naming the operator and the dimension."""
    if combines_sequences(call, arg_types):
        return
    given = [t for t in tensors_in(*arg_types) if is_ragged(t)]
    name = f"R.{getattr(call.op, 'name', 'call')}"
    for out in tensors_in(result):
        if given and out.shape is None:
            raise TypeDeductionError(
                f"{name}: the shape of its result is not known, which sequences of different "
                "lengths need",
                suggestion="work on their rows: R.match_cast(x, R.Tensor((n, …)))",
            )
        if out.shape is None or not (given or is_ragged(out)):
            continue
        count = given[0].shape[0] if given and given[0].shape else None
        if not out.shape or lengths_in(out.shape[0]) or count not in (None, out.shape[0]):
            shape = ", ".join(map(str, out.shape))
            raise TypeDeductionError(
                f"{name}: dimension 0 of its result ({shape}) does not count the sequences, of "
                f"which there are {'given numbers' if count is None else count}",
                suggestion="keep the first dimension, or work on the rows of all sequences: "
                "R.match_cast(x, R.Tensor((n, …)))",
            )
        _check_extents(name, out.shape)


def combines_sequences(call: graph.Call, arg_types: Sequence[Type]) -> bool:
    """True for a reduction along the sequences and along the rows of each: of the rows of all
    sequences, wherever one ends."""
    x = arg_types[0] if arg_types else None
    if not isinstance(call.op, graph.Op) or not isinstance(x, TensorType) or x.shape is None:
        return False
    if not has_trait(call.op.name, "reduction") or not is_ragged(x) or not is_rows(x.shape):
        return False
    axis: int | tuple[int, ...] | None = call.attrs.get("axis")
    axes = range(x.ndim) if axis is None else (axis,) if isinstance(axis, int) else axis
    return {0, 1} <= {a % x.ndim for a in axes}


def _check_extents(name: str, shape: tuple[PrimExpr, ...]) -> None:
    ragged = [d for d, e in enumerate(shape) if lengths_in(e)]
    if len(ragged) > 1:
        raise TypeDeductionError(
            f"{name}: dimensions {ragged[0]} and {ragged[1]} of its result, {shape[ragged[0]]} and "
            f"{shape[ragged[1]]}, are both as long as a sequence; one may be",
            suggestion="R.nn.attention needs no scores of its own",
        )
    for d in ragged:
        if not is_linear(shape[d]):
            raise TypeDeductionError(
                f"{name}: dimension {d} of its result is {shape[d]}, which is no sum of multiples "
                "of lengths"
            )


def is_linear(extent: PrimExpr) -> bool:
    """True for sums of multiples of lengths and of numbers."""
    lengths, an = lengths_in(extent), Analyzer.for_shapes((extent,))
    base = substitute(extent, dict.fromkeys(lengths, ZERO))
    ones = {s: substitute(extent, {t: ONE if t is s else ZERO for t in lengths}) for s in lengths}
    total = base
    for s, at_one in ones.items():
        total = total + (at_one - base) * s
    return an.prove_equal(total, extent) is True


def prefix(extent: PrimExpr, at: PrimExpr, sums: Mapping[Length, PrimExpr]) -> PrimExpr:
    """The sum of an extent over the first `at` sequences, of whose lengths `sums` are the sums."""
    base = substitute(extent, dict.fromkeys(lengths_in(extent), ZERO))
    table: dict[Var, PrimExpr] = {s: value for s, value in sums.items()}
    return Analyzer.for_shapes((extent,)).simplify(substitute(extent, table) - base + base * at)


def is_rows(shape: tuple[PrimExpr, ...]) -> bool:
    """True for a ragged shape whose elements are the rows of a dense tensor."""
    return bool(lengths_in(shape[1])) and not lengths_in(shape[2:])


def fixed_size(shape: tuple[PrimExpr, ...]) -> PrimExpr:
    """The product of the regular extents of an element of a ragged tensor."""
    return prod((e for e in shape[1:] if not lengths_in(e)), start=ONE)


def stored_shape(shape: tuple[PrimExpr, ...], totals: Totals) -> tuple[PrimExpr, ...]:
    """The shape of the dense tensor that has the elements of a ragged one."""
    extent = next(e for e in shape[1:] if lengths_in(e))
    total = prefix(extent, shape[0], totals)
    if is_rows(shape):
        return (total, *shape[2:])
    return (Analyzer.for_shapes((total, *shape)).simplify(total * fixed_size(shape)),)


def stored(ty: Type, totals: Totals) -> Type:
    """A type with the dense tensors that have the elements of ragged ones in their place."""

    if isinstance(ty, TensorType) and not is_ragged(ty):
        return ty

    def visit(n: object) -> Type | None:
        match n:
            case TensorType(shape) if shape is not None and lengths_in(shape):
                return replace(n, shape=stored_shape(shape, totals))
            case _:
                return None

    return rewrite(ty, visit)
