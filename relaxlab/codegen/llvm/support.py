"""Functions that every program contains: barrier, failure report, allocation.

Each does its work in thread 0 and publishes the result to the team.
"""

from __future__ import annotations

from functools import cache

from relaxlab.codegen.llvm.context import BLOCK_HEADER, Block, Context
from relaxlab.codegen.llvm.lowlevel import (
    NULL,
    Address,
    Int,
    Word,
    address_of,
    external,
    low_level,
)
from relaxlab.codegen.llvm.lowlevel_text import low_level_text
from relaxlab.ir.target import Target

PAGE = 2 << 20
"""Bytes of a large page: without, page tables bound how fast large arrays are read and written."""
MADV_HUGEPAGE = 14


@external("GOMP_barrier")
def wait_for_team() -> None: ...
@external("aligned_alloc")
def aligned_alloc(alignment: Word, size: Word) -> Block: ...
@external("free")
def free(block: Address) -> None: ...
@external("madvise")
def madvise(start: Address, size: Word, advice: Int) -> Int: ...


@low_level
def barrier() -> None:
    wait_for_team()


@low_level
def fail(ctx: Context, thread: Word, axis: Word, got: Word, want: Word) -> None:
    if thread == 0:
        ctx.axis = axis
        ctx.got = got
        ctx.expected = want


@low_level
def memory(size: Word) -> Block:
    return aligned_alloc(64, size)


@low_level
def paged_memory(size: Word) -> Block:
    """`memory` on Linux. Where the system does not grant large pages, nothing changes."""
    if size < 4 * PAGE:
        return aligned_alloc(64, size)
    total = (size + PAGE - 1) // PAGE * PAGE
    block = aligned_alloc(PAGE, total)
    madvise(block, total, MADV_HUGEPAGE)
    return block


@low_level
def published(ctx: Context, threads: Word) -> Address:
    """The address that thread 0 has published, on each thread of the team."""
    if threads > 1:
        wait_for_team()
    result = ctx.publish
    # Nothing else is published before all have read it.
    if threads > 1:
        wait_for_team()
    return result


@low_level
def alloc(ctx: Context, size: Word, thread: Word, threads: Word) -> Address:
    """Memory that lives as long as the call, or its results; null where there is none."""
    if thread == 0:
        block = take_spare(ctx, size)
        if block == NULL:
            # A multiple of 64 bytes that ends at least 64 after the data.
            block = memory((size + 127 + BLOCK_HEADER) & -64)
            if block != NULL:
                block.size = size
        ctx.publish = NULL
        if block != NULL:
            block.next = ctx.owned
            ctx.owned = block
            ctx.publish = block + BLOCK_HEADER
    return published(ctx, threads)


@low_level
def take_spare(ctx: Context, size: Word) -> Block:
    """A spare block of this size, at most half of it unused, which is no longer spare; or null."""
    link = Block(address_of(ctx.spare))
    while link.next != NULL:
        block = link.next
        if size <= block.size and block.size <= 2 * size:
            link.next = block.next
            return block
        link = block
    return NULL


@low_level
def release(ctx: Context, data: Address, thread: Word, threads: Word) -> None:
    """Free a block before the call ends."""
    # A thread may still read it in a kernel that every thread runs by itself.
    if threads > 1:
        wait_for_team()
    if thread != 0:
        return
    link = Block(address_of(ctx.owned))
    while link.next != NULL:
        if link.next == data - BLOCK_HEADER:
            block = link.next
            link.next = block.next
            free(block)
            return
        link = link.next


@low_level
def arena(ctx: Context, number: Word, size: Word, thread: Word, threads: Word) -> Address:
    """A planned storage of at least this size; null where there is no memory for it."""
    if thread == 0:
        storage = ctx.arenas[number]
        if storage.size < size:
            free(storage.data)
            total = (size + 127) & -64
            storage.data = memory(total)
            storage.size = 0 if storage.data == NULL else total
        ctx.publish = storage.data
    return published(ctx, threads)


@cache
def _texts(on_linux: bool) -> tuple[list[str], dict[str, str]]:
    declarations: dict[str, str] = {}
    everywhere = (barrier, fail, published, take_spare, alloc, release, arena)
    texts = [low_level_text(f, declarations) for f in everywhere]
    own = paged_memory if on_linux else memory
    texts.append(low_level_text(own, declarations, "relaxlab_memory"))
    return texts, declarations


def support_functions(
    declarations: dict[str, str], target: Target, barrier: str | None = None
) -> list[str]:
    """Return the support functions; their callees are added to `declarations`. barrier: the text
    of another `relaxlab_barrier`, for timed programs."""
    texts, callees = _texts("linux" in target.triple)
    declarations.update(callees)
    return [barrier or texts[0], *texts[1:]]
