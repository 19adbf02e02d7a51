"""Memory accesses of the threads of one block, and their cost on a GPU.

A warp's access to main memory moves whole sectors of 32 bytes; the fewer, the better coalesced.
Shared memory has 32 banks of 4-byte words; a bank delivers one word at a time, so different words
of one bank are fetched one after the other (CUDA C++ Programming Guide, compute capability 5 and
later).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from relaxlab.ir import loops
from relaxlab.ir.facts import CUDA, Facts
from relaxlab.ir.span import Span
from relaxlab.runtime.arrays import Array


@dataclass(frozen=True, slots=True)
class Site:
    """A load or store as it stands in a kernel: its buffer, the text of its statement, the name
    of the block that the statement came from (empty if unknown) and its place in the source.
    A site without a buffer is a statement that touches no memory."""

    buffer: loops.Buffer | None
    write: bool
    text: str
    block: str = ""
    span: Span | None = None

    def __str__(self) -> str:
        where = f"block {self.block!r}" if self.block else "the kernel"
        return f"in {where}{f' ({self.span})' if self.span else ''}: {self.text}"


@dataclass(frozen=True, slots=True)
class Access:
    """One execution of a load or store by the recorded block.

    `threads` are the numbers of the threads in the block, ascending, `offsets` the bytes from the
    start of the buffer; both have one entry per element of `itemsize` bytes. A thread of a
    vectorized loop touches several elements.
    """

    site: Site
    threads: Array
    offsets: Array
    itemsize: int


@dataclass(frozen=True, slots=True)
class Instruction:
    """A memory instruction of one warp: a byte offset for each of `lanes`, the threads of the warp
    that take part, and the bytes that each of them moves."""

    lanes: Array
    offsets: Array
    width: int


def instructions(access: Access, facts: Facts) -> Iterator[Instruction]:
    """Yield the instructions of an access.

    A thread's elements are moved by up to 16 bytes at once if they are contiguous and aligned in
    every thread; else there is one instruction per element.
    """
    threads, offsets, size = access.threads, access.offsets, access.itemsize
    first = np.flatnonzero(np.diff(threads, prepend=-1))
    counts = np.diff(first, append=len(threads))
    nth = np.arange(len(threads)) - np.repeat(first, counts)
    many = int(counts[0])
    width = min(many * size, facts.vector_bits // 8)
    wide = (
        width & (width - 1) == 0
        and many * size % width == 0
        and (counts == many).all()
        and (offsets == np.repeat(offsets[first], counts) + nth * size).all()
        and not (offsets[first] % width).any()
    )
    if not wide:
        width = size
    for n in range(0, int(counts.max()), width // size):
        here = nth == n
        for warp in np.unique(threads[here] // facts.warp):
            mine = here & (threads // facts.warp == warp)
            yield Instruction(threads[mine] % facts.warp, offsets[mine], width)


def sectors(access: Access, facts: Facts = CUDA) -> tuple[int, int]:
    """Return the number of 32-byte sectors of main memory that the warps of a block move for one
    access, and the fewest that could hold the bytes they use.

    Each instruction of each warp counts by itself, as if nothing were cached.
    """
    moved = least = 0
    for one in instructions(access, facts):
        ends = np.concatenate([one.offsets, one.offsets + one.width - 1])
        moved += len(np.unique(ends // facts.sector))
        least += -(-len(np.unique(one.offsets)) * one.width // facts.sector)
    return moved, least


def bank_conflicts(access: Access, facts: Facts = CUDA) -> tuple[int, int]:
    """Return how many times shared memory is read or written for one access of a block, and how
    often it would be without conflicts. Their ratio is the degree of conflict: 1 is none, 32 the
    worst.

    A warp is served at once when each bank is asked for one word at most; several threads that want
    the same word count once. Accesses of 8 and 16 bytes are served per half and quarter warp.
    """
    served = least = 0
    for one in instructions(access, facts):
        together = facts.warp // max(1, one.width // facts.bank_bytes)
        for group in np.unique(one.lanes // together):
            offsets = one.offsets[one.lanes // together == group]
            places = offsets[:, None] + np.arange(0, one.width, facts.bank_bytes)
            words = np.unique(places // facts.bank_bytes)
            served += int(np.bincount(words % facts.banks).max())
            least += 1
    return served, least


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of a load or store over a whole block: `count` of `unit`; `least` would suffice if
    it were perfectly coalesced or free of bank conflicts."""

    unit: Literal["sectors", "rounds of banks"]
    count: int
    least: int


def costs(accesses: Sequence[Access]) -> dict[Site, Cost]:
    """Return the cost of each load and store of a program, in the order in which they came."""
    found: dict[Site, Cost] = {}
    for access in accesses:
        if _scope(access.site) == "global":
            unit, (count, least) = "sectors", sectors(access)
        else:
            unit, (count, least) = "rounds of banks", bank_conflicts(access)
        before = found.get(access.site, Cost(unit, 0, 0))
        found[access.site] = Cost(unit, before.count + count, before.least + least)
    return found


def summarise(accesses: Sequence[Access]) -> list[str]:
    """Return one line per load and store of the program, with its transactions of main or shared
    memory."""
    found = costs(accesses)
    width = max((len(site.buffer.name) for site in found if site.buffer), default=0)
    return [_line(site, cost, width) for site, cost in found.items()]


def _line(site: Site, cost: Cost, width: int) -> str:
    name = site.buffer.name if site.buffer else ""
    return (
        f"{'store' if site.write else 'load':5} {name:{width}} {cost.count:7} {cost.unit:15} "
        f"{cost.count / cost.least:6.2f} x the least  {site.block or site.text}"
    )


def _scope(site: Site) -> str:
    return site.buffer.scope if site.buffer else "global"
