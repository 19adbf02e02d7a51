"""Symbolic ranges: the span of an index while some loops run and the others are fixed."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from relaxlab.analysis.arith import Analyzer
from relaxlab.analysis.regions import relax_index
from relaxlab.ir import expr
from relaxlab.ir.expr import PrimExpr, Var
from relaxlab.ir.loops import (
    AssertStmt,
    Block,
    BlockRealize,
    Buffer,
    BufferLoad,
    BufferRegion,
    For,
    IterVar,
    PrimFunc,
    Range,
    Stmt,
)
from relaxlab.ir.node import NO_ATTRS, Attrs, Node, replace, walk
from relaxlab.ir.substitute import substitute, symbols_in
from relaxlab.schedule.bounds import RANGES, SIGNED, UPPER_BOUNDS
from relaxlab.schedule.error import ScheduleError
from relaxlab.schedule.tree import LoopPlace, Place, describe_loop, path_to, vars_in

ZERO = expr.const(0)
ONE = expr.const(1)


def distance(a: PrimExpr, b: PrimExpr) -> PrimExpr:
    """The first index less the second, simplified, whatever integers they are: those that data
    decides are often int32, loop variables int64."""
    if a.dtype != b.dtype:
        a, b = (e if e.dtype == "int64" else expr.Cast("int64", e) for e in (a, b))
    return Analyzer().simplify(a - b)


def constant(e: PrimExpr) -> int | None:
    """The value of a constant expression."""
    return e.value if isinstance(e, expr.IntImm) else None


def shape_analyzer(func: PrimFunc) -> Analyzer:
    """An analyzer that knows the symbols of the parameters' shapes, the declared bounds of these,
    ranges of scalar parameters, and what the function requires."""
    upper = func.attrs.get(UPPER_BOUNDS, NO_ATTRS)
    ranges = func.attrs.get(RANGES, NO_ATTRS)
    signed = func.attrs.get(SIGNED, ())
    # An analyzer learns facts of each element of an index function that it is asked about. With a
    # shared one, the kernel that a primitive makes would depend on questions of earlier ones, and
    # a replayed trace would make another kernel.
    if any(isinstance(p, Buffer) and p.facts for p in func.params):
        return _shape_analyzer(func.params, upper, ranges, signed, func.requires)
    return _shared.analyzer(func.params, upper, ranges, signed, func.requires).fork()


class _Shared(threading.local):
    """The analyzers of the functions that a thread schedules. Each primitive queries the loops
    of one function anew, and most of them are as they were for the one before."""

    def __init__(self) -> None:
        self.analyzer = lru_cache(maxsize=8)(_shape_analyzer)


def _shape_analyzer(
    params: tuple[Buffer | Var, ...],
    upper: Attrs,
    ranges: Attrs,
    signed: tuple[str, ...],
    requires: tuple[AssertStmt, ...],
) -> Analyzer:
    an = Analyzer()
    for v in symbols_in(tuple(p.shape for p in params if isinstance(p, Buffer))):
        if v.name not in signed:
            an.bind_shape(v, upper.get(v.name))
    for p in params:
        if isinstance(p, Var) and p.name in ranges:
            an.bind_range(p, ranges[p.name])
        elif isinstance(p, Var) and p.name in upper:
            an.bind(p, hi_inclusive=upper[p.name])
    for required in requires:
        an.assume(required.condition)
    return an


_shared = _Shared()


def analyzer_at(place: Place, preserve_unit_iters: bool = False) -> Analyzer:
    """An analyzer with the ranges of the loops and block axes around `place`; with
    `preserve_unit_iters`, the variables of loops of one iteration are not simplified away."""
    an = shape_analyzer(place.func)
    for s in place.path[:-1]:
        bind_stmt(an, s, preserve_unit_iters)
    return an


def analyzer_around(place: Place) -> Analyzer:
    """An analyzer with the ranges that hold in the enclosing block, also where the loops between it
    and `place` have no iterations."""
    return analyzer_at(Place(place.func, place.path[: place.scope_depth + 2]))


def analyzer_in(target: LoopPlace) -> Analyzer:
    """An analyzer with the ranges that hold inside one iteration of a loop."""
    an = analyzer_at(target)
    bind_stmt(an, target.loop)
    return an


def bind_loop(
    an: Analyzer, var: Var, first: PrimExpr, extent: PrimExpr, preserve_unit_iters: bool
) -> None:
    """Tell `an` the range of a loop; with `preserve_unit_iters`, a loop of one iteration as if it
    had a second one, so that its variable is not simplified away."""
    unit = preserve_unit_iters and extent == ONE
    an.bind_range(var, Range(first, expr.const(2) if unit else extent))


def bind_stmt(an: Analyzer, s: Stmt, preserve_unit_iters: bool = False) -> None:
    """Tell `an` the range of the variables that `s` defines, those of loops as `bind_loop` does."""
    match s:
        case For(var, lo, extent):
            bind_loop(an, var, lo, extent, preserve_unit_iters)
        case Block(_, iter_vars):
            for iv in iter_vars:
                an.bind_range(iv.var, iv.dom)
        case _:
            pass


def assume_iterations(an: Analyzer, place: Place) -> None:
    """Tell `an` that no loop and no block axis around `place` is empty."""
    for s in place.path[:-1]:
        match s:
            case For(_, _, extent):
                extents = [extent]
            case Block(_, iter_vars):
                extents = [iv.dom.extent for iv in iter_vars]
            case _:
                continue
        for extent in extents:
            an.assume(has_iterations(extent))


def require_constant_extents(primitive: str, loops: Iterable[For]) -> None:
    """Raise ScheduleError unless the loops start at 0 and have constant extents."""
    for loop in loops:
        if loop.min != ZERO or not isinstance(loop.extent, expr.IntImm):
            raise ScheduleError(
                primitive, describe_loop(loop), "the loop starts at 0 and has a constant extent",
                suggestion=f"split({loop.loop_var.name}, factors=[None, 8]) and reorder",
                about=(loop.loop_var,),
            )  # fmt: skip


def has_iterations(extent: PrimExpr) -> PrimExpr:
    """True for the extent of a loop that is not empty."""
    match extent:
        case expr.FloorDiv(total, expr.IntImm() as part):
            return expr.GE(total, part)
        case _:
            return expr.GE(extent, ONE)


@dataclass(frozen=True, slots=True)
class Span:
    """The integers from `lo` to `hi`, both included."""

    lo: PrimExpr
    hi: PrimExpr

    def extent(self, an: Analyzer) -> PrimExpr:
        """The number of integers, simplified; 0 where `hi` is known to be less than `lo`: 2 * i
        for an axis without iterations spans from 0 to -2."""
        count = an.simplify(self.hi - self.lo + 1)
        return ZERO if isinstance(count, expr.IntImm) and count.value < 0 else count


Env = Mapping[Var, Span | None]
"""The spans of the variables that run; None: nothing is known about their values."""

NOTHING: Env = {}


def loop_env(loops: Iterable[For], an: Analyzer, outer: Env = NOTHING) -> dict[Var, Span | None]:
    """The spans of the loops' variables, outermost first, while the variables of `outer` run.

    None where the bounds of a loop cannot be relaxed.
    """
    return _relaxed(((s.loop_var, Range(s.min, s.extent)) for s in loops), an, outer)


def instance_env(block: Block, an: Analyzer) -> dict[Var, Span | None]:
    """The spans of a block's axes over all instances, whatever other axes a domain depends on."""
    return _relaxed(((iv.var, iv.dom) for iv in block.iter_vars), an, NOTHING)


def _relaxed(
    ranges: Iterable[tuple[Var, Range]], an: Analyzer, outer: Env
) -> dict[Var, Span | None]:
    env: dict[Var, Span | None] = dict(outer)
    for var, r in ranges:
        lo = span_of(r.min, env, an)
        hi = span_of(r.min + r.extent - 1, env, an)
        known = lo is not None and hi is not None
        env[var] = Span(lo.lo, hi.hi) if known else None  # type: ignore[union-attr]
    return env


def axis_env(block: Block) -> dict[Var, Span | None]:
    """The spans of a block's axes over their whole domains."""
    return {iv.var: Span(iv.dom.min, iv.dom.min + iv.dom.extent - 1) for iv in block.iter_vars}


def binding_of(realize: BlockRealize) -> dict[Var, PrimExpr]:
    """The value of each axis of the block."""
    pairs = zip(realize.block.iter_vars, realize.iter_values, strict=True)
    return {iv.var: value for iv, value in pairs}


def span_of(e: PrimExpr, env: Env, an: Analyzer) -> Span | None:
    """The span of `e` while the variables of `env` run; None when nothing is known.

    The result does not mention variables of `env`. It may be wider than the exact span.
    """
    used = vars_in(e) & env.keys()
    if not used:
        return Span(e, e)
    ranges: dict[Var, tuple[PrimExpr, PrimExpr]] = {}
    for v in used:
        span = env[v]
        if span is None:
            return None
        ranges[v] = (span.lo, span.hi)
    bounds = relax_index(e, ranges, an)
    return None if bounds is None else Span(*bounds)


def relaxed_region(
    region: BufferRegion, binding: Mapping[Var, PrimExpr], env: Env, an: Analyzer
) -> tuple[Span, ...]:
    """Return the region that a block touches while the loops of `env` run: one span per dimension.

    Axes are replaced by their bindings first. A dimension that cannot be bounded, or whose index
    depends on loaded values, is whole.
    """
    spans: list[Span] = []
    for dim, r in zip(region.buffer.shape, region.region, strict=True):
        lo = span_of(an.index_form(substitute(r.min, binding)), env, an)
        hi = span_of(an.index_form(substitute(r.min + r.extent - 1, binding)), env, an)
        if lo is None or hi is None or by_data(r):
            spans.append(Span(ZERO, dim - 1))
        else:
            spans.append(Span(an.index_form(lo.lo), an.index_form(hi.hi)))
    return tuple(spans)


def by_data(n: Node) -> bool:
    """True if an index or a range depends on loaded values."""
    return any(isinstance(x, BufferLoad) for x in walk(n))


def union(a: Span, b: Span, an: Analyzer) -> Span:
    """The smallest span that holds both."""
    lo = _extreme(a.lo, b.lo, expr.LE, expr.Min, an)
    return Span(lo, _extreme(a.hi, b.hi, expr.GE, expr.Max, an))


def intersection(a: Span, b: Span, an: Analyzer) -> Span:
    """The integers in both."""
    lo = _extreme(a.lo, b.lo, expr.GE, expr.Max, an)
    return Span(lo, _extreme(a.hi, b.hi, expr.LE, expr.Min, an))


def _extreme(
    a: PrimExpr, b: PrimExpr, order: type[expr.CmpOp], hull: type[expr.BinaryOp], an: Analyzer
) -> PrimExpr:
    if an.prove(order(a, b)):
        return a
    return b if an.prove(order(b, a)) else expr.binary(hull, a, b)


def covers(outer: Span, inner: Span, an: Analyzer) -> bool:
    """True if `inner` provably lies within `outer`."""
    return bool(an.prove(expr.LE(outer.lo, inner.lo)) and an.prove(expr.GE(outer.hi, inner.hi)))


def reached(whole: Span, span: Span, env: Env, an: Analyzer) -> Range:
    """Return the values of an axis, of those in `whole`, that the span reaches in any iteration of
    the loops in `env`, as far as that is proved."""
    lo, hi = whole.lo, whole.hi
    first, last = span_of(span.lo, env, an), span_of(span.hi, env, an)
    if first is not None and an.prove(expr.GT(first.lo, lo)):
        lo = an.simplify(first.lo)
    if last is not None and an.prove(expr.LT(last.hi, hi)):
        hi = an.simplify(last.hi)
    return Range(lo, Span(lo, hi).extent(an))


def covers_inside(outer: Span, inner: Span, dim: PrimExpr, an: Analyzer) -> bool:
    """True if the part of `inner` inside a dimension of `dim` elements lies within `outer`."""
    below = an.prove(expr.LE(outer.lo, inner.lo)) or an.prove(expr.LE(outer.lo, ZERO))
    return bool(
        below and (an.prove(expr.GE(outer.hi, inner.hi)) or an.prove(expr.GE(outer.hi, dim - 1)))
    )


def spans_under(
    region: BufferRegion, realize: BlockRealize, target: LoopPlace, an: Analyzer
) -> tuple[Span, ...]:
    """Return the region that a block touches in one iteration of the target loop."""
    path = path_to(target.loop.body, lambda s: s is realize)
    assert path is not None
    inside = [s for s in path if isinstance(s, For)]
    return relaxed_region(region, binding_of(realize), loop_env(inside, an), an)


def values_taken(iv: IterVar, value: PrimExpr, an: Analyzer) -> IterVar:
    """The axis with its domain cut to the constant bounds of its value; unchanged where the domain
    or the bounds are not constant. The analyzer has the ranges of all variables in the value."""
    whole = Range(an.simplify(iv.dom.min), an.simplify(iv.dom.extent))
    first, extent = constant(whole.min), constant(whole.extent)
    low, high = an.bounds_of(value)
    if first is None or extent is None or low is None or high is None or low > high:
        return iv
    begin, end = max(first, low), min(first + extent - 1, high)
    if end < begin or (begin, end) == (first, first + extent - 1):
        return iv
    size = end - begin + 1
    return replace(iv, dom=Range(expr.const(begin), expr.const(size)))
