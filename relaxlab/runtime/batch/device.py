"""Flushes on a device: the host makes batches and writes down their operands, kernels run there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from relaxlab.codegen.llvm import fibers
from relaxlab.codegen.llvm import flushing as native
from relaxlab.ir import recording as rec
from relaxlab.ir.dtypes import bytes_of, numpy_dtype
from relaxlab.runtime.batch.arena import Arena, DeviceArena
from relaxlab.runtime.batch.flush import BlockWords, Flusher, Places, Ran
from relaxlab.runtime.batch.recorder import Recorded, Recorder
from relaxlab.runtime.batch.records import ChosenOrder
from relaxlab.runtime.rows import row_bytes, row_dims
from relaxlab.runtime.vm.memory import DeviceMemory

Calls = Callable[[str, Sequence[Any]], Any]
"""Calls a function of a program, by its name, on arrays of a device."""
SCALAR_BYTES = 8
"""Bytes of the largest scalar."""


class DeviceBlock(BlockWords):
    """A block whose batches a function on a device runs. transform: the function that packs its
    weights, where there is one."""

    def __init__(
        self, call: Calls, transform: str | None, of: rec.BatchBlock, note_words: int
    ) -> None:
        super().__init__(of, note_words)
        self._call, self._transform = call, transform
        self._weights: tuple[Any, ...] = ()
        self._scalars = [numpy_dtype(dtype) for dtype in of.scalars]
        self._outputs = [
            (str(t.dtype), bytes_of(str(t.dtype)), row_bytes(t), [d for d in row_dims(t) if d != 1])
            for t in of.outputs
        ]

    def prepared(self, shared: list[Any]) -> Callable[[], None]:
        """Pack the values that all instances share. Returns the function that binds them."""
        given = tuple(shared)
        packed = given if self._transform is None else self._call(self._transform, (given,))

        def take() -> None:
            self._weights = packed if isinstance(packed, tuple) else (packed,)

        return take

    def run(
        self, arena: DeviceArena, operands: Any, at: int, rows: int, results: Sequence[int]
    ) -> int:
        """Run a batch of so many rows. Its operands begin at word `at` of `operands`, its results
        are to be at places in bytes. Returns the word behind its operands."""
        args = [arena.viewed(dtype) for dtype in self.of.arenas]
        for _ in self.of.inputs:
            args.append(operands[at : at + rows])
            at += rows + rows % 2
        for dtype in self._scalars:
            args.append(operands[at : at + rows].view(dtype)[:rows])
            at += rows + rows % 2
        for (dtype, element, size, dims), place in zip(self._outputs, results, strict=False):
            start = place // element
            part = arena.viewed(dtype)[start : start + rows * size // element]
            args.append(part.reshape((rows, *dims)))
        self._call(self.of.function, (*args, *self._weights))
        return at


class DeviceFlusher(Flusher):
    """Runs batches by functions on a device. transforms: by the name of a function, that of the one
    which packs its weights."""

    def __init__(
        self, recorder: Recorder, call: Calls, transforms: dict[str, str], on: DeviceMemory
    ) -> None:
        program = recorder.program
        self._device = [
            DeviceBlock(call, transforms.get(block.function), block, width)
            for block, width in zip(program.blocks, recorder.widths, strict=False)
        ]
        super().__init__(recorder, self._device)
        self._on = on
        self._most_outputs = max((len(b.outputs) for b in program.blocks), default=0)
        self._operands = self._function(native.flush_operands)
        self._fields.set(most_outputs=self._most_outputs)

    def bind(self, shared: Sequence[Any]) -> None:
        """Give the blocks the values that all instances share, each of which is copied to the
        device once."""
        super().bind([self._on.constant(array) for array in shared])

    def begin(self, recorded: Recorded, places: Places, chosen: ChosenOrder | None) -> int:
        """Choose the batches, and give their results places."""
        # An operand of one row takes two words.
        self._make_room(2 * recorded.count * self._most_operands, "places")
        self._make_room(recorded.count * self._most_outputs, "results")
        return super().begin(recorded, places, chosen)

    def run(self, arena: Arena) -> Ran:
        """Run the batches that were begun.

        Raises what a kernel reports.
        """
        assert isinstance(arena, DeviceArena)
        fields = self._fields
        fields.set(arena=arena.address, arena_size=len(arena.memory))
        words, count = self._operands(fields.address), fields["batches"]
        kinds, ends = (fields.array(name)[:count].tolist() for name in ("batch_kind", "batch_end"))
        operands = self._on.constant(fields.array("places")[:words])
        results = fields.array("results")[: count * self._most_outputs]
        rows = np.diff(ends, prepend=0).tolist()
        at, most = 0, self._most_outputs
        for batch, (kind, of_batch) in enumerate(zip(kinds, rows, strict=True)):
            given = results[batch * most : (batch + 1) * most].tolist()
            at = self._device[kind].run(arena, operands, at, of_batch, given)
        return Ran(kinds, ends, fields["gathered"])

    def wake(self, recorded: Recorded, arena: Arena) -> None:
        """Let instances that wait go on after a flush: what they wait for comes to the host."""
        assert isinstance(arena, DeviceArena)
        words = self._recorder.fiber_words
        waiting = words[words[:, fibers.STATE] == fibers.WAITING]
        places = self._fields.array("offsets")[waiting[:, fibers.SLOT]]
        arena.fetch(places, SCALAR_BYTES)
        super().wake(recorded, arena)
