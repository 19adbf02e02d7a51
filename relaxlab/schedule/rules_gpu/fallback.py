"""Any kernel: one thread per point of the independent outer loops of each block."""

from __future__ import annotations

from relaxlab.ir.loops import Block, For, PrimFunc
from relaxlab.ir.target import Target
from relaxlab.schedule.error import ScheduleError
from relaxlab.schedule.rules.base import block_loops, blocks_of
from relaxlab.schedule.rules_gpu.base import bind_flat
from relaxlab.schedule.schedule import LoopRV, Schedule


def apply(func: PrimFunc, target: Target) -> PrimFunc:
    """Bind the loops that are independent; a single thread runs the others."""
    sch = Schedule(func)
    for block in blocks_of(sch.func):
        bind_outer(sch, block)
    return sch.func


def bind_outer(sch: Schedule, block: Block) -> None:
    """Bind as many of the outermost loops of the block as are independent of each other."""
    nest = sch.get_loops(sch.get_block(block.name))
    spatial = [sch.get(loop) for loop in block_loops(sch, sch.get_block(block.name))[0]]
    outer: list[LoopRV] = []
    for loop in nest:
        found = sch.get(loop)
        assert isinstance(found, For)
        if found.kind == "thread_binding":
            return
        if found not in spatial:
            break
        outer.append(loop)
    while outer:
        before = sch.func
        try:
            bind_flat(sch, outer)
        except ScheduleError:
            sch.func = before
            outer.pop()
            continue
        return
