"""A function that runs many instances at once."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from relaxlab.codegen.llvm import recorder_words as words_of
from relaxlab.codegen.llvm import recording as native
from relaxlab.ir import expr
from relaxlab.ir import recording as rec
from relaxlab.ir.dtypes import bytes_of, numpy_dtype
from relaxlab.ir.errors import brief, counted
from relaxlab.ir.types import DataType, TensorType
from relaxlab.runtime.batch.data_values import read_values
from relaxlab.runtime.batch.instances import Inputs, read_instances, readable_kinds
from relaxlab.runtime.batch.recorder import BatchError, MoreRoom, Recorded, Recorder
from relaxlab.runtime.batch.records import Choice, Records, chosen_steps, joined, records_of
from relaxlab.runtime.batch.schedule import (
    ALIGN,
    BlockBatches,
    Places,
    Schedule,
    input_rows,
    place_results,
    row_bytes,
    row_elements,
)
from relaxlab.runtime.batch.words import Words
from relaxlab.runtime.native.arguments import ArgumentError
from relaxlab.runtime.native.function import NativeFunction

if TYPE_CHECKING:
    from relaxlab.runtime.executable import Executable


class BatchReport:
    """The cost of a batch: nodes that were noted, batches that ran, flushes. `launches` has, per
    batch in their order, the name of the block and its number of rows."""

    def __init__(
        self, instances: int, launches: tuple[tuple[str, int], ...], reads: Sequence[_Reads],
        flushes: int = 0,
    ) -> None:  # fmt: skip
        self.instances, self.launches = instances, launches
        self.nodes, self.batches = sum(rows for _, rows in launches), len(launches)
        self.flushes = flushes
        self._reads = reads

    def followed_by(
        self, launches: tuple[tuple[str, int], ...], reads: Sequence[_Reads]
    ) -> BatchReport:
        """The report on these batches, too, if there are any."""
        if not launches:
            return self
        both = (*self.launches, *launches), (*self._reads, *reads)
        return BatchReport(self.instances, *both, self.flushes + 1)

    @property
    def bytes_gathered(self) -> int:
        """The bytes that kernels read from rows which do not follow each other as those of a
        result do."""
        return sum(r.bytes_gathered() for r in self._reads)

    def __repr__(self) -> str:
        return (
            f"BatchReport(instances={self.instances}, nodes={self.nodes}, batches={self.batches}, "
            f"flushes={self.flushes}, bytes_gathered={self.bytes_gathered})"
        )


@dataclass(frozen=True, slots=True)
class _Reads:
    """The places, in elements, that the batches of one block read one of its tensors from."""

    places: Words
    first: Words
    end: Words
    elements: int
    bytes: int

    def bytes_gathered(self) -> int:
        breaks = np.diff(self.places, prepend=self.places[:1]) != self.elements
        breaks[self.first] = False
        scattered = np.add.reduceat(breaks, self.first) > 0
        return int(((self.end - self.first) * scattered).sum()) * self.bytes


class BatchFunction:
    """The entry of a batched program. `bind` gives it its weights, `batch` runs instances.

    `last_batch` describes the batch that ran last; None before the first.
    """

    def __init__(self, exe: Executable, recorder: Recorder) -> None:
        self.program = recorder.program
        self.last_batch: BatchReport | None = None
        self._exe, self._recorder = exe, recorder
        self._blocks = [_Block(exe, b) for b in self.program.blocks]
        self._rows = [np.array([row_bytes(t) for t in b.outputs]) for b in self.program.blocks]
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
    def batch(self, instances: Sequence[Any], choose: Choice | None = None) -> list[Any]:
        """Run the instances and return their results, in order. An instance is a tuple of the
        arguments besides the weights, or the argument where there is one.

        choose: puts what was recorded into batches (`rl.batches_by`); None: by the depths that were
        counted while recording.

        Raises ArgumentError for an argument that does not fit, BatchError for an instance that
        cannot be recorded, when all others are computed; both name the instance. Raises
        ScheduleError for batches that leave notes out.
        """
        if self._weights is None:
            raise ArgumentError(f"`{self.program.entry}` needs its weights: call `bind` first")
        with self._lock:
            return self._run(self._given(instances), choose) if instances else self._nothing()

    @brief
    def record(self, instances: Sequence[Any]) -> Records:
        """Record the instances and return what was noted. Nothing is computed, unless instances
        wait for tensors.

        Raises what `batch` raises.
        """
        with self._lock:
            inputs, first = self._read(self._given(instances))
            if not self.program.waits:
                return records_of(self.program, self._recorder.record(inputs.words, first))[0]
            rounds: list[Recorded] = []
            self._computed(inputs, first, None, rounds)
            return records_of(self.program, joined(rounds))[0]

    def _given(self, instances: Sequence[Any]) -> list[Sequence[Any]]:
        single = self.program.num_input == 1
        return [(i,) if single and not isinstance(i, tuple) else i for i in instances]

    def _read(self, instances: Sequence[Sequence[Any]]) -> tuple[Inputs, int]:
        program = self.program
        return read_instances(program, instances, self._readable, len(program.shared))

    def _nothing(self) -> list[Any]:
        self.last_batch = BatchReport(0, (), ())
        return []

    def _run(self, instances: Sequence[Sequence[Any]], choose: Choice | None) -> list[Any]:
        left, failed = list(range(len(instances))), dict[int, BatchError]()
        found: list[Any] = []
        while left:
            try:
                inputs, first = self._read([instances[i] for i in left])
                found = self._results(*self._computed(inputs, first, choose))
                break
            except BatchError as error:  # without it the others are computed all the same
                failed[left.pop(error.instance)] = error
        if not failed:
            return found
        results: list[Any] = [None] * len(instances)
        for i, result in zip(left, found, strict=True):
            results[i] = result
        at = min(failed)
        raise BatchError(failed[at].reason, at, results, len(failed))

    def _computed(
        self, inputs: Inputs, first: int, choose: Choice | None,
        rounds: list[Recorded] | None = None,
    ) -> tuple[Recorded, Words]:  # fmt: skip
        """Record and compute all instances; `rounds` collects what was recorded. Returns the last
        round, and the places of all slots."""
        while True:
            try:
                return self._attempt(inputs, first, choose, [] if rounds is None else rounds)
            except MoreRoom:
                if rounds is not None:
                    rounds.clear()

    def _attempt(
        self, inputs: Inputs, first: int, choose: Choice | None, rounds: list[Recorded]
    ) -> tuple[Recorded, Words]:
        places = Places(np.zeros(first, np.int64), np.zeros(first, np.int64))
        self._place_inputs(inputs, places)
        report = BatchReport(len(inputs.words), (), ())
        recorded: Recorded | None = None
        for recorded in self._recorder.rounds(inputs.words, first):
            rounds.append(recorded)
            places.grow(recorded.slots)
            input_rows(recorded, places.offsets, places.row_of)
            steps = None if choose is None else chosen_steps(self.program, recorded, choose)
            schedule = place_results(self._rows, recorded, places.offsets, places.used, steps)
            self._reserve(schedule.size, places.used)
            places.used = schedule.size
            report = self._flush(schedule, report)
            if len(recorded.waiting):
                base = self._arena.ctypes.data
                recorded.addresses[:] = base + places.offsets[recorded.waiting]
        assert recorded is not None
        self.last_batch = report
        return recorded, places.offsets

    # --- The arena --------------------------------------------------------------------------------

    def _place_inputs(self, inputs: Inputs, places: Places) -> None:
        """Give shared values that are read by their slots, and inputs, places in the arena, and
        copy them there."""
        offsets, used = places.offsets, 0
        for i in self.program.gathered:
            offsets[i] = used
            used += -(-row_bytes(self.program.shared[i].ty) // ALIGN) * ALIGN
        tensors = (*inputs.tensors, *inputs.fields)
        for first, flat, lengths in tensors:
            last = first + len(lengths)
            offsets[first:last] = used + (np.cumsum(lengths) - lengths) * flat.itemsize
            used += -(-flat.nbytes // ALIGN) * ALIGN
        for param, (first, flat, lengths) in zip(self._arrays(), inputs.tensors, strict=True):
            dims = param.tensor.shape or ()
            row = row_elements(TensorType(dims[1:], param.tensor.dtype)) * flat.itemsize
            places.row_of[first : first + len(lengths)] = row
        self._reserve(used, 0)
        for i in self.program.gathered:
            self._copy(self._shared[i], int(offsets[i]))
        for first, flat, _ in tensors:
            self._copy(flat, int(offsets[first]))
        places.used = used

    def _arrays(self) -> list[rec.EntryParam]:
        """The parameters whose arrays have slots."""
        return [
            p for p in self.program.params
            if p.kind == "array" and (str(p.tensor.dtype), p.tensor.ndim) in self._readable
        ]  # fmt: skip

    def _reserve(self, size: int, used: int) -> None:
        """Make the arena large enough, and keep what is in its first `used` bytes."""
        if len(self._arena) < size:
            whole = np.empty(size + size // 4 + ALIGN, np.uint8)
            start = -whole.ctypes.data % ALIGN
            larger = whole[start:]
            larger[:used] = self._arena[:used]
            self._arena = larger

    def _copy(self, array: np.ndarray[Any, Any], offset: int) -> None:
        raw = array.reshape(-1).view(np.uint8)
        self._arena[offset : offset + len(raw)] = raw

    # --- Batches ----------------------------------------------------------------------------------

    def _flush(self, schedule: Schedule, before: BatchReport) -> BatchReport:
        """Run all batches of a round. Returns the report on the rounds up to it."""
        calls = np.empty((schedule.count, native.CALL_WORDS), np.int64)
        launches = np.empty((schedule.count, 2), np.int64)
        reads: list[_Reads] = []
        keep: list[Any] = []
        for number, (block, batches, outputs) in enumerate(
            zip(self._blocks, schedule.blocks, schedule.outputs, strict=True)
        ):
            first, end = batches.first, batches.end
            if not len(first):
                continue
            places, scalars = block.operands(batches, schedule.offsets)
            words = block.words(self._arena, [*places, *scalars], first, end, outputs)
            keep += [scalars, words]
            calls[batches.place] = block.calls(words)
            launches[batches.place, 0] = number
            launches[batches.place, 1] = end - first
            sizes = zip(places, block.elements, block.sizes, strict=True)
            reads += [_Reads(at, first, end, n, n * size) for at, n, size in sizes]
        code = self._recorder.run(calls, self._exe.threads)
        if code:
            self._blocks[launches[code >> 32, 0]].fail(code & 0xFFFFFFFF)
        names = [b.name for b in self.program.blocks]
        named = tuple((names[b], n) for b, n in launches.tolist())
        return before.followed_by(named, reads)

    # --- Results ----------------------------------------------------------------------------------

    def _results(self, recorded: Recorded, offsets: Words) -> list[Any]:
        leaves: list[Sequence[Any]] = []
        for k, result in enumerate(self.program.results):
            words = recorded.results[:, k]
            if isinstance(result.ty, DataType):
                at = partial(self._tensor_in, offsets)
                leaves.append(read_values(self.program, words.tolist(), result.ty, at))
                continue
            assert isinstance(result.ty, TensorType)
            if result.kind == "scalar":
                leaves.append(list(words.astype(numpy_dtype(str(result.ty.dtype)))))
            else:
                leaves.append(list(self._tensors_at(offsets[words], result.ty)))
        return [_nested(self.program.result, [c[i] for c in leaves])
                for i in range(len(recorded.results))]  # fmt: skip

    def _tensor_in(self, offsets: Words, slot: int, ty: TensorType) -> np.ndarray[Any, Any]:
        return self._tensors_at(offsets[[slot]], ty)[0]

    def _tensors_at(self, places: Words, ty: TensorType) -> np.ndarray[Any, Any]:
        """Copies of the tensors of one type at places in the arena, a row each."""
        count, size = row_elements(ty), bytes_of(str(ty.dtype))
        flat = self._arena[: len(self._arena) // size * size].view(numpy_dtype(str(ty.dtype)))
        rows = flat[(places // size)[:, None] + np.arange(count)]
        shape = tuple(d.value for d in ty.shape or () if isinstance(d, expr.IntImm))
        return rows.reshape(len(places), *shape)


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
        self.elements = [row_elements(t) for t in of.inputs]
        self.sizes = [bytes_of(str(t.dtype)) for t in of.inputs]
        self._scalars = [numpy_dtype(d) for d in of.scalars]
        self._dims = [
            [d.value for d in t.shape or () if isinstance(d, expr.IntImm) and d.value != 1]
            for t in of.outputs
        ]
        entry = ctypes.cast(self._function._entry, ctypes.c_void_p).value or 0
        self._call = [entry, self._function._address, ctypes.addressof(self._function._in)]

    def bind(self, shared: list[np.ndarray[Any, Any]]) -> None:
        """Pack the values that all instances share, and bind them."""
        self._function.bind(*self._exe.packed_weights(self.of.function, shared))

    def operands(self, batches: BlockBatches, offsets: Words) -> tuple[list[Words], list[Any]]:
        """The arrays that the function reads, for all batches: where each of its tensors begins, in
        elements of the arena; and its scalars."""
        at = words_of.NOTE_OPERANDS
        scalars_at = at + len(self.sizes)
        slots = batches.notes[:, at:scalars_at].T
        places = [offsets[s] // size for s, size in zip(slots, self.sizes, strict=True)]
        values = batches.notes[:, scalars_at:].T
        return places, [v.astype(d) for v, d in zip(values, self._scalars, strict=True)]

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
        for k, dims in enumerate(self._dims):
            columns += [arena.ctypes.data + outputs[:, k], rows, *dims]
        words = np.empty((len(first), len(columns)), np.int64)
        for i, column in enumerate(columns):
            words[:, i] = column
        return words

    def calls(self, words: Words) -> Words:
        """The calls of the batches that have these words."""
        made = np.empty((len(words), native.CALL_WORDS), np.int64)
        made[:, [native.CALL_ENTRY, native.CALL_CONTEXT, native.CALL_TARGET]] = self._call
        made[:, native.CALL_SOURCE] = words.ctypes.data + np.arange(len(words)) * words.strides[0]
        made[:, native.CALL_BYTES] = words.strides[0]
        return made

    def fail(self, code: int) -> None:
        """Raise the error that the function reported."""
        self._function._result(code, [])
