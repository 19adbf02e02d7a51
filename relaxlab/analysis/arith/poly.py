"""Polynomials with integer coefficients over numbered atoms.

A monomial is the sorted tuple of its atoms' numbers, repeated for powers; `()` is the constant
one. A polynomial maps monomials to non-zero coefficients. Polynomials are never changed after
they are built, so they are shared freely.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import gcd
from typing import TypeAlias

Monomial: TypeAlias = tuple[int, ...]
Poly: TypeAlias = dict[Monomial, int]
Key: TypeAlias = frozenset[tuple[Monomial, int]]

ONE: Monomial = ()


def const(value: int) -> Poly:
    """The constant polynomial."""
    return {ONE: value} if value else {}


def atom(number: int) -> Poly:
    """The polynomial that is one atom."""
    return {(number,): 1}


def const_of(p: Poly) -> int | None:
    """The value of a constant polynomial, else None."""
    if not p:
        return 0
    return p.get(ONE) if len(p) == 1 else None


def key_of(p: Poly) -> Key:
    """A hashable value equal for equal polynomials."""
    return frozenset(p.items())


def add(p: Poly, q: Poly, k: int = 1) -> Poly:
    """p + k * q"""
    if not q or not k:
        return p
    out = dict(p)
    for m, c in q.items():
        total = out.get(m, 0) + k * c
        if total:
            out[m] = total
        else:
            # Only a term that was there can cancel. Zeros are not kept: equal polynomials are equal
            # tables.
            del out[m]
    return out


def scale(p: Poly, k: int) -> Poly:
    """k * p"""
    if k == 1:
        return p
    return {m: c * k for m, c in p.items()} if k else {}


def times(m: Monomial, n: Monomial) -> Monomial:
    """The product of two monomials."""
    if not m or not n:
        return m or n
    # Sorted, so that equal products are the same key.
    return tuple(sorted(m + n))


def mul(p: Poly, q: Poly) -> Poly:
    """p * q"""
    if len(q) == 1:
        p, q = q, p
    if len(p) == 1:
        [(m, k)] = p.items()
        return mul_term(q, m, k)
    out: Poly = {}
    for m, c in p.items():
        for n, d in q.items():
            t = times(m, n)
            out[t] = out.get(t, 0) + c * d
    return {m: c for m, c in out.items() if c}


def mul_term(p: Poly, m: Monomial, k: int) -> Poly:
    """p * k * m"""
    if not m:
        return scale(p, k)
    return {times(m, n): c * k for n, c in p.items()}


def quotient(m: Monomial, n: Monomial) -> Monomial | None:
    """m / n when n divides m, else None."""
    if not n:
        return m
    rest = list(m)
    for a in n:
        if a not in rest:
            return None
        rest.remove(a)
    return tuple(rest)


def single_term(p: Poly) -> tuple[Monomial, int] | None:
    """The only term of `p` as (monomial, coefficient), else None."""
    if len(p) != 1:
        return None
    return next(iter(p.items()))


def content(p: Poly) -> int:
    """The greatest common divisor of the coefficients, the constant's left out; 0 if none."""
    g = 0
    for m, c in p.items():
        if m:
            g = gcd(g, c)
    return g


def split_by(p: Poly, m: Monomial, k: int) -> tuple[Poly, Poly]:
    """(q, r) with p = q * k * m + r, for k > 0.

    Terms go to `q` where they divide exactly, so that strides stay readable; the constant is
    split so that what is left of it is in [0, k).
    """
    q: Poly = {}
    r: Poly = {}
    for n, c in p.items():
        rest = quotient(n, m)
        if rest is None:
            r[n] = c
            continue
        if n and c % k:
            r[n] = c
            continue
        t = c // k
        if t:
            q[rest] = t
        if c - t * k:
            r[n] = c - t * k
    return q, r


def divide(p: Poly, d: Poly) -> tuple[Poly, Poly]:
    """(q, r) with p = q * d + r: division by the leading term of `d` in graded order."""
    lead = max(d, key=_grade)
    k = d[lead]
    q: Poly = {}
    r = p
    for _ in range(8):
        step: Poly = {}
        for n, c in r.items():
            rest = quotient(n, lead)
            if rest is not None and c % k == 0:
                step[rest] = c // k
        if not step:
            break
        q, r = add(q, step), add(r, mul(step, d), -1)
    return q, r


def _grade(m: Monomial) -> tuple[int, Monomial]:
    return len(m), m


def degree(p: Poly) -> int:
    """The largest number of atoms in a monomial; 0 for constants."""
    return max(map(len, p), default=0)


def atoms_in(p: Poly) -> Iterator[int]:
    """The distinct atoms of `p`, in order of appearance."""
    return iter(dict.fromkeys(a for m in p for a in m))


def replace_atom(p: Poly, number: int, value: Poly) -> Poly:
    """`p` with an atom replaced by a polynomial."""
    out: Poly = {}
    for m, c in p.items():
        if number not in m:
            out = add(out, {m: c})
            continue
        term: Poly = {tuple(a for a in m if a != number): c}
        for _ in range(m.count(number)):
            term = mul(term, value)
        out = add(out, term)
    return out


def contains(p: Poly, q: Poly) -> bool:
    """True if every term of `q` is a term of `p`, same coefficient."""
    return all(p.get(m) == c for m, c in q.items())
