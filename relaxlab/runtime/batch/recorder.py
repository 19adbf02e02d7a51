"""Recording a batch: the logs in which native code notes the blocks of all instances."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from relaxlab.codegen.llvm import recording as native
from relaxlab.codegen.llvm.jit import LoadedObject
from relaxlab.ir.errors import UserError
from relaxlab.ir.recording import RecordingProgram
from relaxlab.ir.target import Target

Words = np.ndarray[Any, np.dtype[np.int64]]

FIRST_ROOM = 256
"""Notes for which a log has room at first, and words for values of data types."""


class BatchError(UserError, ValueError):
    """An instance of a batch cannot be recorded: its number is in `instance`."""

    def __init__(self, message: str, instance: int) -> None:
        super().__init__(message)
        self.instance = instance


@dataclass(frozen=True, slots=True)
class Recorded:
    """The record of a batch: per block its notes, a row of words each; the notes on rows of
    input arrays; the number of slots; the words of each instance's results."""

    notes: tuple[Words, ...]
    rows: Words
    slots: int
    results: Words


class Recorder:
    """The native functions that record, with their logs, which are kept between batches."""

    def __init__(
        self, program: RecordingProgram, code: bytes, messages: Sequence[str], target: Target
    ) -> None:
        self.program, self.messages = program, tuple(messages)
        self._code = LoadedObject((code,), target)
        types = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p)
        self._record = ctypes.CFUNCTYPE(None, *types)(self._code.address(native.ENTRY))
        run = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
        self._run = run(self._code.address(native.RUN))
        widths = [*map(native.note_words, program.blocks), native.ROW_WORDS]
        self._logs = [np.empty((FIRST_ROOM, width), np.int64) for width in widths]
        self._heap = np.empty(FIRST_ROOM, np.int64)
        self._words = np.zeros(native.LOGS + native.LOG_WORDS * len(widths), np.int64)

    def record(self, inputs: Words, first_slot: int) -> Recorded:
        """Record the instances whose words are the rows of `inputs`: integers, and addresses of
        input records. Slots are numbered from `first_slot` on.

        Raises BatchError naming the instance that cannot be recorded.
        """
        results = np.empty((len(inputs), len(self.program.results)), np.int64)
        heads = self._words[native.LOGS :].reshape(-1, native.LOG_WORDS)
        while True:
            self._words[: native.LOGS] = 0
            self._words[native.NEXT_SLOT] = first_slot
            heap = self._heap.ctypes.data
            self._words[native.HEAP_NEXT : native.HEAP_END + 1] = heap, heap + self._heap.nbytes
            for head, log in zip(heads, self._logs, strict=True):
                head[:] = log.ctypes.data, 0, len(log)
            self._record(
                self._words.ctypes.data, inputs.ctypes.data, len(inputs), results.ctypes.data
            )
            if self._words[native.FAILED] == native.NO_ROOM:
                self._heap = np.empty(2 * len(self._heap), np.int64)
                continue
            if self._words[native.FAILED]:
                self._fail()
            counts = heads[:, native.LOG_COUNT].tolist()
            if all(n <= len(log) for n, log in zip(counts, self._logs, strict=True)):
                break
            # Nothing else has changed: with room for all notes it is done once more.
            self._logs = [
                log if n <= len(log) else np.empty((2 * n, log.shape[1]), np.int64)
                for n, log in zip(counts, self._logs, strict=True)
            ]
        *notes, rows = (log[:n] for n, log in zip(counts, self._logs, strict=True))
        return Recorded(tuple(notes), rows, int(self._words[native.NEXT_SLOT]), results)

    def run(self, calls: Words, threads: int) -> int:
        """Run batches, whose calls are the rows of `calls`. Returns 0, or what the first that
        failed returned, with its number in the upper half."""
        return self._run(calls.ctypes.data, len(calls), threads)

    def _fail(self) -> None:
        failure, instance = (int(self._words[w]) for w in (native.FAILED, native.INSTANCE))
        reason = "its recursion does not end, or is too deep"
        if failure != native.TOO_DEEP:
            reason = self.messages[failure - native.FIRST_MESSAGE].format()
        raise BatchError(f"instance {instance} of the batch: {reason}", instance)
