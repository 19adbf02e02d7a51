"""Simplify every index, condition and bound of a block-free statement, knowing the loops' ranges.

Substituting block axes by their bindings leaves indices such as `(i*8 + j) - i*8`; a private
buffer becomes registers only if its indices are constants once its loops are unrolled.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from relaxlab.analysis.arith import Analyzer, wraps
from relaxlab.ir import expr
from relaxlab.ir.dtypes import is_int
from relaxlab.ir.expr import PrimExpr, Var
from relaxlab.ir.loops import (
    BufferLoad,
    BufferStore,
    Evaluate,
    For,
    IfThenElse,
    Range,
    SeqStmt,
    Stmt,
)
from relaxlab.ir.node import Node, map_children, replace, walk


def simplify_indices(stmt: Stmt, sizes: Sequence[Var], *, values: bool = False) -> Stmt:
    """The statement with simplified integer expressions; `sizes` are not negative.

    Conditions that always hold disappear. With `values`, integers that are no indices are
    simplified, too, where they are calculated of sizes, loops and constants alone.
    """
    an = Analyzer()
    for symbol in sizes:
        if symbol.dtype == "int64":
            an.bind_shape(symbol)
    return _Simplifier(an, values).stmt(stmt)


AnyNode = TypeVar("AnyNode", bound=Node)


class _Simplifier:
    def __init__(self, an: Analyzer, values: bool) -> None:
        self.an, self.values = an, values

    def stmt(self, s: Node) -> Stmt:
        match s:
            case For():
                return self.loop(s)
            case IfThenElse(condition):
                return self.branch(s, self.an.simplify(self.loads(condition)))
            case BufferStore(_, value, indices):
                new = tuple(self.index(i) for i in indices)
                return replace(s, value=self.loads(value), indices=new)
            case _:
                return map_children(s, self.child)  # type: ignore[return-value]

    def child(self, n: Node) -> Node:
        return self.stmt(n) if isinstance(n, Stmt) else self.loads(n)

    def loop(self, s: For) -> Stmt:
        low, extent = self.an.simplify(s.min), self.an.simplify(s.extent)
        if isinstance(extent, expr.IntImm) and extent.value <= 0:
            # Inside, the loop's variable has no value: whatever is derived of it would be wrong.
            return Evaluate(expr.const(0), span=s.span)
        with self.an.scope():
            self.an.bind_range(s.loop_var, Range(low, extent))
            body = self.stmt(s.body)
            first, last = self.used(body, s.loop_var)
        # Indices of a lone lane are constants, which more lanes cannot store to.
        if s.kind == "vectorized" and first is not None and first == last:
            low, extent = expr.const(first), expr.const(1)
        return replace(s, min=low, extent=extent, body=body)

    def used(self, s: Stmt, var: Var) -> tuple[int | None, int | None]:
        """The least and the largest value of a loop's variable with which a statement does
        anything."""
        match s:
            case IfThenElse(condition, then, None):
                with self.an.assuming(condition):
                    return self.used(then, var)
            case For(body=body):
                return self.used(body, var)
            case SeqStmt(stmts) if stmts:
                lows, highs = zip(*(self.used(part, var) for part in stmts), strict=True)
                unknown = None in lows or None in highs
                return (None, None) if unknown else (min(lows), max(highs))
            case _:
                return self.an.bounds_of(var)

    def branch(self, s: IfThenElse, condition: PrimExpr) -> Stmt:
        if condition == expr.IntImm(1, "bool"):
            return self.stmt(s.then_case)
        with self.an.assuming(condition):
            then = self.stmt(s.then_case)
        other = s.else_case
        if other is not None:
            with self.an.assuming(expr.Not(condition)):
                other = self.stmt(other)
        return IfThenElse(condition, then, other, span=s.span)

    def index(self, e: PrimExpr) -> PrimExpr:
        e = self.loads(e)
        # The analyzer's integers are unbounded; narrower indices, from arrays, may wrap.
        return self.an.simplify(e) if e.dtype == "int64" else e

    def loads(self, n: AnyNode) -> AnyNode:
        """An expression with the indices inside it simplified."""
        if isinstance(n, BufferLoad):
            return replace(n, indices=tuple(self.index(i) for i in n.indices))
        if isinstance(n, expr.Call) and n.op == "if_then_else":
            return self.guarded(n, *n.args)  # type: ignore[return-value]
        if isinstance(n, PrimExpr) and (_is_place(n) or (self.values and _is_integer(n))):
            return self.an.simplify(n)  # type: ignore[return-value]
        n = map_children(n, self.loads)
        return _folded(n) if self.values and isinstance(n, expr.Cast) else n  # type: ignore

    def guarded(self, e: expr.Call, *args: PrimExpr) -> PrimExpr:
        """A value under a guard, which holds where it is computed: what else the guard implies,
        such as that an array is not empty, is not tested again."""
        condition, value, other = args
        condition = self.an.simplify(self.loads(condition))
        if condition == expr.IntImm(1, "bool"):
            return self.loads(value)
        with self.an.assuming(condition):
            value = self.loads(value)
        return replace(e, args=(condition, value, self.loads(other)))


def _is_place(e: PrimExpr) -> bool:
    """True if a value says where an element is, with divisions that fused loops left in it (an
    arg-reduction's `f // m * m + f % m`). Data and hashes may wrap; the analyzer's integers
    do not."""
    if e.dtype != "int64" or not isinstance(e, expr.Add | expr.FloorDiv | expr.FloorMod):
        return False
    nodes = list(walk(e))
    divides = any(isinstance(n, expr.FloorDiv | expr.FloorMod) for n in nodes)
    return divides and all(isinstance(n, _PLACES) for n in nodes) and not wraps(e)


def _folded(e: expr.Cast) -> PrimExpr:
    """A conversion of a number to an integer that has its value, else `e`."""
    if not isinstance(e.value, expr.IntImm) or not is_int(e.dtype):
        return e
    low, high = expr.lowest(e.dtype), expr.highest(e.dtype)
    assert isinstance(low, expr.IntImm) and isinstance(high, expr.IntImm)
    fits = low.value <= e.value.value <= high.value
    return expr.const(e.value.value, e.dtype) if fits else e


def _is_integer(e: PrimExpr) -> bool:
    """True if a value is calculated of indices and constants, and does not wrap."""
    nodes = list(walk(e))
    parts = (*_PLACES, expr.Min, expr.Max)
    return e.dtype == "int64" and all(isinstance(n, parts) for n in nodes) and not wraps(e)


_PLACES = (Var, expr.IntImm, expr.Add, expr.Sub, expr.Mul, expr.FloorDiv, expr.FloorMod)
