"""The memory of a flush, as machine code reads it."""

from __future__ import annotations

from relaxlab.codegen.llvm.lowlevel import Address, Array, Record, Table, Word


class BlockCode(Record):
    """The function that runs batches of a block (its entry, its context, the words from which it
    reads its arguments, and the most rows for each thread that it is given at once), the words of a
    note, and the operands of the block. Arrays have an element per operand: the bytes of an element
    (of arenas and scalars; of inputs as a power of two), the elements of an input, the bytes of an
    output; output_dims has for each output the number of dimensions behind that of the rows, then
    these."""

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
    input_shift: Array[Word]
    input_elements: Array[Word]
    scalar_bytes: Array[Word]
    output_bytes: Array[Word]
    output_dims: Array[Word]


class Flush(Record):
    """The memory of a flush. done: per log, the notes that ran before. failures: by
    instance, 0 for those that go on. order: the addresses of the notes that run, batch after batch;
    order_kind: their blocks. A batch ends at batch_end. offsets: the places of slots in the arena;
    row_bytes: of a row of the array in a slot. places: room for the operands of one batch. Then the
    room that there is for slots and notes; the functions `RESUME` and `ENTRY`; and the
    batches of several `flushes`: `ran` of them, with `ran_notes`; there is room for `ran_room`.
    results: for devices, the places of the results of all batches, most_outputs of each. work: room
    for choosing batches, `work_room` words of which `work_used` are taken; levels: for a record.
    first_depth, last_depth: by block, of its notes in a phase."""

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
    order: Array[Word]
    order_kind: Array[Word]
    batch_kind: Array[Word]
    batch_end: Array[Word]
    offsets: Array[Word]
    row_bytes: Array[Word]
    places: Array[Word]
    slot_room: Word
    note_room: Word
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
    work: Array[Word]
    work_room: Word
    work_used: Word
    levels: Array[Word]
    first_depth: Array[Word]
    last_depth: Array[Word]
