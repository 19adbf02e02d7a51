"""Corrections of partial results, when the results that their terms depend on move on.

A sum of terms `f(x, d)` over what has been seen so far, where `d` is itself a result over what has
been seen, is to become the sum of `f(x, new d)`. Two forms of terms allow that without looking at
`x` again:

- `p(x) * exp(c * d)`: the sum scales by `exp(c * (new - old))`. With `d` the maximum of exponents,
  this is online softmax (Milakov and Gimelshein, 2018).
- `(x - d) ** 2`, with the sum of `x` known: the sum about the mean of what has been seen grows by
  `count * (new - old) ** 2` (Chan, Golub and LeVeque, 1983).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from relaxlab.ir import expr
from relaxlab.ir.expr import PrimExpr
from relaxlab.ir.loops import Block, Buffer, BufferLoad, BufferStore
from relaxlab.ir.node import Node, rewrite
from relaxlab.schedule.cascade import Cascade, loads_in, require, written
from relaxlab.schedule.combiners import without_cast
from relaxlab.schedule.rfactor import Reduction, reduction_of


@dataclass(frozen=True, slots=True)
class Scale:
    """The factor `op(rate * (new - old))` for a move of the result `of`."""

    of: Buffer
    op: str
    rate: float

    def factor(self, old: PrimExpr, new: PrimExpr) -> PrimExpr:
        """The factor for a move from `old` to `new`."""
        if self.rate == -1:
            return expr.Call(old.dtype, self.op, (old - new,))
        return expr.Call(old.dtype, self.op, ((new - old) * self.rate,))


@dataclass(frozen=True, slots=True)
class Rescaling:
    """Multiplication by factors; none for terms that depend on no result. `is_guarded`: terms are
    zero where that of the result is its identity, so that the sum is zero if all are."""

    scales: tuple[Scale, ...]
    is_guarded: bool


@dataclass(frozen=True, slots=True)
class Recentring:
    """Addition of `count * (new - old) ** 2` for a move of `centre`, the mean of the terms of the
    reduction into `total`."""

    centre: Buffer
    total: Buffer


Correction: TypeAlias = Rescaling | Recentring


def correction_of(cascade: Cascade, block: Block) -> Correction:
    """Return the correction of a reduction. Raises ScheduleError if none can be derived."""
    term = in_terms_of_results(cascade, reduction(block).value)
    results = results_read(cascade, term)
    if not results:
        return Rescaling((), True)
    require(reduction(block).op is expr.Add, block, "terms that depend on a result are summed")
    for buffer in results:
        alike = set(cascade.dims[buffer]) == set(cascade.outer)
        require(alike, block, f"there is one {buffer.name} for all reductions")
    found = _recentring(cascade, term) or _rescaling(cascade, term)
    names = ", ".join(sorted(b.name for b in results))
    require(found, block, f"its terms depend on {names} by a factor exp(c * {names}), "
            "c being a constant, or are squared distances from the mean")  # fmt: skip
    assert found is not None
    if isinstance(found, Rescaling):
        for scale in found.scales:
            _require_bound(cascade, scale, block)
    return found


def reduction(block: Block) -> Reduction:
    """The reduction of a block that is one."""
    found = reduction_of(block)
    assert found is not None
    return found


def in_terms_of_results(cascade: Cascade, term: PrimExpr) -> PrimExpr:
    """A term, written by results of the cascade and what does not depend on them."""

    def visit(n: Node) -> Node | None:
        maker = cascade.maker(n.buffer) if isinstance(n, BufferLoad) else None
        if maker not in cascade.inside or not isinstance(maker.body, BufferStore):
            return None
        value = maker.body.value
        if reduction_of(maker) is not None or not loads_in(value):
            return None
        expanded = in_terms_of_results(cascade, value)
        return expanded if results_read(cascade, expanded) else None

    return rewrite(term, visit)


def results_read(cascade: Cascade, e: PrimExpr) -> set[Buffer]:
    """The results of the cascade that an expression reads."""
    made = {written(b) for b in (*cascade.reductions, *cascade.results)}
    return made & {n.buffer for n in loads_in(e)}


def _require_bound(cascade: Cascade, scale: Scale, block: Block) -> None:
    """Raise unless the result only moves to where factors are at most 1: others overflow."""
    maker = cascade.maker(scale.of)
    found = None if maker is None else reduction_of(maker)
    op = expr.Max if scale.rate < 0 else expr.Min
    falls = found is not None and found.op is op
    require(falls, block, f"terms shrink when {scale.of.name} moves on")
    require(scale.of.dtype in ("float32", "float64"), block, "results are float32 or float64")


def _rescaling(cascade: Cascade, e: PrimExpr) -> Rescaling | None:
    if not results_read(cascade, e):
        return Rescaling((), False)
    match without_cast(e):
        case expr.Mul(a, b):
            first, second = _rescaling(cascade, a), _rescaling(cascade, b)
            if first is None or second is None:
                return None
            either = first.is_guarded or second.is_guarded
            return Rescaling((*first.scales, *second.scales), either)
        case expr.Call(_, "exp" | "exp2" as op, (exponent,)):
            rates = _rates(cascade, exponent)
            if rates is None:
                return None
            return Rescaling(tuple(Scale(b, op, rate) for b, rate in rates.items()), False)
        case expr.Select(expr.EQ(a, expr.FloatImm() as least), expr.FloatImm(0), value):
            found = _rescaling(cascade, value)
            of = {s.of for s in found.scales} if found is not None else set[Buffer]()
            terms = [_reduction_into(cascade, b) for b in of]
            same = all(r is not None and (r.value, r.identity) == (a, least) for r in terms)
            return Rescaling(found.scales, True) if found is not None and same else None
        case _:
            return None


def _reduction_into(cascade: Cascade, buffer: Buffer) -> Reduction | None:
    maker = cascade.maker(buffer)
    return None if maker is None else reduction_of(maker)


def _rates(cascade: Cascade, e: PrimExpr) -> dict[Buffer, float] | None:
    """The coefficients of the results in a sum of constant multiples of them and of what does not
    depend on them."""
    if not results_read(cascade, e):
        return {}
    match without_cast(e):
        case BufferLoad(buffer):
            return {buffer: 1.0}
        case expr.Add(a, b) | expr.Sub(a, b) as both:
            first, second = _rates(cascade, a), _rates(cascade, b)
            if first is None or second is None:
                return None
            sign = 1 if isinstance(both, expr.Add) else -1
            for buffer, rate in second.items():
                first[buffer] = first.get(buffer, 0.0) + sign * rate
            return first
        case expr.Mul(expr.FloatImm(factor), inner) | expr.Mul(inner, expr.FloatImm(factor)):
            rates = _rates(cascade, inner)
            return None if rates is None else {b: factor * rate for b, rate in rates.items()}
        case _:
            return None


def _recentring(cascade: Cascade, e: PrimExpr) -> Recentring | None:
    match without_cast(e):
        case expr.Mul(expr.Sub(a, b) as one, other) if one == other:
            pass
        case _:
            return None
    for value, centre in ((a, b), (b, a)):
        for block in cascade.reductions:
            of = reduction(block)
            if of.op is expr.Add and of.value == value and isinstance(centre, BufferLoad):
                return Recentring(centre.buffer, of.buffer)
    return None
