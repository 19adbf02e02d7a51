"""The beginning of a batch in machine code, and whole batches.

What depends on the program and on the number of instances alone is written down by Python when it
changes. A batch then takes one call: inputs get their places, the recorder and the fibers are
emptied, and flushes follow, without work in Python for an instance, a note or a flush.
"""

from __future__ import annotations

from relaxlab.codegen.llvm.fibers import FIBER_WORDS
from relaxlab.codegen.llvm.flushing import ALIGN, Flush, copy_memory, flush_all, flush_noted
from relaxlab.codegen.llvm.lowlevel import (
    NULL,
    Address,
    Array,
    Flag,
    Record,
    Table,
    Word,
    address_of,
    invoke,
    low_level,
)
from relaxlab.codegen.llvm.lowlevel_text import low_level_text
from relaxlab.codegen.llvm.reading_plan import Group, InputPlan
from relaxlab.codegen.llvm.recorder_words import FAILURES, FIBERS_END, FREE_FIBER, NEXT_SLOT
from relaxlab.ir.recording import RECORD_DATA, RECORD_DIMS, RECORD_SLOT

NO_PLACE = -(1 << 62)
"""The result of `run_batch` where there is too little room for the inputs: up to `inputs_end` in
the arena, and for slots up to `first_slot`. Nothing has begun then."""


class Start(Record):
    """A batch of `count` instances. Of the program: the words of a recorder that has noted nothing,
    and how many words an instance and its results have. Of the batch: these words, `refused` with a
    failure for each instance that is not to be recorded, the first slot behind those of input
    arrays (`array_slots`), the plans of all inputs, the words of values of data types (`values`)
    with the arrays in them, and the byte of the arena from which on arrays are copied. Where
    instances wait: the words of fibers, and how they are at the beginning (`ready`); two words for
    each instance, from which its fiber reads where its own words are (`args`); and the first free
    fiber.
    inputs_end, first_slot: the end of the arrays in the arena, and the first slot for notes, which
    are written down."""

    flush: Flush
    empty: Array[Word]
    recorder_words: Word
    input_words: Word
    result_words: Word
    count: Word
    inputs: Array[Word]
    results: Array[Word]
    refused: Array[Word]
    array_slots: Word
    plans: Table[InputPlan]
    plan_count: Word
    values: Array[Word]
    groups: Table[Group]
    group_count: Word
    inputs_begin: Word
    fibers: Array[Word]
    ready: Array[Word]
    args: Array[Word]
    free_fiber: Word
    inputs_end: Word
    first_slot: Word


@low_level
def place_arrays(flush: Flush, plan: InputPlan, count: Word, at: Word) -> None:
    """Copy the arrays of a plan's records into the arena, from byte `at` on, one after the other,
    and write where they and their rows are."""
    for i in range(count):
        record = Array[Word](address_of(plan.records[i * (RECORD_DIMS + plan.ndim)]))
        row = plan.size
        for axis in range(plan.ndim - 1):
            row *= record[RECORD_DIMS + 1 + axis]
        size = row
        if plan.ndim > 0:
            size = row * record[RECORD_DIMS]
        slot = record[RECORD_SLOT]
        flush.offsets[slot] = at
        flush.row_bytes[slot] = row
        copy_memory(Address(flush.arena + at), Address(record[RECORD_DATA]), size)
        at += size


@low_level
def place_group(start: Start, group: Group, slot: Word, at: Word) -> None:
    """Copy the arrays of a group into the arena, from byte `at` on, and let slots from `slot` on
    stand for them."""
    flush = start.flush
    copy_memory(Address(flush.arena + at), group.data, group.used)
    for i in range(group.count):
        start.values[group.at[i]] = slot + i
        flush.offsets[slot + i] = at
        at += group.sizes[i]


@low_level
def aligned(size: Word) -> Word:
    """The bytes that arrays of so many bytes take."""
    return (size + ALIGN - 1) // ALIGN * ALIGN


@low_level
def fits(start: Start) -> Flag:
    """Write down where arrays end in the arena, and their slots. True if there is room for all."""
    end = start.inputs_begin
    slot = start.array_slots
    for i in range(start.plan_count):
        if start.plans[i].placed != 0:
            end += aligned(start.plans[i].bytes)
    for i in range(start.group_count):
        end += aligned(start.groups[i].used)
        slot += start.groups[i].count
    start.inputs_end = end
    start.first_slot = slot
    return end <= start.flush.arena_size and slot <= start.flush.slot_room


@low_level
def place_inputs(start: Start) -> None:
    """Copy all arrays into the arena."""
    at = start.inputs_begin
    slot = start.array_slots
    for i in range(start.plan_count):
        plan = start.plans[i]
        if plan.placed != 0:
            place_arrays(start.flush, plan, start.count, at)
            at += aligned(plan.bytes)
    for i in range(start.group_count):
        group = start.groups[i]
        place_group(start, group, slot, at)
        slot += group.count
        at += aligned(group.used)


@low_level
def start_fibers(start: Start, recorder: Array[Word], used: Word) -> None:
    """Give each instance a fiber that is ready to run; behind these are free ones. used: the end of
    the fibers that the batch before had."""
    copy_memory(start.fibers, start.ready, used - Word(start.fibers))
    for i in range(start.count):
        start.args[2 * i] = Word(address_of(start.inputs[i * start.input_words]))
        start.args[2 * i + 1] = Word(address_of(start.results[i * start.result_words]))
    recorder[FREE_FIBER] = start.free_fiber
    recorder[FIBERS_END] = Word(address_of(start.fibers[start.count * FIBER_WORDS]))


@low_level
def start_batch(start: Start) -> Word:
    """Place the inputs and empty the recorder. Return 0; or `NO_PLACE`, when nothing is done."""
    if not fits(start):
        return NO_PLACE
    place_inputs(start)
    flush = start.flush
    recorder = flush.recorder
    used_fibers = recorder[FIBERS_END]
    copy_memory(recorder, start.empty, 8 * start.recorder_words)
    recorder[NEXT_SLOT] = start.first_slot
    recorder[FAILURES] = Word(flush.failures)
    copy_memory(flush.failures, start.refused, 8 * start.count)
    for log in range(flush.kinds + 1):
        flush.done[log] = 0
    flush.used = start.inputs_end
    if start.fibers != NULL:
        start_fibers(start, recorder, used_fibers)
    return 0


@low_level
def run_batch(start: Start) -> Word:
    """Record instances and run what they note, flush after flush. Return `NO_PLACE`, or what
    `flush_noted` does: where that lacks room, the caller has to run the flush."""
    if start_batch(start) != 0:
        return NO_PLACE
    flush = start.flush
    if start.fibers != NULL:
        return resume_batch(start)
    begin_counting(flush)
    invoke(flush.record, flush.recorder, start.inputs, start.count, start.results)
    return flush_noted(flush)


@low_level
def resume_batch(start: Start) -> Word:
    """Let fibers go on, flush after flush. Return what `flush_noted` does."""
    begin_counting(start.flush)
    return flush_all(start.flush, start.fibers)


@low_level
def begin_counting(flush: Flush) -> None:
    """Forget the batches that flushes have counted."""
    flush.gathered = 0
    flush.ran = 0
    flush.ran_notes = 0
    flush.flushes = 0


FUNCTIONS = (
    place_arrays, place_group, aligned, fits, place_inputs, start_fibers, start_batch,
    begin_counting, run_batch, resume_batch,
)  # fmt: skip


def starting_texts(declarations: dict[str, str]) -> list[str]:
    """The LLVM texts of all functions."""
    return [low_level_text(function, declarations) for function in FUNCTIONS]
