"""`tvm.arith`: simplification and proofs about integer expressions."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from relaxlab.analysis import index_map
from relaxlab.analysis.arith import analyzer as core
from relaxlab.ir import expr
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


class Analyzer:
    """Knows ranges of variables, and simplifies and proves under them."""

    def __init__(self) -> None:
        self._core = core.Analyzer()

    def bind(self, var: expr.Var, value: Any, allow_override: bool = False) -> None:
        """State the range of a variable, or its value."""
        if isinstance(value, Range):
            self._core.bind_range(var, value)
        else:
            self._core.bind(var, value, value)

    def update(self, var: expr.Var, info: ConstIntBound, override: bool = False) -> None:
        """State the bounds of a variable."""
        bounds = (info.min_value, info.max_value)
        known = [None if abs(b) >= POSITIVE_INFINITY else expr.const(b) for b in bounds]
        self._core.bind(var, *known)

    def simplify(self, e: Any, steps: int = 2) -> expr.PrimExpr:
        """The expression, simplified."""
        return self._core.simplify(expr.as_expr(e))

    rewrite_simplify = canonical_simplify = simplify

    def can_prove(self, e: Any, strength: int = 0) -> bool:
        """True if the condition is known to hold."""
        return e if isinstance(e, bool) else self._core.prove(e) is True

    def can_prove_equal(self, lhs: Any, rhs: Any) -> bool:
        """True if two expressions are known to be equal."""
        return self._core.prove_equal(lhs, rhs) is True

    def const_int_bound(self, e: Any) -> ConstIntBound:
        """The bounds of an expression that are known."""
        low, high = self._core.bounds_of(expr.as_expr(e))
        return ConstIntBound(
            NEGATIVE_INFINITY if low is None else low,
            POSITIVE_INFINITY if high is None else high,
        )

    @contextmanager
    def constraint_scope(self, constraint: expr.PrimExpr) -> Generator[None]:
        """A context in which a condition holds."""
        with self._core.assuming(constraint):
            yield


def detect_iter_map(
    indices: Any, input_iters: Mapping[expr.Var, Range], predicate: Any = True, *_: Any, **__: Any
) -> index_map.IterMap:
    """The indices as splits of iterators. Raises `NotAnIterMap` where they are none."""
    condition = None if predicate is True else predicate
    return index_map.detect_iter_map(indices, input_iters, condition)
