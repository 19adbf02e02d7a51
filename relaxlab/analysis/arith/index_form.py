"""The form of indices in programs: equal to the normal form, and close to how they are written."""

from __future__ import annotations

from typing import Any

from relaxlab.ir import expr
from relaxlab.ir.node import map_children, walk
from relaxlab.ir.substitute import symbols_in

_Term = tuple[bool, expr.PrimExpr]
"""A term of a sum, and True if it is added, False if it is subtracted."""


def index_form(given: expr.PrimExpr, e: expr.PrimExpr) -> expr.PrimExpr:
    """`e`, the normal form of `given`, as an index of a program: the terms of a sum are ordered by
    the size of their constant factors, those of one factor as their variables are in `given`; and
    a digit of a fused index is the quotient of a remainder.

    >>> w, s = expr.Var("w"), expr.Var("s")
    >>> str(index_form(w + s, s + w)), str(index_form(w, w // 4 % 8))
    ('w + s', 'w % 32 // 4')
    """
    places: dict[expr.PrimExpr, int] = {}
    for place, n in enumerate(walk(given)):
        if isinstance(n, expr.PrimExpr):
            places.setdefault(n, place)

    def place_of(term: expr.PrimExpr) -> int:
        return min((places[v] for v in symbols_in(term) if v in places), default=len(places))

    def visit(n: Any) -> Any:
        match n:
            case expr.FloorMod(expr.FloorDiv(a, expr.IntImm() as low), expr.IntImm() as extent):
                return visit(a) % (low * extent) // low
            case expr.Add() | expr.Sub():
                terms = [(added, visit(term)) for added, term in _terms(n)]
            case _:
                return map_children(n, visit) if isinstance(n, expr.PrimExpr) else n
        order = sorted(terms, key=lambda t: (-_factor(t[1]), place_of(t[1])))
        first = next((i for i, (added, _) in enumerate(order) if added), None)
        if first is not None:
            terms = [order[first], *order[:first], *order[first + 1 :]]
        return _sum(terms)

    return visit(e)


def _terms(e: expr.PrimExpr) -> list[_Term]:
    match e:
        case expr.Add(a, b):
            return [*_terms(a), (True, b)]
        case expr.Sub(a, b):
            return [*_terms(a), (False, b)]
        case _:
            return [(True, e)]


def _factor(term: expr.PrimExpr) -> int:
    """The size of a term's constant factor; of a constant, 0, which is less than that of any."""
    match term:
        case expr.IntImm():
            return 0
        case expr.Mul(_, expr.IntImm(factor)):
            return abs(factor)
        case _:
            return 1


def _sum(terms: list[_Term]) -> expr.PrimExpr:
    out = terms[0][1]
    for added, term in terms[1:]:
        out = expr.Add(out, term) if added else expr.Sub(out, term)
    return out
