"""`tvm.arith`, today's `tvm.sym`: simplification and proofs about integer expressions."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from relaxlab.analysis import index_map
from relaxlab.analysis.arith import analyzer as core
from relaxlab.analysis.regions import relax_index
from relaxlab.ir import expr
from relaxlab.ir.expr import PrimExpr
from relaxlab.ir.loops import Range

POSITIVE_INFINITY = (1 << 63) - 1
NEGATIVE_INFINITY = -POSITIVE_INFINITY


@dataclass(frozen=True)
class ConstIntBound:
    """The least and the greatest value of an expression; infinity where it is not known."""

    min_value: int
    max_value: int
    POS_INF = POSITIVE_INFINITY
    NEG_INF = NEGATIVE_INFINITY


@dataclass(frozen=True)
class ModularSet:
    """The numbers `base` more than a multiple of `coeff`; `base` alone where that is 0."""

    coeff: int
    base: int


@dataclass(frozen=True)
class IntervalSet:
    """The numbers from `min_value` to `max_value`, both included; None where there is no end."""

    min_value: PrimExpr | None
    max_value: PrimExpr | None

    def __init__(self, min_value: Any, max_value: Any) -> None:
        ends = [None if e is None else expr.as_expr(e) for e in (min_value, max_value)]
        object.__setattr__(self, "min_value", ends[0])
        object.__setattr__(self, "max_value", ends[1])

    def is_everything(self) -> bool:
        """True if there is no end on either side."""
        return self.min_value is None and self.max_value is None

    def is_nothing(self) -> bool:
        """True if there is no number in it."""
        ends = self.min_value, self.max_value
        return None not in ends and Analyzer().can_prove(expr.GT(*ends))  # type: ignore[arg-type]

    @staticmethod
    def single_point(point: Any) -> IntervalSet:
        """One number."""
        return IntervalSet(point, point)


IntSet = IntervalSet


class ProofStrength(IntEnum):
    """The effort of a proof, of which there is one here: whatever can be proved is."""

    DEFAULT = 0
    SYMBOLIC_BOUND = 1


class CompareResult(IntEnum):
    """The relation of two expressions, as far as it is known."""

    INCONSISTENT, EQ, LT, LE, GT, GE, NE, UNKNOWN = range(8)


class Analyzer:
    """Knows ranges of variables, and simplifies and proves under them."""

    def __init__(self) -> None:
        self._core = core.Analyzer()
        self._known: dict[expr.Var, Any] = {}
        self._facts: list[PrimExpr] = []

    def bind(self, var: expr.Var, value: Any, allow_override: bool = False) -> None:
        """State the range of a variable, or its value. Raises ValueError where another was stated
        and `allow_override` is off."""
        if isinstance(value, Range):
            value = IntervalSet(value.min, self._core.simplify(value.min + value.extent - 1))
        known = value if isinstance(value, IntervalSet) else expr.as_expr(value)
        self._state(var, known, allow_override)

    def update(
        self, var: expr.Var, info: ConstIntBound | ModularSet | IntervalSet, override: bool = False
    ) -> None:
        """State the bounds of a variable."""
        self._state(var, info, override)

    def _state(self, var: expr.Var, value: Any, override: bool) -> None:
        before = self._known.get(var)
        if before is not None and before != value and not override:
            raise ValueError(f"{var.name} is known to be {before}, not {value}")
        self._known[var] = value
        if before is not None and before != value:
            self._core = core.Analyzer()
            for known, of in self._known.items():
                self._tell(known, of)
            for fact in self._facts:
                self._core.assume(fact)
        else:
            self._tell(var, value)

    def _tell(self, var: expr.Var, value: Any) -> None:
        match value:
            case ConstIntBound(low, high):
                ends = (None if abs(b) >= POSITIVE_INFINITY else expr.const(b) for b in (low, high))
                self._core.bind(var, *ends)
            case IntervalSet():
                self._core.bind(var, value.min_value, value.max_value)
            case ModularSet(coeff, base):
                self._core.assume(expr.EQ(expr.FloorMod(var, expr.const(coeff)), expr.const(base)))
            case _:
                self._core.bind(var, value, value)

    def clone(self) -> Analyzer:
        """An analyzer that knows the same, and keeps to itself what it is told."""
        new = Analyzer()
        new._core, new._known, new._facts = self._core.fork(), {**self._known}, [*self._facts]
        return new

    def simplify(self, e: Any, steps: int = 2) -> PrimExpr:
        """The expression, simplified."""
        return self._core.simplify(expr.as_expr(e))

    rewrite_simplify = canonical_simplify = simplify

    def can_prove(self, e: Any, strength: int = 0) -> bool:
        """True if the condition is known to hold."""
        return e if isinstance(e, bool) else self._core.prove(e) is True

    def can_prove_equal(self, lhs: Any, rhs: Any) -> bool:
        """True if two expressions are known to be equal."""
        return self._core.prove_equal(lhs, rhs) is True

    def try_compare(self, lhs: Any, rhs: Any, propagate_inequalities: bool = True) -> CompareResult:
        """The strongest relation of two expressions that is known."""
        a, b = expr.as_expr(lhs), expr.as_expr(rhs)
        relations = {
            CompareResult.EQ: expr.EQ, CompareResult.LT: expr.LT, CompareResult.GT: expr.GT,
            CompareResult.LE: expr.LE, CompareResult.GE: expr.GE, CompareResult.NE: expr.NE,
        }  # fmt: skip
        for result, relation in relations.items():
            if self.can_prove(relation(a, b)):
                return result
        return CompareResult.UNKNOWN

    def const_int_bound(self, e: Any) -> ConstIntBound:
        """The bounds of an expression that are known."""
        low, high = self._core.bounds_of(expr.as_expr(e))
        return ConstIntBound(
            NEGATIVE_INFINITY if low is None else low,
            POSITIVE_INFINITY if high is None else high,
        )

    def const_int_bound_is_bound(self, var: expr.Var) -> bool:
        """True if bounds of a variable were stated."""
        return var in self._known

    def modular_set(self, e: Any) -> ModularSet:
        """The number of which an expression is known to be a multiple, and what it is more."""
        return ModularSet(*self._core.modulus_of(expr.as_expr(e)))

    def int_set(self, e: Any, dom_map: Mapping[expr.Var, IntervalSet] | None = None) -> IntervalSet:
        """The interval of an expression over intervals of variables, those that were stated where
        none are given."""
        value = expr.as_expr(e)
        stated = {v: k for v, k in self._known.items() if isinstance(k, IntervalSet)}
        given = stated if dom_map is None else dom_map
        ranges = {
            v: (s.min_value, s.max_value)
            for v, s in given.items()
            if s.min_value is not None and s.max_value is not None
        }
        found = relax_index(value, ranges, self._core)
        if found is None:
            return IntervalSet(None, None)
        return IntervalSet(*(self._core.simplify(end) for end in found))

    @contextmanager
    def constraint_scope(self, constraint: PrimExpr) -> Generator[None]:
        """A context in which a condition holds."""
        self._facts.append(constraint)
        try:
            with self._core.assuming(constraint):
                yield
        finally:
            self._facts.pop()


def detect_linear_equation(e: Any, var_list: Sequence[expr.Var]) -> tuple[PrimExpr, ...]:
    """The factors of variables in an expression, and the rest; nothing where it is not linear in
    them."""
    return core.Analyzer().linear_in(expr.as_expr(e), tuple(var_list)) or ()


def detect_iter_map(
    indices: Any, input_iters: Mapping[expr.Var, Range], predicate: Any = True, *_: Any, **__: Any
) -> index_map.IterMap:
    """The indices as splits of iterators. Raises `NotAnIterMap` where they are none."""
    condition = None if predicate is True else predicate
    return index_map.detect_iter_map(indices, input_iters, condition)


def iter_map_simplify(
    indices: Any, input_iters: Mapping[expr.Var, Range], predicate: Any = True, *_: Any, **__: Any
) -> list[PrimExpr]:
    """The indices, simplified over the ranges of the iterators."""
    analyzer = core.Analyzer()
    for var, ranged in input_iters.items():
        analyzer.bind_range(var, ranged)
    if predicate is not True:
        analyzer.assume(predicate)
    return [analyzer.simplify(expr.as_expr(i)) for i in indices]
