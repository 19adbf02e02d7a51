"""A flush in machine code: which notes run together, where their results lie, and the calls.

Between recording and running there is no work in Python for a note or a batch. The functions below
are compiled with those that record; `relaxlab/runtime/batch/flush.py` owns their memory.
"""

from __future__ import annotations

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
from relaxlab.codegen.llvm.lowlevel import (
    Address,
    Array,
    Byte,
    Flag,
    Record,
    Table,
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
    NOTE_DEPTH,
    NOTE_INSTANCE,
    NOTE_OPERANDS,
    NOTE_SLOT,
    PHASE_BITS,
    ROW_INDEX,
    ROW_OF,
    ROW_SLOT,
    ROW_WORDS,
)

ALIGN = 64
"""Alignment of the first row of each batch of results, in bytes."""
PHASE = 1 << PHASE_BITS
CALL_BITS = 32
"""Bits of a failure's number; those above it are the number of the batch."""


@external("memcpy")
def copy_memory(to: Address, given: Address, size: Word) -> Address: ...


class BlockCode(Record):
    """The function that runs batches of a block (its entry, its context, the words from which it
    reads its arguments, and the most rows for each thread that it is given at once), the words of a
    note, and the operands of the block. Arrays have an element per operand: the bytes of an element
    (of arenas, inputs and scalars), the elements of an input, the bytes of an output; output_dims
    has for each output the number of dimensions behind that of the rows, then these."""

    entry: Word
    context: Word
    target: Array[Word]
    most_rows: Word
    note_words: Word
    arenas: Word
    inputs: Word
    scalars: Word
    outputs: Word
    arena_bytes: Array[Word]
    input_bytes: Array[Word]
    input_elements: Array[Word]
    scalar_bytes: Array[Word]
    output_bytes: Array[Word]
    output_dims: Array[Word]


class Flush(Record):
    """The memory of a flush. done: per log, the notes that ran before. failures: by
    instance, 0 for those that go on. order: the addresses of the notes that run, batch after batch;
    order_kind: their blocks. A batch ends at batch_end. offsets: the places of slots in the arena;
    row_bytes: of a row of the array in a slot. places: room for the operands of one batch. Then the
    room that there is for slots, notes and depths; the functions `RESUME` and `ENTRY`; and the
    batches of several `flushes`: `ran` of them, with `ran_notes`; there is room for `ran_room`.
    results: for devices, the places of the results of all batches, most_outputs of each."""

    kinds: Word
    phases: Word
    batches: Word
    used: Word
    arena: Word
    arena_size: Word
    threads: Word
    gathered: Word
    blocks: Table[BlockCode]
    recorder: Array[Word]
    done: Array[Word]
    failures: Array[Word]
    phase_ends: Array[Word]
    depths: Array[Word]
    order: Array[Word]
    order_kind: Array[Word]
    batch_kind: Array[Word]
    batch_end: Array[Word]
    offsets: Array[Word]
    row_bytes: Array[Word]
    places: Array[Word]
    slot_room: Word
    note_room: Word
    depth_room: Word
    resume: Address
    record: Address
    ran_kind: Array[Word]
    ran_end: Array[Word]
    ran: Word
    ran_notes: Word
    ran_room: Word
    flushes: Word
    results: Array[Word]
    most_outputs: Word


@low_level
def flush_extent(flush: Flush) -> Word:
    """Number the depths of all phases one after the other. Return how many there are."""
    for phase in range(flush.phases):
        flush.phase_ends[phase] = 0
    for kind in range(flush.kinds):
        width = flush.blocks[kind].note_words
        head = LOGS + kind * LOG_WORDS
        notes = Array[Word](flush.recorder[head + LOG_ADDRESS])
        at = flush.done[kind]
        while at < flush.recorder[head + LOG_COUNT]:
            depth = notes[at * width + NOTE_DEPTH]
            phase = depth // PHASE
            if depth % PHASE >= flush.phase_ends[phase]:
                flush.phase_ends[phase] = depth % PHASE + 1
            at += 1
    total = 0
    for phase in range(flush.phases):
        count = flush.phase_ends[phase]
        flush.phase_ends[phase] = total
        total += count
    return total


@low_level
def flush_order(flush: Flush, depths: Word) -> None:
    """Make batches of the notes on a block at one depth, in the order of depths and then of blocks:
    the depths that were counted while recording are the schedule."""
    for level in range(depths):
        flush.depths[level] = 0
    for kind in range(flush.kinds):
        width = flush.blocks[kind].note_words
        head = LOGS + kind * LOG_WORDS
        notes = Array[Word](flush.recorder[head + LOG_ADDRESS])
        at = flush.done[kind]
        while at < flush.recorder[head + LOG_COUNT]:
            if flush.failures[notes[at * width + NOTE_INSTANCE]] == 0:
                depth = notes[at * width + NOTE_DEPTH]
                level = flush.phase_ends[depth // PHASE] + depth % PHASE
                flush.depths[level] = flush.depths[level] + 1
            at += 1
    total = 0
    for level in range(depths):
        count = flush.depths[level]
        flush.depths[level] = total
        total += count
    for kind in range(flush.kinds):
        width = flush.blocks[kind].note_words
        head = LOGS + kind * LOG_WORDS
        notes = Array[Word](flush.recorder[head + LOG_ADDRESS])
        at = flush.done[kind]
        while at < flush.recorder[head + LOG_COUNT]:
            if flush.failures[notes[at * width + NOTE_INSTANCE]] == 0:
                depth = notes[at * width + NOTE_DEPTH]
                level = flush.phase_ends[depth // PHASE] + depth % PHASE
                place = flush.depths[level]
                flush.order[place] = Word(notes) + 8 * at * width
                flush.order_kind[place] = kind
                flush.depths[level] = place + 1
            at += 1
    # Each depth now ends where its entry says.
    start = 0
    batches = 0
    for level in range(depths):
        at = start
        while at < flush.depths[level]:
            if at == start or flush.order_kind[at] != flush.order_kind[at - 1]:
                flush.batch_kind[batches] = flush.order_kind[at]
                batches += 1
            flush.batch_end[batches - 1] = at + 1
            at += 1
        start = flush.depths[level]
    flush.batches = batches


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
    size = block.input_bytes[k]
    elements = block.input_elements[k]
    scattered = 0
    for row in range(end - first):
        slot = Array[Word](flush.order[first + row])[NOTE_OPERANDS + k]
        place = flush.offsets[slot] // size
        made[row] = place
        if row > 0 and place != made[row - 1] + elements:
            scattered = 1
    if scattered == 1:
        flush.gathered = flush.gathered + (end - first) * elements * size


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
    depths = flush_extent(flush)
    if depths > flush.depth_room:
        return -1
    flush_order(flush, depths)
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
    flush_extent, flush_order, flush_place, flush_places, flush_scalars,
    flush_outputs, flush_rows, flush_run, flush_operands, flush_wake, flush_has_room, flush_ran,
    flush_noted, flush_all,
)  # fmt: skip


def flushing_texts(declarations: dict[str, str]) -> list[str]:
    """The LLVM texts of all functions."""
    return [low_level_text(function, declarations) for function in FUNCTIONS]
