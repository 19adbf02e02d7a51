"""A flush in machine code: which notes run together, where their results lie, and the calls.

Between recording and running there is no work in Python for a note or a batch. The functions below
are compiled with those that record; `relaxlab/runtime/batch/flush.py` owns their memory.
"""

from __future__ import annotations

from relaxlab.codegen.llvm.batch_policies import FUNCTIONS as POLICIES
from relaxlab.codegen.llvm.fewest_batches import FUNCTIONS as CHOOSING
from relaxlab.codegen.llvm.fewest_batches import flush_batches
from relaxlab.codegen.llvm.fibers import (
    AT_PHASE,
    DONE,
    FIBER_WORDS,
    NUMBER,
    READY,
    SLOT,
    STATE,
    VALUE,
    WAITING,
)
from relaxlab.codegen.llvm.flush_memory import Flush
from relaxlab.codegen.llvm.lowlevel import (
    Address,
    Array,
    Byte,
    Flag,
    Word,
    address_of,
    external,
    invoke,
    low_level,
)
from relaxlab.codegen.llvm.lowlevel_text import low_level_text
from relaxlab.codegen.llvm.recorder_words import (
    FAILED,
    FIBERS_END,
    LOG_ADDRESS,
    LOG_COUNT,
    LOG_ROOM,
    LOG_WORDS,
    LOGS,
    NEXT_SLOT,
    NOTE_OPERANDS,
    NOTE_SLOT,
    ROW_INDEX,
    ROW_OF,
    ROW_SLOT,
    ROW_WORDS,
)

ALIGN = 64
"""Alignment of the first row of each batch of results, in bytes."""
CALL_BITS = 32
"""Bits of a failure's number; those above it are the number of the batch."""


@external("memcpy")
def copy_memory(to: Address, given: Address, size: Word) -> Address: ...


@low_level
def flush_place(flush: Flush) -> Word:
    """Give rows of input arrays, and results, their places in the arena: the rows of a batch side
    by side, batch after batch. Return the end of what is used then."""
    head = LOGS + flush.kinds * LOG_WORDS
    rows = Array[Word](flush.recorder[head + LOG_ADDRESS])
    at = flush.done[flush.kinds]
    while at < flush.recorder[head + LOG_COUNT]:
        note = at * ROW_WORDS
        array = rows[note + ROW_OF]
        place = flush.offsets[array] + rows[note + ROW_INDEX] * flush.row_bytes[array]
        flush.offsets[rows[note + ROW_SLOT]] = place
        at += 1
    used = flush.used
    first = 0
    for batch in range(flush.batches):
        block = flush.blocks[flush.batch_kind[batch]]
        for k in range(block.outputs):
            at = first
            while at < flush.batch_end[batch]:
                flush.offsets[Array[Word](flush.order[at])[NOTE_SLOT] + k] = used
                used += block.output_bytes[k]
                at += 1
            used = (used + ALIGN - 1) // ALIGN * ALIGN
        first = flush.batch_end[batch]
    return used


@low_level
def flush_places(flush: Flush, first: Word, end: Word, k: Word, made: Array[Word]) -> None:
    """Write the places of one tensor of a batch, in elements of the arena, and count the bytes
    read from rows that do not follow each other."""
    block = flush.blocks[flush.order_kind[first]]
    shift = block.input_shift[k]
    elements = block.input_elements[k]
    scattered = 0
    for row in range(end - first):
        slot = Array[Word](flush.order[first + row])[NOTE_OPERANDS + k]
        place = flush.offsets[slot] >> shift
        made[row] = place
        if row > 0 and place != made[row - 1] + elements:
            scattered = 1
    if scattered == 1:
        flush.gathered = flush.gathered + ((end - first) * elements << shift)


@low_level
def flush_scalars(flush: Flush, first: Word, end: Word, k: Word, made: Array[Word]) -> None:
    """Write one scalar of each note of a batch, in as many bytes as its dtype has."""
    block = flush.blocks[flush.order_kind[first]]
    size = block.scalar_bytes[k]
    column = NOTE_OPERANDS + block.inputs + k
    narrow = Array[Byte](made)
    for row in range(end - first):
        value = Array[Word](flush.order[first + row])[column]
        if size == 8:
            made[row] = value
        else:
            for byte in range(size):
                narrow[row * size + byte] = value
                value = value // 256


@low_level
def flush_outputs(flush: Flush, first: Word, rows: Word, word: Word) -> None:
    """Write the words of a batch's outputs, from `word` on."""
    block = flush.blocks[flush.order_kind[first]]
    target = block.target
    dim = 0
    for k in range(block.outputs):
        slot = Array[Word](flush.order[first])[NOTE_SLOT] + k
        target[word] = flush.arena + flush.offsets[slot]
        target[word + 1] = rows
        word += 2
        count = block.output_dims[dim]
        for axis in range(count):
            target[word + axis] = block.output_dims[dim + 1 + axis]
        word += count
        dim += count + 1


@low_level
def flush_rows(flush: Flush, first: Word, end: Word) -> Word:
    """Run some rows of a batch. Return 0, or what failed."""
    block = flush.blocks[flush.order_kind[first]]
    rows = end - first
    target = block.target
    word = 0
    for k in range(block.arenas):
        target[word] = flush.arena
        target[word + 1] = flush.arena_size // block.arena_bytes[k]
        word += 2
    made = flush.places
    for k in range(block.inputs + block.scalars):
        if k < block.inputs:
            flush_places(flush, first, end, k, made)
        else:
            flush_scalars(flush, first, end, k - block.inputs, made)
        target[word] = Word(made)
        target[word + 1] = rows
        word += 2
        made = Array[Word](Word(made) + 8 * rows)
    flush_outputs(flush, first, rows, word)
    return invoke(Address(block.entry), block.context, flush.threads)


@low_level
def flush_run(flush: Flush) -> Word:
    """Run all batches, until one fails. Return 0, or what failed with the number of the batch in
    the upper half."""
    first = 0
    for batch in range(flush.batches):
        most = flush.blocks[flush.batch_kind[batch]].most_rows * flush.threads
        while first < flush.batch_end[batch]:
            end = flush.batch_end[batch]
            if end - first > most:
                end = first + most
            code = flush_rows(flush, first, end)
            if code != 0:
                return (batch << CALL_BITS) + code
            first = end
    return 0


@low_level
def flush_operands(flush: Flush) -> Word:
    """Write the operands of all batches one after the other into `places`, each from an even word
    on, and the places of their results: a device is given them in one copy. Return the words."""
    made = 0
    first = 0
    for batch in range(flush.batches):
        block = flush.blocks[flush.batch_kind[batch]]
        end = flush.batch_end[batch]
        rows = end - first
        for k in range(block.inputs + block.scalars):
            words = Array[Word](address_of(flush.places[made]))
            if k < block.inputs:
                flush_places(flush, first, end, k, words)
            else:
                flush_scalars(flush, first, end, k - block.inputs, words)
            made += rows + rows % 2
        for k in range(block.outputs):
            slot = Array[Word](flush.order[first])[NOTE_SLOT] + k
            flush.results[batch * flush.most_outputs + k] = flush.offsets[slot]
        first = end
    return made


@low_level
def flush_wake(flush: Flush, fibers: Array[Word]) -> Word:
    """Let fibers go on after a flush: those that wait for a tensor get its address; if there are
    none, the phase ends for all. Those of instances that failed end. Return how many are left."""
    waiting = 0
    left = 0
    count = (flush.recorder[FIBERS_END] - Word(fibers)) // (8 * FIBER_WORDS)
    for i in range(count):
        at = i * FIBER_WORDS
        if flush.failures[fibers[at + NUMBER]] != 0:
            fibers[at + STATE] = DONE
        if fibers[at + STATE] == WAITING:
            fibers[at + VALUE] = flush.arena + flush.offsets[fibers[at + SLOT]]
            fibers[at + STATE] = READY
            waiting += 1
        if fibers[at + STATE] != DONE:
            left += 1
    if waiting == 0:
        for i in range(count):
            if fibers[i * FIBER_WORDS + STATE] == AT_PHASE:
                fibers[i * FIBER_WORDS + STATE] = READY
    return left


@low_level
def flush_has_room(flush: Flush) -> Flag:
    """True if there is room for all notes that were taken since the flush before."""
    if flush.recorder[FAILED] != 0 or flush.recorder[NEXT_SLOT] > flush.slot_room:
        return False
    notes = 0
    for kind in range(flush.kinds + 1):
        head = LOGS + kind * LOG_WORDS
        count = flush.recorder[head + LOG_COUNT]
        if count > flush.recorder[head + LOG_ROOM]:
            return False
        if kind < flush.kinds:
            notes += count - flush.done[kind]
    return notes <= flush.note_room


@low_level
def flush_ran(flush: Flush) -> None:
    """Note the batches of a flush behind those of the ones before, and that its notes are done."""
    for batch in range(flush.batches):
        flush.ran_kind[flush.ran + batch] = flush.batch_kind[batch]
        flush.ran_end[flush.ran + batch] = flush.ran_notes + flush.batch_end[batch]
    if flush.batches > 0:
        flush.flushes = flush.flushes + 1
        flush.ran_notes = flush.ran_notes + flush.batch_end[flush.batches - 1]
    flush.ran = flush.ran + flush.batches
    for kind in range(flush.kinds + 1):
        flush.done[kind] = flush.recorder[LOGS + kind * LOG_WORDS + LOG_COUNT]


@low_level
def flush_noted(flush: Flush) -> Word:
    """Run what was noted since the flush before. Return 0; or what failed, as `flush_run` does; or
    -1 where there is no room for it."""
    if not flush_has_room(flush):
        return -1
    if flush_batches(flush) != 0:
        return -1
    if flush.ran + flush.batches > flush.ran_room:
        return -1
    end = flush_place(flush)
    if end > flush.arena_size:
        return -1
    code = flush_run(flush)
    if code == 0:
        flush.used = end
        flush_ran(flush)
    return code


@low_level
def flush_all(flush: Flush, fibers: Array[Word]) -> Word:
    """Let fibers go on, flush after flush, until none is left. Return what `flush_noted` does:
    where it lacks room, the caller has to run that flush."""
    left = 1
    while left > 0:
        invoke(flush.resume, flush.recorder, fibers)
        code = flush_noted(flush)
        if code != 0:
            return code
        left = flush_wake(flush, fibers)
    return 0


FUNCTIONS = (
    flush_place, flush_places, flush_scalars,
    flush_outputs, flush_rows, flush_run, flush_operands, flush_wake, flush_has_room, flush_ran,
    flush_noted, flush_all,
)  # fmt: skip


def flushing_texts(declarations: dict[str, str]) -> list[str]:
    """The LLVM texts of all functions."""
    functions = (*FUNCTIONS, *CHOOSING, *POLICIES)
    return [low_level_text(function, declarations) for function in functions]
