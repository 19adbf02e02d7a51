"""The regions of buffers that a statement reads and writes.

Inner loop variables are relaxed over their ranges. Regions are exact where indices are affine
and independent, and larger otherwise; an index that cannot be bounded takes the whole dimension.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from relaxlab.analysis.arith import Analyzer
from relaxlab.ir import expr, loops
from relaxlab.ir.dtypes import element_of, lanes_of
from relaxlab.ir.intrinsics import INTRINSICS
from relaxlab.ir.loops import Buffer, BufferRegion, Range
from relaxlab.ir.node import Node, children, walk
from relaxlab.ir.substitute import substitute, symbols_in

N = TypeVar("N", bound=Node)
Bounds = tuple[expr.PrimExpr, expr.PrimExpr]
"""Inclusive lower and upper bound."""


def access_regions(
    root: loops.Stmt, analyzer: Analyzer | None = None
) -> tuple[tuple[BufferRegion, ...], tuple[BufferRegion, ...]]:
    """Return (reads, writes) of a statement, one region per buffer, in order of first access.

    Of a `Block`, the regions of its body in terms of its axes, without the buffers it allocates and
    without reads of the buffers its `init` writes (the running value of a reduction). A nested
    block counts with the regions it declares. `analyzer` holds assumptions about the other
    variables; by default, that symbols of buffer shapes are dimensions.
    """
    an = analyzer if analyzer is not None else Analyzer.for_shapes(*_buffer_shapes(root))
    collector = _Collector(an)
    with an.scope():
        if isinstance(root, loops.Block):
            collector.block_body(root)
        else:
            collector.stmt(root)
    return collector.result(collector.reads), collector.result(collector.writes)


def _buffer_shapes(root: Node) -> Iterable[tuple[expr.PrimExpr, ...]]:
    seen: dict[Buffer, None] = {}
    stack = [root]
    while stack:
        n = stack.pop()
        if isinstance(n, Buffer):
            seen[n] = None
        stack.extend(children(n))
    return [b.shape for b in seen]


def full_region(buffer: Buffer) -> BufferRegion:
    """The whole buffer."""
    zero = expr.IntImm(0)
    return BufferRegion(buffer, tuple(Range(zero, extent) for extent in buffer.shape))


def point_region(buffer: Buffer, indices: tuple[expr.PrimExpr, ...]) -> BufferRegion:
    """Return the region of one element."""
    one = [expr.const(1, element_of(i.dtype)) for i in indices]
    return BufferRegion(buffer, tuple(map(Range, indices, one)))


def region_union(a: BufferRegion, b: BufferRegion, analyzer: Analyzer) -> BufferRegion:
    """Return the smallest region with both, in terms of minima and maxima where their order is
    unknown.

    Raises ValueError when the buffers differ.
    """
    if a.buffer is not b.buffer:
        raise ValueError(f"union of regions of {a.buffer.name} and {b.buffer.name}")
    pairs = zip(a.region, b.region, strict=True)
    return BufferRegion(a.buffer, tuple(_hull(x, y, analyzer) for x, y in pairs))


def _hull(x: Range, y: Range, an: Analyzer) -> Range:
    if x.min == y.min and x.extent == y.extent:
        return x
    if x.min.dtype != y.min.dtype:  # indices of one buffer may be of different integers
        x, y = (Range(_as(r.min, "int64"), _as(r.extent, "int64")) for r in (x, y))
    lo = an.simplify(expr.Min(x.min, y.min))
    hi = an.simplify(expr.Max(x.min + x.extent, y.min + y.extent))
    return Range(lo, an.simplify(hi - lo))


def relax_index(
    index: expr.PrimExpr, ranges: Mapping[expr.Var, Bounds], analyzer: Analyzer
) -> Bounds | None:
    """Return bounds of `index` over all values of the variables in `ranges`, free of those
    variables.

    `ranges` gives inclusive bounds, themselves free of them. None when the index cannot be bounded.
    Interval arithmetic on the simplified index: exact where each variable occurs once.
    """
    if not ranges and lanes_of(index.dtype) == 1:
        return index, index
    found = _relax(analyzer.simplify_index(index), ranges, analyzer)
    if found is None:
        return None
    return analyzer.simplify_index(found[0]), analyzer.simplify_index(found[1])


def _relax(e: expr.PrimExpr, ranges: Mapping[expr.Var, Bounds], an: Analyzer) -> Bounds | None:
    if isinstance(e, expr.Var):
        return ranges.get(e, (e, e))
    if lanes_of(e.dtype) == 1 and not any(v in ranges for v in symbols_in(e)):
        return e, e
    match e:
        case expr.Add(a, b) | expr.Sub(a, b) | expr.Min(a, b) | expr.Max(a, b):
            x, y = _relax(a, ranges, an), _relax(b, ranges, an)
            if x is None or y is None:
                return None
            if isinstance(e, expr.Sub):
                y = (y[1], y[0])
            return expr.binary(type(e), x[0], y[0]), expr.binary(type(e), x[1], y[1])
        case expr.Mul(a, b):
            return _relax_product(_relax(a, ranges, an), _relax(b, ranges, an), an)
        case expr.FloorDiv(a, b) | expr.FloorMod(a, b):
            x = _relax(a, ranges, an)
            invariant = not any(v in ranges for v in symbols_in(b))
            if x is None or not invariant or not an.prove(expr.binary(expr.GT, b, 0)):
                return None
            return _relax_division(isinstance(e, expr.FloorDiv), x, b, an)
        case expr.Select(_, a, b) | expr.Call(_, "if_then_else", (_, a, b)):
            x, y = _relax(a, ranges, an), _relax(b, ranges, an)
            if x is None or y is None:
                return None
            return expr.Min(x[0], y[0]), expr.Max(x[1], y[1])
        case expr.Cast(to, value):
            x = _relax(value, ranges, an)
            return None if x is None else (expr.Cast(to, x[0]), expr.Cast(to, x[1]))
        case expr.Ramp(base, stride, lanes):
            x = _relax(base, ranges, an)
            last = stride * (lanes - 1)
            if x is None or not an.prove(expr.binary(expr.GE, last, 0)):
                return None
            return x[0], x[1] + last
        case expr.Broadcast(value):
            return _relax(value, ranges, an)
        case _:
            return None


def _relax_product(x: Bounds | None, y: Bounds | None, an: Analyzer) -> Bounds | None:
    if x is None or y is None:
        return None
    if x[0] == x[1]:
        x, y = y, x
    signs = [an.prove(expr.binary(expr.GE, e, 0)) for e in (x[0], y[0])]
    if signs[1] and (signs[0] or y[0] == y[1]):
        return x[0] * y[0], x[1] * y[1]
    if y[0] == y[1] and an.prove(expr.binary(expr.LE, y[0], 0)):
        return x[1] * y[0], x[0] * y[0]
    return None


def _relax_division(is_div: bool, x: Bounds, b: expr.PrimExpr, an: Analyzer) -> Bounds:
    lo, hi = x[0] // b, x[1] // b
    if is_div:
        return lo, hi
    if an.prove_equal(lo, hi):
        return x[0] % b, x[1] % b
    return expr.const(0, b.dtype), b - 1


@dataclass(slots=True)
class _Collector:
    """Boxes by buffer; `ranges` relaxes the loops entered, outermost first."""

    an: Analyzer
    reads: dict[Buffer, BufferRegion] = field(default_factory=dict[Buffer, BufferRegion])
    writes: dict[Buffer, BufferRegion] = field(default_factory=dict[Buffer, BufferRegion])
    ranges: dict[expr.Var, Bounds] = field(default_factory=dict[expr.Var, Bounds])
    hidden: set[Buffer] = field(default_factory=set[Buffer])
    guarded: bool = False

    def result(self, found: dict[Buffer, BufferRegion]) -> tuple[BufferRegion, ...]:
        return tuple(r for b, r in found.items() if b not in self.hidden)

    def stmt(self, s: loops.Stmt) -> None:
        match s:
            case loops.SeqStmt(stmts):
                for one in stmts:
                    self.stmt(one)
            case loops.BufferStore(buffer, value, indices):
                self.value(value)
                for i in indices:
                    self.value(i)
                self.access(self.writes, point_region(buffer, indices))
            case loops.For():
                self.loop(s)
            case loops.IfThenElse(condition, then_case, else_case):
                self.value(condition)
                self.under(condition, then_case)
                if else_case is not None:
                    self.under(expr.Not(condition), else_case)
            case loops.LetStmt(var, value, body):
                self.value(value)
                self.stmt(_with_place(var, value, body))
            case loops.BlockRealize():
                self.realize(s)
            case loops.Block():
                self.block_body(s)
            case loops.Evaluate(value) | loops.AssertStmt(value):
                self.value(value)
            case loops.While(condition, body):
                self.value(condition)
                self.stmt(body)
            case _:
                raise TypeError(f"access regions of {type(s).__name__}")

    def loop(self, s: loops.For) -> None:
        self.value(s.min)
        self.value(s.extent)
        lo = relax_index(s.min, self.ranges, self.an)
        hi = relax_index(s.min + s.extent - 1, self.ranges, self.an)
        with self.an.scope():
            self.an.bind(s.loop_var, s.min, s.min + s.extent - 1)
            before = self.ranges
            if lo is not None and hi is not None:
                self.ranges = {**before, s.loop_var: (lo[0], hi[1])}
            self.stmt(s.body)
            self.ranges = before

    def under(self, condition: expr.PrimExpr, body: loops.Stmt) -> None:
        before, self.guarded = self.guarded, True
        with self.an.assuming(condition):
            self.stmt(body)
        self.guarded = before

    def realize(self, s: loops.BlockRealize) -> None:
        for v in s.iter_values:
            self.value(v)
        values = dict(zip((iv.var for iv in s.block.iter_vars), s.iter_values, strict=True))
        reads, writes = s.block.reads, s.block.writes
        if not reads and not writes:
            reads, writes = access_regions(s.block, self.an)
        before = self.guarded
        self.guarded = before or s.predicate != expr.IntImm(1, "bool")
        with self.an.assuming(s.predicate):
            for found, regions in ((self.reads, reads), (self.writes, writes)):
                for r in regions:
                    self.access(found, substitute(r, values))
        self.guarded = before

    def block_body(self, block: loops.Block) -> None:
        for iv in block.iter_vars:
            self.an.bind_range(iv.var, iv.dom)
        self.hidden.update(block.alloc_buffers)
        inner = _Collector(self.an, ranges=self.ranges, guarded=self.guarded)
        if block.init is not None:
            inner.stmt(block.init)
        running = set(inner.writes)
        inner.stmt(block.body)
        inner.hidden = self.hidden
        views = {m.buffer: m.source for m in block.match_buffers}
        for found, mine in ((inner.reads, self.reads), (inner.writes, self.writes)):
            for buffer, region in found.items():
                if not (found is inner.reads and buffer in running):
                    self.merge(mine, views.get(buffer, region))

    def value(self, e: expr.PrimExpr) -> None:
        match e:
            case loops.BufferLoad(buffer, indices):
                for i in indices:
                    self.value(i)
                self.access(self.reads, point_region(buffer, indices))
            case expr.Call(_, "if_then_else", (condition, yes, no)):
                self.value(condition)
                before, self.guarded = self.guarded, True
                with self.an.assuming(condition):
                    self.value(yes)
                with self.an.assuming(expr.Not(condition)):
                    self.value(no)
                self.guarded = before
            case expr.Call(_, "address_of", (loops.BufferLoad(buffer),)):
                self.access(self.reads, full_region(buffer))
                self.access(self.writes, full_region(buffer))
            case expr.Call(_, op) if op in INTRINSICS or op:
                for a in e.args:
                    self.value(a)
            case expr.Let(var, value, body):
                self.value(value)
                self.value(_with_place(var, value, body))
            case _:
                for c in children(e):
                    if isinstance(c, expr.PrimExpr):
                        self.value(c)

    def access(self, found: dict[Buffer, BufferRegion], r: BufferRegion) -> None:
        dims: list[Range] = []
        for rng, extent in zip(r.region, r.buffer.shape, strict=True):
            dims.append(self.relax(rng, extent))
        self.merge(found, BufferRegion(r.buffer, tuple(dims)))

    def merge(self, found: dict[Buffer, BufferRegion], r: BufferRegion) -> None:
        old = found.get(r.buffer)
        found[r.buffer] = r if old is None else region_union(old, r, self.an)

    def relax(self, rng: Range, extent: expr.PrimExpr) -> Range:
        """The range with loops relaxed; a guarded one is clamped, the guard keeps it inside."""
        zero = expr.const(0, extent.dtype)
        lo = relax_index(rng.min, self.ranges, self.an)
        hi = lo
        if rng.extent != expr.const(1, rng.extent.dtype):
            hi = relax_index(rng.min + rng.extent - 1, self.ranges, self.an)
        if lo is None or hi is None:
            return Range(zero, extent)
        if not self.ranges and not self.guarded and lanes_of(rng.min.dtype) == 1:
            return rng
        first, last = lo[0], hi[1]
        if self.guarded:
            end = _as(extent - 1, last.dtype)
            if self.an.prove(expr.binary(expr.GE, first, 0)) is not True:
                first = expr.binary(expr.Max, first, 0)
            if self.an.prove(expr.binary(expr.LE, last, end)) is not True:
                last = expr.binary(expr.Min, last, end)
            first = self.an.simplify_index(first)
        return Range(first, self.an.simplify(last - first + 1))


def _as(e: expr.PrimExpr, dtype: str) -> expr.PrimExpr:
    return e if e.dtype == dtype else expr.Cast(dtype, e)


def _with_place(var: expr.Var, value: expr.PrimExpr, body: N) -> N:
    """`body` with the value of a variable put in its place where it decides which elements are
    accessed. Of other variables the accesses in their value count once: values of a chain, each of
    which reads the one before twice, would double at every step."""
    return substitute(body, {var: value}) if var in _deciding(body) else body


def _deciding(body: Node) -> set[expr.Var]:
    """Return the variables that places, conditions and ranges in `body` depend on, through others
    that it binds, too."""
    nodes = list(walk(body))
    found: set[expr.Var] = set()
    for n in nodes:
        match n:
            case loops.BufferLoad(buffer, indices) | loops.BufferStore(buffer, _, indices):
                found.update(symbols_in((buffer, indices)))
            case expr.Call(_, "if_then_else", (condition, *_)) | loops.IfThenElse(condition):
                found.update(symbols_in(condition))
            case loops.For(_, low, extent):
                found.update(symbols_in((low, extent)))
            case loops.BlockRealize(values, predicate):
                found.update(symbols_in((values, predicate)))
            case loops.Block():
                regions = (n.reads, n.writes, n.match_buffers)
                found.update(symbols_in((n.iter_vars, n.alloc_buffers, regions)))
            case _:
                pass
    for n in reversed(nodes):  # inner ones first
        if isinstance(n, expr.Let | loops.LetStmt) and n.var in found:
            found.update(symbols_in(n.value))
    return found
