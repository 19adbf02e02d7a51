"""Products whose terms several blocks of threads share (split-K).

Each block leaves the sums of its part of the terms in main memory; a second launch adds those of
all parts, and computes what is behind the product.
"""

from __future__ import annotations

from relaxlab.ir.facts import Facts
from relaxlab.schedule.rules.base import axis_loops, block_loops, found_block, separate_store
from relaxlab.schedule.rules.decisions import SPLIT_TERMS, Choice
from relaxlab.schedule.rules_gpu.base import bind_flat, unroll_all
from relaxlab.schedule.schedule import BlockRV, Schedule


def fitting_parts(terms: int | None, step: int) -> Choice[int]:
    """The decision on the parts of so many terms, each of whole slices of `step`: none of padding
    alone, which no box of memory can be copied to."""

    def has_terms_for(parts: int) -> bool:
        slices = parts if terms is None else max(1, -(-terms // step))
        return (parts - 1) * -(-slices // parts) < slices

    return SPLIT_TERMS.where(has_terms_for)


def part_sums(sch: Schedule, product: BlockRV, reduce: int, parts: int) -> BlockRV:
    """Return the block that sums each part of the terms, along axis number `reduce`, by itself: its
    first axis is the part, its last one that of the terms. `product` adds the sums of the parts."""
    nest = axis_loops(sch, product)
    part, terms = sch.split(nest.pop(reduce), factors=[parts, None])
    sch.reorder(part, *nest, terms)
    return sch.rfactor(part, 0)


def add_parts(sch: Schedule, sums: BlockRV, facts: Facts) -> None:
    """Add the sums of all parts, and compute what is behind the product."""
    store = separate_store(sch, found_block(sch, sums).name)
    spatial, parts = block_loops(sch, sums)
    sch.reorder(*spatial, *parts)
    sch.reverse_compute_at(store, spatial[-1])
    sch.decompose_reduction(sums, parts[0])
    unroll_all(sch, *parts)
    bind_flat(sch, spatial, facts)
