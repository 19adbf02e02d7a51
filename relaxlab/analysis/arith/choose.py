"""Minima and maxima of polynomials."""

from __future__ import annotations

from typing import Literal

from relaxlab.analysis.arith import poly
from relaxlab.analysis.arith.context import Atom, Context
from relaxlab.analysis.arith.poly import Poly
from relaxlab.analysis.arith.prove import is_nonneg


def extreme(ctx: Context, kind: Literal["min", "max"], p: Poly, q: Poly) -> Poly:
    """Return the minimum or maximum of two polynomials, with their common terms outside of it."""
    operands: dict[poly.Key, Poly] = {}
    for x in (p, q):
        for y in _operands(ctx, kind, x):
            operands[poly.key_of(y)] = y
    kept = _undominated(ctx, list(operands.values()), 1 if kind == "min" else -1)
    if len(kept) == 1:
        return kept[0]
    return _outside(ctx, kind, kept)


def _operands(ctx: Context, kind: str, p: Poly) -> tuple[Poly, ...]:
    """The operands of a nested minimum of the same kind, or `p` itself."""
    term = poly.single_term(p)
    if term is not None and term[1] == 1 and len(term[0]) == 1:
        a = ctx.atoms[term[0][0]]
        if a.kind == kind:
            return a.args
    return (p,)


def _undominated(ctx: Context, operands: list[Poly], sign: int) -> list[Poly]:
    kept: list[Poly] = []
    for p in operands:
        if any(is_nonneg(ctx, poly.scale(poly.add(p, q, -1), sign)) for q in kept):
            continue
        kept = [q for q in kept if not is_nonneg(ctx, poly.scale(poly.add(q, p, -1), sign))]
        kept.append(p)
    return kept


def _outside(ctx: Context, kind: Literal["min", "max"], operands: list[Poly]) -> Poly:
    """The extreme of operands of unknown order, their common terms taken out."""
    first, *rest = operands
    common = {m: c for m, c in first.items() if all(p.get(m) == c for p in rest)}
    args = tuple(poly.add(p, common, -1) for p in operands)
    cases = tuple((p, ()) for p in args)
    if len(args) == 2:
        gap = poly.add(args[1], args[0], -1)
        gap = gap if kind == "min" else poly.scale(gap, -1)
        cases = ((args[0], (gap,)), (args[1], (poly.scale(gap, -1),)))
    key = (kind, frozenset(map(poly.key_of, args)))
    number = ctx.intern(key, lambda: Atom(kind, args=args, cases=cases))
    return poly.add(ctx.poly_of_atom(number), common)


def absorb(ctx: Context, p: Poly) -> Poly:
    """Move a term beside a minimum or maximum into it where that cancels more than it adds:
    min(x + 15, y) - x = min(15, y - x)."""
    for m, k in p.items():
        if len(m) != 1 or abs(k) != 1 or ctx.atoms[m[0]].kind not in ("min", "max"):
            continue
        kind = "min" if ctx.atoms[m[0]].kind == "min" else "max"
        operands = list(ctx.atoms[m[0]].args)
        rest = {n: c for n, c in p.items() if n != m}
        moved: Poly = {}
        for n, c in rest.items():
            new = [poly.add(q, {n: c * k}) for q in operands]
            # Never more terms than before, so that this ends.
            if sum(map(len, new)) <= sum(map(len, operands)):
                operands, moved[n] = new, c
        if moved:
            inside = poly.scale(_outside(ctx, kind, operands), k)
            return absorb(ctx, poly.add(poly.add(rest, moved, -1), inside))
    return p
