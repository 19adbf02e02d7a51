"""Random integer expressions against brute force.

Run `python tests/analysis/fuzz_arith.py SECONDS [SEED]` for a long search.
"""

from __future__ import annotations

import itertools
import random
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from operator import itemgetter
from typing import Any

from relaxlab.analysis.arith import Analyzer
from relaxlab.ir import expr

Point = dict[expr.Var, int]
Known = list[tuple[Point, Any]]


class Undefined(Exception):
    """A division by zero."""


def _divisor(b: int) -> int:
    if b == 0:
        raise Undefined
    return b


def _trunc(a: int, b: int) -> int:
    q = abs(a) // abs(_divisor(b))
    return q if (a < 0) == (b < 0) else -q


_MEANING: dict[type, Callable[[Any, Any], Any]] = {
    expr.Add: lambda a, b: a + b,
    expr.Sub: lambda a, b: a - b,
    expr.Mul: lambda a, b: a * b,
    expr.FloorDiv: lambda a, b: a // _divisor(b),
    expr.FloorMod: lambda a, b: a % _divisor(b),
    expr.Div: _trunc,
    expr.Mod: lambda a, b: a - _trunc(a, b) * b,
    expr.Min: min,
    expr.Max: max,
    expr.EQ: lambda a, b: a == b,
    expr.NE: lambda a, b: a != b,
    expr.LT: lambda a, b: a < b,
    expr.LE: lambda a, b: a <= b,
    expr.GT: lambda a, b: a > b,
    expr.GE: lambda a, b: a >= b,
    expr.And: lambda a, b: a and b,
    expr.Or: lambda a, b: a or b,
    expr.BitAnd: lambda a, b: a & b,
    expr.ShiftRight: lambda a, b: a >> b,
}


def function_of(e: expr.PrimExpr) -> Callable[[Point], Any]:
    """The function from points to the values of an expression, which raises Undefined where it
    divides by zero."""
    match e:
        case expr.IntImm(value, dtype):
            number = bool(value) if dtype == "bool" else value
            return lambda at: number
        case expr.Var():
            return itemgetter(e)
        case expr.Not(a):
            negated = function_of(a)
            return lambda at: not negated(at)
        case expr.Cast(_, value):
            cast = function_of(value)
            return lambda at: int(cast(at))
        case expr.Select(condition, yes, no):
            chosen, first, second = map(function_of, (condition, yes, no))
            return lambda at: (second(at), first(at))[chosen(at)]
        case expr.Call(_, "if_then_else", (condition, yes, no)):
            chosen, first, second = map(function_of, (condition, yes, no))
            return lambda at: first(at) if chosen(at) else second(at)
        case expr.Let(var, value, body):
            bound, inner = function_of(value), function_of(body)
            return lambda at: inner({**at, var: bound(at)})
        case expr.BinaryOp(a, b):
            x, y, meaning = function_of(a), function_of(b), _MEANING[type(e)]
            return lambda at: meaning(x(at), y(at))
        case _:
            raise NotImplementedError(type(e))


def evaluate(e: expr.PrimExpr, at: Point) -> Any:
    """The value of an expression at a point; raises Undefined where it divides by zero."""
    return function_of(e)(at)


class Generator:
    """Random expressions over a few variables."""

    def __init__(self, rng: random.Random, variables: list[expr.Var], dtype: str) -> None:
        self.rng = rng
        self.variables = variables
        self.dtype = dtype

    def leaf(self) -> expr.PrimExpr:
        rng = self.rng
        roll = rng.random()
        if roll < 0.7:
            v = rng.choice(self.variables)
            return v if v.dtype == self.dtype else expr.Cast(self.dtype, v)
        if roll < 0.72:
            other = "int32" if self.dtype == "int64" else "int64"
            inner = Generator(rng, [v for v in self.variables if v.dtype == other], other)
            if inner.variables:
                return expr.Cast(self.dtype, inner.integer(1))
        return expr.const(rng.choice([0, 1, 2, 3, 4, 5, 6, 8, 12, 16, -1, -2, -3, -4]), self.dtype)

    def integer(self, depth: int) -> expr.PrimExpr:
        rng = self.rng
        if depth == 0 or rng.random() < 0.1:
            return self.leaf()
        kind = rng.random()
        sub = depth - 1
        if kind < 0.08:
            return self.index(sub)
        if kind < 0.45:
            cls = rng.choice([expr.Add, expr.Sub, expr.Mul, expr.Add, expr.Mul])
            return cls(self.integer(sub), self.integer(sub))
        if kind < 0.75:
            cls = rng.choice([expr.FloorDiv, expr.FloorMod])
            return cls(self.integer(sub), self.divisor(sub))
        if kind < 0.88:
            return rng.choice([expr.Min, expr.Max])(self.integer(sub), self.integer(sub))
        if kind < 0.91:
            return rng.choice([expr.Div, expr.Mod])(self.integer(sub), self.divisor(sub))
        if kind < 0.93:
            v = expr.Var("l", self.dtype)
            inner = Generator(rng, [*self.variables, v], self.dtype)
            return expr.Let(v, self.integer(sub), inner.integer(sub))
        if kind < 0.95:
            mask = expr.const(rng.choice([1, 3, 7]), self.dtype)
            return rng.choice([expr.BitAnd, expr.ShiftRight])(self.integer(sub), mask)
        parts = (self.condition(sub), self.integer(sub), self.integer(sub))
        if kind < 0.98:
            return expr.Select(*parts)
        return expr.Call(self.dtype, "if_then_else", parts)

    def index(self, depth: int) -> expr.PrimExpr:
        """Parts of a fused index, put together again or not."""
        rng = self.rng
        stride = self.divisor(0)
        fused = self.integer(min(depth, 1)) * stride + self.integer(min(depth, 2))
        parts = [expr.FloorDiv(fused, stride), expr.FloorMod(fused, stride)]
        kind = rng.randrange(4)
        if kind < 2:
            return parts[kind]
        whole = parts[0] * stride
        return whole + parts[1] if kind == 2 else fused - whole

    def divisor(self, depth: int) -> expr.PrimExpr:
        roll = self.rng.random()
        if roll < 0.7:
            return expr.const(self.rng.choice([1, 2, 3, 4, 4, 6, 8, 8, 16, -2, -4]), self.dtype)
        if roll < 0.9:
            v = self.rng.choice(self.variables)
            e = v if v.dtype == self.dtype else expr.Cast(self.dtype, v)
            return e if roll < 0.8 else e * self.rng.choice([2, 4])
        return self.integer(min(depth, 1))

    def condition(self, depth: int) -> expr.PrimExpr:
        rng = self.rng
        kind = rng.random()
        if depth and kind < 0.25:
            cls = rng.choice([expr.And, expr.Or])
            return cls(self.condition(depth - 1), self.condition(depth - 1))
        if depth and kind < 0.3:
            return expr.Not(self.condition(depth - 1))
        cls = rng.choice([expr.LT, expr.LE, expr.GT, expr.GE, expr.EQ, expr.NE])
        return cls(self.integer(depth), self.integer(depth))


class Case:
    """An analyzer with random facts and all the points that satisfy them."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.rng = rng = random.Random(seed)
        dtype = rng.choice(["int64", "int64", "int32"])
        self.variables = [expr.Var(name, dtype) for name in "nmij"[: rng.randint(2, 4)]]
        if rng.random() < 0.2:
            other = "int32" if dtype == "int64" else "int64"
            self.variables[-1] = expr.Var("w", other)
        self.generator = Generator(rng, self.variables, dtype)
        self.analyzer = Analyzer()
        limits: list[Callable[[Point], range]] = []
        self.facts: list[str] = []
        for k, v in enumerate(self.variables):
            limits.append(self._bind(k, v))
        self.points = self._points(limits)
        self._assume()

    def _bind(self, k: int, v: expr.Var) -> Callable[[Point], range]:
        rng = self.rng
        kind = rng.random()
        if k and kind < 0.4:
            bound = rng.choice(self.variables[:k])
            factor = rng.choice([1, 1, 2])
            lo = rng.choice([0, 0, -1])
            hi = expr.binary(expr.Sub, bound * factor, 1)
            if hi.dtype != v.dtype:
                hi = expr.Cast(v.dtype, hi)
            self.analyzer.bind(v, lo, hi)
            self.facts.append(f"{lo} <= {v} <= {hi}")
            return lambda at: range(lo, at[bound] * factor)
        lo = rng.choice([0, 0, 0, 1, 1, -3])
        hi = lo + rng.randint(0, 8)
        top: int | None = hi
        if kind < 0.7:
            top, hi = None, lo + 9  # the analyzer is not told
        self.analyzer.bind(v, lo, top)
        self.facts.append(f"{lo} <= {v} <= {top}")
        return lambda _: range(lo, hi + 1)

    def _points(self, limits: list[Callable[[Point], range]]) -> list[Point]:
        points: list[Point] = [{}]
        for v, limit in zip(self.variables, limits, strict=True):
            points = [{**at, v: value} for at in points for value in limit(at)]
            if len(points) > 120:
                points = self.rng.sample(points, 120)
        return points

    def _assume(self) -> None:
        for _ in range(self.rng.choice([0, 0, 1, 1, 2])):
            condition = self.generator.condition(1)
            values = self.values(condition)
            points = [at for at, value in values if value is True]
            if points and len(values) == len(self.points):
                self.points = points
                self.facts.append(str(condition))
                self.analyzer.assume(condition)

    def values(self, e: expr.PrimExpr) -> Known:
        """The defined values, by point."""
        function, pairs = function_of(e), []
        for at in self.points:
            with suppress(Undefined):
                pairs.append((at, function(at)))
        return pairs

    def expect(self, what: str, e: expr.PrimExpr, new: expr.PrimExpr, known: Known) -> None:
        """Fail where `new`, which `what` made of `e`, has not the values that are known of it."""
        function = function_of(new)
        for at, value in known:
            try:
                right = function(at) == value
            except Undefined:
                right = False
            if not right:
                self.fail(what, e, f"gives {new}, wrong at {self.show(at)}")

    def fail(self, what: str, e: expr.PrimExpr, detail: object) -> None:
        facts = "; ".join(self.facts)
        raise AssertionError(f"seed {self.seed}: {what}: {e}\n  facts: {facts}\n  {detail}")

    def show(self, at: Point) -> str:
        return ", ".join(f"{v}={value}" for v, value in at.items())


def check(seed: int) -> None:
    """One random set of facts with a few expressions and conditions."""
    case = Case(seed)
    an = case.analyzer
    for _ in range(3):
        e = case.generator.integer(case.rng.randint(1, 4))
        known = case.values(e)
        new = an.simplify(e)
        case.expect("simplify", e, new, known)
        case.expect("simplify twice", e, an.simplify(new), known)
        lo, hi = an.bounds_of(e)
        for at, value in known:
            if (lo is not None and value < lo) or (hi is not None and value > hi):
                case.fail("bounds", e, f"{lo} to {hi}, wrong at {case.show(at)}: {value}")
    for _ in range(3):
        e = case.generator.condition(case.rng.randint(0, 3))
        known = case.values(e)
        new, verdict = an.simplify(e), an.prove(e)
        case.expect("simplify", e, new, known)
        for at, value in known:
            if verdict is not None and verdict is not value:
                case.fail("prove", e, f"says {verdict}, wrong at {case.show(at)}")


def main() -> None:
    """Search for failures for a given time."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 60
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else random.randrange(10**9)
    start = time.perf_counter()
    for n in itertools.count():
        if time.perf_counter() - start > seconds:
            print(f"{n} cases, seeds {seed} to {seed + n - 1}, no failure")
            return
        try:
            check(seed + n)
        except BaseException:
            print(f"seed {seed + n}")
            raise


if __name__ == "__main__":
    main()
