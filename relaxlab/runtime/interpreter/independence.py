"""A test for loops that the interpreter may run for all iterations at once.

A loop is independent when the place of every access to a buffer it writes determines the iteration
that made the access; memory allocated in the loop's body belongs to one iteration anyway. Then no
two iterations meet in memory, and running each statement for all iterations before the next
statement gives the same result as running them one after the other. The test is syntactic and errs
on the side of "no".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from relaxlab.ir import expr, loops
from relaxlab.ir.dtypes import lanes_of
from relaxlab.ir.intrinsics import BY_NAME
from relaxlab.ir.node import walk
from relaxlab.runtime.interpreter.threads import COLLECTIVES

_OPAQUE_CALLS = COLLECTIVES | BY_NAME | {"address_of"}


@dataclass(frozen=True, slots=True)
class Linear:
    """`const + sum(coefficient * term)`; terms are variables, or expressions of fixed ones."""

    const: int
    terms: Mapping[expr.PrimExpr, int]

    def add(self, other: Linear, factor: int = 1) -> Linear:
        """self + factor * other"""
        terms = dict(self.terms)
        for t, c in other.terms.items():
            terms[t] = terms.get(t, 0) + factor * c
        kept = {t: c for t, c in terms.items() if c}
        return Linear(self.const + factor * other.const, kept)


class _Dependent(Exception):
    """The loop does something this analysis does not follow."""


@dataclass(slots=True)
class _Body:
    """The accesses and loops of one loop's body, in terms of its variable and of inner loops."""

    var: expr.Var
    values: dict[expr.Var, Linear | None] = field(default_factory=dict)  # axes, lets
    spans: dict[expr.Var, int | None] = field(default_factory=dict)  # extents of inner loops
    varying: set[expr.Var] = field(default_factory=set)
    stores: set[loops.Buffer] = field(default_factory=set)
    private: set[loops.Buffer] = field(default_factory=set)  # allocated in the body
    accesses: dict[loops.Buffer, list[tuple[Linear | None, ...]]] = field(default_factory=dict)

    def linear(self, e: expr.PrimExpr) -> Linear | None:
        """`e` as a linear form, or None when it is not one."""
        match e:
            case expr.IntImm(value):
                return Linear(value, {})
            case expr.Var() if e in self.values:
                return self.values[e]
            case expr.Var():
                return Linear(0, {e: 1})
            case expr.Add(a, b) | expr.Sub(a, b):
                x, y = self.linear(a), self.linear(b)
                if x is None or y is None:
                    return None
                return x.add(y, -1 if isinstance(e, expr.Sub) else 1)
            case expr.Mul(a, b):
                x, y = self.linear(a), self.linear(b)
                if x is not None and y is not None:
                    if not y.terms:
                        return Linear(0, {}).add(x, y.const)
                    if not x.terms:
                        return Linear(0, {}).add(y, x.const)
            case expr.FloorDiv(a, expr.IntImm(c)) | expr.FloorMod(a, expr.IntImm(c)) if c > 0:
                x = self.linear(a)
                parts = None if x is None else self._divide(x, c)
                if parts is not None:
                    return parts[isinstance(e, expr.FloorMod)]
            case _:
                pass
        return Linear(0, {e: 1}) if self._fixed(e) else None

    def _divide(self, x: Linear, by: int) -> tuple[Linear, Linear] | None:
        """Quotient and remainder of `x`, when the terms that `by` does not divide stay below it."""
        high = {t: c for t, c in x.terms.items() if c % by == 0}
        rest = {t: c for t, c in x.terms.items() if c % by}
        quotient, const = divmod(x.const, by)
        reach = self._reach(rest)
        # The remainder is the rest itself only while it does not reach the divisor.
        if reach is None or const + reach >= by:
            return None
        return Linear(quotient, {t: c // by for t, c in high.items()}), Linear(const, rest)

    def _reach(self, terms: Mapping[expr.PrimExpr, int]) -> int | None:
        """The largest value of `sum(coefficient * term)`, the smallest being 0; None: unknown."""
        reach = 0
        for t, c in terms.items():
            extent = self.spans.get(t)  # type: ignore[call-overload]
            if extent is None or c < 0:
                return None
            reach += c * max(0, extent - 1)
        return reach

    def _fixed(self, e: expr.PrimExpr) -> bool:
        for n in walk(e):
            if isinstance(n, loops.BufferLoad):
                return False
            if isinstance(n, expr.Var) and (
                n is self.var or n in self.values or n in self.spans or n in self.varying
            ):
                return False
        return True

    def depends(self, e: expr.PrimExpr) -> bool:
        """True if `e` may differ between iterations of the loop."""
        return any(
            isinstance(n, loops.BufferLoad) or n is self.var or n in self.varying for n in walk(e)
        )

    def define(self, var: expr.Var, value: expr.PrimExpr) -> None:
        self.read(value)
        self.values[var] = self.linear(value)
        if self.depends(value):
            self.varying.add(var)

    def read(self, *values: expr.PrimExpr) -> None:
        for value in values:
            for n in walk(value):
                if isinstance(n, expr.Call) and n.op in _OPAQUE_CALLS:
                    raise _Dependent
                if isinstance(n, expr.Let):
                    self.define(n.var, n.value)
                if isinstance(n, expr.PrimExpr) and lanes_of(n.dtype) > 1:
                    raise _Dependent
                if isinstance(n, loops.BufferLoad):
                    self._access(n.buffer, n.indices)

    def _access(self, buffer: loops.Buffer, indices: tuple[expr.PrimExpr, ...]) -> None:
        forms = tuple(self.linear(i) for i in indices)
        self.accesses.setdefault(buffer, []).append(forms)

    def enter(self, loop: loops.For) -> None:
        """Note how far a loop runs."""
        zero = isinstance(loop.min, expr.IntImm) and loop.min.value == 0
        known = isinstance(loop.extent, expr.IntImm) and zero
        self.spans[loop.loop_var] = loop.extent.value if known else None  # type: ignore

    def run(self, stmt: loops.Stmt) -> None:
        """Collect the accesses of `stmt`. Raises `_Dependent` on what is not followed."""
        match stmt:
            case loops.For():
                self.read(stmt.min, stmt.extent)
                if self.depends(stmt.min) or self.depends(stmt.extent):
                    raise _Dependent
                self.enter(stmt)
                self.run(stmt.body)
            case loops.Evaluate(expr.Call(op="prefetch") | expr.StringImm()):  # without effect
                pass
            case loops.SeqStmt(stmts):
                for s in stmts:
                    self.run(s)
            case loops.IfThenElse(condition, then_case, else_case):
                self.read(condition)
                self.run(then_case)
                if else_case is not None:
                    self.run(else_case)
            case loops.LetStmt():
                self.define(stmt.var, stmt.value)
                self.run(stmt.body)
            case loops.BufferStore(buffer, value, indices):
                self.read(value, *indices)
                self.stores.add(buffer)
                self._access(buffer, indices)
            case loops.BlockRealize(iter_values, predicate, block):
                if block.match_buffers:
                    raise _Dependent
                self.private.update(block.alloc_buffers)
                self.read(predicate)
                for axis, value in zip(block.iter_vars, iter_values, strict=True):
                    self.define(axis.var, value)
                if block.init is not None:
                    self.run(block.init)
                self.run(block.body)
            case _:
                raise _Dependent

    def places(self, buffer: loops.Buffer) -> Iterator[tuple[Linear | None, ...]]:
        """Per dimension of `buffer`, the forms that index it."""
        yield from zip(*self.accesses[buffer], strict=True)

    def determines_iteration(self, forms: tuple[Linear | None, ...]) -> bool:
        """True if an index of these forms determines the loop variable: all are
        `a * var + r + fixed` with the same `a` and `fixed`, and `0 <= r < |a|`."""
        seen: set[tuple[int, int, frozenset[tuple[expr.PrimExpr, int]]]] = set()
        for form in forms:
            if form is None:
                return False
            step = form.terms.get(self.var, 0)
            inner = {t: c for t, c in form.terms.items() if t in self.spans and t is not self.var}
            reach = self._reach(inner)
            # Inner terms that reach the step run into the elements of the next iteration.
            if step == 0 or reach is None or reach >= abs(step):
                return False
            fixed = {t: c for t, c in form.terms.items() if t is not self.var and t not in inner}
            seen.add((step, form.const, frozenset(fixed.items())))
        return len(seen) == 1


def is_independent(loop: loops.For, aliases: Mapping[loops.Buffer, loops.Buffer]) -> bool:
    """True if all iterations of `loop` may run at once.

    `aliases` maps each view in sight to the buffer whose memory it shows; different parameters
    of a function are taken to be different memory, which the caller ensures.
    """
    body = _Body(loop.loop_var)
    body.enter(loop)
    try:
        body.run(loop.body)
    except _Dependent:
        return False
    roots = {b: aliases.get(b, b) for b in body.accesses}
    for buffer in body.stores - body.private:
        if any(b is not buffer and root is roots[buffer] for b, root in roots.items()):
            return False
        if not any(body.determines_iteration(forms) for forms in body.places(buffer)):
            return False
    return bool(body.stores)
