"""Index maps, and the detection of how expressions split and fuse iterators.

An index is understood as a sum of *splits* of *marks*: a mark is a variable with an extent or a
fused sum of splits, a split is `(mark // lower) % extent`, scaled. From that it follows whether a
set of bindings visits every point of a rectangular domain, and once each. The idea is that of
quasi-affine iterator maps in TVM.
"""

from __future__ import annotations

import functools
import inspect
import math
import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from relaxlab.analysis.arith import Analyzer
from relaxlab.analysis.regions import Bounds, relax_index
from relaxlab.ir import expr
from relaxlab.ir.errors import counted
from relaxlab.ir.loops import Range
from relaxlab.ir.node import Node, binder, node, walk
from relaxlab.ir.substitute import substitute, symbols_in

ONE = expr.IntImm(1)
ZERO = expr.IntImm(0)


@dataclass(frozen=True, slots=True)
class Mark:
    """Something that takes each of `extent` values from 0 once: a variable, or a fused sum.

    `value` is the expression; `parts` the splits it is the sum of, the one of scale 1 first.
    """

    value: expr.PrimExpr
    extent: expr.PrimExpr
    parts: tuple[Split, ...] = ()


@dataclass(frozen=True, slots=True)
class Split:
    """`(mark // lower) % extent * scale`; takes `extent` values. `remainder`: a remainder is taken,
    as the mark may go beyond them."""

    mark: Mark
    lower: expr.PrimExpr
    extent: expr.PrimExpr
    scale: expr.PrimExpr = ONE
    remainder: bool = False


class NotAnIterMap(Exception):
    """An index that is no sum of splits; the message names the part."""


@dataclass(frozen=True, slots=True)
class IterMap:
    """Indices understood as splits of iterators.

    splits:    per index, the split it equals after its `base` is subtracted; None: a constant.
    bases:     per index, its least value.
    extents:   per index, how many values it takes, from its base.
    injective: every iterator is used up, so that no two iterations give the same indices.
    padded:    iterators whose splits reach further than they do, by how far they then reach.
    """

    splits: tuple[Split | None, ...]
    bases: tuple[expr.PrimExpr, ...]
    extents: tuple[expr.PrimExpr, ...]
    injective: bool
    padded: Mapping[expr.Var, expr.PrimExpr]

    @property
    def bijective(self) -> bool:
        """True if the indices reach every point of the domain of `extents` exactly once."""
        return self.injective and not self.padded


def detect_iter_map(
    indices: Iterable[expr.PrimExpr],
    ranges: Mapping[expr.Var, Range],
    predicate: expr.PrimExpr | None = None,
    analyzer: Analyzer | None = None,
) -> IterMap:
    """Return `indices` as independent splits of the iterators in `ranges`.

    Together the indices go through the whole domain of their extents. With a `predicate` made of
    bounds on sums of iterators (`i*16 + j < n`), only those iterations count. Raises NotAnIterMap
    if that is false or cannot be proved.
    """
    an = analyzer if analyzer is not None else Analyzer.for_shapes(*ranges.values())
    with an.scope():
        for v, r in ranges.items():
            an.bind_range(v, r)
        return _Detector(an, ranges, _limits(predicate, an)).detect(indices)


Limits: TypeAlias = dict[expr.PrimExpr, expr.PrimExpr]
"""Exclusive upper bounds, by the sum that they are of."""


def _limits(predicate: expr.PrimExpr | None, an: Analyzer) -> list[Limits]:
    """Upper bounds on sums, from a conjunction: of each condition the forms that say the same."""
    found: Limits = {}
    for c in _conjuncts(predicate):
        match c:
            case expr.LT(a, b):
                found[an.simplify(a)] = an.simplify(b)
            case expr.LE(a, b):
                found[an.simplify(a)] = an.simplify(b + 1)
            case expr.GT(a, b):
                found[an.simplify(b)] = an.simplify(a)
            case expr.GE(a, b):
                found[an.simplify(b)] = an.simplify(a + 1)
            case _:
                raise NotAnIterMap(f"the predicate {c} is no upper bound on a sum of loops")
    cutting = {s: limit for s, limit in found.items() if not an.prove(expr.LT(s, limit))}
    return [{s: limit, **_coarser(s, limit, an)} for s, limit in cutting.items()]


def _coarser(total: expr.PrimExpr, limit: expr.PrimExpr, an: Analyzer) -> Limits:
    """The forms of a bound without the lowest digits of the sum: where x < 4, i*4 + x < 12 says
    i < 3. A quotient of the sum has the other digits alone."""
    terms = [(_scale_of(t), t) for negative, t in _terms(total, False) if not negative]
    found: Limits = {}
    for scale in {k for k, _ in terms if k > 1}:
        high = [t for k, t in terms if k % scale == 0]
        low = an.simplify(total - _added(high))
        first, last = an.bounds_of(low)
        below = first is not None and first >= 0 and last is not None and last < scale
        if below and an.prove_equal(limit % scale, ZERO):
            found[an.simplify(_added(high) // scale)] = an.simplify(limit // scale)
    return found


def _scale_of(term: expr.PrimExpr) -> int:
    match term:
        case expr.Mul(_, expr.IntImm(k)):
            return k
        case _:
            return 1


def _added(terms: list[expr.PrimExpr]) -> expr.PrimExpr:
    return functools.reduce(operator.add, terms)


def _conjuncts(e: expr.PrimExpr | None) -> list[expr.PrimExpr]:
    match e:
        case None | expr.IntImm(1):
            return []
        case expr.And(a, b):
            return _conjuncts(a) + _conjuncts(b)
        case expr.Call(_, "likely", (a,)):
            return _conjuncts(a)
        case _:
            return [e]


@dataclass(slots=True)
class _Detector:
    an: Analyzer
    ranges: Mapping[expr.Var, Range]
    limits: list[Limits]
    marks: dict[expr.PrimExpr, Mark] = field(default_factory=dict[expr.PrimExpr, Mark])
    used: set[expr.PrimExpr] = field(default_factory=set[expr.PrimExpr])

    def detect(self, indices: Iterable[expr.PrimExpr]) -> IterMap:
        found: list[Split | None] = []
        bases: list[expr.PrimExpr] = []
        for index in indices:
            splits, base = self.sum(self.an.simplify(index))
            bases.append(base)
            found.append(self.fuse(splits, index) if splits else None)
        for forms in self.limits:
            if not forms.keys() & self.used:
                limited = next(iter(forms))
                raise NotAnIterMap(f"the predicate on {limited} cuts through the iterations")
        injective, padded = self.partition([s for s in found if s is not None])
        extents = tuple(ONE if s is None else s.extent for s in found)
        return IterMap(tuple(found), tuple(bases), extents, injective, padded)

    def is_iter(self, e: expr.PrimExpr) -> bool:
        return any(v in self.ranges for v in symbols_in(e))

    def sum(self, e: expr.PrimExpr) -> tuple[list[Split], expr.PrimExpr]:
        """The splits that add up to a simplified expression, and the rest."""
        splits: list[Split] = []
        base: expr.PrimExpr = expr.const(0, e.dtype)
        for negative, term in _terms(e, False):
            if not self.is_iter(term):
                base = base - term if negative else base + term
                continue
            if negative:
                raise NotAnIterMap(f"{term} runs backwards in {e}")
            s = self.term(term, e)
            splits.append(s)
            if isinstance(s.mark.value, expr.Var) and not s.mark.parts:
                lo = self.ranges[s.mark.value].min
                if lo != expr.const(0, lo.dtype):
                    if s.lower != ONE:
                        raise NotAnIterMap(f"{term} divides a loop that does not start at 0")
                    base = base + lo * s.scale
        return splits, self.an.simplify(base)

    def term(self, e: expr.PrimExpr, whole: expr.PrimExpr) -> Split:
        match e:
            case expr.Var():
                extent = self.an.simplify(self.ranges[e].extent)
                return Split(self.marks.setdefault(e, Mark(e, extent)), ONE, extent)
            case expr.Mul(a, b):
                if self.is_iter(a) and self.is_iter(b):
                    raise NotAnIterMap(f"{e} multiplies iterators in {whole}")
                s, k = (self.term(a, whole), b) if self.is_iter(a) else (self.term(b, whole), a)
                if not self.an.prove(expr.binary(expr.GE, k, 1)):
                    raise NotAnIterMap(f"the factor {k} in {whole} is not known to be positive")
                return self.changed(s, scale=s.scale * k)
            case expr.FloorDiv(a, b) if not self.is_iter(b):
                s = self.dividend(a, b)
                extent = self.an.simplify((s.extent + b - 1) // b)
                return self.changed(s, lower=s.lower * b, extent=extent)
            case expr.FloorMod(a, b) if not self.is_iter(b):
                return replace(self.changed(self.dividend(a, b), extent=b), remainder=True)
            case expr.Cast(_, value):
                return self.term(value, whole)
            case _:
                raise NotAnIterMap(f"{e} in {whole} is no quotient or remainder of iterators")

    def changed(self, s: Split, **parts: expr.PrimExpr) -> Split:
        values = {"lower": s.lower, "extent": s.extent, "scale": s.scale, **parts}
        return replace(s, **{k: self.an.simplify(v) for k, v in values.items()})

    def dividend(self, e: expr.PrimExpr, by: expr.PrimExpr) -> Split:
        """An expression that is divided, as one split. What divides a remainder divides its extent:
        (i % 4) // 3 is not (i // 3) % 2 where i goes beyond 3."""
        s = self.whole(e)
        if s.remainder and self.an.prove_equal(s.extent % by, ZERO) is not True:
            raise NotAnIterMap(f"{by} does not divide {s.extent}, the extent of the remainder {e}")
        return s

    def whole(self, e: expr.PrimExpr) -> Split:
        """A dividend as one split."""
        splits, base = self.sum(e)
        if base != expr.const(0, base.dtype):
            raise NotAnIterMap(f"the offset {base} is divided in {e}")
        return self.fuse(splits, e)

    def fuse(self, splits: list[Split], e: expr.PrimExpr) -> Split:
        """One split for a sum whose scales are the products of the extents below them."""
        rest = list(splits)
        ordered: list[Split] = []
        expected: expr.PrimExpr = ONE
        while rest:
            s = next((s for s in rest if self.an.prove_equal(s.scale, expected)), None)
            if s is None:
                raise NotAnIterMap(f"the terms of {e} leave gaps or overlap")
            rest.remove(s)
            ordered.append(s)
            expected = self.an.simplify(expected * s.extent)
        value = _value_of(ordered, self.an)
        limit = next((forms[value] for forms in self.limits if value in forms), None)
        if limit is None and len(ordered) == 1:
            return ordered[0]
        mark = self.marks.get(value)
        if mark is None or not mark.parts:
            extent = expected if limit is None else self.limited(value, limit, expected)
            mark = self.marks[value] = Mark(value, extent, tuple(ordered))
        return Split(mark, ONE, mark.extent)

    def limited(
        self, value: expr.PrimExpr, limit: expr.PrimExpr, extent: expr.PrimExpr
    ) -> expr.PrimExpr:
        if not self.an.prove(expr.LE(limit, extent)):
            raise NotAnIterMap(f"{value} reaches {extent}, the predicate asks for {limit}")
        self.used.add(value)
        return limit

    def partition(self, splits: list[Split]) -> tuple[bool, dict[expr.Var, expr.PrimExpr]]:
        """(every iterator used up, iterators that the splits go beyond)."""
        used: dict[Mark, list[Split]] = {}
        for s in splits:
            used.setdefault(s.mark, []).append(s)
        injective = True
        padded: dict[expr.Var, expr.PrimExpr] = {}
        # Fused marks are taken apart from the largest down to the variables.
        while any(m.parts for m in used):
            mark = max((m for m in used if m.parts), key=lambda m: _depth(m))
            complete, reach = self.tiles(mark, used.pop(mark))
            injective = injective and complete
            for part in mark.parts if reach is None else self.widened(mark, reach):
                used.setdefault(part.mark, []).append(part)
        for mark, parts in used.items():
            complete, reach = self.tiles(mark, parts)
            injective = injective and complete
            if reach is not None:
                assert isinstance(mark.value, expr.Var)
                padded[mark.value] = reach
        for v, r in self.ranges.items():
            if not any(m.value == v for m in used):
                injective = injective and self.an.prove_equal(r.extent, ONE) is True
        return injective, padded

    def widened(self, mark: Mark, reach: expr.PrimExpr) -> tuple[Split, ...]:
        """The parts of a fused mark whose splits take `reach` values, more than it has: its highest
        digit goes on. Raises NotAnIterMap where that one is a remainder or cut by a predicate."""
        *low, high = mark.parts
        cut = self.an.prove_equal(high.scale * high.extent, mark.extent) is not True
        if high.remainder or cut:
            raise NotAnIterMap(f"the splits of {mark.value} go beyond its extent {mark.extent}")
        digits = (reach + high.scale - 1) // high.scale
        return (*low, self.changed(high, extent=digits))

    def tiles(self, mark: Mark, parts: list[Split]) -> tuple[bool, expr.PrimExpr | None]:
        """Return True if the splits of a mark use it up, and how far they reach if that is beyond
        it (else None)."""
        rest = list(parts)
        reach: expr.PrimExpr = ONE
        complete = True
        while rest:
            s = next((s for s in rest if self.an.prove_equal(s.lower, reach)), None)
            if s is None:
                complete = False
                s = self.next_above(mark, rest, reach)
            rest.remove(s)
            reach = self.an.simplify(s.lower * s.extent)
        if self.an.prove_equal(reach, mark.extent):
            return complete, None
        if complete and self.an.prove(expr.GE(reach, mark.extent)):
            return True, reach
        if self.an.prove_equal(mark.extent % reach, ZERO):
            return False, None
        raise NotAnIterMap(f"{mark.value} of extent {mark.extent} is not divided by {reach}")

    def next_above(self, mark: Mark, rest: list[Split], reach: expr.PrimExpr) -> Split:
        """The next split above a gap: some digits of the iterator are not used."""
        for s in rest:
            if all(self.an.prove(expr.LE(s.lower, t.lower)) for t in rest) and (
                self.an.prove_equal(s.lower % reach, ZERO)
            ):
                return s
        raise NotAnIterMap(f"the uses of {mark.value} overlap")


def _depth(mark: Mark) -> int:
    return 1 + max((_depth(p.mark) for p in mark.parts), default=0)


def _terms(e: expr.PrimExpr, negative: bool) -> list[tuple[bool, expr.PrimExpr]]:
    match e:
        case expr.Add(a, b):
            return _terms(a, negative) + _terms(b, negative)
        case expr.Sub(a, b):
            return _terms(a, negative) + _terms(b, not negative)
        case expr.Mul(a, expr.IntImm(k)) if k < 0:
            return _terms(a if k == -1 else a * -k, not negative)
        case _:
            return [(negative, e)]


def _split_value(s: Split) -> expr.PrimExpr:
    return s.mark.value // s.lower % s.extent * s.scale


def _value_of(splits: list[Split], an: Analyzer) -> expr.PrimExpr:
    total = _split_value(splits[0])
    for s in splits[1:]:
        total = total + _split_value(s)
    return an.simplify(total)


class NotInvertible(ValueError):
    """An index map that is no bijection on the given shape; the message has the reason."""


@node
class IndexMap(Node):
    """New indices as expressions of old ones: `(i, j) -> (i // 4, j, i % 4)`."""

    initial_indices: tuple[expr.Var, ...] = binder()
    final_indices: tuple[expr.PrimExpr, ...]

    @staticmethod
    def of(fn: Callable[..., Any], ndim: int | None = None) -> IndexMap:
        """From a Python function of the old indices that returns the new ones.

        `ndim` is the number of old indices where `fn` takes `*indices`.

        >>> str(IndexMap.of(lambda i, j: (j, i // 4, i % 4)))
        '(i, j) -> (j, i // 4, i % 4)'
        """
        names: list[str] = []
        for p in inspect.signature(fn).parameters.values():
            if p.kind is p.VAR_POSITIONAL:
                if ndim is None:
                    raise ValueError("an index map over *indices needs ndim")
                names += [f"{p.name}{k}" for k in range(ndim - len(names))]
            else:
                names.append(p.name)
        if ndim is not None and len(names) != ndim:
            takes = counted(len(names), "index", "indices")
            raise ValueError(f"the index map takes {takes}, the buffer has {ndim}")
        variables = tuple(expr.Var(name) for name in names)
        result = fn(*variables)
        items: tuple[Any, ...] = (result,)
        if isinstance(result, list | tuple):
            items = tuple(result)  # type: ignore[reportUnknownArgumentType]
        return IndexMap(variables, tuple(expr.as_expr(e) for e in items))

    def __str__(self) -> str:
        old = ", ".join(map(str, self.initial_indices))
        return f"({old}) -> ({', '.join(map(str, self.final_indices))})"

    def apply(
        self, indices: Iterable[expr.PrimExpr], analyzer: Analyzer | None = None
    ) -> tuple[expr.PrimExpr, ...]:
        """The new indices at the given old ones, simplified.

        Raises ValueError when the number of indices is wrong.
        """
        values = tuple(indices)
        if len(values) != len(self.initial_indices):
            takes = counted(len(self.initial_indices), "index", "indices")
            raise ValueError(f"the index map {self} takes {takes}, not {len(values)}")
        table = dict(zip(self.initial_indices, values, strict=True))
        an = analyzer if analyzer is not None else Analyzer()
        return tuple(an.simplify_index(substitute(e, table)) for e in self.final_indices)

    def map_shape(
        self, shape: Iterable[expr.ExprLike], analyzer: Analyzer | None = None
    ) -> tuple[expr.PrimExpr, ...]:
        """The smallest shape that holds all new indices of an array of `shape`, in which no tile is
        smaller than the map makes them.

        Raises NotInvertible when a new index cannot be bounded or starts below 0.
        """
        given = tuple(map(expr.as_expr, shape))
        an = analyzer if analyzer is not None else Analyzer.for_shapes(*given)
        none = expr.Var("none")  # there are no tiles of no elements, but each would be whole
        dims = tuple(none if d == ZERO else w
                     for d, w in zip(given, self._whole_tiles(given), strict=True))  # fmt: skip
        with an.scope():
            an.bind_shape(none)
            ranges: dict[expr.Var, Bounds] = {}
            for v, d in zip(self.initial_indices, dims, strict=True):
                an.bind(v, 0, d - 1)
                ranges[v] = (expr.const(0, d.dtype), an.simplify(d - 1))
            out: list[expr.PrimExpr] = []
            for e in self.final_indices:
                bounds = relax_index(e, ranges, an)
                if bounds is None or an.prove(expr.binary(expr.GE, bounds[0], 0)) is not True:
                    raise NotInvertible(f"{e} in {self} cannot be bounded from 0")
                out.append(an.simplify(substitute(bounds[1] + 1, {none: ZERO})))
            return tuple(out)

    def _whole_tiles(self, dims: tuple[expr.PrimExpr, ...]) -> tuple[expr.PrimExpr, ...]:
        """The extents; constants that are less than a tile, as large as one: a shape depends on
        whether an extent is a constant as little as on its value."""
        tiles = dict.fromkeys(self.initial_indices, 1)
        for n in (n for e in self.final_indices for n in walk(e)):
            match n:
                case (
                    expr.FloorDiv(expr.Var() as v, expr.IntImm(by))
                    | expr.FloorMod(expr.Var() as v, expr.IntImm(by))
                ) if v in tiles and by > 0:
                    tiles[v] = math.lcm(tiles[v], by)
                case _:
                    pass
        return tuple(
            expr.const(tiles[v], d.dtype)
            if isinstance(d, expr.IntImm) and d.value < tiles[v] > 1 else d
            for v, d in zip(self.initial_indices, dims, strict=True)
        )  # fmt: skip

    def inverse(self, shape: Iterable[expr.ExprLike], analyzer: Analyzer | None = None) -> IndexMap:
        """The map back, for arrays of `shape`.

        Raises NotInvertible unless the map is a bijection between `shape` and `map_shape(shape)`.
        """
        back, _, padding = self.inverse_with_padding(shape, analyzer)
        if padding is not None:
            raise NotInvertible(f"{self} leaves elements of the new array unused: where {padding}")
        return back

    def inverse_with_padding(
        self, shape: Iterable[expr.ExprLike], analyzer: Analyzer | None = None
    ) -> tuple[IndexMap, tuple[expr.PrimExpr, ...], expr.PrimExpr | None]:
        """(map back, new shape, condition on the new indices that holds on unused elements).

        The condition is None when every element of the new array is used.
        Raises NotInvertible when two old indices share a new one, or that is not excluded.
        """
        dims = tuple(map(expr.as_expr, shape))
        whole = self._whole_tiles(dims)
        an = analyzer if analyzer is not None else Analyzer.for_shapes(*dims)
        zero = expr.IntImm(0)
        ranges = {v: Range(zero, d) for v, d in zip(self.initial_indices, whole, strict=True)}
        try:
            found = detect_iter_map(self.final_indices, ranges, None, an)
        except NotAnIterMap as e:
            raise NotInvertible(f"{self}: {e}") from e
        if not found.injective:
            raise NotInvertible(f"{self} maps several indices to one")
        new = tuple(expr.Var(f"i{k}") for k in range(len(self.final_indices)))
        values = _solve(found, new)
        alone = dict(zip(self.final_indices, new, strict=True))  # also an axis of one value
        padding: expr.PrimExpr | None = None
        with an.scope():
            for v, e in zip(new, found.extents, strict=True):
                an.bind(v, 0, e - 1)
            old = (values.get(v, alone.get(v, ZERO)) for v in self.initial_indices)
            exprs = tuple(map(an.simplify_index, old))
            for v, e, d, w in zip(self.initial_indices, exprs, dims, whole, strict=True):
                if v in found.padded or w != d:
                    beyond = an.simplify(expr.GE(e, d))
                    padding = beyond if padding is None else expr.Or(padding, beyond)
        if any(b != expr.const(0, b.dtype) for b in found.bases):
            raise NotInvertible(f"{self} does not start at 0")
        shape = self.map_shape(dims, an) if ZERO in dims else found.extents
        return IndexMap(new, exprs), shape, padding


def _solve(found: IterMap, new: tuple[expr.Var, ...]) -> dict[expr.PrimExpr, expr.PrimExpr]:
    """The value of every variable in terms of the new indices."""
    values: dict[Mark, expr.PrimExpr] = {}
    pending: list[tuple[Split, expr.PrimExpr]] = [
        (s, v) for s, v in zip(found.splits, new, strict=True) if s is not None
    ]

    def settle(s: Split, value: expr.PrimExpr) -> None:
        part = value if s.lower == ONE else value * s.lower
        values[s.mark] = values[s.mark] + part if s.mark in values else part

    for s, v in pending:
        settle(s, v)
    fused = [m for m in values if m.parts]
    while fused:
        mark = max(fused, key=_depth)
        value = values.pop(mark)
        for k, part in enumerate(mark.parts):
            digit = value // part.scale
            settle(part, digit if k == len(mark.parts) - 1 else digit % part.extent)
        fused = [m for m in values if m.parts]
    return {m.value: value for m, value in values.items()}
