"""The list of rules for GPUs, in the order in which they are tried."""

from __future__ import annotations

import math

from relaxlab.ir.dtypes import bytes_of
from relaxlab.ir.loops import Block, PrimFunc
from relaxlab.ir.node import walk
from relaxlab.schedule.decisions import Decider
from relaxlab.schedule.ranges import constant
from relaxlab.schedule.rules.base import Rule, first_that_fits
from relaxlab.schedule.rules.context import Context


def schedule_kernel(
    name: str, func: PrimFunc, context: Context, decider: Decider | None = None
) -> PrimFunc:
    """The kernel scheduled by the first rule that fits; a scheduled kernel stays as it is."""
    shared = context.target.facts.shared

    def problem_of(func: PrimFunc) -> str | None:
        return _problem_of_private_buffers(func, shared)

    scheduled = first_that_fits(name, func, context, rules(), problem_of, decider)
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


def _problem_of_private_buffers(func: PrimFunc, room: int) -> str | None:
    """Return the reason why private buffers, and shared ones in `room` bytes, do not fit; None if
    they do."""
    total = 0
    for buffer in (b for n in walk(func.body) if isinstance(n, Block) for b in n.alloc_buffers):
        if buffer.scope == "global":
            continue
        sizes = [constant(d) for d in buffer.shape]
        if any(size is None for size in sizes):
            return f"the size of {buffer.name} is not constant"
        if buffer.scope == "shared":
            total += bytes_of(buffer.dtype) * math.prod(size or 0 for size in sizes)
    if total > room:
        return f"a block would take {total} bytes of shared memory"
    return None
