"""From what was recorded to batches: which notes run together, and where their results go."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from relaxlab.codegen.llvm import recorder_words as native
from relaxlab.ir import expr
from relaxlab.ir.dtypes import bytes_of
from relaxlab.ir.types import TensorType
from relaxlab.runtime.batch.recorder import Recorded
from relaxlab.runtime.batch.records import Steps
from relaxlab.runtime.batch.words import Words

ALIGN = 64
"""Alignment of the first row of each batch of results, in bytes."""


@dataclass(frozen=True, slots=True)
class BlockBatches:
    """The batches of one block: its notes in the order in which they run, and for each batch its
    first note, the note behind its last, and its place among the batches of all blocks."""

    notes: Words
    first: Words
    end: Words
    place: Words


@dataclass(frozen=True, slots=True)
class Schedule:
    """`offsets` has the place of each slot's tensor in the arena, in bytes; `outputs`, per block,
    the places of its outputs, a row per batch; `size` is the size of the arena."""

    blocks: tuple[BlockBatches, ...]
    count: int
    offsets: Words
    outputs: tuple[Words, ...]
    size: int


@dataclass(slots=True)
class Places:
    """The places in the arena that are taken: its first `used` bytes, by slot the places of tensors
    (`offsets`), and the bytes of a row of input arrays."""

    offsets: Words
    row_of: Words
    used: int = 0

    def grow(self, slots: int) -> None:
        """Make room for more slots."""
        more = slots - len(self.offsets)
        self.offsets, self.row_of = (np.pad(a, (0, more)) for a in (self.offsets, self.row_of))


def row_elements(ty: TensorType) -> int:
    """The elements of a tensor of constant shape."""
    return math.prod(d.value for d in ty.shape or () if isinstance(d, expr.IntImm))


def row_bytes(ty: TensorType) -> int:
    """The bytes of a tensor of constant shape."""
    return row_elements(ty) * bytes_of(str(ty.dtype))


def into_batches(
    notes: tuple[Words, ...], steps: Sequence[Steps] | None = None
) -> tuple[tuple[BlockBatches, ...], int]:
    """Batches of the notes on a block at one depth, in the order of depths and then of blocks: the
    depths that were counted while recording are the schedule, unless `steps` are given. Also how
    many batches there are."""
    keys: list[tuple[Words, Words, Words, Words]] = []
    for number, of_block in enumerate(notes):
        depth = place = of_block[:, native.NOTE_DEPTH]
        if steps is not None:
            depth, place = steps[number]
        order = np.argsort(place, kind="stable")
        sorted_depth = depth[order]
        first = np.flatnonzero(np.diff(sorted_depth, prepend=-1))
        end = np.append(first[1:], len(depth)) if len(first) else first
        keys.append((of_block[order], first, end, sorted_depth[first]))
    depths = np.concatenate([k[3] for k in keys])
    blocks = np.repeat(np.arange(len(keys)), [len(k[1]) for k in keys])
    place = np.empty(len(depths), np.int64)
    place[np.lexsort((blocks, depths))] = np.arange(len(depths))
    ends = np.cumsum([len(k[1]) for k in keys])
    places = np.split(place, ends[:-1])
    made = tuple(
        BlockBatches(n, first, end, p) for (n, first, end, _), p in zip(keys, places, strict=True)
    )
    return made, len(depths)


def place_results(
    rows: Sequence[Words],
    recorded: Recorded,
    offsets: Words,
    used: int,
    steps: Sequence[Steps] | None = None,
) -> Schedule:
    """Choose the batches, and give their results places in the arena behind its first `used` bytes:
    rows side by side, batch after batch. `rows` has, per block, the bytes of each output. `offsets`
    has the places of the inputs; those of the other slots are written to it."""
    batches, count = into_batches(recorded.notes, steps)
    sizes = [
        -(-(b.end - b.first)[:, None] * row[None, :] // ALIGN) * ALIGN
        for b, row in zip(batches, rows, strict=True)
    ]
    totals = np.zeros(count, np.int64)
    for b, size in zip(batches, sizes, strict=True):
        totals[b.place] = size.sum(axis=1)
    starts = used + np.cumsum(totals) - totals
    outputs: list[Words] = []
    for b, size, row in zip(batches, sizes, rows, strict=True):
        base = starts[b.place][:, None] + np.cumsum(size, axis=1) - size
        outputs.append(base)
        lengths = b.end - b.first
        within = np.arange(len(b.notes)) - np.repeat(b.first, lengths)
        slots = b.notes[:, native.NOTE_SLOT]
        for k in range(len(row)):
            offsets[slots + k] = np.repeat(base[:, k], lengths) + within * row[k]
    size = int(used + totals.sum())
    return Schedule(batches, count, offsets, tuple(outputs), size)


def input_rows(recorded: Recorded, offsets: Words, row_of: Words) -> None:
    """Write the places of rows of input arrays to `offsets`: `row_of` has the bytes of a row of
    the array in a slot."""
    slots, arrays, index = recorded.rows.T
    offsets[slots] = offsets[arrays] + index * row_of[arrays]
