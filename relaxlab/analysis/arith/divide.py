"""Floor division and remainder of polynomials, and putting the parts together again."""

from __future__ import annotations

from math import gcd, inf

from relaxlab.analysis.arith import interval, poly
from relaxlab.analysis.arith.context import Atom, Context, finite
from relaxlab.analysis.arith.poly import Poly
from relaxlab.analysis.arith.prove import is_nonneg, is_positive


def divmod_of(ctx: Context, p: Poly, q: Poly) -> tuple[Poly, Poly]:
    """(p // q, p % q) in normal form."""
    key = (poly.key_of(p), poly.key_of(q))
    found = ctx.scope.divs.get(key)
    if found is None:
        found = ctx.scope.divs[key] = _divmod(ctx, p, q)
    return found


def floordiv(ctx: Context, p: Poly, q: Poly) -> Poly:
    """p // q"""
    return divmod_of(ctx, p, q)[0]


def floormod(ctx: Context, p: Poly, q: Poly) -> Poly:
    """p % q"""
    return divmod_of(ctx, p, q)[1]


def _divmod(ctx: Context, p: Poly, q: Poly) -> tuple[Poly, Poly]:
    cq = poly.const_of(q)
    if cq == 0:
        return _atoms(ctx, p, q)
    if cq is not None and cq < 0:
        # p // -c is (-p) // c, and p % -c is -((-p) % c), for division that rounds down.
        whole, rest = divmod_of(ctx, poly.scale(p, -1), poly.const(-cq))
        return whole, poly.scale(rest, -1)
    whole, rest = _split(ctx, p, q)
    if not rest:
        return whole, rest
    inner, rest = _small(ctx, rest, q, cq) or _reduced(ctx, rest, q)
    return poly.add(whole, inner), rest


def _split(ctx: Context, p: Poly, q: Poly) -> tuple[Poly, Poly]:
    """(w, r) with p = w * q + r: what divides exactly, taken out."""
    term = poly.single_term(q)
    if term is None:
        whole, rest = poly.divide(p, q)
        # Only with 0 <= rest < q are these quotient and remainder.
        inside = not rest or (is_nonneg(ctx, rest) and is_positive(ctx, poly.add(q, rest, -1)))
        return (whole, rest) if inside else ({}, p)
    m, k = term
    if k < 0:
        whole, rest = poly.split_by(p, m, -k)
        whole = poly.scale(whole, -1)
    else:
        whole, rest = poly.split_by(p, m, k)
    if not m and ctx.scope.multiples:
        whole, rest = _split_multiples(ctx, whole, rest, k)
    return whole, rest


def _split_multiples(ctx: Context, whole: Poly, rest: Poly, k: int) -> tuple[Poly, Poly]:
    """Take out the terms with an atom known to be a multiple of `f` where k divides c * f."""
    for m, c in list(rest.items()):
        for a in m:
            f = ctx.scope.multiples.get(a)
            if f is not None and c * f % k == 0:
                part = ctx.intern(*_div_atom(poly.atom(a), poly.const(f)))
                others = poly.quotient(m, (a,)) or ()
                whole = poly.add(whole, {poly.times(others, (part,)): c * f // k})
                rest = {n: d for n, d in rest.items() if n != m}
                break
    return whole, rest


def _small(ctx: Context, r: Poly, q: Poly, cq: int | None) -> tuple[Poly, Poly] | None:
    """The division of an `r` whose quotient is a constant by its bounds."""
    if cq is not None:
        lo, hi = ctx.interval_of(r)
        if finite(lo) and finite(hi):
            t = int(lo) // cq
            if t == int(hi) // cq:
                return poly.const(t), poly.add(r, poly.const(-t * cq))
    if is_nonneg(ctx, r) and is_positive(ctx, poly.add(q, r, -1)):
        return {}, r
    return None


def _reduced(ctx: Context, r: Poly, q: Poly) -> tuple[Poly, Poly]:
    """r // q and r % q by the identities of nested and common divisors, else as new atoms."""
    # The identities hold for positive divisors.
    if ctx.interval_of(q)[0] >= 1:
        for rule in (_common_divisor, _of_quotient, _of_remainder):
            found = rule(ctx, r, q)
            if found is not None:
                return found
    return _atoms(ctx, r, q)


def _common_divisor(ctx: Context, r: Poly, q: Poly) -> tuple[Poly, Poly] | None:
    """(d*x + y) // (d*e) = x // e and (d*x + y) % (d*e) = d*(x % e) + y, where 0 <= y < d."""
    term = poly.single_term(q)
    if term is None:
        return None
    mq, kq = term
    for m, k in _divisors(r, mq, kq):
        d: Poly = {m: k}
        x, y = _split(ctx, r, d)
        if not x:
            continue
        if y and not (is_nonneg(ctx, y) and is_positive(ctx, poly.add(d, y, -1))):
            continue
        if m and not is_positive(ctx, d):
            continue
        rest = poly.quotient(mq, m)
        assert rest is not None
        whole, part = divmod_of(ctx, x, {rest: kq // k})
        return whole, poly.add(poly.mul_term(part, m, k), y)
    return None


def _divisors(r: Poly, mq: poly.Monomial, kq: int) -> list[tuple[poly.Monomial, int]]:
    """The common divisors of a term of `r` with the divisor, the largest first."""
    found: dict[tuple[poly.Monomial, int], None] = {}
    for m, k in r.items():
        if m:
            common = tuple(a for a in dict.fromkeys(mq) if a in m)
            d = (common, gcd(k, kq))
            if d not in (((), 1), (mq, kq)):
                found[d] = None
    return sorted(found, key=lambda d: (len(d[0]), d[1]), reverse=True)


def _of_quotient(ctx: Context, r: Poly, q: Poly) -> tuple[Poly, Poly] | None:
    """(u // b + x) // q = (u + b*x) // (b*q), where x divides nothing: else u and x may have
    divisors in common, by which this is taken apart again."""
    divided = [m for m in r if any(ctx.atoms[a].kind in ("div", "mod") for a in m)]
    if len(divided) != 1 or r[divided[0]] != 1 or len(divided[0]) != 1:
        return None
    number = divided[0][0]
    u, b = ctx.atoms[number].args
    if ctx.atoms[number].kind != "div" or ctx.interval_of(b)[0] < 1:
        return None
    others = poly.add(r, {divided[0]: 1}, -1)
    whole = floordiv(ctx, poly.add(u, poly.mul(b, others)), poly.mul(b, q))
    return whole, _atoms(ctx, r, q)[1]


def _of_remainder(ctx: Context, r: Poly, q: Poly) -> tuple[Poly, Poly] | None:
    """(u % (q*e)) // q = (u // q) % e and (x + k*(u % b)) % q = (x + k*u) % q where q | k*b."""
    number, c = _atom_plus_const(r)
    whole = None
    if number is not None and not c and ctx.atoms[number].kind == "mod":
        u, b = ctx.atoms[number].args
        e, left = _exact(b, q)
        if not left and ctx.interval_of(e)[0] >= 1:
            whole = floormod(ctx, floordiv(ctx, u, q), e)
    changed = r
    for m, k in r.items():
        if len(m) == 1 and ctx.atoms[m[0]].kind == "mod":
            u, b = ctx.atoms[m[0]].args
            if not _exact(poly.scale(b, k), q)[1]:
                changed = poly.add(poly.add(changed, {m: k}, -1), u, k)
    if whole is None and changed is r:
        return None
    if whole is None:
        whole = _atoms(ctx, r, q)[0]
    return whole, floormod(ctx, changed, q) if changed is not r else _atoms(ctx, r, q)[1]


def _exact(p: Poly, q: Poly) -> tuple[Poly, Poly]:
    term = poly.single_term(q)
    if term is not None and term[1] > 0:
        return poly.split_by(p, *term)
    return poly.divide(p, q)


def _atom_plus_const(r: Poly) -> tuple[int | None, int]:
    number = None
    for m, k in r.items():
        if m:
            if k != 1 or len(m) != 1 or number is not None:
                return None, 0
            number = m[0]
    return number, r.get((), 0)


def _div_atom(p: Poly, q: Poly):  # type: ignore[no-untyped-def]
    return ("div", poly.key_of(p), poly.key_of(q)), lambda: Atom("div", args=(p, q))


def _atoms(ctx: Context, p: Poly, q: Poly) -> tuple[Poly, Poly]:
    div = ctx.intern(*_div_atom(p, q))
    key = ("mod", poly.key_of(p), poly.key_of(q))
    mod = ctx.intern(key, lambda: Atom("mod", args=(p, q)))
    # A divisor that differences of variables make non-negative, as the vectors of the rows below
    # another one, n - k - 1 of them, has no bounds by itself.
    if ctx.interval_of(q)[0] < 0 and is_nonneg(ctx, q):
        for number in (div, mod) if is_nonneg(ctx, p) else (mod,):
            ctx.scope.intervals[number] = interval.intersect(ctx.interval(number), (0, inf))
    return ctx.poly_of_atom(div), ctx.poly_of_atom(mod)


def merge(ctx: Context, p: Poly) -> Poly:
    """Put quotients and remainders of one dividend together again, wherever terms vanish.

    q*(u//q) + u%q = u;  u - q*(u//q) = u%q;  u - u%q = q*(u//q);  and
    q*((u//q) % e) + u%q = u % (q*e).  `u%q` is any sum that equals it: `(u % (2*q)) // q` and
    `u % q` have different dividends.
    """
    changed = True
    while changed:
        changed = False
        for m, k in p.items():
            for a in dict.fromkeys(m):
                kind = ctx.atoms[a].kind
                if kind in ("div", "mod"):
                    rule = _merge_quotient if kind == "div" else _merge_remainder
                    new = rule(ctx, p, a, poly.quotient(m, (a,)) or (), k)
                    if new is not None:
                        p, changed = new, True
                        break
            if changed:
                break
    return p


def _merge_remainder(ctx: Context, p: Poly, a: int, m: poly.Monomial, k: int) -> Poly | None:
    u, b = ctx.atoms[a].args
    whole = floordiv(ctx, u, b)
    quotients = poly.mul_term(poly.mul(b, whole), m, k)
    dividend = poly.mul_term(u, m, k)
    rest = poly.add(p, {poly.times(m, (a,)): k}, -1)
    if poly.contains(p, quotients):
        return poly.add(poly.add(rest, quotients, -1), dividend)
    if len(p) > len(u) and poly.contains(p, poly.scale(dividend, -1)):
        return poly.add(poly.add(rest, dividend), quotients, -1)
    return _merge_nested(ctx, rest, whole, (u, b), m, k)


def _merge_nested(
    ctx: Context, rest: Poly, whole: Poly, mod: tuple[Poly, Poly], m: poly.Monomial, k: int
) -> Poly | None:
    u, b = mod
    base = poly.single_term(b)
    if base is None or ctx.interval_of(b)[0] < 1:
        return None
    for n, c in rest.items():
        for v in dict.fromkeys(n):
            at = ctx.atoms[v]
            if at.kind != "mod" or at.args[0] != whole or ctx.interval_of(at.args[1])[0] < 1:
                continue
            others = poly.quotient(n, (v,))
            if others == poly.times(m, base[0]) and c == k * base[1]:
                joined = floormod(ctx, u, poly.mul(b, at.args[1]))
                return poly.add(poly.add(rest, {n: c}, -1), poly.mul_term(joined, m, k))
    return None


def _merge_quotient(ctx: Context, p: Poly, a: int, m: poly.Monomial, k: int) -> Poly | None:
    u, b = ctx.atoms[a].args
    base = poly.single_term(b)
    if base is None or k % base[1]:
        return None
    others = poly.quotient(m, base[0])
    if others is None:
        return None
    t = k // base[1]
    rest = floormod(ctx, u, b)
    term = {poly.times(m, (a,)): k}
    if not rest:  # u is known to be a multiple of b
        return poly.add(poly.add(p, term, -1), poly.mul_term(u, others, t))
    without = poly.add(p, term, -1)
    dividend, remainder = poly.mul_term(u, others, t), poly.mul_term(rest, others, t)
    if poly.contains(p, poly.scale(dividend, -1)):
        return poly.add(poly.add(without, dividend), remainder, -1)
    if poly.contains(without, remainder):
        return poly.add(poly.add(without, remainder, -1), dividend)
    return None


def expand(ctx: Context, p: Poly) -> Poly:
    """`p` with every remainder u%q written u - q*(u//q): equal sums become equal."""
    for _ in range(8):
        mods = [a for a in poly.atoms_in(p) if ctx.atoms[a].kind == "mod"]
        if not mods:
            break
        u, b = ctx.atoms[mods[0]].args
        whole = ctx.intern(*_div_atom(u, b))
        value = poly.add(u, poly.mul(b, poly.atom(whole)), -1)
        p = poly.replace_atom(p, mods[0], value)
    return p
