"""Kernels without reductions: everything inlined into the last block, a few neighbours per thread.

Injective kernels (gathers, transposes, slices) are among them. Each thread computes neighbours
along the last axis, as many as 16 bytes hold, so that dense operands move by wide accesses.
"""

from __future__ import annotations

from relaxlab.ir.dtypes import bytes_of
from relaxlab.ir.facts import Facts
from relaxlab.ir.loops import Block, For, While
from relaxlab.ir.node import walk
from relaxlab.schedule.rules.base import blocks_of, constant, inline_producers
from relaxlab.schedule.rules.context import Context
from relaxlab.schedule.rules.decisions import VECTOR_WIDTH
from relaxlab.schedule.rules.elementwise import not_spatial
from relaxlab.schedule.rules_gpu.base import bind_flat, extents_of
from relaxlab.schedule.rules_gpu.fallback import bind_outer
from relaxlab.schedule.schedule import Schedule


def apply(sch: Schedule, context: Context) -> Schedule | str:
    """Inline, then spread each remaining block over all its points."""
    reason = not_spatial(sch)
    if reason is not None:
        return reason
    inline_producers(sch)
    facts = context.target.facts
    for block in blocks_of(sch.func):
        nest = sch.get_loops(sch.get_block(block.name))
        if not nest:
            continue
        if _has_inner_loops(block):
            sch = bind_outer(sch, block, facts)
        else:
            bind_flat(sch, nest, facts, _neighbours(sch, block, facts))
    return sch


def _has_inner_loops(block: Block) -> bool:
    """True if one iteration loops or has buffers of its own."""
    loops_inside = any(isinstance(n, For | While) for n in walk(block.body))
    return loops_inside or bool(block.alloc_buffers)


def _neighbours(sch: Schedule, block: Block, facts: Facts) -> int:
    """Return the elements per thread: at most as many of the widest dtype as an access has, and so
    many that they divide a constant last axis."""
    dtypes = [r.buffer.dtype for r in (*block.reads, *block.writes)]
    count = facts.vector_bits // 8 // max(bytes_of(d) for d in dtypes)
    last = constant(extents_of(block)[-1]) if block.iter_vars else None
    fitting = VECTOR_WIDTH.where(lambda n: n == 1 or (n <= count and (last or 0) % n == 0))
    return fitting.at_most(sch, count, block.name)
