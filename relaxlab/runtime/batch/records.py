"""Recorded notes as the nodes of a graph, for those who choose batches by it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
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

Steps: TypeAlias = "tuple[Words, Words]"
"""The batch of each note on a block, and its place among all notes that run."""


class ScheduleError(UserError, ValueError):
    """Batches that do not hold each note once, or notes on another block."""


def joined(rounds: Sequence[Recorded]) -> Recorded:
    """Several rounds of a batch as one."""
    for number, r in enumerate(rounds):
        for notes_on_block in r.notes:
            notes_on_block[:, native.NOTE_DEPTH] += number << native.ROUND_BITS
    notes = zip(*(r.notes for r in rounds), strict=True)
    rows, last = np.concatenate([r.rows for r in rounds]), rounds[-1]
    return Recorded(tuple(map(np.concatenate, notes)), rows, last.slots, last.results)


def records_of(program: rec.RecordingProgram, recorded: Recorded) -> tuple[Records, list[Words]]:
    """The notes of a batch, and the numbers that those on each block have among them."""
    slots = [n[:, native.NOTE_SLOT] for n in recorded.notes]
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
    for block, notes, mine in zip(program.blocks, recorded.notes, numbers, strict=True):
        for k in range(len(block.inputs)):
            handles[starts[mine] + k] = notes[:, native.NOTE_OPERANDS + k]
        for k in range(len(block.outputs)):
            producer[notes[:, native.NOTE_SLOT] + k] = mine
    names = tuple(b.name for b in program.blocks)
    columns = (native.NOTE_INSTANCE, native.NOTE_DEPTH)
    instance, depth = (np.concatenate([n[:, c] for n in recorded.notes])[order] for c in columns)
    return Records(names, type_of, starts, handles, producer, instance, depth), numbers


def chosen_steps(
    program: rec.RecordingProgram, recorded: Recorded, choose: Choice
) -> Sequence[Steps]:
    """The steps of the notes on each block, as a choice has it.

    Raises ScheduleError where its batches do not hold each note once.
    """
    records, numbers = records_of(program, recorded)
    count = len(records.type_of)
    step, place = np.full(count, -1, np.int64), np.zeros(count, np.int64)
    done = 0
    for i, (block, nodes) in enumerate(choose(records)):
        chosen = np.asarray(nodes, np.int64)
        if np.any(step[chosen] >= 0) or np.any(records.type_of[chosen] != block):
            raise ScheduleError(
                f"batch {i} is of the block `{records.types[block]}`; it has a note on another, or "
                "one that an earlier batch has"
            )
        step[chosen], place[chosen] = i, np.arange(done, done + len(chosen))
        done += len(chosen)
    if done != count:
        raise ScheduleError(f"the batches hold {done} of {count} notes")
    return [(step[n], place[n]) for n in numbers]
