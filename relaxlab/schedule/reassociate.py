"""reassociate: the terms of one step of a reduction, before the accumulator."""

from __future__ import annotations

from relaxlab.ir import expr
from relaxlab.ir.dtypes import is_uint
from relaxlab.ir.loops import Block, BufferLoad, BufferStore, PrimFunc
from relaxlab.ir.node import replace
from relaxlab.schedule.combiners import terms_first
from relaxlab.schedule.error import ScheduleError
from relaxlab.schedule.order import require_reassociable
from relaxlab.schedule.tree import describe_block, find_block


def reassociate(func: PrimFunc, name: str) -> PrimFunc:
    """Let a block combine its accumulator with all other terms of a step at once, and add what it
    would take away.

    Raises ScheduleError where they are combined so already, or may not be in another order."""
    place = find_block(func, name, "reassociate")
    block = place.block
    store = with_terms_first(block)
    if store is None:
        raise ScheduleError(
            "reassociate", describe_block(block),
            "the block adds several terms to its element one after the other, or takes some away",
        )  # fmt: skip
    require_reassociable("reassociate", func, block)
    return place.replaced(replace(place.realize, block=replace(block, body=store)))


def with_terms_first(block: Block) -> BufferStore | None:
    """The store of a reduction whose terms are combined before the accumulator, and added to it;
    None where they are so, or the block is no reduction."""
    store = block.body
    if all(iv.kind == "spatial" for iv in block.iter_vars) or not isinstance(store, BufferStore):
        return None
    better = terms_first(store)
    value, own = better.value, BufferLoad(store.buffer, store.indices)
    if isinstance(value, expr.Sub) and value.a == own and not is_uint(own.dtype):
        # LLVM makes a multiply-add with the opposite sign of it.
        return replace(better, value=own + value.b * expr.const(-1, own.dtype))
    return None if better is store else better
