"""Tells the polynomials whose value is what the program computes.

Sizes, loop variables and what is calculated of them never overflow. Data (elements of arrays, bits,
converted floats) may be any integer, and arithmetic on it wraps: sums and products of it equal
their polynomials up to a multiple of two to the number of bits, which comparisons, quotients,
remainders and extremes do not tolerate.
"""

from __future__ import annotations

from relaxlab.analysis.arith import poly
from relaxlab.analysis.arith.context import Context
from relaxlab.analysis.arith.poly import Poly
from relaxlab.ir import dtypes

# No array has so many elements: a larger factor of a variable is that of a hash.
LARGEST_FACTOR = 1 << 48


def is_exact(ctx: Context, p: Poly, dtype: str) -> bool:
    """True if arithmetic in `dtype` gives the value of the polynomial."""
    if not has_data(ctx, p):
        return True
    term = poly.single_term(p)
    if term is not None and term[1] == 1 and len(term[0]) == 1:
        return can_be_written(ctx, p, dtype)
    lo: float = 0
    hi: float = 0
    indices = False
    for m, k in p.items():
        if m and not any(_is_data(ctx, a) for a in m):
            indices = True
            continue
        low, high = ctx.interval_of_term(m, k)
        lo, hi = lo + low, hi + high
    # Half of the range is for the sizes and indices beside the data.
    room = 1 << (dtypes.bits_of(dtype) - 1 - indices)
    return -room <= lo and hi < room


def has_data(ctx: Context, p: Poly) -> bool:
    """True if a polynomial calculates with data."""
    return any(_is_data(ctx, a) for m in p for a in m)


def _is_data(ctx: Context, number: int) -> bool:
    """True if an atom is data, or calculates with it: unless it is known to lie between sizes."""
    at = ctx.atoms[number]
    if at.kind == "var":
        return False
    if at.kind != "opaque":
        return any(has_data(ctx, p) for p in at.args)
    return not (ctx.interval(number)[0] >= 0 and _is_below_size(ctx, number))


def _is_below_size(ctx: Context, number: int) -> bool:
    """True if an assumption bounds an atom by sizes and loop variables."""
    assumed = (known for _, known in ctx.scope.assumptions.get(number, ()))
    for known in (*assumed, *ctx.scope.facts.get(number, ())):
        others = {m: c for m, c in known.items() if m != (number,)}
        if (
            known.get((number,), 0) < 0
            and any(others)  # not by a constant alone, which intervals know
            and all(ctx.atoms[a].kind == "var" for m in others for a in m)
            and max(map(abs, others.values())) <= LARGEST_FACTOR
        ):
            return True
    return False


def can_be_written(ctx: Context, p: Poly, dtype: str) -> bool:
    """True if the parts inside a polynomial's quotients, remainders and extremes are exact when
    they are calculated in `dtype`."""
    seen: set[int] = set()  # parts are shared: of nested ones there are exponentially many paths
    pending = [p]
    while pending:
        for a in poly.atoms_in(pending.pop()):
            if a not in seen:
                seen.add(a)
                if not all(is_exact(ctx, q, dtype) for q in ctx.atoms[a].args):
                    return False
                pending += ctx.atoms[a].args
    return True
