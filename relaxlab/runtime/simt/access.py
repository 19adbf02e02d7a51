"""Memory accesses of the threads of one block, and their cost on a GPU.

A warp's access to main memory moves whole sectors of 32 bytes, four of which are a line of the
caches; the fewer, the better coalesced. Shared memory has 32 banks of 4-byte words; a bank delivers
one word at a time, so different words of one bank are fetched one after the other (CUDA C++
Programming Guide, compute capability 5 and later).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from relaxlab.ir import loops
from relaxlab.ir.facts import CUDA, Facts
from relaxlab.ir.span import Span
from relaxlab.runtime.arrays import Array

SECTORS_OF_LINE = 4
"""Sectors of a line of a GPU's caches."""


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
    """One execution of a load or store by a block.

    `threads` are the numbers of the threads in the block, ascending, `offsets` the bytes from the
    start of the buffer; both have one entry per element of `itemsize` bytes. A thread of a
    vectorized loop touches several elements, and so does one that copies or loads 16 bytes by an
    instruction for them (`cp_async`, `ldmatrix`).
    """

    site: Site
    threads: Array
    offsets: Array
    itemsize: int


@dataclass(frozen=True, slots=True)
class _Instructions:
    """The instructions of the warps of a block for an access: the number of its instruction, the
    lane and the byte offset of each `width` bytes that a thread moves at once."""

    numbers: Array
    lanes: Array
    offsets: Array
    width: int


def _instructions(access: Access, facts: Facts) -> _Instructions:
    """The instructions of an access.

    A thread's elements are moved by up to 16 bytes at once if they are contiguous and aligned in
    every thread; else there is one instruction per element. One element for all lanes of a vector
    is moved once.
    """
    threads, offsets, size = access.threads, access.offsets, access.itemsize
    other = (np.diff(threads, prepend=-1) != 0) | (np.diff(offsets, prepend=-1) != 0)
    threads, offsets = threads[other], offsets[other]
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
    begins = nth % (width // size) == 0
    numbers = threads // facts.warp * int(counts.max()) + nth
    return _Instructions(numbers[begins], threads[begins] % facts.warp, offsets[begins], width)


Unit: TypeAlias = Literal["sectors", "rounds of banks"]


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of a load or store over a whole block: `instructions` of warps take `count` of
    `unit`; `least` would suffice if they were perfectly coalesced or free of bank conflicts.
    `lines` of main memory's caches are touched, each instruction counted by itself, as if nothing
    were cached. Rounds are how many times shared memory is read or written."""

    unit: Unit
    count: float
    least: float
    instructions: float = 0
    lines: float = 0

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.unit,
            self.count + other.count,
            self.least + other.least,
            self.instructions + other.instructions,
            self.lines + other.lines,
        )

    def __mul__(self, times: float) -> Cost:
        count, least = self.count * times, self.least * times
        return Cost(self.unit, count, least, self.instructions * times, self.lines * times)

    @property
    def excess(self) -> float:
        """The count as a multiple of the least: 1 is perfect."""
        return self.count / self.least


def cost_of(access: Access, facts: Facts = CUDA) -> Cost:
    """Return the cost of one access of a block."""
    made = _instructions(access, facts)
    many = len(np.unique(made.numbers))
    buffer = access.site.buffer
    if buffer is None or buffer.scope == "global":
        return _of_main_memory(made, many, facts)
    return _of_shared_memory(made, many, facts)


def _of_main_memory(made: _Instructions, many: int, facts: Facts) -> Cost:
    both = np.concatenate([made.numbers, made.numbers])
    ends = np.concatenate([made.offsets, made.offsets + made.width - 1])
    moved = len(_pairs(both, ends // facts.sector)[0])
    lines = len(_pairs(both, ends // (SECTORS_OF_LINE * facts.sector))[0])
    used = np.bincount(_pairs(made.numbers, made.offsets)[0])
    least = int(-(-used * made.width // facts.sector).sum())
    return Cost("sectors", moved, least, many, lines)


def _of_shared_memory(made: _Instructions, many: int, facts: Facts) -> Cost:
    """A warp is served at once when each bank is asked for one word at most; several threads that
    want the same word count once. Accesses of 8 and 16 bytes are served per half and quarter
    warp."""
    together = facts.warp // max(1, made.width // facts.bank_bytes)
    served = made.numbers * facts.warp + made.lanes // together
    places = made.offsets[:, None] + np.arange(0, made.width, facts.bank_bytes)
    words = places.reshape(-1) // facts.bank_bytes
    turn, word = _pairs(np.repeat(served, places.shape[1]), words)
    turns, which = np.unique(turn, return_inverse=True)
    asked = np.bincount(which * facts.banks + word % facts.banks, minlength=1)
    asked = np.pad(asked, (0, -len(asked) % facts.banks)).reshape(-1, facts.banks)
    return Cost("rounds of banks", int(asked.max(1).sum()), len(turns), many)


def _pairs(a: Array, b: Array) -> tuple[Array, Array]:
    """The distinct pairs of two arrays of numbers; no number is negative."""
    span = int(b.max()) + 1
    keys = np.unique(a * span + b)
    return keys // span, keys % span


def costs(accesses: Sequence[Access]) -> dict[Site, Cost]:
    """Return the cost of each load and store of a program, in the order in which they came."""
    found: dict[Site, Cost] = {}
    for access in accesses:
        one = cost_of(access)
        before = found.get(access.site)
        found[access.site] = one if before is None else before + one
    return found
