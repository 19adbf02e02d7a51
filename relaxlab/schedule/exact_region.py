"""The region of a buffer that some loops provably write in full.

The region of a read may be taken larger than it is, that of a write may not: whatever other blocks
rely on must have been written. The proof is by iterator maps (`analysis.index_map`).
"""

from __future__ import annotations

from collections.abc import Sequence

from relaxlab.analysis.arith import Analyzer
from relaxlab.analysis.index_map import NotAnIterMap, detect_iter_map
from relaxlab.ir import expr
from relaxlab.ir.expr import PrimExpr, Var
from relaxlab.ir.loops import BlockRealize, BufferRegion, For, Range, Stmt
from relaxlab.ir.substitute import substitute
from relaxlab.schedule.ranges import ONE, ZERO, Span, bind_stmt, binding_of, by_data
from relaxlab.schedule.tree import LoopPlace, conjuncts, path_to, vars_in


def region_written(
    region: BufferRegion, realize: BlockRealize, target: LoopPlace, an: Analyzer
) -> tuple[Span, ...] | None:
    """Return the region that the block writes in one iteration of the target loop, one span per
    dimension; None if it may have gaps."""
    path = path_to(target.loop.body, lambda s: s is realize)
    assert path is not None
    spans = [Span(r.min, r.min if r.extent == ONE else r.min + r.extent - 1) for r in region.region]
    return exact_region(spans, path, an)


def exact_region(
    spans: Sequence[Span], path: Sequence[Stmt], an: Analyzer
) -> tuple[Span, ...] | None:
    """Return the union of `spans`, which depend on the loops and axes along `path`.

    None unless each of its elements is provably reached. Conditions that only keep an axis inside
    its domain do not count: there is nothing beyond.
    """
    ranges: dict[Var, Range] = {}
    table: dict[Var, PrimExpr] = {}
    conditions: list[PrimExpr] = []
    with an.scope():
        for s in path:
            bind_stmt(an, s)
            if isinstance(s, For):
                ranges[s.loop_var] = Range(substitute(s.min, table), substitute(s.extent, table))
            elif isinstance(s, BlockRealize):
                conditions += [substitute(c, table) for c in beyond_domain(s, an)]
                for iv, value in zip(s.block.iter_vars, s.iter_values, strict=True):
                    table[iv.var] = an.simplify(substitute(value, table))
        bounds: list[Span] = []
        for s in spans:
            lo = substitute(s.lo, table)
            bounds.append(Span(lo, lo if s.lo is s.hi else substitute(s.hi, table)))
        return _union(bounds, ranges, conditions, an)


def beyond_domain(realize: BlockRealize, an: Analyzer) -> list[PrimExpr]:
    """The conditions of the predicate that do more than keep the axes inside their domains."""
    given = conjuncts(realize.predicate)
    if not given:
        return []
    clips: set[PrimExpr] = set()
    values = binding_of(realize)
    for iv, value in zip(realize.block.iter_vars, realize.iter_values, strict=True):
        first, extent = substitute(iv.dom.min, values), substitute(iv.dom.extent, values)
        clips.add(an.simplify(expr.LT(value, first + extent)))
        clips.add(an.simplify(expr.GE(value, first)))
    found = [c for c in map(an.simplify, given) if c not in clips and not an.prove(c)]
    if not found:
        return []
    # An axis is inside its domain where the groups of neighbours that it was split into are.
    with an.assuming(expr.all_of(sorted(clips, key=str))):
        return [c for c in found if not an.prove(c)]


def _union(
    bounds: Sequence[Span],
    ranges: dict[Var, Range],
    conditions: list[PrimExpr],
    an: Analyzer,
) -> tuple[Span, ...] | None:
    ranges, conditions = _narrowed(ranges, conditions, an)
    running = ranges.keys()
    if any(not vars_in(c) & running for c in conditions):
        return None
    # Data may repeat an index and leave others out.
    if any(by_data(s.lo) or by_data(s.hi) for s in bounds):
        return None
    sizes: list[PrimExpr] = []
    firsts: list[PrimExpr] = []
    for s in bounds:
        piece = ONE if s.lo is s.hi else _whole_piece(an.simplify(s.hi - s.lo + 1), an)
        first = s.lo if piece == ONE else an.simplify(s.lo // piece)
        if piece != ONE and not an.prove_equal(first * piece, s.lo):
            return None
        # Pieces of several elements are counted in pieces: iterator maps are about single integers.
        sizes.append(piece)
        firsts.append(first)
    used = {v for e in (*firsts, *conditions) for v in vars_in(e)} & running
    if any(vars_in(r.extent) & running or r.min != ZERO for v, r in ranges.items() if v in used):
        return None
    if not used:
        return tuple(bounds)
    try:
        found = detect_iter_map(
            firsts, {v: r for v, r in ranges.items() if v in used}, expr.all_of(conditions), an
        )
    except NotAnIterMap:
        return None
    if found.padded:  # not every combination of the indices is reached
        return None
    return tuple(
        Span(an.simplify(base * size), an.simplify((base + extent) * size - 1))
        for base, extent, size in zip(found.bases, found.extents, sizes, strict=True)
    )


def _narrowed(
    ranges: dict[Var, Range], conditions: list[PrimExpr], an: Analyzer
) -> tuple[dict[Var, Range], list[PrimExpr]]:
    """Return the ranges of the loops, cut by conditions `v < end` on one loop variable, and the
    other conditions. A split that makes more iterations than there are leaves such conditions."""
    ranges, others = dict(ranges), list[PrimExpr]()
    for c in conditions:
        match c:
            case expr.LT(Var() as v, expr.IntImm(end)) if (
                end > 0 and v in ranges and ranges[v].min == ZERO
            ):
                extent = an.simplify(expr.Min(ranges[v].extent, c.b))
                ranges[v] = Range(ZERO, extent)
            case _:
                others.append(c)
    return ranges, others


def _whole_piece(size: PrimExpr, an: Analyzer) -> PrimExpr:
    """The size of a region; at the edge of its buffer it is shorter than elsewhere."""
    _, upper = an.bounds_of(size)
    return size if upper is None else expr.const(upper)
