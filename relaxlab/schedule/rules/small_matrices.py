"""Products of small matrices in batches: vectors of neighbouring results, whatever row they are in.

A row of four results fills a quarter of a vector, and what masks it takes longer than to multiply.
Lanes go through all results of as many matrices as fill whole vectors: what each of them reads is
then as far from what the first one reads in every step, so that loads of neighbours and constant
shuffles take the place of gathers. The terms, few, are unrolled.
"""

from __future__ import annotations

import math

from relaxlab.ir.loops import Block, BufferLoad, PrimFunc
from relaxlab.ir.node import walk
from relaxlab.ir.substitute import symbols_in
from relaxlab.schedule.ranges import by_data
from relaxlab.schedule.rfactor import reduction_of
from relaxlab.schedule.rules.base import (
    block_loops,
    blocks_of,
    constant,
    inline_producers,
    is_spatial,
    output_dtype,
    separate_store,
    where_allowed,
    with_joined_axes,
)
from relaxlab.schedule.rules.context import Context
from relaxlab.schedule.schedule import Schedule

MOST_VECTORS = 9
"""Vectors of a step: those of 16 matrices of 3 x 3."""
MOST_TERMS = 8
"""Terms whose places shuffles of few vectors find: 1000 matrices of 2 x 32 by 32 x 2 took 3.7 times
as long as row by row."""
MOST_PRODUCTS = 64
"""Vectors that a step multiplies, unrolled: 16 matrices of 6 x 6, nine vectors of six terms each,
compile in 0.3 s."""


def apply(sch: Schedule, context: Context) -> Schedule | str:
    """Fits one reduction over few terms whose results are small matrices of constant sizes, one for
    each place along one more axis, and what is computed of them."""
    return with_joined_axes(sch, _apply, context, units=False)


def _apply(sch: Schedule, context: Context) -> Schedule | str:
    inline_producers(sch)
    found = _small(sch.func, context)
    if isinstance(found, str):
        return found
    block, lanes = found
    product = sch.get_block(block.name)
    store = separate_store(sch, block.name)
    results, terms = block_loops(sch, product)
    step, lane = sch.split(sch.fuse(*results), factors=[None, lanes])
    sch.reorder(step, *terms, lane)
    sch.reverse_compute_at(store, step, preserve_unit_loops=True)
    first = sch.decompose_reduction(product, terms[0])
    sch.fuse(*sch.get_loops(store)[1:])
    for one in (first, product, store):
        sch.vectorize(sch.get_loops(one)[-1])
    for loop in terms:
        sch.unroll(loop)
    sch.parallel(step)
    sch.compact_buffers()
    where_allowed(sch.round_up_vectors)
    return sch


def _small(func: PrimFunc, context: Context) -> tuple[Block, int] | str:
    """The reduction of a kernel and the results of a step, or why the rule is not for it."""
    blocks = blocks_of(func)
    reductions = [b for b in blocks if not is_spatial(b)]
    if len(reductions) != 1 or blocks[0] is not reductions[0]:
        return "it is not one reduction followed by elementwise blocks"
    (block,) = reductions
    sizes = [constant(it.dom.extent) for it in block.iter_vars if it.kind == "spatial"]
    terms = [constant(it.dom.extent) for it in block.iter_vars if it.kind != "spatial"]
    if reduction_of(block) is None or len(sizes) != 3 or None in (*sizes[1:], *terms):
        return f"{block.name} makes no matrices of constant sizes of constant numbers of terms"
    loads = [n for n in walk(block.body) if isinstance(n, BufferLoad)]
    # Those of a window are neighbours along the row: 4 x 8 results of 4 channels by three places
    # took 1.9 times as long as by the rule `contraction`.
    if any(len(set(symbols_in(i))) > 1 or by_data(i) for n in loads for i in n.indices):
        return f"{block.name}: each index of what is multiplied follows one axis"
    results, count = math.prod(n or 0 for n in sizes[1:]), math.prod(n or 0 for n in terms)
    lanes = context.target.lanes(output_dtype(block))
    step = math.lcm(lanes, results)
    if (sizes[0] is not None and sizes[0] * results < 2 * step) or not (
        1 < (sizes[-1] or 0) <= lanes // 2
    ):
        return f"{block.name} makes few matrices, or their rows fill vectors"
    vectors = step // lanes
    if not 1 < count <= MOST_TERMS or vectors > MOST_VECTORS or vectors * count > MOST_PRODUCTS:
        return f"{block.name}: a step of whole matrices is at most {MOST_PRODUCTS} products"
    return block, step
