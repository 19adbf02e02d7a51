"""Recorded notes as the nodes of a graph, for those who choose batches by it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from relaxlab.codegen.llvm import recorder_words as native
from relaxlab.ir import recording as rec
from relaxlab.ir.errors import UserError
from relaxlab.runtime.batch.recorder import Recorded
from relaxlab.runtime.batch.words import Words


@dataclass(frozen=True, slots=True)
class Records:
    """The notes of a batch in the order in which they were taken: each reads earlier ones alone.

    types: names of the blocks. type_of: (notes,), numbers of blocks. Note v reads the values
    handles[starts[v]:starts[v + 1]]; producer[h] is the note that makes value h, -1 for inputs.
    instance[v] is the number of the instance that took the note, depth[v] orders the batches that
    the counted depths make: notes on one block with equal ones run together.
    """

    types: tuple[str, ...]
    type_of: Words
    starts: Words
    handles: Words
    producer: Words
    instance: Words
    depth: Words


Choice: TypeAlias = "Callable[[Records], Iterable[tuple[int, Any]]]"
"""A function that puts notes into batches: for each batch, in order, its block and its notes."""


@dataclass(frozen=True, slots=True)
class ChosenOrder:
    """Notes in the order in which they run: their addresses and blocks, and of each batch its block
    and how many notes there are up to its end."""

    order: Words
    order_kind: Words
    batch_kind: Words
    batch_end: Words


class ScheduleError(UserError, ValueError):
    """Batches that do not hold each note once, or notes on another block."""


def joined(rounds: Sequence[Recorded]) -> Recorded:
    """Several rounds of a batch as one."""
    for number, r in enumerate(rounds):
        for notes_on_block in r.notes:
            notes_on_block[:, native.NOTE_DEPTH] += number << native.ROUND_BITS
    return replace(rounds[-1], done=rounds[0].done)


def records_of(program: rec.RecordingProgram, recorded: Recorded) -> Records:
    """The notes of a batch as a graph. What failed is left out."""
    return _numbered(program, recorded)[0]


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

    Raises ScheduleError where they do not hold each note once.
    """
    records, addresses = _numbered(program, recorded)
    seen = np.zeros(len(records.type_of), bool)
    blocks: list[int] = []
    batches: list[Words] = []
    for i, (block, nodes) in enumerate(choose(records)):
        chosen = np.asarray(nodes, np.int64)
        if np.any(seen[chosen]) or np.any(records.type_of[chosen] != block):
            raise ScheduleError(
                f"batch {i} is of the block `{records.types[block]}`; it has a note on another, or "
                "one that an earlier batch has"
            )
        seen[chosen] = True
        blocks.append(block)
        batches.append(chosen)
    ends = np.cumsum([len(b) for b in batches], dtype=np.int64)
    done = int(ends[-1]) if batches else 0
    if done != len(seen):
        raise ScheduleError(f"the batches hold {done} of {len(seen)} notes")
    order = np.concatenate([np.empty(0, np.int64), *batches])
    kinds = np.array(blocks, np.int64)
    return ChosenOrder(addresses[order], records.type_of[order], kinds, ends)
