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
from collections.abc import Iterable
from typing import Any

import numpy as np

PAGE = 2 << 20
ALIGN = 64
MOST_AT_ONCE = 128 << 20
"""Bytes of zeros that may all be taken at once: half of a small model's other memory."""

Array = np.ndarray[Any, Any]


def in_large_pages(arrays: Iterable[Array]) -> list[Array]:
    """Copies of the arrays, one after the other in memory that asks for large pages.

    Takes an iterable so that each original can be freed before the next is made. Arrays that do
    not fit into what is left of a region begin a new one.
    """
    region: Array | None = None
    used = 0
    result: list[Array] = []
    for array in arrays:
        size = array.nbytes
        if region is None or used + size > region.nbytes:
            region, used = _region(max(size, 32 * PAGE)), 0
        place = region[used : used + size].view(array.dtype).reshape(array.shape)
        place[...] = array
        result.append(place)
        used += -(-size // ALIGN) * ALIGN
    return result


def zeros_in_large_pages(shapes: Iterable[tuple[int, ...]], dtype: str) -> list[Array]:
    """Arrays of zeros, one after the other. A page takes memory once it is written to, so arrays
    of which only the first part may ever be used get large pages up to `MOST_AT_ONCE` only."""
    itemsize = np.dtype(dtype).itemsize
    sizes = [(shape, -(-math.prod(shape) * itemsize // ALIGN) * ALIGN) for shape in shapes]
    total = sum(size for _, size in sizes)
    region = _region(total, large=total <= MOST_AT_ONCE)
    result: list[Array] = []
    for shape, size in sizes:
        used, region = region[: math.prod(shape) * itemsize], region[size:]
        result.append(used.view(dtype).reshape(shape))
    return result


def return_free_memory() -> None:
    """Give memory that was freed back to the system, where the C library keeps it (glibc)."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(ctypes.c_size_t(0))


def _region(size: int, large: bool = True) -> Array:
    """At least `size` bytes, aligned to a large page; unused pages take no memory."""
    total = -(-size // PAGE) * PAGE + PAGE
    if hasattr(mmap, "MADV_HUGEPAGE"):  # Linux grants large pages to private memory only
        memory = mmap.mmap(-1, total, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        with contextlib.suppress(OSError):  # a kernel without large pages
            memory.madvise(mmap.MADV_HUGEPAGE if large else mmap.MADV_NOHUGEPAGE)
    else:
        memory = mmap.mmap(-1, total)
    whole = np.frombuffer(memory, np.uint8)
    skip = -whole.__array_interface__["data"][0] % PAGE
    return whole[skip:]
