"""Owners of the pages of a paged KV cache: a free list with reference counts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from relaxlab.ir.brief import Brief
from relaxlab.ir.errors import UserError
from relaxlab.nn.paged_loops import PAGE

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]


class PoolExhausted(UserError, RuntimeError):
    """The pool has fewer free pages than are needed. Nothing was taken from it."""


class PageAllocator(Brief):
    """An allocator of the pages 0 .. `total` - 1 of a pool. A page may have several owners, which
    then only read it; it is free again when all of them have released it."""

    def __init__(self, total: int) -> None:
        """ValueError for a pool without pages."""
        if total < 1:
            raise ValueError(f"a pool must have at least one page, not {total}")
        self.total = total
        # Backwards, so that `pop` gives pages from 0 on: a pool of which little is used touches
        # little.
        self._free = list(range(total - 1, -1, -1))
        self._owners = [0] * total

    @property
    def free(self) -> int:
        """The number of pages without an owner."""
        return len(self._free)

    def allocate(self, count: int) -> list[int]:
        """Return `count` pages with one owner each. Raises PoolExhausted if fewer are free."""
        if count > len(self._free):
            raise PoolExhausted(
                f"{count} pages of {PAGE} positions are needed, {len(self._free)} of {self.total} "
                "are free; release some, or make a larger pool"
            )
        pages = [self._free.pop() for _ in range(count)]
        for page in pages:
            self._owners[page] = 1
        return pages

    def share(self, pages: Sequence[int]) -> None:
        """Give each page one more owner. ValueError for a page that is free."""
        self._check(pages)
        for page in pages:
            self._owners[page] += 1

    def release(self, pages: Sequence[int]) -> None:
        """Take one owner from each page. ValueError for a page that is free."""
        self._check(pages)
        for page in pages:
            self._owners[page] -= 1
            if not self._owners[page]:
                self._free.append(page)

    def owned_once(self, pages: Sequence[int]) -> int:
        """Return how many of the pages would be free if one owner released them."""
        return sum(self._owners[page] == 1 for page in pages)

    def is_shared(self, page: int) -> bool:
        """True if the page has several owners."""
        return self._owners[page] > 1

    def _check(self, pages: Sequence[int]) -> None:
        wrong = next((p for p in pages if not self._owners[p]), None)
        if wrong is not None:
            raise ValueError(f"page {wrong} is free: it was released before")


class PagedSequence(Brief):
    """The pages of one sequence and how many positions of it they hold."""

    def __init__(self, allocator: PageAllocator) -> None:
        self._allocator = allocator
        self.pages: list[int] = []
        self.length = 0

    def missing(self, rows: int) -> int:
        """Return the number of free pages needed to append `rows` positions."""
        return -(-(self.length + rows) // PAGE) - len(self.pages) + self._must_copy(rows)

    def extend(self, rows: int) -> tuple[int, int] | None:
        """Make room for `rows` more positions, which count as held from now on.

        Where the last page is shared and not full, it is replaced by one of the sequence's own:
        returns (from, to), the page whose content must be copied and the one it goes to, before
        anything is written. PoolExhausted, and nothing changes, when pages are lacking.
        """
        copied = None
        # First of all, so that nothing has changed if it raises.
        fresh = self._allocator.allocate(self.missing(rows))
        if self._must_copy(rows):
            copied = self.pages[-1], fresh.pop()
            self._allocator.release(self.pages[-1:])
            self.pages[-1] = copied[1]
        self.pages += fresh
        self.length += rows
        return copied

    def truncate(self, length: int) -> None:
        """Forget the positions from `length` on, and release the pages that held no others."""
        keep = -(-length // PAGE)
        self._allocator.release(self.pages[keep:])
        del self.pages[keep:]
        self.length = length

    def fork(self) -> PagedSequence:
        """Another sequence with the same positions, in the same pages."""
        other = PagedSequence(self._allocator)
        self._allocator.share(self.pages)
        other.pages, other.length = list(self.pages), self.length
        return other

    def _must_copy(self, rows: int) -> bool:
        """True if the next position falls into a page that others read."""
        return rows > 0 and self.length % PAGE > 0 and self._allocator.is_shared(self.pages[-1])


def ragged_arrays(
    sequences: Sequence[PagedSequence], rows: Sequence[int], tile: int
) -> tuple[Array, ...]:
    """The arrays of `nn.paged.Ragged`, in order, for the last `rows` positions of each sequence, in
    tiles of at most `tile` rows."""
    held = [s.pages[: -(-s.length // PAGE)] for s in sequences]
    row_ends = np.cumsum([0, *rows], dtype=np.int32)
    page_ends = np.cumsum([0, *map(len, held)], dtype=np.int32)
    pages = np.concatenate(held).astype(np.int32)
    lengths = np.array([s.length for s in sequences], np.int32)
    of_row = np.repeat(np.arange(len(rows), dtype=np.int32), rows)
    number = np.arange(row_ends[-1], dtype=np.int32)
    positions = number + (lengths - row_ends[1:])[of_row]
    slots = pages[page_ends[of_row] + positions // PAGE] * PAGE + positions % PAGE
    first = (number - row_ends[of_row]) % tile == 0
    tiles = np.stack([of_row[first], number[first]], axis=1)
    return positions, slots, tiles, row_ends, page_ends, pages
