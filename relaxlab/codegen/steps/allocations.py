"""plan_allocations: buffers where they are used."""

from __future__ import annotations

from relaxlab.ir.loops import Block, For, PrimFunc
from relaxlab.ir.node import Node, rewrite
from relaxlab.schedule.compact import allocated_in_loop, innermost_loop
from relaxlab.schedule.regions import refreshed, without_alloc
from relaxlab.schedule.tree import all_blocks


def plan_allocations(func: PrimFunc) -> PrimFunc:
    """The function with each buffer allocated in the innermost loop in an iteration of which it is
    filled before it is read."""
    if not any(block.alloc_buffers for block in all_blocks(func)):
        return func
    for owner in all_blocks(func):
        for buffer in owner.alloc_buffers:
            loop = innermost_loop(func, buffer)
            if isinstance(loop, For):
                func = without_alloc(func, buffer)
                func = allocated_in_loop(func, loop.loop_var, buffer)
    return rewrite(func, _declared)


def _declared(n: Node) -> Node | None:
    """A block that declares what it accesses, where it declares nothing."""
    if not isinstance(n, Block) or n.name == "root" or not n.alloc_buffers:
        return None
    return None if n.reads or n.writes or n.iter_vars else refreshed(n)
