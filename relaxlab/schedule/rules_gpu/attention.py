"""Attention: a product, a softmax over its rows, and a product with the softmaxed rows.

A block of threads works on one query row of one head: its scores stay in shared memory where their
number has a bound that fits, else in a row of main memory.
"""

from __future__ import annotations

from relaxlab.ir.loops import PrimFunc
from relaxlab.ir.target import Target
from relaxlab.schedule.compact import compact_buffers
from relaxlab.schedule.rules.base import blocks_of, is_spatial, sum_of_products
from relaxlab.schedule.rules_gpu.rows import schedule_rows
from relaxlab.schedule.schedule import Schedule

_SHAPE = [False, True, False, True, False, False, True]
"""Which of product, epilogue, row maximum, weights, their sum, product, epilogue are spatial."""


def apply(func: PrimFunc, target: Target) -> PrimFunc | None:
    """Fits exactly these seven blocks, the results' axes being batch, row, head and feature."""
    blocks = blocks_of(func)
    if [is_spatial(b) for b in blocks] != _SHAPE:
        return None
    products = [sum_of_products(b) is not None for b in blocks]
    if not products[0] or products[4] == products[5] or len(blocks[-1].iter_vars) != 4:
        return None
    sch = Schedule(func)
    names = [b.name for b in blocks]
    rows = sch.get_loops(sch.get_block(names[-1]))[:3]
    for name in reversed(names[:-1]):
        sch.compute_at(sch.get_block(name), rows[-1], preserve_unit_loops=True)
    schedule_rows(sch, names, rows)
    return compact_buffers(sch.func)
