"""Kernels without reductions: everything inlined into the last block, one flat vector loop."""

from __future__ import annotations

from relaxlab.ir.loops import Block, For, PrimFunc, While
from relaxlab.ir.node import walk
from relaxlab.ir.target import Target
from relaxlab.schedule.rules.base import (
    blocks_of,
    constant,
    extent_of,
    inline_producers,
    is_spatial,
    output_dtype,
    vectorize_inner,
)
from relaxlab.schedule.schedule import Schedule

SMALL = 4096
"""Elements below which one thread is faster than a team."""


def apply(func: PrimFunc, target: Target) -> PrimFunc | None:
    """Inline, then per remaining block: vectorise the last axis, divide the rest among threads."""
    blocks = blocks_of(func)
    if not blocks or not all(is_spatial(b) for b in blocks):
        return None
    sch = Schedule(func)
    inline_producers(sch)
    for block in blocks_of(sch.func):
        rv = sch.get_block(block.name)
        nest = sch.get_loops(rv)
        if not nest:
            continue
        sizes = [constant(extent_of(sch, loop)) for loop in nest]
        outer = nest[-1]
        if not _keeps_state(block):
            outer = vectorize_inner(sch, outer, target.lanes(output_dtype(block)))
        work = 1
        for size in sizes:
            work *= size if size is not None else SMALL
        fused = sch.fuse(*nest[:-1], outer) if len(nest) > 1 else outer
        if work >= SMALL:
            sch.parallel(fused)
    return sch.func


def _keeps_state(block: Block) -> bool:
    """Whether one iteration loops or has buffers of its own: lanes would share its state."""
    loops_inside = any(isinstance(n, For | While) for n in walk(block.body))
    return loops_inside or bool(block.alloc_buffers)
