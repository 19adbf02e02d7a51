"""Barriers in shared memory (`mbarrier`), and copies by the tensor memory accelerator (TMA).

A phase of a barrier is over once as many threads arrived as it was made for, and as many bytes were
copied as they said to expect. What is copied is visible from then on, and no sooner: a thread that
does not wait reads what nobody has written. Copies are boxes of an array, as rows of 128 bytes;
what is outside of the array is zero.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import prod

import numpy as np

from relaxlab.ir.loops import Buffer
from relaxlab.runtime.arrays import Array, ExecutionError
from relaxlab.runtime.simt.memory import Memory

LINE = 128
"""Bytes of a row of a box."""


def swizzled(offset: Array, itemsize: int) -> Array:
    """The places where the hardware stores the elements at such offsets: the number of each 16
    bytes in its line of 128 is xored with the number of the line, of 8 lines."""
    width = 16 // itemsize
    line = offset // (LINE // itemsize) % 8
    return offset ^ (line * width)


@dataclass(slots=True)
class Barrier:
    """A barrier of `count` arrivals. `phase` counts the phases that are over, `missing` the
    arrivals that the one at hand lacks; `expected` and `issued` are its bytes, `copies` what brings
    them."""

    count: int
    missing: int
    phase: int = 0
    expected: int = 0
    issued: int = 0
    copies: list[Callable[[], None]] = field(default_factory=list[Callable[[], None]])

    def settle(self) -> None:
        """End the phase if all of it has happened."""
        if self.missing == 0 and self.expected == self.issued:
            copies, self.copies = self.copies, []
            self.phase, self.missing = self.phase + 1, self.count
            self.expected = self.issued = 0
            for copy in copies:
                copy()

    def arrive(self, threads: int) -> None:
        """Count arrivals. Raises ExecutionError for more than the phase has."""
        if self.missing == 0:
            self.settle()
        if threads > self.missing:
            raise ExecutionError(
                f"{threads} threads arrive at a barrier whose phase lacks {self.missing} of "
                f"{self.count} arrivals"
            )
        self.missing -= threads

    def is_over(self, parity: int) -> bool:
        """True if the last phase with that parity is over."""
        self.settle()
        return self.phase % 2 != parity

    def lacks(self) -> str:
        """Return the missing part of the phase at hand, in words."""
        arrived = f"{self.count - self.missing} of {self.count} arrivals"
        return f"{arrived} and {self.issued} of {self.expected} expected bytes have come"


class Barriers:
    """The barriers of a block, by their buffers and places."""

    def __init__(self) -> None:
        self.made: dict[tuple[Buffer, int], Barrier] = {}

    def init(self, buffer: Buffer, place: int, count: int) -> None:
        """Make a barrier."""
        self.made[buffer, place] = Barrier(count, count)

    def at(self, buffer: Buffer, place: int) -> Barrier:
        """The barrier at a place. Raises ExecutionError where none was made."""
        if (buffer, place) not in self.made:
            raise ExecutionError(f"{buffer.name}[{place}] was not made a barrier: mbarrier_init")
        return self.made[buffer, place]


def box_copy(
    to: Memory, start: int, source: Array, shape: Sequence[int], corner: Sequence[int],
    box: Sequence[int],
) -> Callable[[], None]:  # fmt: skip
    """A copy of a box of the array `source` of a shape to an element of shared memory, as its
    phase makes it; until then nothing is there."""
    itemsize = source.dtype.itemsize
    if box[-1] * itemsize != LINE or start * itemsize % (8 * LINE):
        raise ExecutionError(
            f"a box has rows of {LINE} bytes and goes to a multiple of {8 * LINE}; it has "
            f"{box[-1] * itemsize} and goes to {start * itemsize}"
        )
    at = start + swizzled(np.arange(prod(box)), itemsize)
    inside, flat = np.array(True), np.array(0)
    for extent, first, size in zip(box, corner, shape, strict=True):
        place = first + np.arange(extent)
        inside = inside[..., None] & (place >= 0) & (place < size)
        flat = flat[..., None] * size + place
    inside, flat = inside.reshape(-1), flat.reshape(-1)
    values = np.where(inside, source[np.where(inside, flat, 0)], source.dtype.type(0))
    assert to.written is not None
    to.written[at] = False

    def copy() -> None:
        assert to.written is not None
        to.data[at] = values
        to.written[at] = True

    return copy
