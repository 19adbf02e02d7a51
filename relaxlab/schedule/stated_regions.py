"""annotate_buffer_access and unsafe_hide_buffer_access: regions of a block that its author states
instead of those that its body shows."""

from __future__ import annotations

from collections.abc import Sequence

from relaxlab.analysis.index_map import IndexMap
from relaxlab.analysis.regions import access_regions
from relaxlab.ir import expr
from relaxlab.ir.expr import PrimExpr
from relaxlab.ir.loops import (
    Block,
    BufferLoad,
    BufferRegion,
    BufferStore,
    PrimFunc,
    Range,
)
from relaxlab.ir.node import replace, walk
from relaxlab.schedule.cache import buffer_of
from relaxlab.schedule.error import ScheduleError
from relaxlab.schedule.ranges import Span, analyzer_at, bind_stmt, covers
from relaxlab.schedule.regions import STATED
from relaxlab.schedule.tree import BlockPlace, describe_block, find_block


def annotate_buffer_access(
    func: PrimFunc, name: str, kind: str, index: int, begin: IndexMap, end: IndexMap
) -> PrimFunc:
    """Let the block's read or write region number `index` be that from `begin` to `end`, which are
    made of its axes.

    Where the indices say what is accessed, it has to be inside; where they come from data, or from
    arithmetic of floats, the statement counts.
    """
    primitive = "annotate_buffer_access"
    place = find_block(func, name, primitive)
    block = place.block
    buffer = buffer_of(block, kind, index, primitive)
    axes = tuple(iv.var for iv in block.iter_vars)
    first, after = begin.apply(axes), end.apply(axes)
    if not len(first) == len(after) == buffer.ndim:
        raise ScheduleError(
            primitive, describe_block(block),
            f"there is a range for each of the {buffer.ndim} dimensions of {buffer.name}",
            about=(buffer,),
        )  # fmt: skip
    an = analyzer_at(place)
    bind_stmt(an, block)
    ranges = tuple(Range(lo, an.simplify(hi - lo)) for lo, hi in zip(first, after, strict=True))
    stated = BufferRegion(buffer, ranges)
    _require_inside(place, kind, stated)
    regions = block.reads if kind == "read" else block.writes
    new = tuple(stated if i == index else r for i, r in enumerate(regions))
    numbers = tuple(sorted({*block.annotations.get(STATED[kind], ()), index}))
    block = replace(
        block, annotations=block.annotations.with_(**{STATED[kind]: numbers}),
        **{f"{kind}s": new},
    )  # fmt: skip
    return place.replaced(replace(place.realize, block=block))


def _require_inside(place: BlockPlace, kind: str, stated: BufferRegion) -> None:
    """Raise ScheduleError if a dimension in which all indices are known is not provably inside."""
    known = [all(map(_is_known, along)) for along in _indices(place.block, stated)]
    reads, writes = access_regions(place.block)
    an = analyzer_at(place)
    bind_stmt(an, place.block)
    for r in reads if kind == "read" else writes:
        pairs = zip(stated.region, r.region, strict=True) if r.buffer is stated.buffer else ()
        for dim, (a, b) in enumerate(pairs):
            if not known[dim]:
                continue
            outer, inner = (Span(x.min, x.min + x.extent - 1) for x in (a, b))
            if not covers(outer, inner, an):
                raise ScheduleError(
                    "annotate_buffer_access", describe_block(place.block),
                    f"the region holds all that the block accesses of {r.buffer.name}; in "
                    f"dimension {dim} that is from {inner.lo} to {inner.hi}",
                    about=(r.buffer,),
                )  # fmt: skip


def _indices(block: Block, stated: BufferRegion) -> list[list[PrimExpr]]:
    """The indices at which the block accesses the buffer of a region, for each dimension."""
    accesses = [n for n in walk(block) if isinstance(n, BufferLoad | BufferStore)]
    found = [n.indices for n in accesses if n.buffer is stated.buffer]
    return [[at[dim] for at in found] for dim in range(len(stated.region))]


def _is_known(index: PrimExpr) -> bool:
    """True for arithmetic of axes, loops and symbols alone."""
    return all(isinstance(n, expr.Var | expr.IntImm | expr.BinaryOp) for n in walk(index))


def unsafe_hide_buffer_access(
    func: PrimFunc, name: str, kind: str, indices: Sequence[int]
) -> PrimFunc:
    """Leave regions out of what the block declares to read or write; it accesses them as before.
    Steps that compute the regions of the block anew declare them again."""
    primitive = "unsafe_hide_buffer_access"
    place = find_block(func, name, primitive)
    block = place.block
    for i in indices:
        buffer_of(block, kind, i, primitive)
    regions = block.reads if kind == "read" else block.writes
    kept = [i for i in range(len(regions)) if i not in indices]
    stated: tuple[int, ...] = block.annotations.get(STATED[kind], ())
    numbers = tuple(new for new, old in enumerate(kept) if old in stated)
    block = replace(
        block, annotations=block.annotations.with_(**{STATED[kind]: numbers or None}),
        **{f"{kind}s": tuple(regions[i] for i in kept)},
    )  # fmt: skip
    return place.replaced(replace(place.realize, block=block))
