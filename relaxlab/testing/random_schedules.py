"""Random schedules: primitives drawn one after the other, for any loop function."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

from relaxlab.analysis.private_buffers import shared_private_buffer
from relaxlab.ir.dtypes import bits_of
from relaxlab.ir.expr import IntImm
from relaxlab.ir.facts import Facts
from relaxlab.ir.loops import IS_SCHEDULED, BlockRealize, Buffer, PrimFunc
from relaxlab.ir.module import Module
from relaxlab.ir.node import replace
from relaxlab.ir.substitute import substitute
from relaxlab.passes.base import module_pass
from relaxlab.schedule import Schedule, ScheduleError
from relaxlab.schedule.compact import compact_buffers
from relaxlab.schedule.tree import all_blocks
from relaxlab.testing.schedule_steps import random_step

STEPS = 6
"""Primitives that are tried per loop function; about half of them are refused."""
COLLIDING = "lanes of a vectorized loop store into one element"
"""Part of the one message by which code generation may refuse a random schedule: it does not find
out that a condition leaves one lane, where loops around the vectorized one have a part in it."""


@dataclass(frozen=True, slots=True)
class RandomOptions:
    """The seed that the schedules are drawn from."""

    seed: int = 0


@module_pass("schedule_at_random", RandomOptions)
def schedule_at_random(mod: Module, options: RandomOptions) -> Module:
    """Give loop functions that have no schedule yet a random one; those to which no primitive
    applied, or whose buffers have no place in memory then, are left to the rules."""
    updates: dict[str, PrimFunc] = {}
    for name, func in mod.items():
        if not isinstance(func, PrimFunc) or func.attrs.get(IS_SCHEDULED):
            continue
        sch, rng = Schedule(func), random.Random(f"{options.seed} {name}")
        for _ in range(STEPS):
            try:
                random_step(sch, rng)
            except ScheduleError:
                continue
        placed = with_buffers_placed(sch.func) if sch.func is not func else None
        if placed is not None:
            updates[name] = replace(placed, attrs=placed.attrs.with_(**{IS_SCHEDULED: True}))
    return mod.with_functions(updates)


def with_buffers_placed(func: PrimFunc) -> PrimFunc | None:
    """The function with private buffers only as large as one iteration needs, and those in main
    memory that several threads use or the stack of one cannot hold. None if main memory would be
    allocated within loops: code generation refuses that."""
    while True:
        compact = compact_buffers(func)
        wrong = {b.name for b in _allocated(compact) if b.scope != "global" and not _fits_stack(b)}
        if (shared := shared_private_buffer(compact.body)) is not None:
            wrong.add(shared.name)
        if not wrong:
            break
        moved = [b for b in _allocated(func) if b.name in wrong]
        func = substitute(func, buffers={b: replace(b, scope="global") for b in moved})
    root = compact.body.block if isinstance(compact.body, BlockRealize) else None
    inner = (b for block in all_blocks(compact) if block is not root for b in block.alloc_buffers)
    return None if any(b.scope == "global" for b in inner) else compact


def _allocated(func: PrimFunc) -> list[Buffer]:
    return [b for block in all_blocks(func) for b in block.alloc_buffers]


def _fits_stack(buffer: Buffer) -> bool:
    extents = [d.value for d in buffer.shape if isinstance(d, IntImm)]
    size = math.prod(extents) * bits_of(buffer.dtype) // 8
    return len(extents) == buffer.ndim and size <= Facts().stack // 4
