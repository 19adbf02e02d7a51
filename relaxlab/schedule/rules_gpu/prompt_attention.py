"""Attention of many queries, as of a prompt: a block of threads works on a tile of queries.

A square of threads makes the scores of a tile and of a chunk of positions, each thread a few rows
by a vector of positions in registers, and mixes the values, the same rows by vectors of features.
What there is per row, such as the running maximum, is in registers of all threads of a row, which
exchange it by shuffles; only weights go through shared memory.
"""

from __future__ import annotations

from dataclasses import dataclass

from relaxlab.ir.facts import Facts
from relaxlab.schedule.error import ScheduleError
from relaxlab.schedule.rules.attention import Attention
from relaxlab.schedule.rules.base import (
    block_loops,
    blocks_of,
    constant,
    extent_of,
    found_block,
    loops_inside,
)
from relaxlab.schedule.rules.nested import outer_block
from relaxlab.schedule.rules_gpu.base import fused, unroll_all
from relaxlab.schedule.schedule import LoopRV, Schedule

SIDE = 16
"""Threads along rows, and along positions and features: those of a row are half a warp."""


def schedule_tiles(sch: Schedule, found: Attention, facts: Facts) -> None:
    """Schedule the tiles of a fused attention. Raises ScheduleError where they do not fit."""
    features = constant(found.extent(found.feature)) or 0
    widths = (facts.vector_bits // 32 >> shift for shift in range(3))
    wide = next((w for w in widths if features % (SIDE * w) == 0), 0)
    outer = outer_block(sch.func)
    if outer is None or not facts.shuffles or not wide or not features:
        raise ScheduleError("schedule", "attention", f"{SIDE} threads share the features of a row")
    tile, weights = _Tile(sch, wide), _weights(found)
    for block in blocks_of(sch.func):
        if block.name in weights:
            sch.set_scope(sch.get_block(block.name), 0, "shared")
    for block in blocks_of(sch.func):
        tile.bind(block.name, found)
    sch.bind(fused(sch, sch.get_loops(sch.get_block(outer.name))), "blockIdx.x")
    sch.compact_buffers()


def _weights(found: Attention) -> set[str]:
    """The blocks of what is multiplied with values: their readers have other elements."""
    mixed = [b for b in found.cascade.reductions if found.feature in {i.var for i in b.iter_vars}]
    read = {r.buffer for b in mixed for r in b.reads}
    return {b.name for b in found.cascade.inside if b.writes[0].buffer in read}


@dataclass(frozen=True, slots=True)
class _Tile:
    """The blocks of a tile. `wide`: features that a thread has side by side."""

    sch: Schedule
    wide: int

    def bind(self, name: str, found: Attention) -> None:
        """Spread a block over the threads."""
        inside = {b.name for b in found.cascade.inside}
        spatial, reduce = block_loops(self.sch, self.sch.get_block(name))
        if len(spatial) == 1:
            self.rows(name)
        elif name not in inside:
            self.features(name)
        elif reduce:
            self.products(name)
        else:
            self.scores(name)

    def own(self, row: LoopRV) -> list[LoopRV]:
        """The loops over the rows of threads, and over the rows of a thread."""
        return self.sch.split(row, factors=[SIDE, None])

    def square(self, y: LoopRV, x: LoopRV) -> None:
        """Bind loops to the threads."""
        self.sch.bind(y, "threadIdx.y")
        self.sch.bind(x, "threadIdx.x")

    def scores(self, name: str) -> None:
        """Each thread has a vector of positions of each of its rows."""
        sch = self.sch
        row, position = sch.get_loops(sch.get_block(name))
        y, row = self.own(row)
        x, lane = sch.split(position, factors=[SIDE, None])
        sch.reorder(y, x, row, lane)
        self.square(y, x)
        unroll_all(sch, row, lane)

    def products(self, name: str) -> None:
        """Products of queries and keys, a vector of keys at a time."""
        sch = self.sch
        rv = sch.get_block(name)
        (row, position), (depth,) = block_loops(sch, rv)
        y, row = self.own(row)
        x, lane = sch.split(position, factors=[SIDE, None])
        sch.reorder(y, x, depth, row, lane)
        first = sch.decompose_reduction(rv, depth)
        self.square(y, x)
        unroll_all(sch, row, *loops_inside(sch, first, x))
        sch.vectorize(lane)
        if constant(extent_of(sch, depth)) is not None:
            _, inner = sch.split(depth, factors=[None, 8])
            sch.unroll(inner)

    def features(self, name: str) -> None:
        """Each thread has vectors of features of each of its rows."""
        sch = self.sch
        rv = sch.get_block(name)
        (row, feature), reduce = block_loops(sch, rv)
        y, row = self.own(row)
        turn, x, lane = sch.split(feature, factors=[None, SIDE, self.wide])
        sch.reorder(y, x, *reduce, turn, row, lane)
        first = sch.decompose_reduction(rv, reduce[0]) if reduce else None
        self.square(y, x)
        unroll_all(sch, turn, row)
        if first is None:
            sch.unroll(lane)
        else:
            sch.vectorize(lane)
            unroll_all(sch, *loops_inside(sch, first, x))

    def rows(self, name: str) -> None:
        """All threads of a row have its values in registers; terms are summed up by each thread,
        then across threads."""
        sch = self.sch
        rv = sch.get_block(name)
        (row,), reduce = block_loops(sch, rv)
        if not reduce:
            y, row = self.own(row)
            sch.bind(y, "threadIdx.y")
            sch.unroll(row)
            return
        x, _ = sch.split(reduce[0], factors=[SIDE, None])
        partial = sch.rfactor(x, found_block(sch, rv).writes[0].buffer.ndim)
        sch.set_scope(partial, 0, "local")
        (row, x), lanes = block_loops(sch, partial)
        y, row = self.own(row)
        sch.reorder(y, x, row, *lanes)
        self.square(y, x)
        unroll_all(sch, row, *lanes)
        (row,), (x,) = block_loops(sch, rv)
        y, row = self.own(row)
        self.square(y, x)
        sch.unroll(row)
