"""The fibers of a batch: stacks and contexts for instances that wait for tensors."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from relaxlab.codegen.llvm import fibers as native
from relaxlab.codegen.llvm.jit import LoadedObject
from relaxlab.codegen.llvm.recorder_words import FIBERS_END
from relaxlab.ir.target import Target
from relaxlab.runtime.batch.words import Words

STACK_BYTES = 1 << 20
"""Stack of a fiber: memory that its recursion does not reach is never touched."""
FIBER_BYTES = 8 * native.FIBER_WORDS
FORKS = 1024
"""Fibers that instances may begin: when none is free, they go on one after the other."""
STACK_SPARE = 1 << 16
"""Bytes at the end of a stack that recursion leaves free, for what it calls."""
ALIGN = 16
"""Alignment of stacks, in bytes."""


class Fibers:
    """The fibers of a program that records, kept between batches. `words` has a row for each
    instance of the batch and for each that they may begin, as `relaxlab.codegen.llvm.fibers` has
    it."""

    def __init__(self, code: LoadedObject, target: Target, recorder: Words, forks: bool) -> None:
        self._forks, self._registers = forks, native.registers_of(target)
        self.resume_address = code.address(native.RESUME)
        types = (ctypes.c_void_p, ctypes.c_void_p)
        self._resume = ctypes.CFUNCTYPE(None, *types)(self.resume_address)
        self._body, self._record = map(code.address, (native.BODY, native.INSTANCE_BODY))
        self._recorder = recorder
        self._caller = np.zeros(1, np.int64)
        self._made = np.zeros((0, 2), np.int64)
        """Per fiber, the addresses of the word with its context and of the end of its stack."""
        self._memory: list[Any] = []
        self.words = self.ready = np.zeros((0, native.FIBER_WORDS), np.int64)
        """The words of all fibers, and as they are when a batch begins."""
        self.args = np.zeros((0, 2), np.int64)
        """Per instance, the addresses of its words and of those for its results."""
        self.first_free = 0
        """The address of the first free fiber."""
        self._count = -1
        """The instances that the words are for, -1 for none."""

    def prepare(self, count: int) -> bool:
        """Make the words of the fibers of batches of so many instances. False if they are there."""
        if count == self._count:
            return False
        free_count = FORKS if self._forks else 0
        missing = count + free_count - len(self._made)
        if missing > 0:
            self._made = np.concatenate([self._made, [self._make() for _ in range(missing)]])
        self.words = np.empty((count + free_count, native.FIBER_WORDS), np.int64)
        self.ready = words = np.zeros_like(self.words)
        rows = np.arange(count)
        self.args = np.empty((count, 2), np.int64)
        words[:count, native.NUMBER] = rows
        words[:count, native.FUNCTION] = self._record
        words[:count, native.ARGS] = self.args.ctypes.data + rows * self.args.strides[0]
        words[:, [native.CONTEXT, native.FIBER_STACK_END]] = self._made[: len(words)]
        words[:, native.CALLER] = self._caller.ctypes.data
        free = self.words.ctypes.data + np.arange(count, len(words)) * FIBER_BYTES
        words[count:, native.STATE] = native.DONE
        words[count:-1, native.NEXT_FREE] = free[1:]
        self.first_free = int(free[0]) if len(free) else 0
        # No batch before has used any of these.
        self.words[:] = words
        self._recorder[FIBERS_END] = self.words.ctypes.data
        self._count = count
        return True

    def resume(self) -> None:
        """Let the fibers that are ready go on until each waits or ends."""
        self._resume(self._recorder.ctypes.data, self.words.ctypes.data)

    def forget(self) -> None:
        """Give up the fibers, some of which are in the middle of an instance."""
        self._made, self._memory, self._count = self._made[:0], [], -1

    def _make(self) -> tuple[int, int]:
        """A stack, at whose beginning lie the word with its context, and below it the registers of
        a function that was left where `BODY` begins."""
        stack = np.empty(STACK_BYTES // 8, np.int64)
        start = stack.ctypes.data
        context = (start + STACK_BYTES) // ALIGN * ALIGN - ALIGN
        first = context - self._registers.size
        stack[(first - start) // 8 :] = 0
        stack[(first + self._registers.return_at - start) // 8] = self._body
        stack[(context - start) // 8] = first
        self._memory.append(stack)
        return context, start + STACK_SPARE
