"""fuse, for a loop whose extent depends on the loop around it: one loop over all rows.

Row f of the fused loop is row `f - A[s]` of segment `s`, where A are the prefix sums of the inner
loop's extents (the functions of_oif, f_o and f_i of CoRa, MLSys 2022, section 5.2). The blocks get
one axis over rows for two. Where a block only asks for `A[s] + j`, that is f, and no table is read;
else an index function has to give the segment of each row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

from relaxlab.ir.expr import PrimExpr, Var
from relaxlab.ir.loops import (
    BlockRealize,
    Buffer,
    For,
    IterVar,
    PrefixSums,
    PrimFunc,
    Range,
    SegmentIds,
    element,
)
from relaxlab.ir.node import Node, replace, walk
from relaxlab.ir.substitute import substitute
from relaxlab.schedule.error import ScheduleError
from relaxlab.schedule.ranges import ZERO, analyzer_at
from relaxlab.schedule.regions import STATED, refreshed, simplified
from relaxlab.schedule.tree import (
    LoopPlace,
    describe_block,
    describe_loop,
    find_loop,
    map_realizes,
    vars_in,
)

N = TypeVar("N", bound=Node)


def fuse_ragged(func: PrimFunc, outer: Var, inner: Var) -> tuple[PrimFunc, Var]:
    """Replace the loops over segments and over the rows of each by one loop over all rows. Raises
    ScheduleError where no index function has the prefix sums of the inner loop's extents."""
    around, place = find_loop(func, outer, "fuse"), find_loop(func, inner, "fuse")
    starts = _starts(func, around, place)
    end = analyzer_at(place).simplify(element(starts, around.loop.extent))
    row = Var(f"{outer.name}_{inner.name}_fused")
    ids = next((b for b in func.buffers for f in b.facts
                if isinstance(f, SegmentIds) and f.starts is starts), None)  # fmt: skip
    fused = _Fused(around, place, row, starts, ids, end)
    body = fused.at_row(map_realizes(place.loop.body, fused.realize), outer, inner, row)
    return around.replaced(For(row, ZERO, end, "serial", body, span=around.loop.span)), row


def _starts(func: PrimFunc, outer: LoopPlace, inner: LoopPlace) -> Buffer:
    """The index function with the prefix sums of the extents of the inner loop."""
    loop, extent = outer.loop, inner.loop.extent
    if loop.min != ZERO or inner.loop.min != ZERO:
        raise ScheduleError("fuse", describe_loop(inner.loop), "both loops begin at 0")
    an = analyzer_at(inner)
    for b in func.buffers:
        sums = next((f for f in b.facts if isinstance(f, PrefixSums)), None)
        if (
            sums is not None
            and an.prove_equal(sums.at(loop.loop_var), extent)
            and an.prove_equal(b.shape[0] - 1, loop.extent)
        ):
            return b
    raise ScheduleError(
        "fuse", describe_loop(inner.loop),
        "the extent does not depend on the loops outside, or an index function has its prefix sums",
        suggestion=f"pass them: facts=[T.prefix_sums(lambda {loop.loop_var.name}: {extent})]",
        about=(inner.loop.loop_var,),
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Fused:
    """The fused loop over `row`, in place of the loops over segments (`outer`) and over the rows of
    each (`inner`). starts: the first rows of segments. ids: the segments of rows, if there is such
    an index function. end: the number of rows."""

    outer: LoopPlace
    inner: LoopPlace
    row: Var
    starts: Buffer
    ids: Buffer | None
    end: PrimExpr

    def realize(self, r: BlockRealize) -> BlockRealize:
        """The block with one axis over all rows for the two over segments and rows."""
        segment, row = (self._axis(r, p.loop.loop_var) for p in (self.outer, self.inner))
        axis = Var(f"{segment.var.name}_{row.var.name}")
        axes, values = list[IterVar](), list[PrimExpr]()
        for iv, value in zip(r.block.iter_vars, r.iter_values, strict=True):
            if iv is segment:
                axes.append(IterVar(axis, Range(ZERO, self.end), "spatial", span=iv.span))
                values.append(self.row)
            elif iv is not row:
                axes.append(self.at_row(iv, segment.var, row.var, axis))
                values.append(value)
        # Regions are computed anew but for stated ones: they list reads of tables that vanish.
        stated = any(key in r.block.annotations for key in STATED.values())
        inside = replace(r.block, iter_vars=())
        inside = inside if stated else replace(inside, reads=(), writes=())
        inside = self.at_row(inside, segment.var, row.var, axis)
        block = refreshed(replace(inside, iter_vars=tuple(axes)))
        return replace(r, iter_values=tuple(values), block=block)

    def _axis(self, r: BlockRealize, loop: Var) -> IterVar:
        """The axis that is bound to a loop, and to nothing else."""
        pairs = zip(r.block.iter_vars, r.iter_values, strict=True)
        bound = [(iv, value) for iv, value in pairs if loop in vars_in(value)]
        if len(bound) == 1 and bound[0][1] == loop and bound[0][0].kind == "spatial":
            return bound[0][0]
        raise ScheduleError(
            "fuse", describe_block(r.block),
            f"a loop that is fused with one whose extent depends on it is one spatial axis of the "
            f"block, and so is the other; {loop.name} is not",
            about=(r.block.name, loop),
        )  # fmt: skip

    def at_row(self, root: N, segment: Var, row: Var, fused: Var) -> N:
        """`root` for row `fused` of all rows, where it was for a row of a segment."""
        owner = Var("segment")
        an = analyzer_at(self.outer)
        an.bind_range(owner, Range(ZERO, self.outer.loop.extent))
        an.bind_range(fused, Range(ZERO, self.end))
        place = fused - element(self.starts, owner)
        moved = simplified(substitute(root, {segment: owner, row: place}), an)
        if not any(n is owner for n in walk(moved)):
            return moved
        if self.ids is None:
            raise ScheduleError(
                "fuse", describe_loop(self.inner.loop),
                f"an index function gives the segment of each row, since more than rows of "
                f"{self.starts.name} is asked for",
                suggestion=f"pass one: facts=[T.segment_ids(lambda i: {self.starts.name}[i])]",
                about=(self.inner.loop.loop_var,),
            )  # fmt: skip
        return substitute(moved, {owner: element(self.ids, fused)})
