"""Kernels written by tiles (see `schedule/rules/nested.py`): a block of threads works on a tile.

The tile's private buffers become shared memory, and the points of each block inside are spread over
the threads, which do reductions alone.
"""

from __future__ import annotations

from relaxlab.ir.loops import Block
from relaxlab.schedule.rules.base import block_loops, blocks_of
from relaxlab.schedule.rules.context import Context
from relaxlab.schedule.rules.nested import NO_TILES, outer_block
from relaxlab.schedule.rules_gpu.base import fused, threads_per_block
from relaxlab.schedule.schedule import Schedule

THREADS = 128
"""Threads of a block: four warps share a tile of rows. Not measured."""


def apply(sch: Schedule, context: Context) -> Schedule | str:
    """Fits a function whose body is one such nest, each block having an axis to spread."""
    outer = outer_block(sch.func)
    if outer is None:
        return NO_TILES
    _into_shared_memory(sch, outer)
    threads = threads_per_block(sch, context.target.facts, THREADS)
    for block in blocks_of(sch.func):
        rv = sch.get_block(block.name)
        spatial, reduce = block_loops(sch, rv)
        if not spatial:
            return f"{block.name} has no axis to spread over threads"
        if reduce:
            sch.reorder(*spatial, *reduce)
        _, thread = sch.split(fused(sch, spatial), factors=[None, threads])
        sch.bind(thread, "threadIdx.x")
    sch.bind(fused(sch, sch.get_loops(sch.get_block(outer.name))), "blockIdx.x")
    sch.compact_buffers()
    return sch


def _into_shared_memory(sch: Schedule, outer: Block) -> None:
    private = {b.name for b in outer.alloc_buffers}
    for block in blocks_of(sch.func):
        for number, region in enumerate(block.writes):
            if region.buffer.name in private:
                private.remove(region.buffer.name)
                sch.set_scope(sch.get_block(block.name), number, "shared")
