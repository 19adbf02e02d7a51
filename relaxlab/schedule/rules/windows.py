"""Reductions over short windows, such as pooling: vectors of neighbouring results.

The terms of a result are few, so that vectors of them would be mostly empty, and neighbouring
results read places that are a stride apart. A vector of results is in registers while the terms,
unrolled, are read: as a vector of neighbours each, every other of which is taken if the stride is
two.
"""

from __future__ import annotations

import math

from relaxlab.ir import expr
from relaxlab.ir.expr import PrimExpr, Var
from relaxlab.ir.loops import Block, BufferLoad, PrimFunc
from relaxlab.ir.node import walk
from relaxlab.ir.substitute import substitute, symbols_in
from relaxlab.schedule.ranges import by_data, distance
from relaxlab.schedule.rfactor import reduction_of
from relaxlab.schedule.rules.base import (
    block_loops,
    blocks_of,
    constant,
    inline_producers,
    is_spatial,
    output_dtype,
    separate_store,
    sum_of_products,
    where_allowed,
    with_joined_axes,
)
from relaxlab.schedule.rules.context import Context
from relaxlab.schedule.schedule import Schedule

MOST_TERMS = 32
"""Terms of a window that are unrolled: 5 x 5 in an image, 3 x 3 x 3 in a volume."""
MOST_STRIDE = 4
"""Distance of neighbouring results' terms up to which vectors are loaded and shuffled."""


def apply(sch: Schedule, context: Context) -> Schedule | str:
    """Fits one reduction over few terms, no sum of products, and what is computed of its results.
    Neighbouring results read places at a constant distance."""
    return with_joined_axes(sch, _apply, context)


def _apply(sch: Schedule, context: Context) -> Schedule | str:
    inline_producers(sch)
    block = _window(sch.func)
    if isinstance(block, str):
        return block
    window = sch.get_block(block.name)
    store = separate_store(sch, block.name)
    (*outer, column), terms = block_loops(sch, window)
    lanes = _lanes(block, context)
    tile, lane = sch.split(column, factors=[None, lanes])
    sch.reorder(*outer, tile, *terms, lane)
    sch.reverse_compute_at(store, tile, preserve_unit_loops=True)
    first = sch.decompose_reduction(window, terms[0])
    for one in (first, window, store):
        sch.vectorize(sch.get_loops(one)[-1])
    for loop in terms:
        sch.unroll(loop)
    sch.parallel(sch.fuse(*outer) if len(outer) > 1 else (outer or [tile])[0])
    sch.compact_buffers()
    where_allowed(sch.round_up_vectors)
    return sch


def _window(func: PrimFunc) -> Block | str:
    """The reduction of a kernel, or the reason why the rule is not for it."""
    blocks = blocks_of(func)
    reductions = [b for b in blocks if not is_spatial(b)]
    if len(reductions) != 1 or blocks[0] is not reductions[0]:
        return "it is not one reduction followed by elementwise blocks"
    block = reductions[0]
    terms = [constant(it.dom.extent) for it in block.iter_vars if it.kind != "spatial"]
    count = math.prod(MOST_TERMS + 1 if n is None else n for n in terms)
    reduced = {it.var for it in block.iter_vars if it.kind != "spatial"}
    factors = sum_of_products(block) or ()
    # A factor that all elements of a window share makes no product to be tiled.
    products = factors and all(reduced.intersection(symbols_in(f.indices)) for f in factors)
    if reduction_of(block) is None or products or not 1 < count <= MOST_TERMS:
        return f"{block.name} is no reduction over at most {MOST_TERMS} terms, or one of products"
    axes = [it.var for it in block.iter_vars if it.kind == "spatial"]
    read = [n for n in walk(block.body) if isinstance(n, BufferLoad)
            and n.buffer is not block.writes[0].buffer]  # fmt: skip
    loads = [n for n in read if not {*axes[-1:], *reduced}.isdisjoint(symbols_in(n.indices))]
    # Elements at indices from data are gathered along any axis: interpolation at 20,000 points took
    # 231 us term by term, 57 as vectors of results.
    chosen = [n for n in loads if any(map(by_data, n.indices))] if (terms[-1] or 0) < 8 else []
    if not axes or not loads or not all(n in chosen or _is_strided(n, axes[-1]) for n in loads):
        return f"{block.name}: neighbouring results read places at a constant distance"
    return block


def _is_strided(load: BufferLoad, column: Var) -> bool:
    """True if neighbouring columns are a short constant distance apart in memory, along the last
    dimension or one with few elements inside."""
    if any(map(by_data, load.indices)):
        *others, last = load.indices
        step = distance(substitute(last, {column: column + 1}), last)
        return column not in symbols_in(tuple(others)) and _is_short(step)
    place, size = expr.const(0), expr.const(1)
    for index, dim in zip(reversed(load.indices), reversed(load.buffer.shape), strict=True):
        place, size = place + index * size, size * dim
    return _is_short(distance(substitute(place, {column: column + 1}), place))


def _is_short(step: PrimExpr) -> bool:
    return isinstance(step, expr.IntImm) and 0 < step.value <= MOST_STRIDE


def _lanes(block: Block, context: Context) -> int:
    """Return the lanes of a vector of results, no more than twice their number."""
    lanes = context.target.lanes(output_dtype(block))
    width = constant([it.dom.extent for it in block.iter_vars if it.kind == "spatial"][-1])
    while width is not None and lanes >= 2 * width > 0:  # any do where there are no results
        lanes //= 2
    return lanes
