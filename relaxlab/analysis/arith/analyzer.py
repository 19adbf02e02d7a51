"""The analyzer: assumptions about variables, and proofs under them."""

from __future__ import annotations

from collections.abc import Collection, Generator, Mapping
from contextlib import AbstractContextManager, contextmanager
from math import gcd, inf
from typing import Any

from relaxlab.analysis.arith import conditions, convert, poly
from relaxlab.analysis.arith.context import Context, finite
from relaxlab.analysis.arith.exact import is_exact
from relaxlab.analysis.arith.index_form import index_form
from relaxlab.analysis.arith.prove import lower_bound, upper_bound
from relaxlab.ir import expr
from relaxlab.ir.loops import Range
from relaxlab.ir.substitute import symbols_in


class Analyzer:
    """Simplifies, bounds and proves integer expressions under known ranges and assumptions.

    Sizes and loop variables do not overflow, elements of arrays may; a divisor is never zero.
    Answers of the prover are three-valued: None means "unknown", never "no".

    >>> n, i = expr.Var("n"), expr.Var("i")
    >>> an = Analyzer()
    >>> an.bind_shape(n)
    >>> an.bind(i, 0, n - 1)
    >>> str(an.simplify((i + n * 3) // n)), an.prove(expr.LT(i, n * 2)), an.prove(expr.LT(n, i * 2))
    ('3', True, None)
    """

    __slots__ = ("_ctx",)

    def __init__(self) -> None:
        self._ctx = Context()

    def fork(self) -> Analyzer:
        """Return a copy: facts added to it are not added to this one. The two share
        their cache; they belong to one thread."""
        new = Analyzer.__new__(Analyzer)
        new._ctx = self._ctx.fork()
        return new

    @staticmethod
    def for_shapes(
        *roots: Any, upper: Mapping[str, int] | None = None, signed: Collection[str] = ()
    ) -> Analyzer:
        """An analyzer in which every symbol found in `roots` is at least 0, but for those whose
        names are in `signed`.

        `upper` gives inclusive upper bounds by the symbols' names.
        """
        analyzer = Analyzer()
        for v in symbols_in(roots):
            lower = None if v.name in signed else 0
            analyzer.bind(v, lower, (upper or {}).get(v.name))
        return analyzer

    def bind(
        self,
        var: expr.Var,
        lo: expr.ExprLike | None = None,
        hi_inclusive: expr.ExprLike | None = None,
    ) -> None:
        """Assume `lo <= var <= hi_inclusive`, instead of the variable's earlier bounds (None:
        unbounded).

        A range that may be empty is assumed not to be.
        """
        self._ctx.proceed(
            ("bind", var, lo, hi_inclusive), lambda: self._bind(var, lo, hi_inclusive)
        )

    def _bind(
        self, var: expr.Var, lo: expr.ExprLike | None, hi_inclusive: expr.ExprLike | None
    ) -> None:
        ctx = self._ctx
        lo_poly, hi_poly = (
            None if e is None else convert.poly_of(ctx, expr.as_expr(e)) for e in (lo, hi_inclusive)
        )
        is_known = var in ctx.numbers
        number = ctx.var(var)
        if is_known:  # rebinding: what was cached may rest on the earlier bounds
            ctx.scope.forget()
            ctx.scope.values.pop(number, None)
            ctx.scope.bounds.pop(number, None)
            ctx.scope.multiples.pop(number, None)
            ctx.forget_elements()
            ctx.drop_assumptions(number)
        ctx.scope.ranges[number] = (lo_poly, hi_poly)
        if lo_poly is not None and lo_poly == hi_poly:
            # A range of one value is that value: the variable disappears from all expressions.
            ctx.scope.values[number] = lo_poly
            return
        me = poly.atom(number)
        # Constant bounds are intervals already; as assumptions they would only lengthen searches.
        if lo_poly is not None and poly.const_of(lo_poly) is None:
            ctx.add_assumption(poly.add(me, lo_poly, -1), number)
        if hi_poly is not None and poly.const_of(hi_poly) is None:
            ctx.add_assumption(poly.add(hi_poly, me, -1), number)

    def bind_range(self, var: expr.Var, rng: Range) -> None:
        """Take `var` to be one of the integers of the range."""
        self._ctx.proceed(
            ("range", var, rng.min, rng.extent),
            lambda: self._bind_range(var, rng),
        )

    def _bind_range(self, var: expr.Var, rng: Range) -> None:
        extent, factors = rng.extent, list[expr.PrimExpr]()
        if isinstance(extent, expr.Mul | expr.Max):
            extent = _if_positive(extent, factors)
        self._bind(var, rng.min, rng.min + extent - 1)
        for factor in factors:
            conditions.assume(self._ctx, expr.GE(factor, expr.const(1, factor.dtype)), True)

    def bind_shape(self, var: expr.Var, upper: int | None = None) -> None:
        """Take `var` to be a dimension: at least 0, at most `upper`."""
        self.bind(var, 0, upper)

    def assume(self, condition: expr.PrimExpr) -> None:
        """Assume that the condition holds. A condition that the prover cannot use is ignored."""
        conditions.assume(self._ctx, condition, True)

    def assuming(self, condition: expr.PrimExpr) -> AbstractContextManager[None]:
        """A block inside which the condition is taken to hold."""
        return conditions.assuming(self._ctx, condition, True)

    @contextmanager
    def scope(self) -> Generator[None]:
        """A block whose `bind` and `assume` calls are forgotten at its end."""
        self._ctx.push()
        try:
            yield
        finally:
            self._ctx.pop()

    def simplify(self, e: expr.PrimExpr) -> expr.PrimExpr:
        """An equal expression in normal form; `e` itself where nothing changes.

        Floating-point arithmetic is left as it is; the integers inside it are simplified.
        """
        return convert.simplify(self._ctx, e)

    def simplify_index(self, e: expr.PrimExpr) -> expr.PrimExpr:
        """The result of `index_form`, but for a variable of one value, which stays as it is: the
        index of an axis of extent 1 is still that axis.

        >>> i, an = expr.Var("i"), Analyzer()
        >>> an.bind(i, 0, 0)
        >>> str(an.simplify_index(i)), str(an.simplify_index(i + 2))
        ('i', '2')
        """
        return e if isinstance(e, expr.Var) else self.index_form(e)

    def index_form(self, e: expr.PrimExpr) -> expr.PrimExpr:
        """A simplified index, with the terms of sums in the order in which they are written.
        Indices that are equal may get different forms, unlike those of `simplify`.
        """
        return index_form(e, self.simplify(e))

    def prove(self, condition: expr.PrimExpr) -> bool | None:
        """True where the condition always holds, False where it never does, None where unknown."""
        return conditions.prove(self._ctx, condition)

    def prove_equal(self, a: expr.ExprLike, b: expr.ExprLike) -> bool | None:
        """Return True for integer expressions that are always equal, False for those that never
        are, None where neither is proved."""
        if isinstance(a, int) and isinstance(b, int):
            return a == b
        a = expr.as_expr(a, b.dtype if isinstance(b, expr.PrimExpr) else None)
        b = expr.as_expr(b, a.dtype)
        return True if a == b else self.prove(expr.EQ(a, b))

    def bounds_of(self, e: expr.PrimExpr) -> tuple[int | None, int | None]:
        """Inclusive constant bounds (None: unbounded) of an integer expression."""
        p = convert.poly_of(self._ctx, e)
        if not is_exact(self._ctx, p, e.dtype):
            return None, None
        lo, hi = lower_bound(self._ctx, p), upper_bound(self._ctx, p)
        return (int(lo) if finite(lo) else None, int(hi) if finite(hi) else None)

    def modulus_of(self, e: expr.PrimExpr) -> tuple[int, int]:
        """Return numbers (c, r) so that an integer expression is r more than a multiple of c, with
        0 <= r < c; a constant is its value more than a multiple of 0."""
        p = convert.poly_of(self._ctx, e)
        if not is_exact(self._ctx, p, e.dtype):
            return 1, 0
        rest = p.get(poly.ONE, 0)
        c = gcd(*(k for m, k in p.items() if m))
        return (c, rest % c) if c else (0, rest)

    def linear_in(
        self, e: expr.PrimExpr, variables: tuple[expr.Var, ...]
    ) -> tuple[expr.PrimExpr, ...] | None:
        """Return the factor of each variable in an integer expression, and what is left without
        them; None where the expression is not linear in the variables."""
        ctx = self._ctx
        numbers = [ctx.var(v) for v in variables]
        parts: list[poly.Poly] = [{} for _ in (*variables, None)]
        for m, k in convert.poly_of(ctx, e).items():
            mine = [a for a in m if a in numbers]
            others = tuple(a for a in m if a not in numbers)
            below = symbols_in(convert.expr_of(ctx, {others: 1}, e.dtype))
            if len(mine) > 1 or any(v in below for v in variables):
                return None
            parts[numbers.index(mine[0]) if mine else -1][others] = k
        return tuple(convert.expr_of(ctx, p, e.dtype) for p in parts)

    def upper_bound(self, e: expr.PrimExpr) -> int | None:
        """The inclusive constant upper bound of an integer expression, or None."""
        p = convert.poly_of(self._ctx, e)
        if not is_exact(self._ctx, p, e.dtype):
            return None
        hi = upper_bound(self._ctx, p, -inf)
        return int(hi) if finite(hi) else None


def _if_positive(extent: expr.PrimExpr, factors: list[expr.PrimExpr]) -> expr.PrimExpr:
    """An extent as it is where it is above zero: then so is `a` for each factor `max(a, 0)`, which
    are added to `factors`."""
    match extent:
        case expr.Mul(a, b):
            return _if_positive(a, factors) * _if_positive(b, factors)
        case expr.Max(a, expr.IntImm(0)):
            factors.append(a)
            return a
        case _:
            return extent


def simplify(e: expr.PrimExpr) -> expr.PrimExpr:
    """`e` in normal form, nothing being known about its variables."""
    return Analyzer().simplify(e)


def prove_equal(a: expr.ExprLike, b: expr.ExprLike) -> bool | None:
    """Return what `Analyzer.prove_equal` does without facts about the variables."""
    return Analyzer().prove_equal(a, b)


def wraps(e: expr.PrimExpr) -> bool:
    """True if an integer expression may wrap, so that its values at two ends say nothing about
    those between: it calculates with data, or with a hash's factors, too large for indices.

    >>> i = expr.Var("i")
    >>> wraps(i * 4096 + 1), wraps(i * 6364136223846793005 // 3)
    (False, True)
    """
    ctx = Context()
    p = convert.poly_of(ctx, e)
    return bool(ctx.hashes) or not is_exact(ctx, p, e.dtype)
