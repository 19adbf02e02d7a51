"""The state of an analyzer: its atoms, the assumptions in force, and caches that depend on them.

Assumptions are polynomials known to be at least zero. A scope holds those in force, and what was
computed under them. Assuming more leads to another scope, the same one each time the same is
assumed: analyses query the same loops again and again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from math import inf
from typing import Any, Literal, TypeAlias

from relaxlab.analysis.arith import interval, poly
from relaxlab.analysis.arith.interval import FULL, Interval
from relaxlab.analysis.arith.poly import Key, Monomial, Poly
from relaxlab.ir import dtypes, expr
from relaxlab.ir.loops import Buffer

Terms: TypeAlias = tuple[tuple[Monomial, int, Poly], ...]
AtomKind: TypeAlias = Literal["var", "div", "mod", "min", "max", "select", "opaque"]


@dataclass(frozen=True, slots=True)
class Atom:
    """Something a polynomial cannot look into.

    `expr` is the variable or the opaque expression; `args` are (dividend, divisor) or the
    operands; `cases` lists (value, assumptions that hold then), one of which is the atom's.
    `place` is the index of an element of an index function.
    """

    kind: AtomKind
    expr: expr.PrimExpr | None = None
    args: tuple[Poly, ...] = ()
    cases: tuple[tuple[Poly, tuple[Poly, ...]], ...] = ()
    limits: Interval = FULL
    place: Poly | None = None


@dataclass(slots=True)
class Scope:
    """The assumptions in force and everything computed under them. `after`: the scopes that
    further assumptions lead to."""

    bounds: dict[int, Interval] = field(default_factory=dict[int, Interval])
    ranges: dict[int, tuple[Poly | None, Poly | None]] = field(default_factory=dict)  # type: ignore
    assumptions: dict[int, tuple[tuple[int, Poly], ...]] = field(default_factory=dict)  # type: ignore
    values: dict[int, Poly] = field(default_factory=dict[int, Poly])
    multiples: dict[int, int] = field(default_factory=dict[int, int])
    # facts: per outer index or element of an index function, polynomials that are at least zero.
    # steps: per element of an index function, its difference to the next element.
    facts: dict[int, tuple[Poly, ...]] = field(default_factory=dict)  # type: ignore
    steps: dict[int, Poly] = field(default_factory=dict[int, Poly])
    # caches
    polys: dict[Any, Poly] = field(default_factory=dict[Any, Poly])
    simple: dict[Any, Any] = field(default_factory=dict[Any, Any])
    divs: dict[tuple[Key, Key], tuple[Poly, Poly]] = field(default_factory=dict)  # type: ignore
    lowers: dict[Key, tuple[float, float]] = field(default_factory=dict)  # type: ignore
    intervals: dict[int, Interval] = field(default_factory=dict[int, Interval])
    terms: dict[tuple[int, bool], Terms] = field(default_factory=dict[tuple[int, bool], Terms])
    decided: dict[Any, bool | None] = field(default_factory=dict[Any, bool | None])
    proved: dict[Any, bool | None] = field(default_factory=dict[Any, bool | None])
    after: dict[Any, Scope] = field(default_factory=dict)  # type: ignore

    def child(self) -> Scope:
        """Return a scope with the same assumptions and empty caches."""
        return Scope(
            # Shallow copies: the values are never changed, only replaced.
            dict(self.bounds),
            dict(self.ranges),
            dict(self.assumptions),
            dict(self.values),
            dict(self.multiples),
            dict(self.facts),
            dict(self.steps),
        )

    def forget(self) -> None:
        """Empty the caches: the assumptions changed."""
        for cache_ in (
            self.polys, self.simple, self.divs, self.lowers, self.intervals, self.terms,
            self.decided, self.proved,
        ):  # fmt: skip
            cache_.clear()


@cache
def dtype_limits(dtype: str) -> Interval:
    """The values a narrow or unsigned integer type can hold; wide signed types are unbounded."""
    if dtype == "bool":
        return 0, 1
    if dtypes.is_uint(dtype):
        return 0, 2 ** dtypes.bits_of(dtype) - 1
    # int32 and int64 hold indices, whose overflow is the program's error: their limits say nothing.
    if dtype in ("int8", "int16"):
        half = 2 ** (dtypes.bits_of(dtype) - 1)
        return -half, half - 1
    return FULL


class Context:
    """Numbered atoms and a stack of scopes; `hashes` are the atoms whose arithmetic wraps,
    `elements` those that are elements of an index function, by function. `comparing`: the places
    of two elements are being compared."""

    __slots__ = (
        "atoms",
        "comparing",
        "elements",
        "exprs",
        "hashes",
        "names",
        "numbers",
        "scope",
        "scopes",
    )

    def __init__(self) -> None:
        self.atoms: list[Atom] = []
        self.numbers: dict[Any, int] = {}
        self.hashes: set[int] = set()
        self.elements: dict[Buffer, list[int]] = {}
        self.comparing = False
        self.exprs: dict[Any, expr.PrimExpr] = {}
        self.names: dict[int, str] = {}
        self.scope = Scope()
        self.scopes: list[Scope] = []

    def fork(self) -> Context:
        """Return a context in the same scope, which shares atoms and all that is computed, but
        assumes for itself."""
        new = Context.__new__(Context)
        new.atoms, new.numbers, new.hashes = self.atoms, self.numbers, self.hashes
        new.exprs, new.names = self.exprs, self.names
        new.elements, new.comparing = self.elements, False
        new.scope, new.scopes = self.scope, []
        return new

    def push(self) -> None:
        """Start assuming more."""
        self.scopes.append(self.scope)

    def pop(self) -> None:
        """Forget the assumptions since the matching `push`."""
        self.scope = self.scopes.pop()

    def proceed(self, assumption: Any, assume: Callable[[], None]) -> None:
        """Go to the scope in which an assumption holds as well; where none has led there yet,
        `assume` puts the assumption into it."""
        before = self.scope
        found = before.after.get(assumption)
        if found is not None:
            self.scope = found
            return
        self.scope = before.child()
        assume()
        before.after[assumption] = self.scope

    def intern(self, key: Any, make: Any) -> int:
        """The number of the atom with this key, made by `make()` on first sight."""
        number = self.numbers.get(key)
        if number is None:
            number = len(self.atoms)
            self.atoms.append(make())
            self.numbers[key] = number
        return number

    def var(self, v: expr.Var) -> int:
        """The number of a variable."""
        return self.intern(v, lambda: Atom("var", v, limits=dtype_limits(v.dtype)))

    def poly_of_atom(self, number: int) -> Poly:
        """The atom as a polynomial: its value where that is known."""
        known = self.scope.values.get(number)
        if known is not None:
            return known
        lo, hi = self.interval(number)
        if lo == hi and finite(lo):
            return poly.const(int(lo))
        return poly.atom(number)

    def add_assumption(self, p: Poly, owner: int = -1) -> None:
        """Assume p >= 0, until the variable number `owner` is bound again."""
        self.scope.forget()
        assumptions = self.scope.assumptions
        for a in poly.atoms_in(p):
            assumptions[a] = (*assumptions.get(a, ()), (owner, p))

    def drop_assumptions(self, owner: int) -> None:
        """Forget the assumptions of one owner."""
        assumptions = self.scope.assumptions
        for a, entries in list(assumptions.items()):
            remaining = tuple(e for e in entries if e[0] != owner)
            if len(remaining) != len(entries):
                assumptions[a] = remaining

    def forget_elements(self) -> None:
        """Forget what is known of elements of index functions: it may rest on the bounds of a
        variable that is bound again."""
        scope = self.scope
        for number in scope.facts:
            scope.bounds.pop(number, None)
        scope.facts.clear()
        scope.steps.clear()

    def tighten(self, number: int, bounds: Interval) -> None:
        """Assume an atom lies in a constant interval."""
        scope = self.scope
        old = scope.bounds.get(number, FULL)
        new = interval.intersect(old, bounds)
        if new != old:
            scope.bounds[number] = new
            scope.forget()

    def interval(self, number: int) -> Interval:
        """Constant bounds of an atom."""
        cache_ = self.scope.intervals
        found = cache_.get(number)
        if found is None:
            cache_[number] = FULL  # bounds that refer to each other end here
            found = cache_[number] = self._interval(number)
        return found

    def _interval(self, number: int) -> Interval:
        a = self.atoms[number]
        bounds = interval.intersect(a.limits, self.scope.bounds.get(number, FULL))
        if a.kind == "var":
            lo, hi = self.scope.ranges.get(number, (None, None))
            if lo is not None:
                bounds = max(bounds[0], self.interval_of(lo)[0]), bounds[1]
            if hi is not None:
                bounds = bounds[0], min(bounds[1], self.interval_of(hi)[1])
        elif a.kind != "opaque":
            bounds = interval.intersect(bounds, self._computed(a))
        return bounds

    def _computed(self, a: Atom) -> Interval:
        args = [self.interval_of(p) for p in a.args]
        match a.kind:
            case "div":
                return interval.floordiv(args[0], args[1])
            case "mod":
                return interval.floormod(args[0], args[1])
            case "min":
                return min(i[0] for i in args), min(i[1] for i in args)
            case "max":
                return max(i[0] for i in args), max(i[1] for i in args)
            case _:
                return min(i[0] for i in args), max(i[1] for i in args)

    def interval_of(self, p: Poly) -> Interval:
        """Constant bounds of a polynomial, each term on its own."""
        lo: float = 0
        hi: float = 0
        for m, k in p.items():
            tlo, thi = self.interval_of_term(m, k)
            lo += tlo
            hi += thi
        return lo, hi

    def interval_of_term(self, m: tuple[int, ...], k: int) -> Interval:
        """Constant bounds of k * m."""
        if not m:
            return k, k
        bounds = self.interval(m[0])
        if len(m) > 1:
            bounds = self._interval_of_monomial(m)
        return interval.scale(bounds, k)

    def _interval_of_monomial(self, m: tuple[int, ...]) -> Interval:
        bounds: Interval = (1, 1)
        for a in dict.fromkeys(m):
            one = self.interval(a)
            power = one
            for _ in range(m.count(a) - 1):
                power = interval.mul(power, one)
            # An even power is not negative although its factors may be; interval products do not
            # know that.
            if m.count(a) % 2 == 0 and one[0] < 0:
                power = (0 if one[1] >= 0 else power[0], power[1])
            bounds = interval.mul(bounds, power)
        return bounds

    def nonneg_term(self, m: tuple[int, ...]) -> bool:
        """True if constant bounds show a monomial to be at least zero."""
        return not m or self.interval_of_term(m, 1)[0] >= 0


def finite(x: float) -> bool:
    """True if an interval's end is a number."""
    return -inf < x < inf
