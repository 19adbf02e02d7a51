"""Recording a batch: the logs in which native code notes the blocks of all instances."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from relaxlab.codegen.llvm import recorder_words as native
from relaxlab.codegen.llvm import recording
from relaxlab.codegen.llvm.fibers import FIBER_WORDS
from relaxlab.codegen.llvm.jit import LoadedObject
from relaxlab.ir import recording as rec
from relaxlab.ir.errors import UserError
from relaxlab.ir.recording import RecordingProgram
from relaxlab.ir.target import Target
from relaxlab.runtime.batch.fibers import Fibers
from relaxlab.runtime.batch.words import Words

FIRST_ROOM = 256
"""Notes for which a log has room at first, and words for values of data types."""

NO_FIBERS = np.empty((0, FIBER_WORDS), np.int64)


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
    """The record of a batch, or of a round of one: the notes on each block, and last those on rows
    of input arrays, are the rows of its log from `done` up to `counts`; the number of slots; the
    words of each instance's results; and why instances failed (0 for those that did not)."""

    logs: tuple[Words, ...]
    done: Words
    counts: Words
    slots: int
    results: Words
    failures: Words

    @property
    def count(self) -> int:
        """The number of notes on blocks."""
        return int((self.counts - self.done)[:-1].sum())

    @property
    def notes(self) -> list[Words]:
        """The notes on each block, a row of words each."""
        ends = zip(self.logs[:-1], self.done.tolist(), self.counts.tolist(), strict=False)
        return [log[first:end] for log, first, end in ends]


class Recorder:
    """The native functions that record, with their logs, which are kept between batches."""

    def __init__(
        self, program: RecordingProgram, code: bytes, messages: Sequence[str], target: Target
    ) -> None:
        self.program, self.messages = program, tuple(messages)
        self.code = LoadedObject((code,), target)
        types = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p)
        self.record_address = self.code.address(recording.ENTRY)
        self._record = ctypes.CFUNCTYPE(None, *types)(self.record_address)
        self.widths = [*map(recording.note_words, program.blocks), native.ROW_WORDS]
        """Words of a note, by log."""
        self._logs = tuple(np.empty((FIRST_ROOM, width), np.int64) for width in self.widths)
        self._heap = np.empty(FIRST_ROOM, np.int64)
        self.words = np.zeros(native.LOGS + native.LOG_WORDS * len(self.widths), np.int64)
        self._heads = self.words[native.LOGS :].reshape(-1, native.LOG_WORDS)
        self._empty = self._empty_words()
        self._fibers = None
        if program.waits:
            self._fibers = Fibers(self.code, self.words, forks(program))
        self.done = np.zeros(len(self.widths), np.int64)
        """Per log, the notes that ran before, where instances wait."""
        self.resumed = False
        """True if fibers went on since the flush before."""
        self.left = 0
        """The number of fibers that wait after the last flush. Of a program whose instances wait
        for nothing: 1 until they are recorded, then 0."""
        self.failures: Words = np.empty(0, np.int64)
        """By instance of the batch, why it failed; 0 for those that did not."""

    @property
    def resume_address(self) -> int:
        """The address of the function that lets fibers go on."""
        return 0 if self._fibers is None else self._fibers.resume_address

    @property
    def heap(self) -> Words:
        """The values of data types that were made while recording, as words."""
        used = int(self.words[native.HEAP_NEXT]) - self._heap.ctypes.data
        return self._heap[: used // 8]

    @property
    def fiber_words(self) -> Words:
        """The words of all fibers, a row each; none where instances wait for nothing."""
        return NO_FIBERS if self._fibers is None else self._fibers.words

    def rounds(
        self, inputs: Words, first_slot: int, failures: Words, results: Words,
        at_once: Callable[[], None] | None = None,
    ) -> Iterator[Recorded]:  # fmt: skip
        """Record the instances whose words are the rows of `inputs`: integers, and addresses of
        input records; `results` gets the words of their results. Slots are numbered from
        `first_slot` on. There is one round, unless instances wait for tensors: then each has what
        was noted since the one before, and the caller wakes them before it asks for the next.
        `at_once` records and runs what it can; rounds have what is left.

        Instances with a failure are left out; those that fail are given one.

        Raises MoreRoom where the caller has to begin again.
        """
        self.left = 1
        if self._fibers is None:
            if at_once is not None:
                refused = failures.copy()
                self._begin(first_slot, failures)
                at_once()
                if not self.left:
                    return
                failures[:] = refused
            yield self.record(inputs, first_slot, failures, results)
            return
        end = int(self.words[native.FIBERS_END])
        self._begin(first_slot, failures)
        self._fibers.start(inputs, results, end)
        whole = False
        try:
            yield from self._waiting_rounds(self._fibers, results, failures, at_once)
            whole = not failures.any()
        finally:
            if not whole:
                self._fibers.forget()

    def _waiting_rounds(
        self, made: Fibers, results: Words, failures: Words, at_once: Callable[[], None] | None
    ) -> Iterator[Recorded]:
        self.resumed = False
        while self.left:
            if at_once is not None:
                at_once()
                if not self.left:
                    return
            if not self.resumed:
                made.resume()
            self.resumed = False
            if self.words[native.FAILED]:
                self._grow_heap()
                raise MoreRoom
            counts = self._heads[:, native.LOG_COUNT].copy()
            if self._grow(counts):
                raise MoreRoom
            slots = int(self.words[native.NEXT_SLOT])
            yield Recorded(self._logs, self.done.copy(), counts, slots, results, failures)

    def record(
        self, inputs: Words, first_slot: int, failures: Words, results: Words
    ) -> Recorded:
        """Record instances that wait for nothing, as `rounds` does."""
        refused = failures.copy()
        while True:
            failures[:] = refused
            self._begin(first_slot, failures)
            self._record(
                self.words.ctypes.data, inputs.ctypes.data, len(inputs), results.ctypes.data
            )
            if self.words[native.FAILED]:
                self._grow_heap()
                continue
            counts = self._heads[:, native.LOG_COUNT].copy()
            # Nothing else has changed: with room for all notes it is done once more.
            if not self._grow(counts):
                break
        done, slots = np.zeros_like(counts), int(self.words[native.NEXT_SLOT])
        return Recorded(self._logs, done, counts, slots, results, failures)

    def _begin(self, first_slot: int, failures: Words) -> None:
        self.words[:] = self._empty
        self.words[native.NEXT_SLOT] = first_slot
        self.words[native.FAILURES] = failures.ctypes.data
        self.failures = failures
        self.done[:] = 0

    def _empty_words(self) -> Words:
        """The words of a recorder that has noted nothing."""
        made, heap = np.zeros_like(self.words), self._heap.ctypes.data
        made[native.HEAP_NEXT : native.HEAP_END + 1] = heap, heap + self._heap.nbytes
        made[native.LOGS :] = [w for log in self._logs for w in (log.ctypes.data, 0, len(log))]
        return made

    def _grow_heap(self) -> None:
        """Make room for more values of data types."""
        self._heap = np.empty(2 * len(self._heap), np.int64)
        self._empty = self._empty_words()

    def _grow(self, counts: Words) -> bool:
        """Make room for the notes in logs that were full. True if there were such logs."""
        full = counts > self._heads[:, native.LOG_ROOM]
        if not full.any():
            return False
        self._logs = tuple(
            np.empty((2 * n, log.shape[1]), np.int64) if is_full else log
            for n, log, is_full in zip(counts.tolist(), self._logs, full, strict=True)
        )
        self._empty = self._empty_words()
        return True

    def reason(self, failure: int) -> str:
        """The reason that a failure stands for."""
        if failure == native.TOO_DEEP:
            return "its recursion does not end, or is too deep"
        return self.messages[failure - native.FIRST_MESSAGE].format()


def forks(program: RecordingProgram) -> bool:
    """True if several calls that wait may go on side by side in one instance."""

    def waits(step: object) -> bool:
        return isinstance(step, rec.Call) and step.function in program.waiting

    return any(
        sum(map(waits, step.members)) > 1
        for f in program.functions.values()
        for step in rec.walk_steps(f.steps)
        if isinstance(step, rec.Together)
    )
