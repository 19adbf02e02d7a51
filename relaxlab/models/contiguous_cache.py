"""A cache of keys and values of one sequence, side by side: the fastest for one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from relaxlab.ir.brief import Brief
from relaxlab.models.generation import CHUNK, Array, Generation, Part
from relaxlab.models.load_decoder import LoadedDecoder
from relaxlab.runtime.large_pages import MAX_EAGER_BYTES, Promotion, zeros

LONG_CONTEXT = 1024
"""Cached positions, or calls, from which on keys and values, or weights, move to large pages: the
milliseconds that moving takes come back within some hundred tokens."""


@dataclass(slots=True, eq=False)
class Row(Brief):
    """The positions of a sequence; whichever took part last has the cache."""

    length: int = 0

    def truncate(self, length: int) -> None:
        """Forget the positions from `length` on."""
        self.length = length

    def fork(self) -> Row:
        """Another sequence that finds the positions that this one has, if they are still there."""
        return Row()


class ContiguousCache(Brief):
    """A `Cache` that works on one sequence at a time and keeps its positions: a prompt that begins
    alike, such as the next one of a chat, is read from where it differs."""

    def __init__(self, loaded: LoadedDecoder, kv_dtype: str) -> None:
        program, layers = loaded.program, loaded.checkpoint.config.num_layers
        self.positions = loaded.max_context
        shapes = program.cache_shapes("prefill", 2, layers, self.positions)
        arrays = zeros(shapes, kv_dtype)
        self.nbytes = sum(array.nbytes for array in arrays)
        self._prefill = program.executable["prefill"]
        self._decode = program.executable["decode"]
        for function in (self._prefill, self._decode):
            function.bind_packed(*arrays, *loaded.weights)
        self._cache_pages = Promotion(arrays, MAX_EAGER_BYTES)
        self._weight_pages = Promotion(loaded.weights)
        self._calls = 0
        self._ids: list[int] = []
        self._row = Row()

    def sequence(self) -> Row:
        return Row()

    def admit(self, active: Sequence[Generation], wanted: Generation | None) -> list[Part]:
        answer = wanted or active[0]
        row = answer.sequence
        if row is not self._row:
            # Without the last id, whose logits are asked for: it must go through the model again.
            given = [*answer.prompt_ids, *answer.ids][:-1]
            row.length = _common_prefix(self._ids, given)
            self._row = row
        before, ids = row.length, answer.pending[:CHUNK]
        row.length += len(ids)
        return [Part(answer, ids, before)]

    def logits(self, batch: Sequence[Part]) -> Array:
        (part,) = batch
        function = self._decode if len(part.ids) == 1 else self._prefill
        del self._ids[part.before :]  # an interrupted call leaves the rows after them undefined
        logits = function(np.array([part.ids], np.int32), (part.before,))
        self._ids += part.ids
        self._calls += 1
        if len(self._ids) >= LONG_CONTEXT:
            self._cache_pages.step()
        if self._calls >= LONG_CONTEXT:
            self._weight_pages.step()
        return logits

    def reset(self) -> None:
        self._ids.clear()
        self._row = Row()


def _common_prefix(a: Sequence[int], b: Sequence[int]) -> int:
    count = 0
    for x, y in zip(a, b, strict=False):
        if x != y:
            break
        count += 1
    return count
