"""Any kernel: one thread per point of the independent outer loops of each block."""

from __future__ import annotations

from contextlib import suppress

from relaxlab.ir.facts import Facts
from relaxlab.ir.loops import Block, For
from relaxlab.schedule.error import ScheduleError
from relaxlab.schedule.rules.base import block_loops, blocks_of
from relaxlab.schedule.rules.context import Context
from relaxlab.schedule.rules_gpu.base import bind_flat
from relaxlab.schedule.schedule import LoopRV, Schedule


def apply(sch: Schedule, context: Context) -> Schedule | str:
    """Bind the loops that are independent; a single thread runs the others."""
    for block in blocks_of(sch.func):
        sch = bind_outer(sch, block, context.target.facts)
    return sch


def bind_outer(sch: Schedule, block: Block, facts: Facts) -> Schedule:
    """Bind as many of the outermost loops of the block as are independent of each other; return
    the schedule, or the copy of it, in which they are."""
    nest = sch.get_loops(sch.get_block(block.name))
    spatial = [sch.get(loop) for loop in block_loops(sch, sch.get_block(block.name))[0]]
    outer: list[LoopRV] = []
    for loop in nest:
        found = sch.get(loop)
        assert isinstance(found, For)
        if found.kind == "thread_binding":
            return sch
        if found not in spatial:
            break
        outer.append(loop)
    for count in range(len(outer), 0, -1):
        bound = sch.copy()
        with suppress(ScheduleError):
            bind_flat(bound, outer[:count], facts)
            return bound
    return sch
