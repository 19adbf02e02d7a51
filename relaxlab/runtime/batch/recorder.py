"""Recording a batch: the logs in which native code notes the blocks of all instances."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from relaxlab.codegen.llvm import fibers, recording
from relaxlab.codegen.llvm import recorder_words as native
from relaxlab.codegen.llvm.jit import LoadedObject
from relaxlab.ir.errors import UserError
from relaxlab.ir.recording import RecordingProgram
from relaxlab.ir.target import Target
from relaxlab.runtime.batch.fibers import Fibers
from relaxlab.runtime.batch.words import Words

FIRST_ROOM = 256
"""Notes for which a log has room at first, and words for values of data types."""


class BatchError(UserError, ValueError):
    """An instance of a batch cannot be computed: its number is in `instance`, the reason in
    `reason`. The other instances were: their results are in `results`, which has None for those
    that failed."""

    def __init__(
        self, reason: str, instance: int, results: Sequence[Any] = (), failed: int = 1
    ) -> None:
        others = f" (and {failed - 1} more)" if failed > 1 else ""
        super().__init__(f"instance {instance} of the batch{others}: {reason}")
        self.reason, self.instance, self.results = reason, instance, tuple(results)


class MoreRoom(Exception):
    """A log was full when instances had been computed in part: the batch begins again."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """The record of a batch, or of a round of one: per block its notes, a row of words each; the
    notes on rows of input arrays; the number of slots; the words of each instance's results.

    Instances wait for the tensors in the slots `waiting`, whose addresses the caller puts into
    `addresses` before it asks for the next round.
    """

    notes: tuple[Words, ...]
    rows: Words
    slots: int
    results: Words
    waiting: Words = field(default_factory=lambda: np.empty(0, np.int64))
    addresses: Words = field(default_factory=lambda: np.empty(0, np.int64))


class Recorder:
    """The native functions that record, with their logs, which are kept between batches."""

    def __init__(
        self, program: RecordingProgram, code: bytes, messages: Sequence[str], target: Target
    ) -> None:
        self.program, self.messages = program, tuple(messages)
        self._code = LoadedObject((code,), target)
        types = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p)
        self._record = ctypes.CFUNCTYPE(None, *types)(self._code.address(recording.ENTRY))
        run = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
        self._run = run(self._code.address(recording.RUN))
        widths = [*map(recording.note_words, program.blocks), native.ROW_WORDS]
        self._logs = [np.empty((FIRST_ROOM, width), np.int64) for width in widths]
        self._heap = np.empty(FIRST_ROOM, np.int64)
        self._words = np.zeros(native.LOGS + native.LOG_WORDS * len(widths), np.int64)
        waits = program.waits
        self._fibers = Fibers(self._code, self._words) if waits else None

    def rounds(self, inputs: Words, first_slot: int) -> Iterator[Recorded]:
        """Record the instances whose words are the rows of `inputs`: integers, and addresses of
        input records. Slots are numbered from `first_slot` on. There is one round, unless instances
        wait for tensors: then each has what was noted since the one before.

        Raises BatchError naming the instance that cannot be recorded, and MoreRoom.
        """
        if self._fibers is None:
            yield self.record(inputs, first_slot)
            return
        results = np.empty((len(inputs), len(self.program.results)), np.int64)
        self._begin(first_slot)
        self._fibers.start(inputs, results)
        finished = False
        try:
            yield from self._waiting_rounds(self._fibers, results)
            finished = True
        finally:
            if not finished:
                self._fibers.forget()

    def _waiting_rounds(self, made: Fibers, results: Words) -> Iterator[Recorded]:
        done = [0] * len(self._logs)
        while True:
            made.resume()
            self._require_success()
            counts = self._counts()
            if self._grow(counts):
                raise MoreRoom
            *notes, rows = (
                log[first:n] for first, n, log in zip(done, counts, self._logs, strict=True)
            )
            done = counts
            state = made.words[:, fibers.STATE]
            waiting = np.flatnonzero(state == fibers.WAITING)
            if not len(waiting) and np.any(state == fibers.AT_PHASE):
                state[state == fibers.AT_PHASE] = fibers.READY
            slots = made.words[waiting, fibers.SLOT]
            addresses = np.zeros(len(waiting), np.int64)
            count = int(self._words[native.NEXT_SLOT])
            yield Recorded(tuple(notes), rows, count, results, slots, addresses)
            made.words[waiting, fibers.VALUE] = addresses
            state[waiting] = fibers.READY
            if np.all(state == fibers.DONE):
                return

    def record(self, inputs: Words, first_slot: int) -> Recorded:
        """Record instances that wait for nothing, as `rounds` does."""
        results = np.empty((len(inputs), len(self.program.results)), np.int64)
        while True:
            self._begin(first_slot)
            self._record(
                self._words.ctypes.data, inputs.ctypes.data, len(inputs), results.ctypes.data
            )
            if self._words[native.FAILED] == native.NO_ROOM:
                self._heap = np.empty(2 * len(self._heap), np.int64)
                continue
            self._require_success()
            counts = self._counts()
            # Nothing else has changed: with room for all notes it is done once more.
            if not self._grow(counts):
                break
        *notes, rows = (log[:n] for n, log in zip(counts, self._logs, strict=True))
        return Recorded(tuple(notes), rows, int(self._words[native.NEXT_SLOT]), results)

    def _begin(self, first_slot: int) -> None:
        self._words[: native.LOGS] = 0
        self._words[native.NEXT_SLOT] = first_slot
        heap = self._heap.ctypes.data
        self._words[native.HEAP_NEXT : native.HEAP_END + 1] = heap, heap + self._heap.nbytes
        for head, log in zip(self._heads(), self._logs, strict=True):
            head[:] = log.ctypes.data, 0, len(log)

    def _heads(self) -> Words:
        return self._words[native.LOGS :].reshape(-1, native.LOG_WORDS)

    def _counts(self) -> list[int]:
        return self._heads()[:, native.LOG_COUNT].tolist()

    def _grow(self, counts: Sequence[int]) -> bool:
        """Make room for the notes in logs that were full. True if there were such logs."""
        full = [n > len(log) for n, log in zip(counts, self._logs, strict=True)]
        self._logs = [
            np.empty((2 * n, log.shape[1]), np.int64) if is_full else log
            for n, log, is_full in zip(counts, self._logs, full, strict=True)
        ]
        return any(full)

    def run(self, calls: Words, threads: int) -> int:
        """Run batches, whose calls are the rows of `calls`. Returns 0, or what the first that
        failed returned, with its number in the upper half."""
        return self._run(calls.ctypes.data, len(calls), threads)

    def _require_success(self) -> None:
        failure, instance = (int(self._words[w]) for w in (native.FAILED, native.INSTANCE))
        if not failure:
            return
        if failure == native.NO_ROOM:
            self._heap = np.empty(2 * len(self._heap), np.int64)
            raise MoreRoom
        reason = "its recursion does not end, or is too deep"
        if failure != native.TOO_DEEP:
            reason = self.messages[failure - native.FIRST_MESSAGE].format()
        raise BatchError(reason, instance)
