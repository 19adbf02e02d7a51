"""Arrays in memory with large pages.

A model's weights and cached keys and values are read front to back once per token. With 4 KB pages
the page tables limit how far ahead a core can ask for memory; with 2 MB pages, where the system
grants them, it reads several times faster (see benchmarks/NOTES.md).
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import mmap
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

PAGE = 2 << 20
ALIGN = 64
MAX_EAGER_BYTES = 128 << 20
"""Largest KV cache whose large pages may all be taken at once: half of a small model's other
memory."""
STEP = 4 * PAGE
"""Bytes that one step moves to large pages: some milliseconds' work."""
GAP = 4096
"""Largest gap between arrays that are moved together: the allocator's own headers."""
MADV_COLLAPSE = 25
"""Linux's number; Python has no name for it."""

Array = np.ndarray[Any, Any]


def in_large_pages(arrays: Iterable[Array]) -> list[Array]:
    """Return copies of the arrays, contiguous in memory advised to use large pages.

    Takes an iterable so that each original can be freed before the next is made. Arrays that do not
    fit into the rest of a region begin a new one.
    """
    memory = np.empty(0, np.uint8)
    used = 0
    result: list[Array] = []
    for array in arrays:
        size = array.nbytes
        if used + size > memory.nbytes:
            # 64 MB: few regions, of which at most the rest of the last stays unused.
            memory, used = region(max(size, 32 * PAGE)), 0
        place = memory[used : used + size].view(array.dtype).reshape(array.shape)
        place[...] = array
        result.append(place)
        used += -(-size // ALIGN) * ALIGN
    return result


def zeros(shapes: Sequence[tuple[int, ...]], dtype: str) -> list[Array]:
    """Arrays of zeros, one after the other, in small pages: each takes memory once it is written
    to, so a cache of which little is used takes little. See `Promotion`."""
    itemsize = np.dtype(dtype).itemsize
    sizes = [(shape, -(-math.prod(shape) * itemsize // ALIGN) * ALIGN) for shape in shapes]
    memory = region(sum(size for _, size in sizes), large=False)
    result: list[Array] = []
    for shape, size in sizes:
        used, memory = memory[: math.prod(shape) * itemsize], memory[size:]
        result.append(used.view(dtype).reshape(shape))
    return result


class Promotion:
    """Moves the memory of arrays into large pages, step by step.

    To fill a large page costs as much as five hundred small ones whether they are used or not, up
    to milliseconds in virtual machines, so memory begins in small pages and is moved when it has
    proved to be used for long.
    """

    def __init__(self, arrays: Iterable[Array], most: int | None = None) -> None:
        """most: leave arrays of more bytes than that, all together, where they are."""
        self._spans = _spans(arrays)
        if most is not None and sum(end - start for start, end in self._spans) > most:
            self._spans = []

    def step(self) -> None:
        """Move the next `STEP` bytes, if any are left. Where the system has no large pages or none
        to spare (Linux has `MADV_COLLAPSE` from 6.1 on), nothing changes."""
        remaining = STEP
        while self._spans and remaining > 0:
            start, end = self._spans.pop()
            if end - start > remaining:
                self._spans.append((start + remaining, end))
                end = start + remaining
            remaining -= end - start
            _collapse(start, end - start)


def _spans(arrays: Iterable[Array]) -> list[tuple[int, int]]:
    """Return the large pages that are wholly inside the memory of the arrays, as ranges of
    addresses."""
    joined: list[tuple[int, int]] = []
    for start, end in sorted(
        (a.__array_interface__["data"][0], a.__array_interface__["data"][0] + a.nbytes)
        for a in arrays
    ):
        if joined and start - joined[-1][1] < GAP:
            joined[-1] = joined[-1][0], max(end, joined[-1][1])
        else:
            joined.append((start, end))
    pages = ((-(-start // PAGE) * PAGE, end // PAGE * PAGE) for start, end in joined)
    return [(start, end) for start, end in pages if start < end]


def _collapse(start: int, size: int) -> None:
    if sys.platform.startswith("linux"):
        madvise = ctypes.CDLL(None).madvise
        # Collapsing fails silently for memory advised against large pages (NOTES, *The whole
        # process*).
        for advice in (mmap.MADV_HUGEPAGE, MADV_COLLAPSE):  # what is forbidden is not collapsed
            madvise(ctypes.c_void_p(start), ctypes.c_size_t(size), advice)


def region(size: int, large: bool = True) -> Array:
    """At least `size` bytes, aligned to a large page; unused pages take no memory."""
    total = -(-size // PAGE) * PAGE + PAGE
    if hasattr(mmap, "MADV_HUGEPAGE"):  # Linux grants large pages to private memory only
        # Python's default is shared memory, which never gets large pages.
        memory = mmap.mmap(-1, total, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        with contextlib.suppress(OSError):  # a kernel without large pages
            memory.madvise(mmap.MADV_HUGEPAGE if large else mmap.MADV_NOHUGEPAGE)
    else:
        memory = mmap.mmap(-1, total)
    whole = np.frombuffer(memory, np.uint8)
    skip = -whole.__array_interface__["data"][0] % PAGE
    return whole[skip:]
