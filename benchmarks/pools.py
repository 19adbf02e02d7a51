"""Models of allocators at run time, to compare planned memory with.

Both are asked for one tensor after the other, in the order in which a program without a plan makes
and drops them, and never give memory back to the system, which is what makes them fast.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

PAGE = 4096
MB = 1 << 20


class Pool(Protocol):
    """`reserved`: bytes taken from the system so far."""

    reserved: int

    def allocate(self, size: int) -> int:
        """A handle for `size` bytes."""
        ...

    def free(self, handle: int) -> None:
        """The block may be used again."""
        ...


@dataclass(slots=True)
class BucketPool:
    """A free list per size, sizes rounded up to pages of 4 KB: a block serves tensors of its own
    size only. So does the pool of the runtime that the paper compares with."""

    reserved: int = 0
    _free: Counter[int] = field(default_factory=Counter[int])
    _sizes: list[int] = field(default_factory=list[int])

    def allocate(self, size: int) -> int:
        size = -(-max(size, 1) // PAGE) * PAGE
        if self._free[size]:
            self._free[size] -= 1
        else:
            self.reserved += size
        self._sizes.append(size)
        return len(self._sizes) - 1

    def free(self, handle: int) -> None:
        self._free[self._sizes[handle]] += 1


@dataclass(slots=True)
class BestFitPool:
    """The smallest free block that is large enough, the rest of which stays free; neighbours that
    are free become one. As in PyTorch's caching allocator, sizes are rounded up to 512 bytes, and
    what no free block holds comes in new segments: of 2 MB for tensors up to 1 MB, of 20 MB up to
    10 MB, else of the size in multiples of 2 MB. Blocks never span segments. The small segments
    serve only tensors up to 1 MB; of blocks in the others a rest of up to 1 MB is not split off."""

    reserved: int = 0
    _free: dict[bool, list[tuple[int, int]]] = field(
        default_factory=lambda: {False: [], True: []}
    )
    """Sorted (size, start), for small tensors and for others."""
    _used: dict[int, tuple[bool, int]] = field(default_factory=dict[int, tuple[bool, int]])
    """Start to kind and size."""
    _segments: list[int] = field(default_factory=list[int])
    """Starts of the segments, one after the other with a gap, so that none are neighbours."""

    def allocate(self, size: int) -> int:
        size = -(-max(size, 1) // 512) * 512
        small = size <= MB
        blocks = self._free[small]
        at = bisect_left(blocks, (size, -1))
        if at == len(blocks):
            insort(blocks, (self._grow(size), self._segments[-1]))
            at = bisect_left(blocks, (size, -1))
        room, start = blocks.pop(at)
        rest = room - size
        if rest > 0 if small else rest > MB:
            insort(blocks, (rest, start + size))
        else:
            size = room
        self._used[start] = small, size
        return start

    def _grow(self, size: int) -> int:
        """The size of a new segment for a tensor of `size`."""
        rounded = -(-size // (2 * MB)) * 2 * MB
        new = 2 * MB if size <= MB else 20 * MB if size < 10 * MB else rounded
        self._segments.append(2 * self.reserved + len(self._segments))
        self.reserved += new
        return new

    def free(self, handle: int) -> None:
        small, size = self._used.pop(handle)
        start, end = handle, handle + size
        kept: list[tuple[int, int]] = []
        for room, at in self._free[small]:
            if at + room == start:
                start = at
            elif at == end:
                end = at + room
            else:
                kept.append((room, at))
        insort(kept, (end - start, start))
        self._free[small] = kept


@dataclass(frozen=True, slots=True)
class Use:
    """A tensor: its bytes, and the positions of its first and last use."""

    start: int
    end: int
    size: int


def replay(pool: Pool, uses: Iterable[Use]) -> None:
    """One run of a program: each tensor is allocated before its first use, in the order of the
    program, and freed after its last."""
    ordered = sorted(uses, key=lambda u: u.start)
    held: list[tuple[int, int]] = []
    for use in ordered:
        for end, handle in [h for h in held if h[0] < use.start]:
            pool.free(handle)
            held.remove((end, handle))
        insort(held, (use.end, pool.allocate(use.size)))
    for _, handle in held:
        pool.free(handle)


def peak(uses: Sequence[Use]) -> int:
    """The most bytes in use at once: no allocation of whole tensors can do with less."""
    return max(
        (sum(o.size for o in uses if o.start <= u.start <= o.end) for u in uses), default=0
    )
