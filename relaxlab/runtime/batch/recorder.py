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
from relaxlab.codegen.llvm.memo import memo_places
from relaxlab.ir import recording as rec
from relaxlab.ir.errors import UserError
from relaxlab.ir.recording import RecordingProgram
from relaxlab.ir.target import Target
from relaxlab.runtime.batch.fibers import Fibers
from relaxlab.runtime.batch.instances import Inputs
from relaxlab.runtime.batch.start import Start
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
        self._memo = np.zeros(memo_places(program)[1], np.int64)
        self.words = np.zeros(native.LOGS + native.LOG_WORDS * len(self.widths), np.int64)
        self._heads = self.words[native.LOGS :].reshape(-1, native.LOG_WORDS)
        self.start = Start(program, self.words)
        self._hold_empty(self._logs, self._heap)
        self._fibers = None
        if program.waits:
            self._fibers = Fibers(self.code, target, self.words, forks(program))
        self.done = np.zeros(len(self.widths), np.int64)
        """Per log, the notes that ran before, where instances wait."""
        self.begun = self.resumed = False
        """True if the batch has begun; and if fibers went on since the flush before."""
        self.finished = True
        """True if the batch before ended as it should: no fiber is in the middle of an instance."""
        self.left = 0
        """The number of fibers that wait after the last flush. Of a program whose instances wait
        for nothing: 1 until they are recorded, then 0."""

    @property
    def resume_address(self) -> int:
        """The address of the function that lets fibers go on."""
        return 0 if self._fibers is None else self._fibers.resume_address

    @property
    def fiber_words(self) -> Words:
        """The words of all fibers, a row each; none where instances wait for nothing."""
        return NO_FIBERS if self._fibers is None else self._fibers.words

    def prepare(self, inputs: Inputs, at: int) -> None:
        """Write down the next batch, whose arrays are copied into the arena from byte `at` on.
        Instances with a failure will be left out; those that fail will be given one."""
        if not self.finished:
            self.forget()
        self.finished = False
        self.left, self.begun, self.resumed = 1, False, False
        self.start.fields.hold(empty=self._empty)
        self.start.prepare(inputs, at, self._fibers)

    def rounds(
        self, begin: Callable[[], None], go_on: Callable[[], None] | None = None
    ) -> Iterator[Recorded]:
        """Record the instances. There is one round, unless instances wait for tensors: then each
        has what was noted since the one before, and the caller wakes them before it asks for the
        next. `begin` empties the recorder. `go_on` runs what it can of instances that were woken;
        rounds have what is left.

        Raises MoreRoom where the caller has to begin again.
        """
        if self._fibers is None:
            yield self.record(begin)
            return
        if not self.begun:
            begin()
        while self.left:
            if not self.resumed:
                self._fibers.resume()
            self.resumed = False
            yield self._waiting_round()
            if go_on is not None and self.left:
                go_on()

    def _waiting_round(self) -> Recorded:
        if self.words[native.FAILED]:
            self._grow_heap()
            raise MoreRoom
        counts = self._heads[:, native.LOG_COUNT].copy()
        if self._grow(counts):
            raise MoreRoom
        return self._recorded(self.done.copy(), counts)

    def _recorded(self, done: Words, counts: Words) -> Recorded:
        slots, of = int(self.words[native.NEXT_SLOT]), self.start
        return Recorded(self._logs, done, counts, slots, of.results, of.failures)

    def record(self, begin: Callable[[], None]) -> Recorded:
        """Record instances that wait for nothing, as `rounds` does."""
        given, made = self.start.inputs, self.start.results
        while True:
            begin()
            self._record(self.words.ctypes.data, given.ctypes.data, len(given), made.ctypes.data)
            if self.words[native.FAILED]:
                self._grow_heap()
                continue
            counts = self._heads[:, native.LOG_COUNT].copy()
            # Nothing else has changed: with room for all notes it is done once more.
            if not self._grow(counts):
                return self._recorded(np.zeros_like(counts), counts)

    def forget(self) -> None:
        """Give up the fibers, some of which are in the middle of an instance."""
        if self._fibers is not None:
            self._fibers.forget()

    def _hold_empty(self, logs: tuple[Words, ...], heap: Words) -> None:
        """Let batches begin with the words of a recorder that has noted nothing, in this memory."""
        made, address = np.zeros_like(self.words), heap.ctypes.data
        made[native.HEAP_NEXT : native.HEAP_END + 1] = address, address + heap.nbytes
        made[native.MEMO] = self._memo.ctypes.data
        made[native.LOGS :] = [w for log in logs for w in (log.ctypes.data, 0, len(log))]
        # No call is between these, at which Ctrl-C could leave memory that nobody keeps.
        self._logs, self._heap, self._empty = logs, heap, made
        self.start.fields.hold(empty=made)

    def _grow_heap(self) -> None:
        """Make room for more values of data types."""
        self._hold_empty(self._logs, np.empty(2 * len(self._heap), np.int64))

    def _grow(self, counts: Words) -> bool:
        """Make room for the notes in logs that were full. True if there were such logs."""
        full = counts > self._heads[:, native.LOG_ROOM]
        if not full.any():
            return False
        logs = tuple(
            np.empty((2 * n, log.shape[1]), np.int64) if is_full else log
            for n, log, is_full in zip(counts.tolist(), self._logs, full, strict=True)
        )
        self._hold_empty(logs, self._heap)
        return True

    def reason(self, failure: int) -> str:
        """The reason that a failure stands for."""
        if failure == native.TOO_DEEP:
            # A tree with a child outside of its arrays is the usual cause.
            return (
                "its recursion does not end, or is too deep; an index outside of an array, such as "
                "a child that is not there, reads the nearest element"
            )
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
