"""The conditions on sizes under which a loop function stays inside of its buffers.

`for i in range(n)` over a buffer of `m` elements needs `n <= m`. Checked at the call, such a
condition is an error that names it instead of an access to other memory; known to schedules, the
loops are tiled like those over the buffer's own extents.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from relaxlab.analysis.arith import Analyzer
from relaxlab.analysis.loops_check import LoopsChecker
from relaxlab.analysis.regions import relax_index
from relaxlab.ir import expr, loops
from relaxlab.ir.node import Node, walk
from relaxlab.ir.substitute import symbols_in


def preconditions(func: loops.PrimFunc) -> tuple[loops.AssertStmt, ...]:
    """Return assertions about the symbols and scalars of a loop function that hold in every call in
    which it accesses nothing outside of its buffers, besides those that it states itself or that
    the shapes of its buffers imply.

    Only of accesses that certainly happen: under no condition, and at indices that the loops
    certainly reach. Where loops have no iterations, a condition may ask for a constant number of
    elements that nothing accesses: `range(n - 2)` with `A[i + 2]` needs `n <= m`, for n = 2, too.
    """
    finder = _Finder("", _analyzer(func), func=func)  # which reports nothing
    for p in sorted(func.params, key=lambda p: isinstance(p, loops.Buffer)):
        finder.parameter(p)
    finder.stmt(func.body)
    needed = list({s.condition: s for s in reversed(finder.needed)}.values())
    for s in finder.needed:  # without what follows from the others
        others = [x.condition for x in needed if x is not s]
        if s in needed and _analyzer(func, others).prove(s.condition) is True:
            needed.remove(s)
    return tuple(reversed(needed))


def _analyzer(func: loops.PrimFunc, more: Iterable[expr.PrimExpr] = ()) -> Analyzer:
    """An analyzer that knows the sizes of the function's buffers, what it requires, and more."""
    an = Analyzer.for_shapes(tuple(b.shape for b in func.buffers))
    for condition in (*(s.condition for s in func.requires), *more):
        an.assume(condition)
    return an


def _sizes_of(func: loops.PrimFunc) -> set[expr.Var]:
    """The integers that a call gives: scalar parameters, and symbols of the shapes."""
    scalars = [p for p in func.params if isinstance(p, expr.Var)]
    return {*scalars, *symbols_in(tuple(b.shape for b in func.buffers))}


@dataclass(slots=True)
class _Finder(LoopsChecker):
    """A walk that keeps the conditions under which accesses are inside of their buffers. `extents`
    has the extent of each variable of a loop or an axis; `partial`, the axes of which it is not
    certain that their loops reach all values."""

    func: loops.PrimFunc = field(kw_only=True)
    needed: list[loops.AssertStmt] = field(default_factory=list[loops.AssertStmt])
    extents: dict[expr.Var, expr.PrimExpr] = field(default_factory=dict)  # type: ignore
    partial: set[expr.Var] = field(default_factory=set[expr.Var])

    def loop(self, s: loops.For) -> None:
        self.extents[s.loop_var] = s.extent
        LoopsChecker.loop(self, s)

    def bindings(self, s: loops.BlockRealize) -> None:
        once = Counter(v for value in s.iter_values for v in symbols_in(value))
        for iv, value in zip(s.block.iter_vars, s.iter_values, strict=True):
            self.extents[iv.var] = iv.dom.extent
            span = relax_index(value, self.ranges, self.an)
            last = iv.dom.min + iv.dom.extent - 1
            alone = all(once[v] == 1 for v in symbols_in(value) if v in self.ranges)
            known = [v for v in symbols_in(value) if v not in self.ranges and v in self.extents]
            if (
                span is None or known or not alone or not self.is_attained(value)
                or any(v in self.partial for v in symbols_in(value))
                or not self.an.prove_equal(span[0], iv.dom.min)
                or not self.an.prove_equal(span[1], last)
            ):  # fmt: skip
                self.partial.add(iv.var)

    def parts(self, e: expr.PrimExpr) -> None:
        match e:
            case expr.And(a, b) | expr.Or(a, b):  # what is on the right may not be evaluated
                self.value(a)
                self.branch(a if isinstance(e, expr.And) else expr.Not(a), b)
            case expr.Call(dtype="handle" | "void"):  # it may take an address, as prefetches do
                self.guards += 1
                LoopsChecker.parts(self, e)
                self.guards -= 1
            case _:
                LoopsChecker.parts(self, e)

    def in_bounds(
        self, buffer: loops.Buffer, dim: int, index: expr.PrimExpr, extent: expr.PrimExpr, at: Node
    ) -> None:
        index = self.an.simplify(index)
        if self.guards or index.dtype != extent.dtype or not self.is_attained(index):
            return
        bounds = relax_index(index, self.ranges, self.an)
        if bounds is None:
            return
        zero, (first, last) = expr.const(0, extent.dtype), bounds
        for need, short in (
            (expr.LE(zero, first), zero - first),
            (expr.LT(last, extent), last - extent),
        ):
            if self.an.prove(need) is None and self._is_due(need, index, short):
                text = f"index {index} is in dimension {dim} of {buffer.name}"
                self.needed.append(loops.AssertStmt(self.an.simplify(need), text))

    def _is_due(self, need: expr.PrimExpr, index: expr.PrimExpr, short: expr.PrimExpr) -> bool:
        """True if a condition of an index is one on sizes that may be asked for in every call;
        `short` is by how many elements it is broken."""
        if any(isinstance(n, loops.BufferLoad | expr.Call | expr.Cast) for n in walk(need)):
            return False
        if not _sizes_of(self.func).issuperset(symbols_in(need)):
            return False
        names = list(symbols_in(index))
        extents = [self.extents[v] for v in names if v in self.extents]
        if all(isinstance(e, expr.IntImm) for e in extents) and self._may_not_run():
            return False
        for v in names:  # which grows, as in `is_attained`
            names += self.depends.get(v, ())
        return all(
            self._holds_if_empty(need, self.extents[v], short) for v in names if v in self.extents
        ) and self.partial.isdisjoint(names)

    def always_runs(self, s: loops.For) -> bool:
        """True if the loop has iterations for all values of the variables of loops around it, but
        for a constant number of them."""
        shortest = relax_index(s.extent, self.ranges, self.an)
        return (
            shortest is not None
            and _analyzer(self.func).upper_bound(expr.binary(expr.Sub, 0, shortest[0])) is not None
        )

    def _may_not_run(self) -> bool:
        """True if some loop around may have no iterations, as those over arrays without elements:
        then not even the first one is accessed."""
        around = self.outer_loops | {f.loop_var for f in self.nest}
        an = _analyzer(self.func)
        return any(an.prove(expr.GE(self.extents[v], expr.const(1))) is not True for v in around)

    def _holds_if_empty(
        self, need: expr.PrimExpr, extent: expr.PrimExpr, short: expr.PrimExpr
    ) -> bool:
        """True if a condition holds, but for a constant number of elements, where a loop has no
        iterations, and wholly where the sizes that its extent is made of are zero."""
        most = relax_index(extent, self.ranges, self.an)
        if most is None or isinstance(most[1], expr.IntImm):
            return most is not None
        none = [expr.LE(v, expr.const(0, v.dtype)) for v in symbols_in(most[1])]
        empty = expr.LE(most[1], expr.const(0, extent.dtype))
        return (
            _analyzer(self.func, none).prove(need) is True
            and _analyzer(self.func, [empty]).upper_bound(short) is not None
        )
