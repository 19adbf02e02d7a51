"""The values of a block's axes for which an index falls into a given span."""

from __future__ import annotations

from collections.abc import Mapping

from relaxlab.analysis.arith import Analyzer
from relaxlab.ir import expr
from relaxlab.ir.expr import PrimExpr, Var
from relaxlab.ir.loops import Block, BufferRegion
from relaxlab.schedule.ranges import (
    ONE,
    ZERO,
    Span,
    axis_env,
    covers,
    intersection,
    span_of,
)
from relaxlab.schedule.tree import vars_in

Domain = dict[Var, Span]
"""Spans of some axes; the others run over all of their values."""


def preimage_of_region(
    region: BufferRegion, within: tuple[Span, ...], block: Block, an: Analyzer
) -> tuple[Domain, bool]:
    """Return the instances of the block whose region lies in `within`, and whether these are
    exactly all such instances (otherwise they are more).

    Dimensions where `within` is the whole buffer restrict nothing.
    """
    axes = {iv.var: Span(iv.dom.min, iv.dom.min + iv.dom.extent - 1) for iv in block.iter_vars}
    domain: Domain = {}
    exact = True
    for r, span, dim in zip(region.region, within, region.buffer.shape, strict=True):
        if covers(span, Span(ZERO, dim - 1), an):
            continue
        size = size_over_axes(r.extent, block, an)
        if size is None:
            exact = False
            continue
        found, sharp = _preimage(r.min, Span(span.lo, span.hi - size + 1), axes, an)
        exact = exact and sharp and (size == ONE or _aligned(span, size, an))
        for v, s in found.items():
            if not covers(s, axes[v], an):
                domain[v] = intersection(domain[v], s, an) if v in domain else s
    return domain, exact


def size_over_axes(extent: PrimExpr, block: Block, an: Analyzer) -> PrimExpr | None:
    """The largest extent of a region over all instances of the block, None when unknown.

    A region at the edge of its buffer is shorter than the others.
    """
    span = span_of(extent, axis_env(block), an)
    return None if span is None else an.simplify(span.hi)


def _aligned(span: Span, size: PrimExpr, an: Analyzer) -> bool:
    """True if the span is a run of whole pieces of `size`."""
    return bool(an.prove_equal(span.lo % size, ZERO) and an.prove_equal((span.hi + 1) % size, ZERO))


Axes = Mapping[Var, Span]


def _preimage(e: PrimExpr, span: Span, axes: Axes, an: Analyzer) -> tuple[Domain, bool]:
    if not vars_in(e) & axes.keys():
        return {}, covers(span, Span(e, e), an)
    match e:
        case Var():
            return {e: span}, True
        case expr.Add(a, b) if not vars_in(b) & axes.keys():
            return _preimage(a, Span(span.lo - b, span.hi - b), axes, an)
        case expr.Add(a, b) if not vars_in(a) & axes.keys():
            return _preimage(b, Span(span.lo - a, span.hi - a), axes, an)
        case expr.Sub(a, b) if not vars_in(b) & axes.keys():
            return _preimage(a, Span(span.lo + b, span.hi + b), axes, an)
        case expr.Add():
            return _digits(_terms(e, ONE), span, axes, an)
        case expr.Mul(a, b) if _positive_factor(b, axes, an):
            return _preimage(a, Span((span.lo + b - 1) // b, span.hi // b), axes, an)
        case expr.FloorDiv(a, b) if _positive_factor(b, axes, an):
            return _preimage(a, Span(span.lo * b, span.hi * b + b - 1), axes, an)
        case _:
            return {}, False


def _positive_factor(b: PrimExpr, axes: Axes, an: Analyzer) -> bool:
    return not vars_in(b) & axes.keys() and an.prove(expr.GT(b, ZERO)) is True


def _terms(e: PrimExpr, scale: PrimExpr) -> list[tuple[PrimExpr, PrimExpr]]:
    """A sum as (term, factor) pairs."""
    match e:
        case expr.Add(a, b):
            return _terms(a, scale) + _terms(b, scale)
        case expr.Mul(a, b) if not isinstance(a, expr.IntImm):
            return _terms(a, b * scale)
        case _:
            return [(e, scale)]


def _digits(
    terms: list[tuple[PrimExpr, PrimExpr]], span: Span, axes: Axes, an: Analyzer
) -> tuple[Domain, bool]:
    """The preimage under a sum of axes that are the digits of one number, as of `v * 64 + w`."""
    digits: list[Var] = []
    weight: PrimExpr = ONE
    rest = [t for t in terms if vars_in(t[0]) & axes.keys()]
    for constant, factor in terms:
        if not vars_in(constant) & axes.keys():
            span = Span(span.lo - constant * factor, span.hi - constant * factor)
    while rest:
        found = next((t for t in rest if an.prove_equal(t[1], weight)), None)
        if found is None or not isinstance(found[0], Var) or axes[found[0]].lo != ZERO:
            return {}, False
        rest.remove(found)
        digits.append(found[0])
        weight = an.simplify(weight * (axes[found[0]].hi + 1))
    domain: Domain = {}
    exact = True
    for v in digits[:-1]:
        size = axes[v].hi + 1
        above = Span(an.simplify(span.lo // size), an.simplify(span.hi // size))
        if an.prove_equal(above.lo, above.hi):
            domain[v] = Span(span.lo - above.lo * size, span.hi - above.lo * size)
            above = Span(above.lo, above.lo)
        else:
            exact = exact and _aligned(span, size, an)
        span = above
    domain[digits[-1]] = span
    return domain, exact
