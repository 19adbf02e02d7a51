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
from relaxlab.ir.loops import Block, Buffer, BufferLoad, PrimFunc
from relaxlab.ir.node import walk
from relaxlab.ir.substitute import substitute, symbols_in
from relaxlab.schedule.ranges import by_data, distance
from relaxlab.schedule.rfactor import reduction_of
from relaxlab.schedule.rules.base import (
    COLUMNS,
    block_loops,
    blocks_of,
    constant,
    extent_of,
    inline_producers,
    is_spatial,
    loops_inside,
    output_dtype,
    separate_store,
    shuffle_columns,
    sum_of_products,
    vectorize_inner,
    where_allowed,
    with_joined_axes,
)
from relaxlab.schedule.rules.context import Context
from relaxlab.schedule.rules.elementwise import MAX_VECTORS
from relaxlab.schedule.schedule import BlockRV, LoopRV, Schedule

MOST_TERMS = 32
"""Terms of a window that are unrolled: 5 x 5 in an image, 3 x 3 x 3 in a volume."""
STRIDES = range(1, 5)
"""Distances of neighbouring results' terms at which vectors are loaded and shuffled."""
ROWS = range(2, 8)
"""The same where several reductions read one row after the other: columns, whose distance is one,
are left to the rule `columns`. Softmax of 4000 rows of 3 took 26 us by the rule `rows`, 9 so, of
rows of 8 29 both (EPYC with AVX-512)."""


def apply(sch: Schedule, context: Context) -> Schedule | str:
    """Fits one reduction over few terms, no sum of products, or several over the same short rows,
    and what is computed of their results. Neighbouring results read places at a constant distance.
    """
    return with_joined_axes(sch, _apply, context)


def _apply(sch: Schedule, context: Context) -> Schedule | str:
    inline_producers(sch)
    found = _windows(sch.func)
    if isinstance(found, str):
        return found
    *before, last = found
    store = separate_store(sch, last.name)
    (*outer, column), _ = block_loops(sch, sch.get_block(last.name))
    lanes = _lanes(last, context)
    tile, lane = sch.split(column, factors=[None, lanes])
    sch.reorder(*outer, tile, *block_loops(sch, sch.get_block(last.name))[1], lane)
    sch.reverse_compute_at(store, tile, preserve_unit_loops=True)
    for block in reversed(before):
        sch.set_scope(sch.get_block(block.name), 0, "local")
        sch.compute_at(sch.get_block(block.name), tile, preserve_unit_loops=True)
    for block in found:
        window = sch.get_block(block.name)
        (*_, lane), terms = block_loops(sch, window)
        sch.reorder(*terms, lane)
        first = sch.decompose_reduction(window, terms[0])
        for one in (first, window):
            sch.vectorize(sch.get_loops(one)[-1])
        for loop in terms:
            sch.unroll(loop)
    _vectorize_store(sch, store, tile, lanes)
    sch.parallel(sch.fuse(*outer) if len(outer) > 1 else (outer or [tile])[0])
    sch.compact_buffers()
    where_allowed(sch.round_up_vectors)
    return sch


def _vectorize_store(sch: Schedule, store: BlockRV, tile: LoopRV, lanes: int) -> None:
    """Make vectors of what is stored for a vector of results. Of short rows, as a softmax has, they
    are one of all rows, which those of a few columns, each computed by itself, are shuffled to.
    Longer rows have vectors of their own."""
    nest = loops_inside(sch, store, tile)
    count = math.prod(constant(extent_of(sch, loop)) or MAX_VECTORS * lanes for loop in nest)
    if count > MAX_VECTORS * lanes:
        vectorize_inner(sch, nest[-1], lanes)
        return
    if len(nest) > 1 and count // lanes in COLUMNS:
        shuffle_columns(sch, store, tile)
    else:
        sch.vectorize(sch.fuse(*nest) if len(nest) > 1 else nest[0])


def _windows(func: PrimFunc) -> list[Block] | str:
    """The reductions of a kernel, one after the other, or the reason why the rule is not for it."""
    blocks = blocks_of(func)
    reductions = [b for b in blocks if not is_spatial(b)]
    if not reductions or blocks[: len(reductions)] != reductions:
        return "it is not reductions followed by elementwise blocks"
    strides = STRIDES if len(reductions) == 1 else ROWS
    made: list[Buffer] = []
    for block in reductions:
        reason = _no_window(block, made, strides)
        if reason is not None:
            return reason
        made.append(block.writes[0].buffer)
    return reductions


def _no_window(block: Block, made: list[Buffer], strides: range) -> str | None:
    """Return the reason why a block is no reduction over a window, None if it is one. made: the
    results of reductions before it, which it may read at its own place."""
    terms = [constant(it.dom.extent) for it in block.iter_vars if it.kind != "spatial"]
    count = math.prod(MOST_TERMS + 1 if n is None else n for n in terms)
    reduced = {it.var for it in block.iter_vars if it.kind != "spatial"}
    factors = sum_of_products(block) or ()
    # Squares, and factors that all elements of a window share, make no product to be tiled.
    along = [f for f in dict.fromkeys(factors) if reduced.intersection(symbols_in(f.indices))]
    products = len(along) > 1
    if reduction_of(block) is None or products or not 1 < count <= MOST_TERMS:
        return f"{block.name} is no reduction over at most {MOST_TERMS} terms, or one of products"
    axes = [it.var for it in block.iter_vars if it.kind == "spatial"]
    read = [n for n in walk(block.body) if isinstance(n, BufferLoad)
            and n.buffer is not block.writes[0].buffer]  # fmt: skip
    own = [n for n in read if n.buffer in made]
    loads = [
        n for n in read
        if n not in own and not {*axes[-1:], *reduced}.isdisjoint(symbols_in(n.indices))
    ]  # fmt: skip
    # Elements at indices from data are gathered along any axis: interpolation at 20,000 points took
    # 231 us term by term, 57 as vectors of results.
    chosen = [n for n in loads if any(map(by_data, n.indices))] if (terms[-1] or 0) < 8 else []
    strided = axes and loads and all(
        n in chosen or _is_strided(n, axes[-1], strides) for n in loads
    )
    if not strided or any(list(n.indices) != axes for n in own):
        return f"{block.name}: neighbouring results read places at a constant distance"
    return None


def _is_strided(load: BufferLoad, column: Var, strides: range) -> bool:
    """True if neighbouring columns are one of some distances apart in memory, along the last
    dimension or one with few elements inside."""
    if any(map(by_data, load.indices)):
        *others, last = load.indices
        step = distance(substitute(last, {column: column + 1}), last)
        return column not in symbols_in(tuple(others)) and _is_one_of(strides, step)
    place, size = expr.const(0), expr.const(1)
    for index, dim in zip(reversed(load.indices), reversed(load.buffer.shape), strict=True):
        place, size = place + index * size, size * dim
    return _is_one_of(strides, distance(substitute(place, {column: column + 1}), place))


def _is_one_of(strides: range, step: PrimExpr) -> bool:
    return isinstance(step, expr.IntImm) and step.value in strides


def _lanes(block: Block, context: Context) -> int:
    """Return the lanes of a vector of results, no more than twice their number."""
    lanes = context.target.lanes(output_dtype(block))
    width = constant([it.dom.extent for it in block.iter_vars if it.kind == "spatial"][-1])
    while width is not None and lanes >= 2 * width > 0:  # any do where there are no results
        lanes //= 2
    return lanes
