"""Ragged tensors: what types of operators' results may be, and how their elements lie in memory.

A tensor whose shape mentions the lengths of sequences holds one element for each of them along its
first dimension; one whose shape mentions the index along that dimension, as i + 1 does, the rows of
a triangle. An operator on such tensors means, for each sequence, that element of its result on a
batch of sequences that are all as long. The elements lie behind each other, each row-major (CoRa,
MLSys 2022, section 5.3, for one outer dimension), as the rows of a dense tensor: where the
dimensions after the first are ragged and those after them regular, a row has the latter; else it is
one number.

The size of an element is a sum of multiples of products, whose factors are lengths or other numbers
that follow from them, as s[i] // 2 does. So an element begins where the sums of these products over
the sequences before it say: of s[i] for rows, of s[i] * s[i] for scores.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import gcd, prod
from types import MappingProxyType
from typing import Any, TypeVar, cast

from relaxlab.analysis.arith import Analyzer
from relaxlab.analysis.evaluate import evaluate
from relaxlab.ir import graph
from relaxlab.ir.diagnostics import Diagnostic, DiagnosticError
from relaxlab.ir.expr import (
    GE,
    Add,
    InnerLength,
    IntImm,
    Mul,
    OuterIndex,
    PrimExpr,
    Sub,
    Var,
    as_expr,
    const,
)  # fmt: skip
from relaxlab.ir.module import Module
from relaxlab.ir.node import Node, replace, rewrite, walk
from relaxlab.ir.op_table import TypeDeductionError, has_trait
from relaxlab.ir.substitute import symbols_in
from relaxlab.ir.types import (
    Each,
    Length,
    LengthsType,
    TensorType,
    TupleType,
    Type,
    is_part,
    is_ragged,
    lengths_in,
    outer_lengths,
)

Product = tuple[PrimExpr, ...]
"""A product of lengths, and of numbers that follow from them, in the order of their text; of none,
it is 1."""
ZERO, ONE = const(0), const(1)
N = TypeVar("N", bound=Node)


class Totals(dict[Product, PrimExpr]):
    """The sums of products of lengths over all sequences: (s,) has the number of rows. One that is
    not known gets a symbol when it is first asked for. `counts` has the number of the sequences
    that lengths are of."""

    def __init__(self, totals: Mapping[Product, PrimExpr] = MappingProxyType({})) -> None:
        super().__init__(totals)
        self.counts: dict[Length, PrimExpr] = {}

    def __missing__(self, product: Product) -> PrimExpr:
        self[product] = Var(f"sum_{name_of(product)}")
        return self[product]

    def products(self) -> dict[Product, Var]:
        """The products other than lengths that have been asked for, and their symbols."""
        return {p: v for p, v in self.items() if not is_length(p) and isinstance(v, Var)}

    def define(self, ty: Type | None) -> None:
        """Take the number of rows from the type of a parameter that has lengths."""
        if isinstance(ty, LengthsType) and ty.each is not None and ty.total is not None:
            self[(ty.each,)] = ty.total
            assert ty.shape is not None
            self.counts[ty.each] = ty.shape[0]

    def count(self, s: Each) -> PrimExpr | None:
        """The number of the sequences that have these lengths, or this index; None where the
        lengths are no parameter."""
        if isinstance(s, OuterIndex):
            return s.count
        return self.counts.get(cast(Length, s.outer) if isinstance(s, InnerLength) else s)

    def copy(self) -> Totals:
        """The same totals, to be added to independently."""
        made = Totals(self)
        made.counts |= self.counts
        return made


def is_length(product: Product) -> bool:
    """True for a product of one length alone."""
    return len(product) == 1 and isinstance(product[0], Length)


def name_of(product: Product) -> str:
    """The names of the parameters that the lengths of a product are from, and of the outer index:
    `s_t_i` of s[i] * t[i] * i."""
    each = (s for factor in product for s in lengths_in(factor))
    return "_".join(str(s).partition("[")[0] for s in each)


def sizes_of_each(
    varying: Iterable[Each], lengths: Mapping[Length, Iterable[int]], sizes: Mapping[Var, int]
) -> list[dict[Any, int]]:
    """The values of variables, and of what differs from sequence to sequence, for each of these;
    for each row of each sequence where the lengths of rows are among it."""
    varying = tuple(varying)
    rows = outer_lengths(varying)
    columns: dict[Each, Iterable[int]] = {}
    for s in varying:
        if isinstance(s, InnerLength):
            columns[s] = map(int, lengths[cast(Length, s.each)])
            continue
        of_each = (
            list(map(int, lengths[s])) if isinstance(s, Length)
            else range(int(evaluate(s.count, sizes)))
        )  # fmt: skip
        columns[s] = of_each if rows is None else [
            n for n, times in zip(of_each, map(int, lengths[rows]), strict=True)
            for _ in range(times)
        ]  # fmt: skip
    every = zip(*columns.values(), strict=True)
    return [{**sizes, **dict(zip(columns, row, strict=True))} for row in every]


def sums_of_products(
    products: Mapping[Product, Var],
    lengths: Mapping[Length, Iterable[int]],
    sizes: Mapping[Var, int],
) -> dict[Var, int]:
    """The values of the symbols that sums of products have, given those of lengths and of other
    symbols."""
    found: dict[Var, int] = {}
    for product, symbol in products.items():
        each = sizes_of_each(lengths_in(product), lengths, sizes)
        found[symbol] = sum(prod(int(evaluate(f, values)) for f in product) for values in each)
    return found


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


def levels(ty: Type | None) -> list[int]:
    """The number of indices that the extents of each tensor in a type depend on: 0 for a regular
    one, 2 for one with the lengths of rows."""
    tensors = tensors_in(ty)
    return [2 if outer_lengths(t.shape) is not None else int(is_ragged(t)) for t in tensors]


def may_be_ragged(mod: Module) -> bool:
    """True for a module with lengths of sequences that tensors may be ragged by, or an outer index
    that slices end at."""
    functions = mod.graph_functions().values()
    if any(isinstance(p.ty, LengthsType) for f in functions for p in f.params):
        return True
    nodes = (n for f in functions for n in walk(f))
    return any(
        isinstance(n, OuterIndex) or (isinstance(n, graph.Var) and mentions_ragged(n.ty))
        for n in nodes
    )


def totals_of(fn: graph.Function) -> Totals:
    """The numbers of rows of the lengths that a function has as parameters."""
    totals = Totals()
    for p in fn.params:
        totals.define(p.ty)
    return totals


def check_ragged_result(call: graph.Call, arg_types: Sequence[Type], result: Type) -> None:
    """Check that an operator on ragged tensors has one element of its result for each sequence, or
    combines all of them. Raises TypeDeductionError naming the operator and the dimension."""
    if combines_sequences(call, arg_types):
        return
    args = tensors_in(*arg_types)
    given = [t for t in args if is_ragged(t) and not is_part(t)]
    name = f"R.{getattr(call.op, 'name', 'call')}"
    for out in tensors_in(result):
        if given and out.shape is None:
            raise TypeDeductionError(
                f"{name}: the shape of its result is not known, which sequences of different "
                "lengths need",
                suggestion="work on their rows: R.match_cast(x, R.Tensor((n, …)))",
            )
        if not given and (is_part(out) or not any(map(is_ragged, (*args, out)))):
            continue
        if not given and not is_ragged(out):
            raise TypeDeductionError(
                f"{name}: its result, {out}, is another one for each sequence, which its type does "
                "not say",
                suggestion="give its operand a first dimension that counts the sequences: "
                "R.broadcast_to(x, (b, …))",
            )
        if out.shape is not None:
            _check_count(name, out.shape, given)
    _check_rows(name, [*args, *tensors_in(result)], tensors_in(result))


def _check_rows(name: str, every: Sequence[TensorType], results: Sequence[TensorType]) -> None:
    """Check that the results of an operator on tensors with the lengths of rows count the sequences
    and the rows of each by their first dimensions, and nothing else does. Raises
    TypeDeductionError."""
    outer = next(filter(None, (outer_lengths(t.shape) for t in every)), None)
    if outer is None:
        return
    for t in every:
        if is_part(t) and any(isinstance(s, InnerLength) for s in lengths_in(t.shape)):
            raise TypeDeductionError(
                f"{name}: {t} is another tensor for each row of each sequence, without the two "
                "dimensions that count these",
                suggestion="compute it for the rows of all sequences, as those of one: t[i]",
            )
    for out in results:
        if out.shape is None or has_rows(out.shape, outer):
            continue
        text = ", ".join(map(str, out.shape))
        raise TypeDeductionError(
            f"{name}: dimensions 0 and 1 of its result ({text}) do not count the sequences and the "
            f"{outer} rows of each",
            suggestion="reduce the rows first, then the sequences; or work on the rows of all "
            "sequences: R.match_cast(x, R.Tensor((n, …)))",
        )


def has_rows(shape: Sequence[PrimExpr], outer: Length) -> bool:
    """True for a shape of an element for each row of each sequence: its second dimension counts the
    rows, of which `outer` has the numbers, and those after it are regular or t[i, j] long."""
    inner = [s for s in lengths_in(shape[2:]) if not isinstance(s, InnerLength)]
    found = outer_lengths(shape)
    first = len(shape) > 1 and not lengths_in(shape[0]) and shape[1] is outer
    return first and found in (None, outer) and not inner


def rows_as_sequences(shape: tuple[PrimExpr, ...], count: PrimExpr) -> tuple[PrimExpr, ...]:
    """A shape that has an element for each row of each sequence with one for each of the `count`
    rows of all sequences."""
    return tuple(map(row_lengths, (count, *shape[2:])))


def row_lengths(n: N) -> N:
    """`n` with the rows of all sequences as the sequences: t[i] in the place of t[i, j]."""
    return rewrite(n, lambda e: e.each if isinstance(e, InnerLength) else None)


def _check_count(name: str, shape: tuple[PrimExpr, ...], given: Sequence[TensorType]) -> None:
    """Check that the first dimension of a result's shape counts the sequences, as that of the
    ragged tensors `given` does. Raises TypeDeductionError."""
    counts = [s.count for s in lengths_in(shape) if isinstance(s, OuterIndex)]
    counts += [t.shape[0] for t in given if t.shape]
    count = counts[0] if counts else None
    if not shape or lengths_in(shape[0]) or count not in (None, shape[0]):
        text = ", ".join(map(str, shape))
        raise TypeDeductionError(
            f"{name}: dimension 0 of its result ({text}) does not count the sequences, of "
            f"which there are {'given numbers' if count is None else count}",
            suggestion="keep the first dimension, or work on the rows of all sequences: "
            "R.match_cast(x, R.Tensor((n, …)))",
        )


def check_counts(e: graph.Expr, ty: Type, totals: Totals) -> None:
    """Check that the first dimension of ragged tensors counts the sequences that have the lengths,
    and that there are as many lengths of rows as rows. Raises DiagnosticError (E0203)."""
    for t in tensors_in(ty):
        for s in lengths_in(t.shape):
            if not isinstance(s, InnerLength):
                continue
            count, rows = totals.counts.get(cast(Length, s.each)), totals.get((s.outer,))
            if None not in (count, rows) and count != rows:
                message = f"{s} is one of {count} lengths, and the sequences have {rows} rows"
                raise DiagnosticError([Diagnostic("E0203", message, getattr(e, "span", None))])
        if not is_ragged(t) or is_part(t) or t.shape is None:
            continue
        for count in filter(None, map(totals.count, lengths_in(t.shape))):
            if t.shape[0] != count:
                message = f"dimension 0 of {t} does not count the sequences, of which there are "
                help = "let the dimension that counts them be the first one, or do without it"
                raise DiagnosticError([
                    Diagnostic("E0203", f"{message}{count}", getattr(e, "span", None), (), help)
                ])  # fmt: skip


def takes_first(call: graph.Call) -> bool:
    """True for a slice of the first elements along one axis, one after the other."""
    axes, begin, strides = (_items(call.attrs.get(k)) for k in ("axes", "begin", "strides"))
    return len(axes) == 1 and begin == [ZERO] and strides in ([], [ONE])


def _items(attr: Any) -> list[PrimExpr]:
    """The numbers of an attribute: none, one, or several."""
    if isinstance(attr, tuple):
        return [as_expr(n) for n in cast("tuple[Any, ...]", attr)]
    return [] if attr is None else [as_expr(attr)]


def combines_sequences(call: graph.Call, arg_types: Sequence[Type]) -> bool:
    """True for a reduction along the sequences and along the rows of each: of the rows of all
    sequences, wherever one ends."""
    x = arg_types[0] if arg_types else None
    if not isinstance(call.op, graph.Op) or not isinstance(x, TensorType) or x.shape is None:
        return False
    if is_part(x):
        return False
    if not has_trait(call.op.name, "reduction") or not is_ragged(x):
        return False
    axis: int | tuple[int, ...] | None = call.attrs.get("axis")
    axes = range(x.ndim) if axis is None else (axis,) if isinstance(axis, int) else axis
    return set(range(1 + row_dims(x.shape))) <= {a % x.ndim for a in axes}


def products_in(extent: PrimExpr) -> dict[Product, PrimExpr]:
    """The coefficients of the products that an extent is a sum of; the one of () has no lengths.

    No factor of a product is negative, so sums of products do not fall: where that is not known of
    the terms of an extent, as of those of a band, the extent is one product by itself.
    """
    an = Analyzer.for_shapes((extent,))
    whole = an.simplify(extent)
    found = _expanded(whole)
    of_coefficients = Analyzer.for_shapes(tuple(found.values()))
    simple = {p: of_coefficients.simplify(c) for p, c in found.items()}
    simple = {p: c for p, c in simple.items() if c != ZERO}
    factors = {f for p in simple for f in p if not isinstance(f, Each)}
    if all(an.prove(GE(f, ZERO)) is True for f in factors):
        return simple
    numbers = [c.value if isinstance(c, IntImm) else 1 for c in simple.values()]
    common = const(gcd(*numbers))
    return {(an.simplify(whole // common),): common}


def _expanded(extent: PrimExpr) -> dict[Product, PrimExpr]:
    if not lengths_in(extent):
        return {(): extent}
    if not isinstance(extent, Add | Sub | Mul):
        return {(extent,): ONE}
    a, b = _expanded(extent.a), _expanded(extent.b)
    result: dict[Product, PrimExpr] = {}
    if isinstance(extent, Mul):
        for p, c in a.items():
            for q, d in b.items():
                both = tuple(sorted((*p, *q), key=lambda f: (str(f), id(f))))
                result[both] = result.get(both, ZERO) + c * d
        return result
    sign = 1 if isinstance(extent, Add) else -1
    return {p: a.get(p, ZERO) + b.get(p, ZERO) * sign for p in (*a, *b)}


def prefix(extent: PrimExpr, at: PrimExpr, sums: Callable[[Product], PrimExpr]) -> PrimExpr:
    """The sum of an extent over the first `at` sequences; `sums` has the sums of products of
    lengths over these."""
    total = ZERO
    for product, factor in products_in(extent).items():
        total = total + factor * (sums(product) if product else at)
    return Analyzer.for_shapes((extent,)).simplify(total)


def row_dims(shape: tuple[PrimExpr, ...]) -> int:
    """The number of dimensions after the first one of a ragged shape that a row's number is made
    of: the ragged ones where these come first, else all."""
    ragged = [bool(lengths_in(d)) for d in shape[1:]]
    count = sum(ragged)
    return count if all(ragged[:count]) else len(ragged)


def rows_of_each(shape: tuple[PrimExpr, ...]) -> PrimExpr:
    """The number of rows of each element of a ragged tensor."""
    return prod(shape[1 : 1 + row_dims(shape)], start=ONE)


def stored_shape(shape: tuple[PrimExpr, ...], totals: Totals) -> tuple[PrimExpr, ...]:
    """The shape of the dense tensor that has the rows of a ragged one."""
    outer = outer_lengths(shape)
    if outer is not None:
        return stored_shape(rows_as_sequences(shape, totals[outer,]), totals)
    total = prefix(rows_of_each(shape), shape[0], totals.__getitem__)
    return (total, *shape[1 + row_dims(shape) :])


def stored(ty: Type, totals: Totals) -> Type:
    """A type with the dense tensors that have the elements of ragged ones in their place."""

    if isinstance(ty, TensorType) and not is_ragged(ty):
        return ty

    def visit(n: object) -> Type | None:
        if isinstance(n, TensorType) and n.shape is not None and lengths_in(n.shape):
            return replace(n, shape=stored_shape(counted_shape(n.shape, totals), totals), ndim=-1)
        return None

    return rewrite(ty, visit)


def counted_shape(shape: tuple[PrimExpr, ...], totals: Totals) -> tuple[PrimExpr, ...]:
    """The shape of a ragged tensor: of a part, that of the tensor whose elements are the parts of
    all sequences. Parts by lengths that are no parameter have any number of elements."""
    each = lengths_in(shape[:1])
    if not each:
        return shape
    return (totals.count(each[0]) or Var("sequences"), *shape)


def stored_parameter(p: graph.Var, totals: Totals) -> Type | None:
    """The type of a parameter with the dense tensor of a ragged one. Where its number of rows is no
    symbol, nothing determines the sums of products that it mentions, and it may be any number."""
    kept = p.ty and stored(p.ty, totals)
    if not isinstance(kept, TensorType) or not kept.shape or isinstance(kept.shape[0], Var):
        return kept
    if {*totals.products().values()}.isdisjoint(symbols_in(kept.shape[0])):
        return kept
    return replace(kept, shape=(Var(f"{p.name}_rows"), *kept.shape[1:]))
