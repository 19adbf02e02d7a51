"""A function that runs many instances at once."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, TypeAlias, TypeVar

import numpy as np

from relaxlab.codegen.llvm.flushing import ALIGN
from relaxlab.ir import recording as rec
from relaxlab.ir.dtypes import numpy_dtype
from relaxlab.ir.errors import brief, counted, kind_of
from relaxlab.ir.expr import IntImm
from relaxlab.ir.types import DataType, TensorType
from relaxlab.runtime.arrays import ExecutionError
from relaxlab.runtime.batch.arena import Arena
from relaxlab.runtime.batch.direct_batch import DirectBatch
from relaxlab.runtime.batch.flush import Flusher, NativeFlusher, Places, Ran
from relaxlab.runtime.batch.instances import Inputs, InstanceReader
from relaxlab.runtime.batch.recorder import BatchError, MoreRoom, Recorded, Recorder
from relaxlab.runtime.batch.records import Choice, ChosenOrder, Records, chosen_order, records_of
from relaxlab.runtime.batch.words import Words
from relaxlab.runtime.native.arguments import ArgumentError
from relaxlab.runtime.native.data_values import ValueMaker
from relaxlab.runtime.native.loaded import CheckFailed
from relaxlab.runtime.native.value_maker import NativeMaker
from relaxlab.runtime.native.value_tables import ValueTables, values_are_known
from relaxlab.runtime.rows import row_bytes

T = TypeVar("T")
Rounds: TypeAlias = "list[tuple[Recorded, ChosenOrder]]"
"""The notes between flushes, and their batches."""
FAILURES = (CheckFailed, ExecutionError, MemoryError)
"""The errors of kernels, and of memory that a batch lacks."""


class BatchReport:
    """The cost of a batch: nodes that were noted, batches that ran, flushes, and the bytes that
    kernels read from rows which do not follow each other as those of a result do. `launches` has,
    per batch in their order, the name of the block and its number of rows."""

    def __init__(self, instances: int, blocks: tuple[str, ...] = ()) -> None:
        self.instances = instances
        self._blocks = blocks
        self._ran: list[Ran] = []

    def add(self, ran: Ran | None) -> None:
        """Count the batches of flushes, if there are any."""
        if ran is not None and len(ran.ends):
            self._ran.append(ran)

    @property
    def nodes(self) -> int:
        """Notes that were taken."""
        return sum(ran.ends[-1] for ran in self._ran)

    @property
    def batches(self) -> int:
        """Batches that ran."""
        return sum(len(ran.ends) for ran in self._ran)

    @property
    def flushes(self) -> int:
        """Flushes that ran them."""
        return sum(ran.flushes for ran in self._ran)

    @property
    def bytes_gathered(self) -> int:
        """Bytes read from rows that do not follow each other."""
        return sum(ran.gathered for ran in self._ran)

    @property
    def launches(self) -> tuple[tuple[str, int], ...]:
        """The blocks of all batches and their numbers of rows."""
        return tuple(
            (self._blocks[kind], rows)
            for ran in self._ran
            for kind, rows in zip(ran.kinds, np.diff(ran.ends, prepend=0).tolist(), strict=True)
        )

    def __repr__(self) -> str:
        return (
            f"BatchReport(instances={self.instances}, nodes={self.nodes}, batches={self.batches}, "
            f"flushes={self.flushes}, bytes_gathered={self.bytes_gathered})"
        )


class Alone:
    """Keeps other threads out while a batch of a program runs, whose recorder, words and arenas all
    batches share."""

    def __init__(self, entry: str, lock: AbstractContextManager[Any]) -> None:
        self.lock, self._entry = lock, entry
        self.busy = np.zeros(1, np.int64)
        """1 while a batch runs."""

    def run(self, body: Callable[[], T]) -> T:
        """Return what `body` does, which runs alone. Raises RuntimeError where what runs calls the
        same function."""
        # No context manager in Python: Ctrl-C at the beginning of its exit would leave the lock.
        with self.lock:
            if self.busy[0]:
                raise RuntimeError(
                    f"`{self._entry}` was called by a function that its own batch called; compile "
                    "the inner program separately"
                )
            self.busy[0] = 1
            try:
                return body()
            finally:
                self.busy[0] = 0


class BatchFunction:
    """The entry of a batched program. `bind` gives it its weights, `batch` runs instances."""

    def __init__(
        self,
        recorder: Recorder,
        flusher: Flusher,
        arena: Arena,
        alone: Alone,
    ) -> None:
        """alone: entered while a batch runs, the same for all functions with this recorder."""
        self.program = recorder.program
        self._report: BatchReport | None = None
        self._recorder, self._flusher, self._arena = recorder, flusher, arena
        self._alone = alone
        self._names = tuple(b.name for b in self.program.blocks)
        self._reader, self._values = InstanceReader(self.program), ValueMaker(self.program.data)
        self._maker: NativeMaker | None = None
        """Makes the values of data types in results, where their arrays are in this machine's
        memory."""
        if isinstance(flusher, NativeFlusher) and values_are_known():
            self._maker = NativeMaker(ValueTables(self.program.data))
        self._places = Places()
        self._shared_end = self._shared_places()
        self._has_shared = False
        """True if the values that all instances share lie at the beginning of the arena."""
        self._weights: tuple[Any, ...] | None = None
        self._shared: list[np.ndarray[Any, Any]] = []
        self._again: DirectBatch | None = None
        """Runs batches like the one before."""
        if isinstance(flusher, NativeFlusher) and self._maker and self._reader.plan_address:
            self._again = DirectBatch(
                self.program, flusher, self._reader, self._maker, alone.lock, alone.busy,
                self.batch, self._finish,
            )  # fmt: skip
            self.batch = self._again.call
        if not any(s.parameter >= 0 for s in self.program.shared):
            self._bind(())

    @property
    def last_batch(self) -> BatchReport | None:
        """Describes the batch that ran last; None before the first."""
        with self._alone.lock:
            self._note_again()
            return self._report

    def __repr__(self) -> str:
        names = ", ".join(dict.fromkeys(p.name for p in self.program.params))
        return f"<batched {self.program.entry}({names})>"

    @brief
    def bind(self, *weights: Any) -> BatchFunction:
        """Give the weights once: the arguments after the first `num_input`. They are packed for the
        blocks that read them. Returns the function.

        Raises ArgumentError for weights that do not fit; those that were bound before stay then.
        """
        names = self.program.weights
        if len(weights) != len(names):
            takes = f"takes {counted(len(names), 'weight')} ({', '.join(names)})"
            if not names:
                takes = (
                    'has no weights: R.func_attr({"num_input": 1}) in it says that all parameters '
                    "after the first are weights"
                )
            raise ArgumentError(f"`{self.program.entry}` {takes}, got {len(weights)}")

        def take() -> BatchFunction:
            self._go_slowly()
            self._bind(weights)
            return self

        return self._alone.run(take)

    def _bind(self, weights: tuple[Any, ...]) -> None:
        shared = [self._shared_value(s, weights) for s in self.program.shared]
        self._flusher.bind(shared)
        self._weights, self._shared, self._has_shared = weights, shared, False

    def _shared_value(
        self, shared: rec.SharedValue, weights: Sequence[Any]
    ) -> np.ndarray[Any, Any]:
        if shared.constant is not None:
            return shared.constant.data
        number = shared.parameter - self.program.num_input
        name = f"the weight `{self.program.weights[number]}` of `{self.program.entry}`"
        value = weights[number]
        for index in shared.path:
            if not isinstance(value, tuple | list) or index >= len(value):
                raise ArgumentError(f"{name} is {kind_of(value)}, expected a tuple with the "
                                    f"field {index}")  # fmt: skip
            value = value[index]
        array, ty = self._arena.to_host(value), shared.ty
        dims = zip(ty.shape or (), array.shape, strict=False)
        fits = all(not isinstance(d, IntImm) or d.value == n for d, n in dims)
        if array.dtype != numpy_dtype(str(ty.dtype)) or array.ndim != ty.ndim or not fits:
            raise ArgumentError(
                f"{name} is an array of {array.dtype} of shape {array.shape}, expected {ty}"
            )
        return array

    @brief
    def __call__(self, *args: Any) -> Any:
        """Run one instance: a batch of one."""
        return self.batch([args])[0]

    @brief
    def batch(self, instances: Iterable[Any], choose: Choice | None = None) -> list[Any]:
        """Run the instances and return their results, in order. An instance is a tuple of the
        arguments besides the weights, or the argument where there is one.

        choose: puts what was recorded into batches (`rl.batches_by`); None: into as few as machine
        code finds, see `relaxlab.codegen.llvm.fewest_batches`.

        Raises ArgumentError for an argument that does not fit, BatchError for an instance that
        cannot be recorded or computed, when all others are; both name the instance. Raises
        ScheduleError for batches that leave notes out, or have one before what it reads.
        """
        self._require_weights()
        given = self._given(instances)
        if choose is not None and not callable(choose):
            raise ArgumentError(
                f"`choose` is {choose!r}, expected a function from notes to batches, such as "
                "`rl.batches_by(policy)` makes"
            )

        def run() -> list[Any]:
            self._go_slowly()
            return self._run(given, choose) if given else self._nothing()

        return self._alone.run(run)

    @brief
    def record(self, instances: Iterable[Any]) -> Records:
        """Record the instances and return what was noted. Nothing is computed, unless instances
        wait for tensors.

        Raises what `batch` raises.
        """
        if self.program.waits:
            self._require_weights()
        given = self._given(instances)

        def record() -> Records:
            self._go_slowly()
            inputs = self._reader.read(given)
            rounds: Rounds = []
            _, failed = self._computed(inputs, None, rounds)
            if failed:
                raise self._error(inputs, failed, ())
            return records_of(self.program, *zip(*rounds, strict=True))

        return self._alone.run(record)

    def _note_again(self) -> None:
        """Note the last batch, if it ran in machine code alone."""
        if self._again is not None and self._again.taken():
            assert isinstance(self._flusher, NativeFlusher)
            self._report = BatchReport(len(self._recorder.start.failures), self._names)
            self._report.add(self._flusher.last_ran())

    def _go_slowly(self) -> None:
        """Let Python run the next batch, which may be another than the one before."""
        if self._again is not None:
            if self._again.has_failed:
                self._recorder.finished = False
            self._note_again()
            self._again.set_known(False)

    @brief
    def _finish(self, instances: list[Any]) -> list[Any]:
        """The results of a batch that ran in machine code alone, where that does not make them."""
        assert self._again is not None and isinstance(self._flusher, NativeFlusher)
        of = self._recorder.start
        if self._again.fields["code"] == 0 and not np.count_nonzero(of.failures):
            return self._made(of.results)
        # It lacked room, or fails: once more, to say which instance does, and why.
        self._go_slowly()
        self._flusher.forget_failures()
        return self._run(self._given(instances), None)

    def _require_weights(self) -> None:
        if self._weights is None:
            raise ArgumentError(f"`{self.program.entry}` needs its weights: call `bind` first")

    def _given(self, instances: Iterable[Any]) -> list[Sequence[Any]]:
        # A list is nothing of the kind; that takes a tenth of the time to see.
        if type(instances) is not list and (
            not isinstance(instances, Iterable) or isinstance(instances, str | Mapping)
        ):
            raise ArgumentError(
                f"`{self.program.entry}.batch` takes a list of instances, got {kind_of(instances)};"
                f" for a single one: `{self.program.entry}.batch([instance])[0]`"
            )
        single = self.program.num_input == 1
        return [(i,) if single and not isinstance(i, tuple) else i for i in instances]

    def _nothing(self) -> list[Any]:
        self._report = BatchReport(0)
        return []

    def _run(self, instances: list[Sequence[Any]], choose: Choice | None) -> list[Any]:
        inputs = self._reader.read(instances)
        try:
            words, failed = self._computed(inputs, choose)
        except FAILURES as error:
            if len(instances) == 1:
                raise BatchError(str(error), 0, (None,)) from error
            return self._one_by_one(instances, choose)
        results = self._results(words, failed)
        if failed:
            raise self._error(inputs, failed, results)
        return results

    def _one_by_one(self, instances: Sequence[Sequence[Any]], choose: Choice | None) -> list[Any]:
        """Run each instance by itself, to find those for which a kernel fails."""
        results: list[Any] = []
        failed: dict[int, str] = {}
        for i, instance in enumerate(instances):
            try:
                results += self._run([instance], choose)
            except BatchError as error:
                failed[i] = error.reason
                results.append(None)
        if failed:
            at = min(failed)
            raise BatchError(failed[at], at, results, len(failed))
        return results

    def _error(self, inputs: Inputs, failed: dict[int, int], results: Sequence[Any]) -> BatchError:
        """The error with the reasons why instances failed."""
        at = min(failed)
        reason = inputs.refused.get(at) or self._recorder.reason(failed[at])
        return BatchError(reason, at, results, len(failed))

    def _computed(
        self, inputs: Inputs, choose: Choice | None, rounds: Rounds | None = None
    ) -> tuple[Words, dict[int, int]]:
        """Record and compute all instances. `rounds` collects what was recorded; then nothing is
        computed unless instances wait. Returns the words of their results, and the failures of
        those that failed, by their numbers."""
        of, failed = self._recorder.start, dict[int, int]()
        while True:
            try:
                self._attempt(inputs, choose, rounds)
                if np.count_nonzero(of.failures):  # a quarter of the time of `any`
                    numbers = np.flatnonzero(of.failures)
                    failed = dict(zip(numbers.tolist(), of.failures[numbers].tolist(), strict=True))
            except MoreRoom:
                if rounds is not None:
                    rounds.clear()
                continue
            self._recorder.finished = not failed
            return of.results, failed

    def _attempt(
        self, inputs: Inputs, choose: Choice | None, rounds: Rounds | None
    ) -> None:
        places, flusher, arena, recorder = (
            self._places, self._flusher, self._arena, self._recorder
        )  # fmt: skip
        report = BatchReport(len(inputs.words), self._names)
        self._place_shared()
        recorder.prepare(inputs, self._shared_end)
        whole = choose is None and rounds is None
        if whole:
            report.add(flusher.run_batch(places, arena))
        if whole and not recorder.left and self._again is not None:
            self._again.set_known(self._reader.is_expected(inputs))
        if recorder.left:
            for recorded in recorder.rounds(
                lambda: flusher.start(places, arena),
                (lambda: report.add(flusher.go_on(places, arena))) if whole else None,
            ):
                if rounds is not None:
                    rounds.append((recorded, flusher.order_of(recorded)))
                    if not self.program.waits:
                        return
                chosen = None if choose is None else chosen_order(self.program, recorded, choose)
                end = flusher.begin(recorded, places, chosen)
                arena.reserve(end, places.used)
                places.used = end
                report.add(flusher.run(arena))
                flusher.wake(recorded, arena)
        self._report = report

    # --- The arena --------------------------------------------------------------------------------

    def _shared_places(self) -> int:
        """Write down where the shared values that are read by their slots lie, at the beginning of
        the arena. Returns where they end."""
        used, places = 0, self._places
        places.grow(len(self.program.shared))
        for i in self.program.gathered:
            ty = self.program.shared[i].ty
            places.offsets[i] = used
            places.row_bytes[i] = row_bytes(TensorType((ty.shape or ())[1:], ty.dtype))
            used += -(-row_bytes(ty) // ALIGN) * ALIGN
        return used

    def _place_shared(self) -> None:
        """Copy shared values there, where they stay for the batches that follow."""
        if self._has_shared and len(self._arena.memory) >= self._shared_end:
            return
        self._arena.reserve(self._shared_end, 0)
        for i in self.program.gathered:
            self._arena.copy(self._shared[i], int(self._places.offsets[i]))
        self._arena.publish(0, self._shared_end)
        self._has_shared = True

    # --- Results ----------------------------------------------------------------------------------

    def _results(self, words: Words, failed: Container[int]) -> list[Any]:
        """The results of all instances, None for those that failed."""
        if not failed:
            return self._made(words)
        kept = [i for i in range(len(words)) if i not in failed]
        found: list[Any] = [None] * len(words)
        for number, result in zip(kept, self._made(words[kept]), strict=True):
            found[number] = result
        return found

    def _made(self, words: Words) -> list[Any]:
        """The results that some words stand for, a row for each."""
        program = self.program
        columns = [self._column(words[:, k], r) for k, r in enumerate(program.results)]
        if not isinstance(program.result, tuple):
            return columns[0]
        return [_nested(program.result, leaves) for leaves in zip(*columns, strict=True)]

    def _column(self, words: Words, result: rec.EntryResult) -> list[Any]:
        """One leaf of the results of instances."""
        if isinstance(result.ty, DataType):
            if self._maker is None:
                return self._values.made(words.tolist(), result.ty, self._tensors)
            return self._maker.made(words, result.ty, self._arena.address, self._places.offsets)
        assert isinstance(result.ty, TensorType)
        if result.kind == "scalar":
            return list(words.astype(numpy_dtype(str(result.ty.dtype))))
        return self._tensors(words, result.ty)

    def _tensors(self, slots: Words | list[int], ty: TensorType) -> list[Any]:
        """Copies of the tensors in some slots."""
        offsets = self._places.offsets
        if len(slots) == 1:  # NumPy takes longer to make an array of it than to copy the tensor
            return [self._arena.row(offsets.item(slots[0]), ty)]
        return self._arena.rows(offsets[slots], ty)


def _nested(tree: object, leaves: Sequence[Any]) -> Any:
    if isinstance(tree, tuple):
        return tuple(_nested(t, leaves) for t in tree)
    return leaves[tree]  # type: ignore[index]
