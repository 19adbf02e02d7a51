"""Any kernel: threads over the outermost independent loop of each block, the rest as it is."""

from __future__ import annotations

from relaxlab.ir.loops import Block, PrimFunc
from relaxlab.ir.target import Target
from relaxlab.schedule.error import ScheduleError
from relaxlab.schedule.rules.base import blocks_of
from relaxlab.schedule.schedule import Schedule


def apply(func: PrimFunc, target: Target) -> PrimFunc:
    """Parallelise what can be, leave what cannot."""
    sch = Schedule(func)
    done: set[object] = set()
    for block in blocks_of(sch.func):
        _parallel_outermost(sch, block, done)
    return sch.func


def _parallel_outermost(sch: Schedule, block: Block, done: set[object]) -> None:
    for loop in sch.get_loops(sch.get_block(block.name)):
        var = sch.get(loop)
        if var in done:
            return
        done.add(var)
        try:
            sch.parallel(loop)
        except ScheduleError:
            continue
        return
