"""Helpers that the rules for GPUs share."""

from __future__ import annotations

from collections.abc import Sequence

from relaxlab.ir.expr import PrimExpr
from relaxlab.ir.facts import Facts
from relaxlab.ir.loops import Block
from relaxlab.schedule.rules.base import constant, extent_of
from relaxlab.schedule.schedule import LoopRV, Schedule

THREADS = 256
"""Threads of a block, where there is enough to do: 8 warps, of which an SM holds several blocks.
Not measured: no GPU was at hand."""


def threads_for(sch: Schedule, loop: LoopRV, warp: int) -> int:
    """Threads for a loop: as many as iterations in full warps, up to `THREADS`."""
    extent = constant(extent_of(sch, loop))
    return THREADS if extent is None else min(THREADS, max(warp, -(-extent // warp) * warp))


def fused(sch: Schedule, nest: Sequence[LoopRV]) -> LoopRV:
    """Fuse a perfect nest into one loop."""
    return sch.fuse(*nest) if len(nest) > 1 else nest[0]


def bind_flat(sch: Schedule, nest: Sequence[LoopRV], facts: Facts, vector: int = 1) -> None:
    """Spread a perfect nest over blocks of threads, `vector` neighbours per thread."""
    loop = fused(sch, nest)
    per_block = threads_for(sch, loop, facts.warp)
    if vector > 1:
        block, thread, lane = sch.split(loop, factors=[None, per_block, vector])
        sch.vectorize(lane)
    else:
        block, thread = sch.split(loop, factors=[None, per_block])
    sch.bind(block, "blockIdx.x")
    sch.bind(thread, "threadIdx.x")


def extents_of(block: Block) -> list[PrimExpr]:
    """The extents of the block's axes."""
    return [it.dom.extent for it in block.iter_vars]
