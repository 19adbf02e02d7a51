"""Closed integer intervals; an infinite end is `math.inf`."""

from __future__ import annotations

from math import inf
from typing import TypeAlias

Interval: TypeAlias = tuple[float, float]
"""Both ends are ints or infinities."""

FULL: Interval = (-inf, inf)


def intersect(a: Interval, b: Interval) -> Interval:
    """The integers in both."""
    return max(a[0], b[0]), min(a[1], b[1])


def _product(x: float, y: float) -> float:
    return x * y if x and y else 0


def mul(a: Interval, b: Interval) -> Interval:
    """Return the interval of all products."""
    if a[0] >= 0 and b[0] >= 0:
        return _product(a[0], b[0]), _product(a[1], b[1])
    corners = [_product(x, y) for x in a for y in b]
    return min(corners), max(corners)


def scale(a: Interval, k: int) -> Interval:
    """Return the interval times `k`, which is not zero."""
    return (a[0] * k, a[1] * k) if k > 0 else (a[1] * k, a[0] * k)


def _floordiv(x: float, d: float) -> float:
    if d in (inf, -inf):
        return 0 if x == 0 or (x > 0) == (d > 0) else -1
    if x in (inf, -inf):
        return x if d > 0 else -x
    return x // d


def floordiv(a: Interval, b: Interval) -> Interval:
    """Return the interval of all quotients, without divisors of zero."""
    results = [
        _floordiv(x, d)
        for lo, hi in ((max(b[0], 1), b[1]), (b[0], min(b[1], -1)))
        if lo <= hi
        for d in (lo, hi)
        for x in a
    ]
    return (min(results), max(results)) if results else FULL


def floormod(a: Interval, b: Interval) -> Interval:
    """Return the interval of all remainders; they have the divisor's sign."""
    out = (b[0] + 1 if b[0] < 0 else 0, b[1] - 1 if b[1] > 0 else 0)
    if b[0] > 0 and a[0] >= 0:
        return 0, min(out[1], a[1])
    return out
