"""A function that runs many instances at once."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from relaxlab.codegen.llvm import recording as native
from relaxlab.ir import recording as rec
from relaxlab.ir.dtypes import bytes_of, numpy_dtype
from relaxlab.ir.errors import brief, counted
from relaxlab.runtime.batch.instances import Inputs, read_instances, readable_kinds
from relaxlab.runtime.batch.recorder import Recorded, Recorder, Words
from relaxlab.runtime.batch.schedule import (
    ALIGN,
    Schedule,
    columns,
    input_rows,
    place_results,
    row_bytes,
    row_elements,
)
from relaxlab.runtime.native.arguments import ArgumentError
from relaxlab.runtime.native.function import NativeFunction

if TYPE_CHECKING:
    from relaxlab.runtime.executable import Executable


@dataclass(frozen=True, slots=True)
class BatchReport:
    """The cost of a batch: nodes that were noted, batches that ran, flushes, and the bytes
    that were gathered from places that do not follow each other. `launches` has, per batch in their
    order, the name of the block and its number of rows."""

    instances: int
    nodes: int
    batches: int
    flushes: int
    bytes_gathered: int
    launches: tuple[tuple[str, int], ...]


class BatchFunction:
    """The entry of a batched program. `bind` gives it its weights, `batch` runs instances.

    `last_batch` describes the batch that ran last; None before the first.
    """

    def __init__(self, exe: Executable, recorder: Recorder) -> None:
        self.program = recorder.program
        self.last_batch: BatchReport | None = None
        self._exe, self._recorder = exe, recorder
        self._blocks = [_Block(exe, b) for b in self.program.blocks]
        self._readable = readable_kinds(self.program)
        self._arena = np.zeros(0, np.uint8)
        self._weights: tuple[Any, ...] | None = None if self._has_weights() else ()
        self._shared: list[np.ndarray[Any, Any]] = []
        self._lock = threading.Lock()
        if self._weights is not None:
            self.bind()

    def _has_weights(self) -> bool:
        return any(s.parameter >= 0 for s in self.program.shared)

    def __repr__(self) -> str:
        names = ", ".join(dict.fromkeys(p.name for p in self.program.params))
        return f"<batched {self.program.entry}({names})>"

    @brief
    def bind(self, *weights: Any) -> BatchFunction:
        """Give the weights once: the arguments after the first `num_input`. They are packed for the
        blocks that read them. Returns the function.

        Raises ArgumentError for weights that do not fit.
        """
        with self._lock:
            self._shared = [self._shared_value(s, weights) for s in self.program.shared]
            for block in self._blocks:
                block.bind([self._shared[i] for i in block.of.shared])
            self._weights = weights
        return self

    def _shared_value(
        self, shared: rec.SharedValue, weights: Sequence[Any]
    ) -> np.ndarray[Any, Any]:
        if shared.constant is not None:
            return shared.constant.data
        number = shared.parameter - self.program.num_input
        if number >= len(weights):
            raise ArgumentError(
                f"`{self.program.entry}` has more weights than {counted(len(weights), 'one')}"
            )
        value = weights[number]
        for index in shared.path:
            value = value[index]
        return np.ascontiguousarray(value)

    @brief
    def __call__(self, *args: Any) -> Any:
        """Run one instance: a batch of one."""
        return self.batch([args])[0]

    @brief
    def batch(self, instances: Sequence[Any]) -> list[Any]:
        """Run the instances and return their results, in order. An instance is a tuple of the
        arguments besides the weights, or the argument where there is one.

        Raises ArgumentError for an argument that does not fit, BatchError for an instance that
        cannot be recorded, both naming the instance.
        """
        if self._weights is None:
            raise ArgumentError(f"`{self.program.entry}` needs its weights: call `bind` first")
        single = self.program.num_input == 1
        given = [(i,) if single and not isinstance(i, tuple) else i for i in instances]
        with self._lock:
            return self._run(given) if given else self._nothing()

    def _nothing(self) -> list[Any]:
        self.last_batch = BatchReport(0, 0, 0, 0, 0, ())
        return []

    def _run(self, instances: Sequence[Sequence[Any]]) -> list[Any]:
        program = self.program
        inputs, first = read_instances(program, instances, self._readable, len(program.shared))
        recorded = self._recorder.record(inputs.words, first)
        offsets = np.zeros(recorded.slots, np.int64)
        used = self._place_inputs(inputs, recorded, offsets)
        schedule = place_results(program, recorded, offsets, used)
        self._fill(inputs, offsets, schedule.size)
        self._flush(schedule, len(instances))
        return self._results(recorded, offsets)

    # --- The arena --------------------------------------------------------------------------------

    def _place_inputs(self, inputs: Inputs, recorded: Recorded, offsets: Words) -> int:
        """Give shared values that are read by their slots, and inputs, places in the arena; returns
        the bytes they take."""
        used = 0
        for i in self.program.gathered:
            offsets[i] = used
            used += -(-row_bytes(self.program.shared[i].ty) // ALIGN) * ALIGN
        row_of = np.zeros(len(offsets), np.int64)
        for first, flat, lengths in inputs.tensors:
            last = first + len(lengths)
            offsets[first:last] = used + (np.cumsum(lengths) - lengths) * flat.itemsize
            used += -(-flat.nbytes // ALIGN) * ALIGN
        for param, (first, flat, lengths) in zip(self._arrays(), inputs.tensors, strict=True):
            dims = param.ty.shape or ()
            row = row_elements(type(param.ty)(dims[1:], param.ty.dtype)) * flat.itemsize
            row_of[first : first + len(lengths)] = row
        if len(recorded.rows):
            input_rows(recorded, offsets, row_of)
        return used

    def _arrays(self) -> list[rec.EntryParam]:
        """The parameters whose arrays have slots."""
        return [
            p for p in self.program.params
            if p.kind == "array" and (str(p.ty.dtype), p.ty.ndim) in self._readable
        ]  # fmt: skip

    def _fill(self, inputs: Inputs, offsets: Words, size: int) -> None:
        """Make the arena large enough, and copy what is read from it."""
        if len(self._arena) < size:
            whole = np.empty(size + size // 4 + ALIGN, np.uint8)
            start = -whole.ctypes.data % ALIGN
            self._arena = whole[start:]
        for i in self.program.gathered:
            self._copy(self._shared[i], int(offsets[i]))
        for first, flat, _ in inputs.tensors:
            self._copy(flat, int(offsets[first]))

    def _copy(self, array: np.ndarray[Any, Any], offset: int) -> None:
        raw = array.reshape(-1).view(np.uint8)
        self._arena[offset : offset + len(raw)] = raw

    # --- Batches ----------------------------------------------------------------------------------

    def _flush(self, schedule: Schedule, instances: int) -> None:
        """Run all batches."""
        calls = np.empty((schedule.count, native.CALL_WORDS), np.int64)
        launches = np.empty((schedule.count, 2), np.int64)
        keep: list[Any] = []
        gathered = 0
        for number, (block, batches, outputs) in enumerate(
            zip(self._blocks, schedule.blocks, schedule.outputs, strict=True)
        ):
            if not len(batches.first):
                continue
            of = columns(block.of, batches, schedule.offsets)
            words = block.words(self._arena, of, batches.first, batches.end, outputs)
            keep += [of, words]
            calls[batches.place] = block.calls(words)
            launches[batches.place, 0] = number
            launches[batches.place, 1] = batches.end - batches.first
            gathered += bytes_gathered(block.of, of, batches.first, batches.end)
        code = self._recorder.run(calls, self._exe.threads)
        if code:
            failed = self._blocks[launches[code >> 32, 0]]
            failed.fail(code & 0xFFFFFFFF)
        nodes = sum(len(b.notes) for b in schedule.blocks)
        names = [b.name for b in self.program.blocks]
        named = tuple((names[b], int(n)) for b, n in launches.tolist())
        self.last_batch = BatchReport(instances, nodes, schedule.count, 1, gathered, named)

    # --- Results ----------------------------------------------------------------------------------

    def _results(self, recorded: Recorded, offsets: Words) -> list[Any]:
        leaves: list[list[Any]] = []
        for k, result in enumerate(self.program.results):
            words, dtype = recorded.results[:, k], numpy_dtype(str(result.ty.dtype))
            if result.kind == "scalar":
                leaves.append(list(words.astype(dtype)))
                continue
            count, size = row_elements(result.ty), bytes_of(str(result.ty.dtype))
            flat = self._arena[: len(self._arena) // size * size].view(dtype)
            rows = flat[(offsets[words] // size)[:, None] + np.arange(count)]
            shape = tuple(d.value for d in result.ty.shape or ())  # type: ignore[union-attr]
            leaves.append(list(rows.reshape(len(words), *shape)))
        return [_nested(self.program.result, [c[i] for c in leaves])
                for i in range(len(recorded.results))]  # fmt: skip


def _nested(tree: object, leaves: list[Any]) -> Any:
    if isinstance(tree, tuple):
        return tuple(_nested(t, leaves) for t in tree)
    return leaves[tree]  # type: ignore[index]


class _Block:
    """The native function of a block, and where it reads its arguments."""

    def __init__(self, exe: Executable, of: rec.BatchBlock) -> None:
        self.of, self._exe = of, exe
        self._function: NativeFunction = exe[of.function]
        self._arena_size = [bytes_of(d) for d in of.arenas]

    def bind(self, shared: list[np.ndarray[Any, Any]]) -> None:
        """Pack the values that all instances share, and bind them."""
        self._function.bind(*self._exe.packed_weights(self.of.function, shared))

    def words(
        self,
        arena: np.ndarray[Any, Any],
        given: list[np.ndarray[Any, Any]],
        first: Words,
        end: Words,
        outputs: Words,
    ) -> Words:
        """The argument words of each batch: per tensor its address and its dimensions."""
        rows = end - first
        columns: list[Any] = []
        for size in self._arena_size:
            columns += [arena.ctypes.data, len(arena) // size]
        for column in given:
            columns += [column.ctypes.data + first * column.itemsize, rows]
        for k, ty in enumerate(self.of.outputs):
            dims = [d.value for d in ty.shape or () if d.value != 1]  # type: ignore[union-attr]
            columns += [arena.ctypes.data + outputs[:, k], rows, *dims]
        words = np.empty((len(first), len(columns)), np.int64)
        for i, column in enumerate(columns):
            words[:, i] = column
        return words

    def calls(self, words: Words) -> Words:
        """The calls of the batches that have these words."""
        function = self._function
        made = np.empty((len(words), native.CALL_WORDS), np.int64)
        made[:, native.CALL_ENTRY] = ctypes.cast(function._entry, ctypes.c_void_p).value or 0
        made[:, native.CALL_CONTEXT] = function._address
        made[:, native.CALL_TARGET] = ctypes.addressof(function._in)
        made[:, native.CALL_SOURCE] = words.ctypes.data + np.arange(len(words)) * words.strides[0]
        made[:, native.CALL_BYTES] = words.strides[0]
        return made

    def fail(self, code: int) -> None:
        """Raise the error that the function reported."""
        self._function._result(code, [])


def bytes_gathered(
    block: rec.BatchBlock, given: list[np.ndarray[Any, Any]], first: Words, end: Words
) -> int:
    """The bytes of tensors that a block's batches read from places that do not follow each other
    as the rows of a result do."""
    total = 0
    lengths = end - first
    for ty, at in zip(block.inputs, given, strict=False):
        row = row_elements(ty)
        breaks = np.diff(at, prepend=at[:1]) != row
        breaks[first] = False
        scattered = np.add.reduceat(breaks, first) > 0
        total += int((lengths * scattered).sum()) * row_bytes(ty)
    return total
