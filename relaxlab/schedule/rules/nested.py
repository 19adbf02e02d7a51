"""Kernels written by tiles: an outer block whose iterations are independent, and inside it blocks
over private buffers, one after the other or in a loop (attention with a running maximum).

An iteration of the outer block is a unit of work for a thread. The blocks inside stay where they
are; each is made of vectors along its last axis, sums of products in registers.
"""

from __future__ import annotations

from relaxlab.ir.loops import Block, BlockRealize, For, PrimFunc, Stmt
from relaxlab.ir.node import walk
from relaxlab.ir.target import Target
from relaxlab.schedule.compact import compact_buffers
from relaxlab.schedule.rules.base import (
    block_loops,
    blocks_of,
    constant,
    extent_of,
    is_spatial,
    reduce_by_lanes,
    split_vector,
    sum_of_products,
)
from relaxlab.schedule.schedule import BlockRV, LoopRV, Schedule

REGISTERS = 16
"""Vectors of sums at once: with what they are made of, they fit the 32 vector registers."""
UNROLLED = 16
"""Rows of a small block that are unrolled at most."""


def outer_block(func: PrimFunc) -> Block | None:
    """The block of the tiles: spatial, alone in the root block, with blocks over its own private
    buffers inside. None where the function is not written so."""
    root = func.body
    if not isinstance(root, BlockRealize):
        return None
    inner: Stmt = root.block.body
    while isinstance(inner, For):
        inner = inner.body
    if not isinstance(inner, BlockRealize) or not is_spatial(inner.block):
        return None
    block = inner.block
    holds = any(isinstance(n, BlockRealize) for n in walk(block.body))
    return block if holds and block.alloc_buffers else None


def apply(func: PrimFunc, target: Target) -> PrimFunc | None:
    """Fits a function whose body is one such nest."""
    outer = outer_block(func)
    if outer is None:
        return None
    sch = Schedule(func)
    lanes = target.lanes("float32")
    for block in blocks_of(func):
        rv = sch.get_block(block.name)
        if is_spatial(block):
            _elementwise(sch, rv, lanes)
        elif sum_of_products(block) is not None:
            _product(sch, rv, lanes)
        else:
            reduce_by_lanes(sch, rv, block_loops(sch, rv)[1], lanes)
    nest = sch.get_loops(sch.get_block(outer.name))
    sch.parallel(sch.fuse(*nest) if len(nest) > 1 else nest[0])
    return compact_buffers(sch.func)


def _size(sch: Schedule, loop: LoopRV) -> int:
    return constant(extent_of(sch, loop)) or 0


def _elementwise(sch: Schedule, rv: BlockRV, lanes: int) -> None:
    """Vectors along the last of the block's axes, if it has enough elements."""
    loops, _ = block_loops(sch, rv)
    if not loops or _size(sch, loops[-1]) % lanes:
        return
    split_vector(sch, loops[-1], lanes, unroll=_size(sch, loops[-1]) <= UNROLLED * lanes)


def _product(sch: Schedule, rv: BlockRV, lanes: int) -> None:
    """Rows by vectors of columns in registers over the whole reduction."""
    (row, column), (depth,) = block_loops(sch, rv)
    rows, vectors = _size(sch, row), _size(sch, column) // lanes
    if vectors * lanes != _size(sch, column):
        return
    fitting = (n for n in range(2, vectors + 1) if vectors % n == 0 and n * rows <= REGISTERS)
    at_once = max(fitting, default=1)
    part, column = sch.split(column, factors=[None, at_once * lanes])
    sch.reorder(part, depth, row, column)
    init = sch.decompose_reduction(rv, depth)
    for one in (init, rv):
        *_, row, column = sch.get_loops(one)
        split_vector(sch, column, lanes, unroll=True)
        sch.unroll(row)
