"""unsafe_zero_beyond: zeros in place of the last elements, where a copy goes beyond an array."""

from __future__ import annotations

from relaxlab.ir import expr
from relaxlab.ir.expr import PrimExpr, const
from relaxlab.ir.loops import BufferLoad, BufferStore, PrimFunc
from relaxlab.ir.node import replace
from relaxlab.schedule.error import ScheduleError
from relaxlab.schedule.ranges import analyzer_at
from relaxlab.schedule.regions import refreshed
from relaxlab.schedule.tree import describe_block, find_block

PRIMITIVE = "unsafe_zero_beyond"


def unsafe_zero_beyond(func: PrimFunc, name: str) -> PrimFunc:
    """Let a block of the form `X[…] = A[…, min(i, extent - 1), …]` store zero where i is beyond the
    extent of A, as copies by the hardware do."""
    place = find_block(func, name, PRIMITIVE)
    block, an = place.block, analyzer_at(place)
    load = block.body.value if isinstance(block.body, BufferStore) else None
    if not isinstance(load, BufferLoad):
        raise ScheduleError(PRIMITIVE, describe_block(block), "it is a copy, X[…] = A[…]")
    inside: list[PrimExpr] = []
    indices = list(load.indices)
    for n, (index, extent) in enumerate(zip(load.indices, load.buffer.shape, strict=True)):
        match index:
            case expr.Min(a, b) if an.prove_equal(b, extent - 1):
                indices[n] = a
            case expr.Min(a, b) if an.prove_equal(a, extent - 1):
                indices[n] = b
            case _:
                continue
        inside.append(expr.LT(indices[n], extent))
    if not inside:
        return func
    there, zero = replace(load, indices=tuple(indices)), const(0, load.dtype)
    value = expr.Call(load.dtype, "if_then_else", (expr.all_of(inside), there, zero))
    assert isinstance(block.body, BufferStore)
    changed = refreshed(replace(block, body=replace(block.body, value=value)))
    return place.replaced(replace(place.realize, block=changed))
