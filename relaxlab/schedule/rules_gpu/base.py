"""Helpers that the rules for GPUs share."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from relaxlab.ir.dtypes import bytes_of
from relaxlab.ir.expr import PrimExpr
from relaxlab.ir.facts import Facts
from relaxlab.ir.loops import Block, BufferLoad, PrimFunc
from relaxlab.schedule.rules.base import (
    blocks_of,
    constant,
    extent_of,
    found_block,
    is_spatial,
    sum_of_products,
)
from relaxlab.schedule.rules.decisions import RESULTS_PER_THREAD, THREADS_PER_BLOCK
from relaxlab.schedule.schedule import BlockRV, LoopRV, Schedule

THREADS = 256
"""Threads of a block, where there is enough to do: 8 warps, of which an SM holds several blocks.
Not measured: no GPU was at hand."""


def fits_a_block(threads: int, facts: Facts) -> bool:
    """True if so many threads are full warps, and no more than a block can have."""
    return threads % facts.warp == 0 and threads <= facts.block_threads


def threads_per_block(
    sch: Schedule, facts: Facts, default: int = THREADS, about: str | None = None
) -> int:
    """Decide on the most threads of a block, or of one that computes block `about`."""
    return THREADS_PER_BLOCK.where(lambda n: fits_a_block(n, facts)).at_most(sch, default, about)


def _threads_for(sch: Schedule, loop: LoopRV, facts: Facts) -> int:
    """Threads for a loop: as many as iterations in full warps, up to those of a block."""
    extent, warp, most = constant(extent_of(sch, loop)), facts.warp, threads_per_block(sch, facts)
    return most if extent is None else min(most, max(warp, -(-extent // warp) * warp))


def fused(sch: Schedule, nest: Sequence[LoopRV]) -> LoopRV:
    """Fuse a perfect nest into one loop."""
    return sch.fuse(*nest) if len(nest) > 1 else nest[0]


def bind_flat(sch: Schedule, nest: Sequence[LoopRV], facts: Facts, vector: int = 1) -> None:
    """Spread a perfect nest over blocks of threads, `vector` neighbours per thread."""
    loop = fused(sch, nest)
    threads, turns = _threads_for(sch, loop, facts), RESULTS_PER_THREAD.of(sch, 1)
    inner = ([turns] if turns > 1 else []) + [threads] + ([vector] if vector > 1 else [])
    block, *rest = sch.split(loop, factors=[None, *inner])
    if vector > 1:
        sch.vectorize(rest.pop())
    sch.bind(block, "blockIdx.x")
    sch.bind(rest.pop(), "threadIdx.x")


def bind_blocks(sch: Schedule, nest: Sequence[LoopRV], facts: Facts) -> None:
    """Bind a perfect nest to blocks of threads: its last loop to `x` and the others to `y` where
    the last one's extent is a symbol, since taking fused loops apart divides by it."""
    *outer, last = nest
    sizes = [constant(extent_of(sch, loop)) for loop in outer]
    around = math.prod(s or 0 for s in sizes)
    divides = constant(extent_of(sch, last)) is None
    if outer and divides and None not in sizes and around <= facts.grid[1]:
        sch.bind(fused(sch, outer), "blockIdx.y")
        nest = [last]
    sch.bind(fused(sch, nest), "blockIdx.x")


def unrolled(sch: Schedule, loop: LoopRV, steps: int) -> None:
    """Unroll `steps` iterations of a loop, the last ones guarded; 1: leave it."""
    if steps > 1:
        if constant(extent_of(sch, loop)) != steps:
            _, loop = sch.split(loop, factors=[None, steps])
        sch.unroll(loop)


def unroll_all(sch: Schedule, *loops: LoopRV) -> None:
    """Unroll loops of constant extent."""
    for loop in loops:
        sch.unroll(loop)


def swizzle_rows(sch: Schedule, copy: BlockRV, row: int, facts: Facts) -> None:
    """Swizzle what a block copies into shared memory in rows of `row` elements: the number of an
    access in its row is xored with the row's, so that down a column eight are in different banks.
    Rows must be a power of two long for that; of others, such as 80 halves, some share banks.
    """
    size = bytes_of(found_block(sch, copy).writes[0].buffer.dtype)
    width = facts.vector_bits // 8 // size
    accesses, all_banks = row // width, facts.banks * facts.bank_bytes // (facts.vector_bits // 8)
    # Short rows lie side by side in the banks.
    bits, shift = min(accesses, all_banks), max(accesses, all_banks)
    if bits > 1:
        base = width.bit_length() - 1
        sch.swizzle(copy, 0, bits.bit_length() - 1, base, shift.bit_length() - 1)


@dataclass(frozen=True, slots=True)
class Product:
    """A sum of products: its block, the two loads that it multiplies, and the numbers of its row,
    column and reduce axes."""

    block: Block
    loads: tuple[BufferLoad, BufferLoad]
    row: int
    col: int
    reduce: int

    @property
    def name(self) -> str:
        """The name of the block."""
        return self.block.name


def find_product(func: PrimFunc) -> Product | str:
    """The one reduction of a function, which sums the terms of a matrix over one axis; or why there
    is none."""
    reductions = [b for b in blocks_of(func) if not is_spatial(b)]
    if len(reductions) != 1:
        return f"it has {len(reductions)} reductions, not one"
    block = reductions[0]
    loads = sum_of_products(block)
    spatial = [i for i, it in enumerate(block.iter_vars) if it.kind == "spatial"]
    reduce = [i for i, it in enumerate(block.iter_vars) if it.kind != "spatial"]
    if loads is None or len(reduce) != 1 or len(spatial) < 2:
        return f"{block.name} is no sum of products of two loads over one axis, of a matrix"
    return Product(block, loads, spatial[-2], spatial[-1], reduce[0])


def extents_of(block: Block) -> list[PrimExpr]:
    """The extents of the block's axes."""
    return [it.dom.extent for it in block.iter_vars]
