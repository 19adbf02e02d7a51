"""Memory that compiled functions allocate for their results.

A block whose result is not referenced any more is reused for the results of later calls: the system
hands out large blocks page by page, at a fault each, which takes longer than most kernels take to
fill them.
"""

from __future__ import annotations

import ctypes
import weakref
from typing import Any

from relaxlab.codegen.llvm.context import BLOCK_HEADER

LARGE = 1 << 20
"""Bytes from which on a block is reused; the C library itself recycles smaller ones."""

free = ctypes.CDLL(None).free
free.argtypes, free.restype = [ctypes.c_void_p], None


class SpareBlocks:
    """The blocks that an executable allocated and got back: at most as many bytes as one call
    returned. Results may be dropped in any thread and at any time, so nothing here takes a lock;
    appending to a list and popping from it are atomic."""

    def __init__(self) -> None:
        self.blocks: list[int] = []
        self._most = 0

    def expect(self, size: int) -> None:
        """Raise the limit on spare blocks to the `size` that a call allocated."""
        self._most = max(self._most, size)

    def give(self, block: int, size: int) -> None:
        """Keep the block, or free it."""
        # Never more than one call returned: results that a program drops for good must not stay
        # allocated.
        if size < LARGE or size + self.bytes() > self._most:
            free(block)
        else:
            self.blocks.append(block)

    def bytes(self) -> int:
        """Return the number of bytes kept."""
        return sum(map(_size_of, list(self.blocks)))

    def lend(self, context: Any, word: int) -> None:
        """Make all blocks a linked list that starts in the context's word."""
        while self.blocks:
            block = self.blocks.pop()
            ctypes.c_int64.from_address(block).value = context[word]
            context[word] = block

    def take_back(self, context: Any, word: int) -> None:
        """Return the unused rest of the list to the spare blocks."""
        while block := context[word]:
            context[word] = ctypes.c_int64.from_address(block).value
            self.blocks.append(block)

    def __del__(self) -> None:
        for block in self.blocks:
            free(block)


def _size_of(block: int) -> int:
    """The bytes of data, by the block's header."""
    return ctypes.c_int64.from_address(block + 8).value


class _Lent(weakref.ref[Any]):
    """A weak reference to a block that frees it with the last array that views it."""

    __slots__ = ("data", "size", "spare")
    data: int
    size: int
    spare: SpareBlocks


_lent: dict[int, _Lent] = {}


def _take_back(lent: _Lent) -> None:
    del _lent[lent.data]
    lent.spare.give(lent.data - BLOCK_HEADER, lent.size)


def owned_block(data: int, size: int, spare: SpareBlocks) -> Any:
    """Return the data of a block, as bytes that NumPy can view; freed with the last array that
    views it."""
    block = (ctypes.c_uint8 * size).from_address(data)
    lent = _Lent(block, _take_back)
    lent.data, lent.size, lent.spare = data, size, spare
    _lent[data] = lent
    return block
