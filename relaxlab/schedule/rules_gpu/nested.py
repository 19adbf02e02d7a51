"""Kernels written by tiles (see `schedule/rules/nested.py`): a block of threads works on a tile.

The tile's private buffers become shared memory, and the points of each block inside are spread over
the threads, which do reductions alone.
"""

from __future__ import annotations

from relaxlab.ir.loops import Block, PrimFunc
from relaxlab.ir.node import replace
from relaxlab.ir.substitute import substitute
from relaxlab.ir.target import Target
from relaxlab.schedule.compact import compact_buffers
from relaxlab.schedule.rules.base import block_loops, blocks_of
from relaxlab.schedule.rules.nested import outer_block
from relaxlab.schedule.rules_gpu.base import fused
from relaxlab.schedule.schedule import Schedule

THREADS = 128
"""Threads of a block: four warps share a tile of rows. Not measured."""


def apply(func: PrimFunc, target: Target) -> PrimFunc | None:
    """Fits a function whose body is one such nest, each block having an axis to spread."""
    outer = outer_block(func)
    if outer is None:
        return None
    sch = Schedule(_in_shared_memory(func, outer))
    for block in blocks_of(func):
        rv = sch.get_block(block.name)
        spatial, reduce = block_loops(sch, rv)
        if not spatial:
            return None
        if reduce:
            sch.reorder(*spatial, *reduce)
        _, thread = sch.split(fused(sch, spatial), factors=[None, THREADS])
        sch.bind(thread, "threadIdx.x")
    sch.bind(fused(sch, sch.get_loops(sch.get_block(outer.name))), "blockIdx.x")
    return compact_buffers(sch.func)


def _in_shared_memory(func: PrimFunc, outer: Block) -> PrimFunc:
    shared = {b: replace(b, scope="shared") for b in outer.alloc_buffers}
    return replace(func, body=substitute(func.body, buffers=shared))
