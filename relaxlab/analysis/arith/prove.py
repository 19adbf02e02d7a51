"""Lower bounds of polynomials under assumptions.

The engine finds the best constant c with p >= c. A step cancels a term of p against an assumption
that has the same term with the same sign: if f >= 0 and m >= 0 then p >= p - k * m * f for k >= 0.
With the bounds of loop variables as assumptions this is Fourier-Motzkin elimination; products with
monomials known to be non-negative carry it over to symbolic strides. The search is best-first with
a budget, so that it stays cheap; giving up means "unknown".
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import gcd, inf

from relaxlab.analysis.arith import poly
from relaxlab.analysis.arith.context import Context, Terms, finite
from relaxlab.analysis.arith.poly import Monomial, Poly
from relaxlab.ir.loops import BufferLoad, Nondecreasing

# The budget of a search, so that a question without an answer stays cheap: of 57,000 that 13
# programs with symbols asked, 54,000 had none, and no other took more than 16 steps. What is known
# of elements of index functions leads through longer chains: of 1089 proofs in the tests of
# analyses and passes all but one took at most 8 steps, but tiles that begin where sequences do take
# more than 40.
_STEPS = 32  # polynomials looked at before giving up on one case
_STEPS_OF_ELEMENTS = 64  # … where there are such elements
_TOTAL = 3  # times as many on all cases of a question
_CASES = 12  # combinations of min, max and select cases
_DEPTH = 7  # cancellations in a row


def lower_bound(ctx: Context, p: Poly, target: float = inf) -> float:
    """A constant c with p >= c, the search stopping once c >= target; -inf when none is found."""
    lo = ctx.interval_of(p)[0]
    # One term alone has nothing to cancel against: its interval is taken.
    if lo >= target or len(p) <= 1 and finite(lo):
        return lo
    g = poly.content(p)
    if g > 1:  # g * q + c >= t where q >= (t - c) / g, rounded up
        c = p.get((), 0)
        need = -((c - int(target)) // g) if finite(target) else target
        found = lower_bound(ctx, {m: k // g for m, k in p.items() if m}, need)
        return max(lo, found * g + c)
    key = poly.key_of(p)
    known = ctx.scope.lowers.get(key)
    if known is not None and (known[0] >= target or known[1] >= target):
        return max(known[0], lo)
    best = max(lo, _by_cases(_Search(ctx, target), p, _CASES))
    # With the target: a search stops once it reaches it, so its bound says nothing of higher ones.
    ctx.scope.lowers[key] = (best, target)
    return best


def upper_bound(ctx: Context, p: Poly, target: float = -inf) -> float:
    """A constant c with p <= c; +inf when none is found."""
    return -lower_bound(ctx, poly.scale(p, -1), -target)


def is_nonneg(ctx: Context, p: Poly) -> bool:
    """True if p >= 0 is proved."""
    return lower_bound(ctx, p, 0) >= 0


def is_positive(ctx: Context, p: Poly) -> bool:
    """True if p >= 1 is proved."""
    return lower_bound(ctx, p, 1) >= 1


@dataclass(slots=True)
class _Search:
    ctx: Context
    target: float
    limit: int = field(init=False)
    steps: int = field(init=False)

    def __post_init__(self) -> None:
        self.limit = _STEPS_OF_ELEMENTS if self.ctx.elements else _STEPS
        self.steps = _TOTAL * self.limit


def _by_cases(search: _Search, p: Poly, cases: int) -> float:
    """The least bound over the cases of one min, max or select in `p`."""
    best = _eliminate(search, p)
    if best >= search.target:
        return best
    for a in poly.atoms_in(p):
        options = search.ctx.atoms[a].cases
        if not options or len(options) > cases:
            continue
        worst = inf
        for i, (value, _) in enumerate(options):
            worst = min(worst, _one_case(search, poly.replace_atom(p, a, value), a, i, cases))
            # The least of the cases counts, and is no better already than without them.
            if worst <= best:
                return best
        return worst
    return best


def _one_case(search: _Search, p: Poly, number: int, case: int, cases: int) -> float:
    ctx = search.ctx

    def assume() -> None:
        for known in ctx.atoms[number].cases[case][1]:
            assume_nonneg(ctx, known)

    ctx.push()
    try:
        ctx.proceed(("case", number, case), assume)
        # Halved at each level, so that nested cases share one budget instead of multiplying it.
        return max(ctx.interval_of(p)[0], _by_cases(search, p, cases // 2))
    finally:
        ctx.pop()


def assume_nonneg(ctx: Context, p: Poly) -> None:
    """Assume p >= 0, and tighten the constant bounds of the atoms it bounds alone."""
    if poly.const_of(p) is not None:
        return
    ctx.add_assumption(p)
    for m, k in p.items():
        if len(m) == 1:
            rest = ctx.interval_of({n: c for n, c in p.items() if n != m})[1]
            if finite(rest):
                # Rounded towards the inside: the atom is an integer.
                limit = -int(rest) // k if k < 0 else -(int(rest) // k)
                ctx.tighten(m[0], (-inf, limit) if k < 0 else (limit, inf))


def _eliminate(search: _Search, p: Poly) -> float:
    ctx = search.ctx
    best = -inf
    count = 0
    limit = min(search.limit, search.steps)
    heap: list[tuple[int, int, int, int, int, Poly]] = [(0, 0, 0, 0, 1, p)]
    seen = {poly.key_of(p)}
    while heap:
        _, _, depth, _, s, q = heapq.heappop(heap)
        if depth == _DEPTH:
            continue
        for s2, q2 in _steps(ctx, q, s):
            key = poly.key_of(q2)
            if key in seen:
                continue
            seen.add(key)
            open_terms = 0
            lo: float = 0
            for m, k in q2.items():
                term = ctx.interval_of_term(m, k)[0]
                lo += term
                open_terms += term == -inf
            bound = -(-int(lo) // s2) if finite(lo) else lo
            best = max(best, bound)
            count += 1
            search.steps -= 1
            if best >= search.target or count >= limit:
                return best
            # Fewest unbounded terms first; `count` keeps the heap from comparing dictionaries.
            heapq.heappush(heap, (open_terms, len(q2), depth + 1, count, s2, q2))
    return best


def _steps(ctx: Context, p: Poly, s: int) -> Iterator[tuple[int, Poly]]:
    """Every (s', p') with (p' + something non-negative) / s' = p / s."""
    for m, k in p.items():
        in_product = len(m) > 1
        for a in dict.fromkeys(m):
            for n, c, known in _terms_about(ctx, a, in_product):
                if (c > 0) != (k > 0):
                    continue
                rest = poly.quotient(m, n)
                # Multiplying an assumption by something negative would turn it around.
                if rest is None or not ctx.nonneg_term(rest):
                    continue
                yield _cancel(p, s, k, known, c, rest)


def _cancel(p: Poly, s: int, k: int, known: Poly, c: int, rest: Monomial) -> tuple[int, Poly]:
    """p scaled so that `k * m` cancels against `c * n * rest` of a known non-negative
    polynomial."""
    g = gcd(k, c)
    up, down = abs(c) // g, abs(k) // g
    out = poly.add(poly.scale(p, up), poly.mul_term(known, rest, down), -1)
    s *= up
    if s > 1:
        g = gcd(s, *out.values())
        if g > 1:
            return s // g, {m: v // g for m, v in out.items()}
    return s, out


def _terms_about(ctx: Context, number: int, in_product: bool) -> Terms:
    """The terms with the atom of the polynomials that are assumed non-negative, each with its
    polynomial; without `in_product` those that are a multiple of the atom."""
    key = number, in_product
    found = ctx.scope.terms.get(key)
    if found is None:
        found = tuple(
            (n, c, known)
            for known in _assumptions_about(ctx, number, in_product)
            for n, c in known.items()
            if number in n and (in_product or len(n) == 1)
        )
        # Facts about elements are added with each further element: they are not kept.
        if ctx.atoms[number].place is None and number not in ctx.scope.facts:
            ctx.scope.terms[key] = found
    return found


def _assumptions_about(ctx: Context, number: int, in_product: bool) -> Iterator[Poly]:
    """Polynomials with the atom that are assumed non-negative; its constant bounds too where it is
    part of a product."""
    for _, known in ctx.scope.assumptions.get(number, ()):
        yield known
    if in_product:
        lo, hi = ctx.interval(number)
        if finite(lo):
            yield poly.add(poly.atom(number), poly.const(-int(lo)))
        if finite(hi):
            yield poly.add(poly.const(int(hi)), poly.atom(number), -1)
    yield from _definition(ctx, number)


def _order_of_elements(ctx: Context, number: int, place: Poly) -> Iterator[Poly]:
    """Non-negative polynomials by the order of the elements of a nondecreasing index function."""
    load = ctx.atoms[number].expr
    assert isinstance(load, BufferLoad)
    if ctx.comparing or not any(isinstance(f, Nondecreasing) for f in load.buffer.facts):
        return
    ctx.comparing = True  # places are compared without the order of further elements
    try:
        found = [o for o in ctx.elements[load.buffer] if o != number]
        gaps = [(o, poly.add(ctx.atoms[o].place or {}, place, -1)) for o in found]
        pairs = [(number, o, g) for o, g in gaps if is_nonneg(ctx, g)]
        backwards = ((o, number, poly.scale(g, -1)) for o, g in gaps)
        pairs += [(first, then, g) for first, then, g in backwards if is_nonneg(ctx, g)]
        apart = [is_positive(ctx, g) for _, _, g in pairs]
    finally:
        ctx.comparing = False
    for (first, then, _), positive in zip(pairs, apart, strict=True):
        order = poly.add(poly.atom(then), poly.atom(first), -1)
        yield order
        if positive and first in ctx.scope.steps:
            yield poly.add(order, ctx.scope.steps[first], -1)


def _definition(ctx: Context, number: int) -> Iterator[Poly]:
    """Non-negative polynomials by the definition of an atom: a quotient, remainder, minimum or
    maximum."""
    a = ctx.atoms[number]
    it = poly.atom(number)
    yield from ctx.scope.facts.get(number, ())
    if a.place is not None:
        yield from _order_of_elements(ctx, number, a.place)
    if a.kind in ("div", "mod"):
        dividend, divisor = a.args
        # A negative divisor has remainders that are not positive.
        if ctx.interval_of(divisor)[0] < 1:
            return
        if a.kind == "div":
            rest = poly.add(dividend, poly.mul(divisor, it), -1)
            yield rest
            yield poly.add(poly.add(divisor, poly.const(-1)), rest, -1)
        else:
            if poly.const_of(divisor) is None:
                yield poly.add(poly.add(divisor, poly.const(-1)), it, -1)
            if ctx.interval_of(dividend)[0] >= 0:
                yield poly.add(dividend, it, -1)
    elif a.kind == "min":
        for p in a.args:
            yield poly.add(p, it, -1)
    elif a.kind == "max":
        for p in a.args:
            yield poly.add(it, p, -1)
