"""Batched programs as Python objects."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from relaxlab.codegen.artifact import Artifact
from relaxlab.ir.target import Target
from relaxlab.runtime.batch.arena import Arena
from relaxlab.runtime.batch.flush import NativeFlusher
from relaxlab.runtime.batch.function import Alone, BatchFunction
from relaxlab.runtime.batch.recorder import Recorder
from relaxlab.runtime.executable import Executable


class BatchedExecutable(Executable):
    """A compiled program that runs many instances at once: `exe["main"].bind(*weights)`, then
    `.batch(instances)`. The functions that run batches of its blocks are there under their names.
    """

    def __init__(
        self, artifact: Artifact, target: Target, threads: int | None, recorder: Recorder
    ) -> None:
        self._entry_name = recorder.program.entry  # first: errors of the rest list all names
        super().__init__(artifact, target, threads)
        self._recorder = recorder
        self._entry: BatchFunction | None = None
        self._alone = Alone(self._entry_name, self._lock)

    def __getitem__(self, name: str) -> Any:
        if name != self._entry_name:
            return super().__getitem__(name)
        # Made when it is first asked for: then the weights of its blocks are known.
        with self._lock:
            if self._entry is None:
                flusher = NativeFlusher(self, self._recorder)
                self._entry = BatchFunction(self._recorder, flusher, Arena(), self._alone)
            return self._entry

    def __getattr__(self, name: str) -> Any:
        if name == vars(self).get("_entry_name"):
            return self[name]
        return super().__getattr__(name)

    def __iter__(self) -> Iterator[str]:
        yield self._entry_name
        yield from super().__iter__()

    def chosen(self) -> Any:
        """The function that runs batches."""
        return self[self._entry_name]
