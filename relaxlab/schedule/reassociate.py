"""reassociate: the terms of one step of a reduction, before the accumulator."""

from __future__ import annotations

from relaxlab.ir.loops import Block, BufferStore, PrimFunc
from relaxlab.ir.node import replace
from relaxlab.schedule.combiners import terms_first
from relaxlab.schedule.error import ScheduleError
from relaxlab.schedule.order import require_reassociable
from relaxlab.schedule.tree import describe_block, find_block


def reassociate(func: PrimFunc, name: str) -> PrimFunc:
    """Let a block combine its accumulator with all other terms of a step at once.

    Raises ScheduleError where they are combined so already, or may not be in another order."""
    place = find_block(func, name, "reassociate")
    block = place.block
    store = with_terms_first(block)
    if store is None:
        raise ScheduleError(
            "reassociate", describe_block(block),
            "the block adds several terms to its element one after the other",
        )  # fmt: skip
    require_reassociable("reassociate", func, block)
    return place.replaced(replace(place.realize, block=replace(block, body=store)))


def with_terms_first(block: Block) -> BufferStore | None:
    """The store of a reduction whose terms are combined before the accumulator; None where they are
    so, or the block is no reduction."""
    if all(iv.kind == "spatial" for iv in block.iter_vars):
        return None
    store = block.body
    better = terms_first(store) if isinstance(store, BufferStore) else store
    return better if isinstance(better, BufferStore) and better is not store else None
