"""A cache of keys and values of many sequences, in pages of one pool.

None needs room for more than it has, and sequences join and leave at any step.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from relaxlab.ir.brief import Brief
from relaxlab.models.generation import CHUNK, Array, Generation, Part
from relaxlab.models.load_decoder import LoadedDecoder
from relaxlab.models.paged_decoder import TILE
from relaxlab.models.pages import PageAllocator, PagedSequence, PoolExhausted, ragged_arrays
from relaxlab.nn.layers import FEW_ROWS
from relaxlab.nn.paged_loops import PAGE, PoolShape
from relaxlab.runtime.large_pages import zeros


class PagedCache(Brief):
    """A `Cache` of `pages` pages, of `PAGE` positions each, for at most `max_sequences` sequences
    in a call; more wait for their turn."""

    def __init__(
        self, loaded: LoadedDecoder, kv_dtype: str, pages: int, max_sequences: int
    ) -> None:
        config, executable = loaded.checkpoint.config, loaded.program.executable
        shapes = PoolShape(config.num_kv_heads, config.head_dim).of(pages)
        self.pools = zeros([s for _ in range(config.num_layers) for s in shapes], kv_dtype)
        self.nbytes = sum(pool.nbytes for pool in self.pools)
        self.allocator = PageAllocator(pages)
        self.positions = min(loaded.max_context, pages * PAGE)
        self._max_sequences = min(max_sequences, CHUNK)
        few = "few_steps" if "few_steps" in executable else "step"
        self._extend, self._step, self._few_steps = (
            executable[name] for name in ("extend", "step", few)
        )
        for function in (self._extend, self._step, self._few_steps):
            function.bind_packed(*self.pools, *loaded.weights)

    def sequence(self) -> PagedSequence:
        return PagedSequence(self.allocator)

    def reset(self) -> None:
        pass  # sequences that end give all pages back

    def logits(self, batch: Sequence[Part]) -> Array:
        rows = [len(part.ids) for part in batch]
        # A step's attention takes one row of each sequence: by the function for prompts, whose
        # tiles have four, 64 sequences took 83 instead of 51 ms (NOTES, *One program for all
        # contexts and batches*).
        is_step = max(rows) == 1
        arrays = ragged_arrays([p.answer.sequence for p in batch], rows, 1 if is_step else TILE)
        ids = np.array([[i for part in batch for i in part.ids]], np.int32)
        step = self._few_steps if len(batch) <= FEW_ROWS else self._step
        return np.asarray((step if is_step else self._extend)(ids, *arrays))

    def admit(self, active: Sequence[Generation], wanted: Generation | None) -> list[Part]:
        """As `Cache.admit`. Where pages are lacking, the youngest sequences give theirs back and
        are read again later. Raises PoolExhausted if not even the oldest has room: nothing is lost,
        and steps go on after others were cancelled."""
        batch: list[Part] = []
        rows = CHUNK
        for number, answer in enumerate(active):
            if len(batch) == self._max_sequences or not rows:
                break
            sequence, ids = answer.sequence, answer.pending
            # One that holds nothing begins only when there is room for all of it.
            whole, ids = len(ids), ids[:rows]
            needed = sequence.missing(len(ids) if sequence.length else whole)
            if not self._make_room(needed, active[number + 1 :]):
                continue
            before = sequence.length
            copied = sequence.extend(len(ids))
            if copied is not None:
                for pool in self.pools:
                    pool[copied[1]] = pool[copied[0]]
            batch.append(Part(answer, ids, before))
            rows -= len(ids)
        if not batch:
            needed = active[0].sequence.missing(len(active[0].pending))
            raise PoolExhausted(
                f"{needed} more pages of {PAGE} positions are needed to go on, "
                f"{self.allocator.free} of {self.allocator.total} are free; cancel requests that "
                "have pages, or load the model with more `pages`"
            )
        return batch

    def _make_room(self, needed: int, younger: Sequence[Generation]) -> bool:
        """Free pages until `needed` are free, if need be those of the youngest sequences. Returns
        whether that was possible."""
        free, victims = self.allocator.free, list[Generation]()
        # The youngest first: the oldest has waited longest, and its end frees most.
        for answer in reversed(younger):
            if free >= needed:
                break
            free += self.allocator.owned_once(answer.sequence.pages)
            victims.append(answer)
        if free < needed:
            return False
        for answer in victims:
            answer.sequence.truncate(0)
        return True
