"""The list of rules for GPUs, in the order in which they are tried, and their common helpers."""

from __future__ import annotations

import math
from collections.abc import Sequence

from relaxlab.ir.dtypes import bytes_of
from relaxlab.ir.expr import PrimExpr
from relaxlab.ir.loops import Block, PrimFunc
from relaxlab.ir.node import walk
from relaxlab.ir.target import SHARED_BYTES, WARP
from relaxlab.schedule.decisions import Decider
from relaxlab.schedule.rules.base import Rule, constant, extent_of, first_that_fits
from relaxlab.schedule.rules.context import Context
from relaxlab.schedule.schedule import LoopRV, Schedule

THREADS = 256
"""Threads of a block, where there is enough to do: 8 warps, of which an SM holds several blocks.
Not measured: no GPU was at hand."""


def schedule_kernel(
    name: str, func: PrimFunc, context: Context, decider: Decider | None = None
) -> PrimFunc:
    """The kernel scheduled by the first rule that fits; a scheduled kernel stays as it is."""
    scheduled = first_that_fits(name, func, context, rules(), _problem_of_private_buffers, decider)
    assert scheduled is not None, "the rule fallback fits everything"
    return scheduled


def rules() -> tuple[tuple[str, Rule], ...]:
    """(name, rule), in the order in which they are tried."""
    from relaxlab.schedule.rules_gpu import attention, elementwise, fallback, matmul, nested, rows

    return (
        ("elementwise", elementwise.apply),
        ("attention", attention.apply),
        ("nested", nested.apply),
        ("matmul", matmul.apply),
        ("rows", rows.apply),
        ("fallback", fallback.apply),
    )


def _problem_of_private_buffers(func: PrimFunc) -> str | None:
    """Return the reason why shared and private buffers do not fit; None if they do."""
    total = 0
    for buffer in (b for n in walk(func.body) if isinstance(n, Block) for b in n.alloc_buffers):
        if buffer.scope == "global":
            continue
        sizes = [constant(d) for d in buffer.shape]
        if any(size is None for size in sizes):
            return f"the size of {buffer.name} is not constant"
        if buffer.scope == "shared":
            total += bytes_of(buffer.dtype) * math.prod(size or 0 for size in sizes)
    if total > SHARED_BYTES:
        return f"a block would take {total} bytes of shared memory"
    return None


def threads_for(sch: Schedule, loop: LoopRV, most: int = THREADS) -> int:
    """Threads for a loop: as many as iterations in full warps, up to `most`."""
    extent = constant(extent_of(sch, loop))
    return most if extent is None else min(most, max(WARP, -(-extent // WARP) * WARP))


def fused(sch: Schedule, nest: Sequence[LoopRV]) -> LoopRV:
    """Fuse a perfect nest into one loop."""
    return sch.fuse(*nest) if len(nest) > 1 else nest[0]


def bind_flat(sch: Schedule, nest: Sequence[LoopRV], vector: int = 1) -> None:
    """Spread a perfect nest over blocks of threads, `vector` neighbours per thread."""
    loop = fused(sch, nest)
    per_block = threads_for(sch, loop)
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
