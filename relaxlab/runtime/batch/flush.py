"""The memory of a flush: what native code reads to run the batches of what was recorded."""

from __future__ import annotations

import ctypes
from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from relaxlab.codegen.llvm import fewest_batches as choosing
from relaxlab.codegen.llvm import flush_memory, starting
from relaxlab.codegen.llvm import flushing as native
from relaxlab.codegen.llvm.context import CONTEXT
from relaxlab.codegen.llvm.lowlevel import layout_of
from relaxlab.ir import recording as rec
from relaxlab.ir.dtypes import bytes_of
from relaxlab.runtime.batch.arena import Arena, Array
from relaxlab.runtime.batch.recorder import Recorded, Recorder
from relaxlab.runtime.batch.records import ChosenOrder
from relaxlab.runtime.batch.words import Words
from relaxlab.runtime.native.fields import Fields
from relaxlab.runtime.rows import row_bytes, row_dims, row_elements

FIRST_BATCHES = 256
"""Batches of flushes behind each other for which there is room at first."""

if TYPE_CHECKING:
    from relaxlab.runtime.executable import Executable
    from relaxlab.runtime.native.function import NativeFunction


@dataclass(slots=True)
class Places:
    """The places in the arena that are taken: its first `used` bytes, by slot the places of tensors
    (`offsets`), and the bytes of a row of input arrays. The arrays are kept between batches."""

    offsets: Words = field(default_factory=lambda: np.zeros(0, np.int64))
    row_bytes: Words = field(default_factory=lambda: np.zeros(0, np.int64))
    used: int = 0

    def grow(self, slots: int) -> None:
        """Make room for more slots."""
        if slots > len(self.offsets):
            # Twice as many slots as needed, for the flushes that follow. `np.pad` takes 15 µs.
            self.offsets, self.row_bytes = (
                np.concatenate([a, np.zeros(2 * slots - len(a), np.int64)])
                for a in (self.offsets, self.row_bytes)
            )


@dataclass(slots=True)  # a frozen one takes three times as long to make
class Ran:
    """The batches of flushes in the order in which they ran: the number of each one's block, and
    how many notes there are up to its end. `gathered` are the bytes that they read from rows which
    do not follow each other."""

    kinds: list[int]
    ends: list[int]
    gathered: int
    flushes: int = 1


class BlockWords:
    """A block, and the words by which a flush lays out its batches."""

    def __init__(self, of: rec.BatchBlock, note_words: int) -> None:
        self.of = of
        dims = [[d for d in row_dims(t) if d != 1] for t in of.outputs]
        self.fields = Fields(flush_memory.BlockCode)
        self.fields.set(
            most_rows=of.most_rows, note_words=note_words, arenas=len(of.arenas),
            inputs=len(of.inputs), scalars=len(of.scalars), outputs=len(of.outputs),
        )  # fmt: skip
        self.fields.hold(
            arena_bytes=_words(map(bytes_of, of.arenas)),
            input_shift=_words(bytes_of(str(t.dtype)).bit_length() - 1 for t in of.inputs),
            input_elements=_words(map(row_elements, of.inputs)),
            scalar_bytes=_words(map(bytes_of, of.scalars)),
            output_bytes=_words(map(row_bytes, of.outputs)),
            output_dims=_words(word for of_output in dims for word in (len(of_output), *of_output)),
        )

    @abstractmethod
    def prepared(self, shared: list[Any]) -> Callable[[], None]:
        """Pack the values that all instances share. Returns the function that binds them."""


class NativeBlock(BlockWords):
    """A block whose batches a native function runs."""

    def __init__(self, exe: Executable, of: rec.BatchBlock, note_words: int) -> None:
        super().__init__(of, note_words)
        self._exe = exe
        self._function: NativeFunction = exe[of.function]
        self.fields.set(
            entry=ctypes.cast(self._function._entry, ctypes.c_void_p).value or 0,
            context=self._function._address, target=ctypes.addressof(self._function._in),
        )  # fmt: skip

    def prepared(self, shared: list[Any]) -> Callable[[], None]:
        """Pack the values that all instances share. Returns the function that binds them."""
        return self._function.prepared(*self._exe.packed_weights(self.of.function, shared))

    def forget_failure(self) -> None:
        """Let the function begin anew: else the next call fails, too."""
        self._function._context[CONTEXT.index("kernel_failed")] = 0

    def fail(self, code: int) -> None:
        """Raise the error that the function reported."""
        self.forget_failure()
        self._function._result(code, [])


class Flusher:
    """Puts what a recorder has noted into batches, and gives their results places."""

    def __init__(self, recorder: Recorder, blocks: Sequence[BlockWords]) -> None:
        program = recorder.program
        # The slot of its first output is what a note is known by.
        assert all(b.outputs for b in program.blocks), "a block computes something"
        self.blocks, self._recorder = blocks, recorder
        phases = 1 + sum(
            isinstance(s, rec.Phase) for s in rec.walk_steps(program.functions[program.entry].steps)
        )
        operands = (len(b.inputs) + len(b.scalars) for b in program.blocks)
        self._most_operands = max(operands, default=0)
        self._fields = Fields(flush_memory.Flush)
        self._fields.set(kinds=len(blocks), phases=phases, threads=1)
        self._fields.hold(
            blocks=np.concatenate([_words(()), *(b.fields.words for b in blocks)]),
            recorder=recorder.words,
            levels=np.zeros(len(layout_of(choosing.Levels)), np.int64),
            first_depth=np.zeros(len(blocks), np.int64), last_depth=np.zeros(len(blocks), np.int64),
        )  # fmt: skip
        self._start = recorder.start.fields
        self._start.set(flush=self._fields.address)
        self._start_batch = self._function(starting.start_batch)
        self._place = self._function(native.flush_place)
        self._batches = self._function(choosing.flush_batches)
        self._wake = self._function(native.flush_wake, ctypes.c_void_p)

    def _function(self, of: Callable[..., Any], *more: Any) -> Callable[..., int]:
        """A function that takes the address of a record first."""
        kind = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, *more)
        return kind(self._recorder.code.address(f"relaxlab_{of.__name__}"))

    def bind(self, shared: Sequence[Array]) -> None:
        """Give the blocks the values that all instances share: all blocks, or none."""
        for take in [b.prepared([shared[i] for i in b.of.shared]) for b in self.blocks]:
            take()

    def start(self, places: Places, arena: Arena) -> None:
        """Begin the batch that was prepared: copy the arrays of instances into the arena, write
        down their places, and empty the recorder."""
        self._hold(places, arena)
        if self._start_batch(self._start.address) == starting.NO_PLACE:
            self._make_place(places, arena)
            self._start_batch(self._start.address)
        self._recorder.begun, places.used = True, self._start["inputs_end"]
        arena.publish(self._start["inputs_begin"], places.used)

    def _make_place(self, places: Places, arena: Arena) -> None:
        """Make room for the arrays of instances, and for their slots."""
        arena.reserve(self._start["inputs_end"], self._start["inputs_begin"])
        places.grow(self._start["first_slot"])
        self._hold(places, arena)

    def _hold(self, places: Places, arena: Arena) -> None:
        self._fields.set(
            arena=arena.address, arena_size=len(arena.memory), slot_room=len(places.offsets)
        )
        self._fields.hold(
            done=self._recorder.done, failures=self._recorder.start.failures,
            offsets=places.offsets, row_bytes=places.row_bytes,
        )  # fmt: skip

    def begin(self, recorded: Recorded, places: Places, chosen: ChosenOrder | None) -> int:
        """Choose the batches of what was recorded, unless they are given, and give their results
        places. Returns the bytes of the arena that are used then."""
        fields, notes = self._fields, recorded.count
        places.grow(recorded.slots)
        fields.set(used=places.used, gathered=0)
        fields.hold(
            done=recorded.done, failures=recorded.failures, offsets=places.offsets,
            row_bytes=places.row_bytes,
        )  # fmt: skip
        self._make_room(notes * self._most_operands, "places")
        if chosen is None:
            self._choose(notes)
        else:
            fields.set(batches=len(chosen.batch_end))
            fields.hold(
                order=chosen.order, order_kind=chosen.order_kind, batch_kind=chosen.batch_kind,
                batch_end=chosen.batch_end,
            )  # fmt: skip
        return self._place(self._fields.address)

    def _choose(self, notes: int) -> None:
        """Put so many notes into batches."""
        fields = self._fields
        self._make_room(notes, "order", "order_kind", "batch_kind", "batch_end")
        while words := self._batches(fields.address):
            self._make_room(words, "work")
            fields.set(work_room=len(fields.array("work")))

    def order_of(self, recorded: Recorded) -> ChosenOrder:
        """The batches of what was recorded, when none are given."""
        fields = self._fields
        fields.hold(done=recorded.done, failures=recorded.failures)
        self._choose(recorded.count)
        batches = fields["batches"]
        kinds, ends = (fields.array(n)[:batches].copy() for n in ("batch_kind", "batch_end"))
        count = int(ends[-1]) if len(ends) else 0
        order, order_kind = (fields.array(n)[:count].copy() for n in ("order", "order_kind"))
        return ChosenOrder(order, order_kind, kinds, ends)

    def _make_room(self, words: int, *names: str) -> None:
        """Make arrays so long at least; they are kept between flushes."""
        for name in names:
            if len(self._fields.array(name)) < words:
                self._fields.hold(**{name: np.empty(2 * words, np.int64)})

    @abstractmethod
    def run(self, arena: Arena) -> Ran:
        """Run the batches that were begun.

        Raises what a kernel reports.
        """

    def run_batch(self, places: Places, arena: Arena) -> Ran | None:
        """Begin the batch that was prepared, and run as much as takes no work in Python; the
        recorder says what is `left`. None where nothing ran."""
        return None

    def go_on(self, places: Places, arena: Arena) -> Ran | None:
        """Run as much as takes no work in Python of instances that were woken."""
        return None

    def wake(self, recorded: Recorded, arena: Arena) -> None:
        """Let instances that wait go on after a flush, where there are such."""
        recorder = self._recorder
        if recorder.program.waits:
            recorder.done[:] = recorded.counts
            recorder.left = self._wake(self._fields.address, recorder.fiber_words.ctypes.data)


class NativeFlusher(Flusher):
    """Runs batches by native functions of an executable."""

    def __init__(self, exe: Executable, recorder: Recorder) -> None:
        pairs = zip(recorder.program.blocks, recorder.widths, strict=False)
        self._native = [NativeBlock(exe, block, width) for block, width in pairs]
        super().__init__(recorder, self._native)
        self._exe, self._has_grown = exe, True
        self.state = ctypes.addressof(exe._state)
        """The address of the words that all functions of the executable share."""
        self.start_address = self._start.address
        self.run_address = recorder.code.address(f"relaxlab_{starting.run_batch.__name__}")
        self._held: tuple[int, ...] = ()
        """The numbers that the words of the flush were written from; none where they are stale."""
        self._counts = self._fields.reader("used", "ran", "gathered", "flushes")
        self._run = self._function(native.flush_run)
        self._run_batch = self._function(starting.run_batch)
        self._resume_batch = self._function(starting.resume_batch)
        self._fields.set(resume=recorder.resume_address, record=recorder.record_address)

    def begin(self, recorded: Recorded, places: Places, chosen: ChosenOrder | None) -> int:
        """Choose the batches, and give their results places."""
        self._fields.set(threads=self._exe.threads)
        self._has_grown, self._held = True, ()
        return super().begin(recorded, places, chosen)

    def run(self, arena: Arena) -> Ran:
        """Run the batches that were begun.

        Raises what a kernel reports.
        """
        fields = self._fields
        fields.set(arena=arena.address, arena_size=len(arena.memory))
        code, count = self._run(self._fields.address), fields["batches"]
        kinds, ends = (fields.array(name)[:count].tolist() for name in ("batch_kind", "batch_end"))
        if code:
            self._fail(code)
        return Ran(kinds, ends, fields["gathered"])

    def run_batch(self, places: Places, arena: Arena) -> Ran | None:
        """Record instances and run what they note, flush after flush, as long as there is room.
        None where nothing ran.

        Raises what a kernel reports.
        """
        self._hold(places, arena)
        code = self._run_batch(self._start.address)
        if code == starting.NO_PLACE:
            self._make_place(places, arena)
            code = self._run_batch(self._start.address)
        self._recorder.begun = True
        return self._ran(code, places)

    def go_on(self, places: Places, arena: Arena) -> Ran | None:
        """Go on where instances have been woken, as `run_batch` does."""
        self._hold(places, arena)
        self._fields.set(used=places.used)
        return self._ran(self._resume_batch(self._start.address), places)

    def _hold(self, places: Places, arena: Arena) -> None:
        if self._has_grown:
            self._measure_room()
        # The words keep the two arrays whose identity counts.
        arrays = id(places.offsets), id(self._recorder.start.failures)
        held = (arena.address, len(arena.memory), *arrays, self._exe.threads)
        if held != self._held:
            super()._hold(places, arena)
            self._fields.set(threads=self._exe.threads)
            self._held = held

    def _ran(self, code: int, places: Places) -> Ran | None:
        recorder, fields = self._recorder, self._fields
        places.used, count, _, _ = self._counts()
        if code > 0:
            self._fail(code)
        recorder.left, recorder.resumed = -code, code < 0
        ran = self.last_ran()
        if code:  # the last flush may be the one that lacked room
            self._make_room(2 * (count + fields["batches"]), "ran_kind", "ran_end")
            self._has_grown = True
        return ran if count else None

    def last_ran(self) -> Ran:
        """The batches that machine code ran last."""
        _, count, gathered, flushes = self._counts()
        kinds, ends = self._fields.array("ran_kind"), self._fields.array("ran_end")
        return Ran(kinds[:count].tolist(), ends[:count].tolist(), gathered, flushes)

    def forget_failures(self) -> None:
        """Let the functions that run batches begin anew, of which one has failed."""
        for block in self._native:
            block.forget_failure()

    def _measure_room(self) -> None:
        """Write down for how much there is room. What grows does so where there was too little, in
        `begin` and behind it."""
        fields = self._fields
        self._make_room(FIRST_BATCHES, "ran_kind", "ran_end")
        room = len(fields.array("places")) // max(1, self._most_operands)
        fields.set(
            note_room=min(room, len(fields.array("order")), len(fields.array("batch_end"))),
            ran_room=len(fields.array("ran_end")),
        )  # fmt: skip
        self._has_grown = False

    def _fail(self, code: int) -> None:
        batch, failure = divmod(code, 1 << native.CALL_BITS)
        self._native[int(self._fields.array("batch_kind")[batch])].fail(failure)


def _words(values: Iterable[int]) -> Words:
    return np.array(list(values), np.int64)
