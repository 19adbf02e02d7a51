"""Attention with rows as lanes, for queries of sequences of different lengths.

Scores of a tile are products of keys by queries, a vector of rows at a time. Keys and values are
read where they are, a row for each position: nothing is copied but the queries of a tile, steps
begin where sequences do, and maxima and sums over positions are made lane by lane.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from relaxlab.ir.loops import Block
from relaxlab.schedule.assume_finite import masked_product
from relaxlab.schedule.cascade import axes_of
from relaxlab.schedule.rules.base import block_loops, found_block, sum_of_products
from relaxlab.schedule.rules.context import Context
from relaxlab.schedule.rules.decisions import REGISTER_ROWS
from relaxlab.schedule.rules.nested import product, without_mask
from relaxlab.schedule.schedule import BlockRV, LoopRV, Schedule

POSITIONS = 16
"""Positions of a step, each with a sum: twice as many as a multiply-add has cycles of latency where
two begin in each."""
REST = 4
"""Positions or rows of a step where fewer are left than a whole one has."""


@dataclass(frozen=True, slots=True)
class Lanes:
    """The schedule of the blocks of a tile over rows and positions. dot: the products of queries
    and keys, of which operand number `queries` has the rows; inside: the names of all blocks over
    rows and positions."""

    context: Context
    dot: Block
    queries: int
    inside: tuple[str, ...]

    def turn(self, sch: Schedule) -> None:
        """Make rows the neighbours in what is stored for rows and positions."""
        for name in self.inside:
            sch.transform_layout(sch.get_block(name), ("write", 0), lambda i, j: (j, i))

    def schedule(self, sch: Schedule, rv: BlockRV) -> bool:
        """Schedule a block; False for one without positions. Raises ScheduleError where a step is
        refused."""
        block = found_block(sch, rv)
        if block.name == self.dot.name:
            self._scores(sch, rv)
            return True
        spatial, reduce = block_loops(sch, rv)
        if block.name in self.inside:
            sch.reorder(spatial[-1], spatial[-2])
            _vectorize(sch, rv)
        elif not reduce:
            return False
        elif len(axes_of(block)) > 1:
            self._mix(sch, rv)
        else:
            sch.reorder(*reduce, spatial[-1])
            _vectorize(sch, sch.decompose_reduction(rv, reduce[0]), rv)
        return True

    def _scores(self, sch: Schedule, rv: BlockRV) -> None:
        """Products in registers, from queries that are turned once for a chunk."""
        (*_, row, position), (depth,) = block_loops(sch, rv)
        sch.reorder(position, depth, row)
        chunk = sch.add_unit_loop(position)
        operands = [x.buffer for x in sum_of_products(found_block(sch, rv)) or ()]
        index = [r.buffer for r in found_block(sch, rv).reads].index(operands[self.queries])
        # Queries and keys are of one buffer where they are parts of one projection.
        number = self.queries if operands[0] is operands[1] else 0
        _vectorize(sch, sch.pack(rv, index, chunk, number))
        for one, step, inner in _in_steps(sch, self.dot.name, position, POSITIONS):
            *_, depth, row = sch.get_loops(one)
            sch.reorder(step, depth, inner, row)
            for part in (sch.decompose_reduction(one, depth), one):
                _vectorize(sch, part)
                sch.unroll(sch.get_loops(part)[-2])

    def _mix(self, sch: Schedule, rv: BlockRV) -> None:
        """Products with values: rows by features in registers."""
        if masked_product(found_block(sch, rv)) is not None:
            without_mask(sch, rv, self.context.target.lanes("float32"))
        row = block_loops(sch, rv)[0][-2]
        rows = REGISTER_ROWS.of(sch, 8)
        for one, *_ in _in_steps(sch, found_block(sch, rv).name, row, rows):
            product(sch, one, self.context)


def _vectorize(sch: Schedule, *blocks: BlockRV) -> None:
    for rv in blocks:
        sch.vectorize(sch.get_loops(rv)[-1])


def _in_steps(
    sch: Schedule, name: str, loop: LoopRV, most: int
) -> Iterator[tuple[BlockRV, LoopRV, LoopRV]]:
    """Cut a loop around a block into steps of `most` iterations, of `REST`, and single ones: one
    with a guard takes longer. Yields the block of each, the loop over steps and that in a step."""
    loops = [*sch.partition(loop, most)]
    loops[1:] = sch.partition(loops[1], REST)
    for part, size in zip(loops, (most, REST, 1), strict=True):
        step, inner = sch.split(part, factors=[None, size])
        yield sch.get_block(name), step, inner
        name += "_rest"
