"""Recorded notes as the nodes of a graph, for those who choose batches by it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, cast

import numpy as np

from relaxlab.codegen.llvm import recorder_words as native
from relaxlab.ir import recording as rec
from relaxlab.ir.brief import cut
from relaxlab.ir.errors import UserError, kind_of
from relaxlab.runtime.batch.recorder import Recorded
from relaxlab.runtime.batch.words import Words


@dataclass(frozen=True, slots=True)
class Records:
    """The notes of a batch in the order in which they were taken: each reads earlier ones alone.

    types: names of the blocks. type_of: (notes,), numbers of blocks. Note v reads the values
    handles[starts[v]:starts[v + 1]]; producer[h] is the note that makes value h, -1 for inputs.
    instance[v] is the number of the instance that took the note, depth[v] the depth at which it was
    noted. batches: the block and the notes of each batch, in the order in which they run unless
    others are chosen.
    """

    types: tuple[str, ...]
    type_of: Words
    starts: Words
    handles: Words
    producer: Words
    instance: Words
    depth: Words
    batches: tuple[tuple[int, Words], ...] = ()


Choice: TypeAlias = "Callable[[Records], Iterable[tuple[int, Any]]]"
"""A function that puts notes into batches: for each batch, in order, its block and its notes."""
_BATCH = "the number of a block and a list of numbers of notes"


@dataclass(frozen=True, slots=True)
class ChosenOrder:
    """Notes in the order in which they run: their addresses and blocks, and of each batch its block
    and how many notes there are up to its end."""

    order: Words
    order_kind: Words
    batch_kind: Words
    batch_end: Words


class ScheduleError(UserError, ValueError):
    """Batches that do not hold each note once, or notes on another block, or that come before what
    they read."""


def joined(rounds: Sequence[Recorded]) -> Recorded:
    """Several rounds of a batch as one."""
    for number, r in enumerate(rounds):
        for notes_on_block in r.notes:
            notes_on_block[:, native.NOTE_DEPTH] += number << native.ROUND_BITS
    return replace(rounds[-1], done=rounds[0].done)


def records_of(
    program: rec.RecordingProgram, rounds: Sequence[Recorded], orders: Sequence[ChosenOrder]
) -> Records:
    """The notes of a batch as a graph, and the batches of its rounds. What failed is left out."""
    records, addresses = _numbered(program, joined(rounds))
    by_address = np.argsort(addresses)
    batches: list[tuple[int, Words]] = []
    for of in orders:
        notes = by_address[np.searchsorted(addresses, of.order, sorter=by_address)]
        parts = np.split(notes, of.batch_end[:-1])
        batches += zip(of.batch_kind.tolist(), parts, strict=False)
    return replace(records, batches=tuple(batches))


def _numbered(program: rec.RecordingProgram, recorded: Recorded) -> tuple[Records, Words]:
    """The notes of a batch as a graph, and their addresses."""
    fails = recorded.failures != 0
    kept = [~fails[n[:, native.NOTE_INSTANCE]] for n in recorded.notes]
    addresses = np.concatenate([
        n.ctypes.data + n.strides[0] * np.flatnonzero(k)
        for n, k in zip(recorded.notes, kept, strict=True)
    ])  # fmt: skip
    of_blocks = [n[k] for n, k in zip(recorded.notes, kept, strict=True)]
    slots = [n[:, native.NOTE_SLOT] for n in of_blocks]
    counts = [len(s) for s in slots]
    order = np.argsort(np.concatenate(slots), kind="stable")
    number = np.empty(len(order), np.int64)
    number[order] = np.arange(len(order))
    numbers = np.split(number, np.cumsum(counts)[:-1])
    type_of = np.repeat(np.arange(len(counts)), counts)[order]
    width = np.array([len(b.inputs) for b in program.blocks], np.int64)
    starts = np.concatenate(([0], np.cumsum(width[type_of])))
    handles = np.empty(starts[-1], np.int64)
    producer = np.full(recorded.slots, -1, np.int64)
    for block, notes, mine in zip(program.blocks, of_blocks, numbers, strict=True):
        for k in range(len(block.inputs)):
            handles[starts[mine] + k] = notes[:, native.NOTE_OPERANDS + k]
        for k in range(len(block.outputs)):
            producer[notes[:, native.NOTE_SLOT] + k] = mine
    names = tuple(b.name for b in program.blocks)
    columns = (native.NOTE_INSTANCE, native.NOTE_DEPTH)
    instance, depth = (np.concatenate([n[:, c] for n in of_blocks])[order] for c in columns)
    records = Records(names, type_of, starts, handles, producer, instance, depth)
    return records, addresses[order]


def chosen_order(program: rec.RecordingProgram, recorded: Recorded, choose: Choice) -> ChosenOrder:
    """The batches of what was recorded, as a choice has them.

    Raises ScheduleError for what is no batches, where they do not hold each note once, and where a
    note runs before one that it reads.
    """
    records, addresses = _numbered(program, recorded)
    made: object = choose(records)
    if not isinstance(made, Iterable):
        raise ScheduleError(f"`choose` returned {kind_of(made)}, expected batches: {_BATCH} each")
    batches = [_batch(records, i, b) for i, b in enumerate(cast("Iterable[object]", made))]
    sizes = [len(notes) for _, notes in batches]
    order = np.concatenate([np.empty(0, np.int64), *(notes for _, notes in batches)])
    # Kernels would read memory that nothing was written to.
    _require_order(records, order, np.repeat(np.arange(len(batches)), sizes))
    kinds = np.array([block for block, _ in batches], np.int64)
    return ChosenOrder(
        addresses[order], records.type_of[order], kinds, np.cumsum(sizes, dtype=np.int64)
    )


def _batch(records: Records, i: int, batch: Any) -> tuple[int, Words]:
    """The block of batch `i` and its notes."""
    try:
        block, nodes = batch
        notes = np.asarray(nodes)
    except (TypeError, ValueError):  # of no pair; of lists of different lengths
        raise ScheduleError(f"batch {i} is {kind_of(batch)}, expected {_BATCH}") from None
    # An empty list is an array of floats.
    is_listed = notes.ndim == 1 and (notes.dtype.kind in "iu" or not len(notes))
    if isinstance(block, bool) or not isinstance(block, int | np.integer) or not is_listed:
        held = _held(nodes, notes)
        raise ScheduleError(f"batch {i} holds {cut(repr(block))} and {held}, expected {_BATCH}")
    count, blocks = len(records.type_of), len(records.types)
    for what, numbers, end in (("block", np.array([block]), blocks), ("note", notes, count)):
        for wrong in numbers[(numbers < 0) | (numbers >= end)]:
            raise ScheduleError(f"batch {i}: there is no {what} {wrong}, they are 0 to {end - 1}")
    notes = notes.astype(np.int64)
    for note in notes[records.type_of[notes] != block]:
        raise ScheduleError(
            f"batch {i} is of the block `{records.types[block]}`, its note {note} is on "
            f"`{records.types[records.type_of[note]]}`"
        )
    return int(block), notes


def _held(nodes: object, notes: np.ndarray[Any, Any]) -> str:
    """The text of notes that are no numbers of notes: there may be many, which are not listed."""
    if not notes.ndim or not notes.size:
        return cut(repr(nodes))
    if notes.ndim > 1:
        return f"an array of {notes.dtype} with {notes.ndim} dimensions"
    return f"{kind_of(nodes)} of {notes.dtype}, whose first is {cut(repr(notes[0].item()))}"


def _require_order(records: Records, order: Words, batch_of: Words) -> None:
    """Raise ScheduleError unless all notes are in `order` once, each in a later batch than those
    that it reads. batch_of: the batch of each place in the order."""
    count = len(records.type_of)
    times = np.bincount(order, minlength=count)
    for note in np.flatnonzero(times > 1):
        first, second = batch_of[np.flatnonzero(order == note)[:2]]
        raise ScheduleError(f"note {note} is in batch {first}, and again in batch {second}")
    for note in np.flatnonzero(times == 0):
        raise ScheduleError(
            f"the batches hold {len(order)} of {count} notes; the first that they lack is {note}"
        )
    batch = np.empty(count, np.int64)
    batch[order] = batch_of
    reader, read = np.repeat(np.arange(count), np.diff(records.starts)), records.producer
    read = read[records.handles]
    for at in np.flatnonzero((read >= 0) & (batch[read] >= batch[reader])):
        raise ScheduleError(
            f"batch {batch[reader[at]]} runs note {reader[at]}, which reads the result of note "
            f"{read[at]}: that has to be in an earlier batch, and is in batch {batch[read[at]]}"
        )
