"""Kernels without reductions: everything inlined into the last block, a few neighbours per thread.

Injective kernels (gathers, transposes, slices) are among them. Each thread computes neighbours
along the last axis, as many as 16 bytes hold, so that dense operands move by wide accesses. Where
an operand lies along another axis, a block of threads copies a square of it into shared memory,
reading along one axis and writing along the other.
"""

from __future__ import annotations

from relaxlab.ir.dtypes import bytes_of
from relaxlab.ir.expr import Var
from relaxlab.ir.facts import Facts
from relaxlab.ir.loops import Block, BufferLoad, BufferStore, For, While
from relaxlab.ir.node import walk
from relaxlab.schedule.rules.base import (
    axis_loops,
    blocks_of,
    constant,
    extent_of,
    inline_producers,
)
from relaxlab.schedule.rules.context import Context
from relaxlab.schedule.rules.decisions import TILE_SIDE, VECTOR_WIDTH
from relaxlab.schedule.rules.elementwise import not_spatial
from relaxlab.schedule.rules_gpu.base import bind_blocks, bind_flat, extents_of, unroll_all
from relaxlab.schedule.rules_gpu.fallback import bind_outer
from relaxlab.schedule.schedule import Schedule

SQUARE = 32
"""Rows and columns of the smallest square that is transposed: the lanes of a warp."""
SIDE = 64
"""Rows and columns of a square that is transposed, mostly: sixteen elements for each of 256
threads, whose loads are under way together."""


def apply(sch: Schedule, context: Context) -> Schedule | str:
    """Inline, then spread each remaining block over all its points."""
    reason = not_spatial(sch)
    if reason is not None:
        return reason
    inline_producers(sch)
    facts = context.target.facts
    for block in blocks_of(sch.func):
        nest = sch.get_loops(sch.get_block(block.name))
        if not nest:
            continue
        transposed = _transposed(block)
        if _has_inner_loops(block):
            sch = bind_outer(sch, block, facts)
        elif transposed is not None:
            _by_squares(sch, block, transposed, facts)
        else:
            bind_flat(sch, nest, facts, _neighbours(sch, block, facts))
    return sch


def _transposed(block: Block) -> BufferLoad | None:
    """The load of an operand whose last axis is not that of the result, if both are long."""
    store = block.body
    if not isinstance(store, BufferStore) or not block.iter_vars:
        return None
    extents = {it.var: constant(it.dom.extent) or SQUARE for it in block.iter_vars}
    if store.indices != tuple(extents):
        return None
    *_, last = extents
    for load in (n for n in walk(store.value) if isinstance(n, BufferLoad)):
        *others, along = load.indices or (last,)
        if not isinstance(along, Var):
            continue
        # Every axis at most once, and nothing else: a square of the result is one of the operand.
        plain = set(load.indices) <= set(extents) and len(set(load.indices)) == len(load.indices)
        if plain and last in others and min(extents[last], extents[along]) >= SQUARE:
            return load
    return None


def _by_squares(sch: Schedule, block: Block, load: BufferLoad, facts: Facts) -> None:
    """Copy squares of a transposed operand into shared memory, in rows of an odd number of words,
    so that neither the reads nor the writes of a warp meet in a bank."""
    rv = sch.get_block(block.name)
    number = next(i for i, r in enumerate(block.reads) if r.buffer is load.buffer)
    axes = [it.var for it in block.iter_vars]
    nest = axis_loops(sch, rv)
    at, last = next(i for i, v in enumerate(axes) if v is load.indices[-1]), len(axes) - 1
    sizes = [constant(extent_of(sch, loop)) for loop in (nest[at], nest[last])]
    side = TILE_SIDE.where(lambda n: all(s is None or s >= n for s in sizes) or n == SQUARE)
    side = side.at_most(sch, SIDE, block.name)
    copy = sch.cache_read(rv, number, "shared")
    row, row_in = sch.split(nest[at], factors=[None, side])
    col, col_in = sch.split(nest[last], factors=[None, side])
    outer = [loop for i, loop in enumerate(nest) if i not in (at, last)]
    sch.reorder(*outer, row, col, row_in, col_in)
    sch.compute_at(copy, col, preserve_unit_loops=True)
    word = max(1, facts.bank_bytes // bytes_of(load.dtype))
    sch.storage_align(copy, 0, -2, 2 * word, word)
    copied = sch.get_loops(copy)[-len(load.indices) :]
    moves = ((copied[load.indices.index(axes[last])], copied[-1]), (row_in, col_in))
    for (down, along), length in zip(moves, sizes, strict=True):
        # Threads move words of 16-bit elements, where rows have a whole number of these.
        width = 1 if length is None or length % word else min(word, side // facts.warp)
        turns, y = sch.split(down, factors=[None, facts.warp // 4])
        parts, x, lane = sch.split(along, factors=[None, facts.warp, width])
        sch.reorder(turns, parts, y, x, lane)
        sch.bind(y, "threadIdx.y")
        sch.bind(x, "threadIdx.x")
        sch.vectorize(lane)
        unroll_all(sch, turns, parts)
    bind_blocks(sch, [*outer, row, col], facts)
    sch.compact_buffers()


def _has_inner_loops(block: Block) -> bool:
    """True if one iteration loops or has buffers of its own."""
    loops_inside = any(isinstance(n, For | While) for n in walk(block.body))
    return loops_inside or bool(block.alloc_buffers)


def _neighbours(sch: Schedule, block: Block, facts: Facts) -> int:
    """Return the elements per thread: at most as many of the widest dtype as an access has, and so
    many that they divide a constant last axis."""
    dtypes = [r.buffer.dtype for r in (*block.reads, *block.writes)]
    count = facts.vector_bits // 8 // max(bytes_of(d) for d in dtypes)
    last = constant(extents_of(block)[-1]) if block.iter_vars else None
    fitting = VECTOR_WIDTH.where(lambda n: n == 1 or (n <= count and (last or 0) % n == 0))
    return fitting.at_most(sch, count, block.name)
