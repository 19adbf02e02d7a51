"""Products of quantised matrices: integer inner products per group, scaled and summed in float.

The kernel has a reduction over int8 products (`dot`, one int32 per group) whose consumer sums the
scaled groups. The lanes of a warp have a group of a row of weights each, which one access of 16
bytes loads of formats with four bits: they decode it in registers, multiply four bytes at a time
(`dp4a`) by what they load of the activations, for several rows of weights and of activations, and
add their sums across the warp.
"""

from __future__ import annotations

from dataclasses import dataclass

from relaxlab.schedule.order import keeps_order
from relaxlab.schedule.rules.base import (
    axis_loops,
    block_loops,
    constant,
    extent_of,
    found_block,
    loops_inside,
    separate_store,
    with_versions,
)
from relaxlab.schedule.rules.context import Context
from relaxlab.schedule.rules.decisions import (
    RESULTS_PER_BLOCK,
    THREAD_COLUMNS,
    THREAD_ROWS,
    THREADS_PER_RESULT,
)
from relaxlab.schedule.rules.dot_product import QuantisedProduct, find_quantised_product
from relaxlab.schedule.rules_gpu.base import fits_a_block, fused, unroll_all
from relaxlab.schedule.schedule import BlockRV, LoopRV, Schedule

INTRINSIC = "dp4a"
WORD = 4
"""Products that the instruction adds."""
WARPS = 4
"""Warps of a block. Not measured."""
COLUMNS = 2
"""Rows of weights whose results a warp adds together. For several rows of activations of 15 bits
there are as many for each of their parts: by 4096 x 14336, four rows are predicted to take 23 us on
an H200, 38 by two; of 8 bits 15 and 17."""
FEW_LANES = 8
"""Lanes that share a result at least, whatever there is to add."""
ROWS = 8
"""Most rows of activations that share what is decoded."""


def apply(sch: Schedule, context: Context) -> Schedule | str:
    """Fits a kernel with an int8 reduction whose result a second reduction sums."""
    facts = context.target.facts
    if not (facts.byte_dots and facts.shuffles):
        return "threads have no instruction for dot products of bytes"
    parts = find_quantised_product(sch.func)
    if isinstance(parts, str):
        return parts
    total = found_block(sch, sch.get_block(parts.total))
    if keeps_order(sch.func, total):
        return f"{parts.total} adds its groups in order"
    rows = total.iter_vars[0].dom.extent
    with_versions(
        sch, context, rows, [1], lambda one, most: _Product(one, context, parts).schedule(most)
    )
    return sch


@dataclass(frozen=True, slots=True)
class _Product:
    """The schedule of a product."""

    sch: Schedule
    context: Context
    parts: QuantisedProduct

    def schedule(self, most: int | None) -> Schedule:
        """Schedule it for at most so many rows of activations; None: any number."""
        sch, facts = self.sch, self.context.target.facts
        total = sch.get_block(self.parts.total)
        dots = [sch.get_block(name) for name in self.parts.dots]
        store = separate_store(sch, self.parts.total)
        i, n, group = axis_loops(sch, total)
        groups, columns = (constant(extent_of(sch, loop)) for loop in (group, n))
        rows = most or THREAD_ROWS.at_most(sch, min(ROWS, constant(extent_of(sch, i)) or ROWS))
        # Lanes beyond the number of groups would add nothing.
        lanes = THREADS_PER_RESULT.where(
            lambda n: n <= facts.warp and (groups is None or n < 2 * groups or n == FEW_LANES)
        ).at_most(sch, facts.warp)
        warps = RESULTS_PER_BLOCK.where(lambda n: fits_a_block(n * lanes, facts)).at_most(
            sch, WARPS * facts.warp // lanes
        )
        own = THREAD_COLUMNS.where(
            lambda n: n == 1 or (columns is not None and columns % (n * warps) == 0)
        ).at_most(sch, COLUMNS if rows == 1 else COLUMNS * len(dots))
        tile, i = sch.split(i, factors=[None, rows])
        col, warp, n = sch.split(n, factors=[None, warps, own])
        sch.reorder(col, tile, warp, i, n)
        sch.reverse_compute_at(store, warp, preserve_unit_loops=True)
        _, lane = sch.split(group, factors=[None, lanes])
        partial = sch.rfactor(lane, found_block(sch, total).writes[0].buffer.ndim)
        # No other lane reads a lane's partial sum: a register holds it.
        sch.set_scope(partial, 0, "local")
        self.lanes(partial, dots)
        *_, last = sch.get_loops(total)
        sch.bind(last, "threadIdx.x")
        *_, i, n, _ = sch.get_loops(total)
        unroll_all(sch, i, n)
        sch.bind(warp, "threadIdx.y")
        sch.bind(fused(sch, [col, tile]), "blockIdx.x")
        sch.compact_buffers()
        return sch

    def lanes(self, partial: BlockRV, dots: list[BlockRV]) -> None:
        """The sums of a lane: its groups one after the other."""
        sch = self.sch
        *_, i, n, lane = block_loops(sch, partial)[0]
        turns = block_loops(sch, partial)[1]  # none where each lane has one group
        sch.reorder(lane, *turns, i, n)
        init = sch.decompose_reduction(partial, *turns) if turns else None
        sch.bind(lane, "threadIdx.x")
        reads = found_block(sch, dots[0]).reads
        activations = next(k for k, r in enumerate(reads) if r.buffer.dtype == "int8")
        copy = sch.cache_read(dots[0], activations, "local", consumer_blocks=dots)
        for dot in reversed(dots):
            sch.compute_at(dot, n, preserve_unit_loops=True)
        if self.parts.decode:
            self.decoded(sch.get_block(self.parts.decode), (turns or [lane])[0])
        sch.compute_at(copy, i, preserve_unit_loops=True)
        *_, part, term = sch.get_loops(copy)
        unroll_all(sch, part)
        self.loaded(term)
        for dot in dots:
            sch.set_scope(dot, 0, "local")
            *_, term = sch.get_loops(dot)
            turns, word = sch.split(term, factors=[None, WORD])
            sch.decompose_reduction(dot, turns)
            unroll_all(sch, turns)
            sch.tensorize(word, INTRINSIC)
        unroll_all(sch, i, n, *(loops_inside(sch, init, lane) if init else ()))

    def decoded(self, decode: BlockRV, turn: LoopRV) -> None:
        """Decode the group of each row of weights in registers."""
        sch = self.sch
        sch.compute_at(decode, turn, preserve_unit_loops=True)
        sch.set_scope(decode, 0, "local")
        *_, n, _, term = sch.get_loops(decode)
        unroll_all(sch, n)
        self.loaded(term)

    def loaded(self, term: LoopRV) -> None:
        """Load as many bytes as an access has at a time."""
        most = self.context.target.facts.vector_bits // 8
        extent = constant(extent_of(self.sch, term)) or 1
        if extent > most:
            outer, term = self.sch.split(term, factors=[None, most])
            unroll_all(self.sch, outer)
        self.sch.vectorize(term)
