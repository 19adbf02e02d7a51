"""The batches of a flush in machine code, as few as are found.

The notes of a flush are a graph: a note reads those that made its operands. Notes on a block that
all have one depth are a batch. Of the others, the *level* is how many notes on the same block lie
on a path to it, itself among them, the most of all paths. No batch can have two notes on one path,
so that the largest levels of all blocks add up to the fewest batches that there can be. Where the
notes on each block at each level can run together, they are such a schedule: trees, and sentences
of different lengths through layer after layer. Where they cannot, because blocks read each other in
other orders in other instances (lattices), there are three schedules, of which the shortest is
taken: by the counted depths; by the policy `agenda`; and by one that runs a block whose batch
lowers the bound of what is left, or else the block of which the largest part of what is left is
ready. That is `critical`, with a choice that takes a third of the time and as many batches.
"""

from __future__ import annotations

from relaxlab.codegen.llvm.batch_policies import AGENDA, PART, Run, batch_schedule, raise_to
from relaxlab.codegen.llvm.flush_memory import Flush
from relaxlab.codegen.llvm.lowlevel import (
    Address,
    Array,
    Flag,
    Int,
    Record,
    Word,
    external,
    inlined,
    low_level,
)
from relaxlab.codegen.llvm.recorder_words import (
    LOG_ADDRESS,
    LOG_COUNT,
    LOG_WORDS,
    LOGS,
    NEXT_SLOT,
    NOTE_DEPTH,
    NOTE_INSTANCE,
    NOTE_OPERANDS,
    NOTE_SLOT,
    PHASE_BITS,
)

PHASE = 1 << PHASE_BITS
NO_DEPTH = 1 << 62
"""The first depth of blocks without notes."""
RUN_WORDS = 64
"""Words for the record of a policy's execution, at least as many as it has fields."""


@external("memset")
def fill_memory(to: Address, byte: Int, size: Word) -> Address: ...


class Levels(Record):
    """The notes of a phase on blocks whose notes have different depths, and on those between them:
    depths from `begin` to `end`. kinds: how many blocks these are; number: by block, its number
    among these, and of: by number, the block; lanes: kinds, and as many more as make a multiple of
    four. There is room for so many notes. slots: how many slots there are from `first_slot` on, the
    first that the notes make. maker: by slot, the number behind that of the note that makes it, or
    0. note, kind_of: the notes in the order in which they were taken, and their blocks. level:
    (notes, lanes), of each block the most notes on a path to a note, itself among them. top: by
    block, the largest level of its notes; starts: the number of batches of blocks before it. needs:
    (batches, lanes), of each block the largest level that notes of a batch need to have run."""

    phase: Word
    begin: Word
    end: Word
    kinds: Word
    lanes: Word
    number: Array[Word]
    of: Array[Word]
    room: Word
    notes: Word
    first_slot: Word
    slots: Word
    maker: Array[Int]
    note: Array[Word]
    kind_of: Array[Int]
    level: Array[Int]
    top: Array[Word]
    starts: Array[Word]
    needs: Array[Int]


@low_level
def take_work(flush: Flush, words: Word) -> Word:
    """The address of so many words, which are zero."""
    address = Word(flush.work) + 8 * flush.work_used
    flush.work_used = flush.work_used + words
    fill_memory(Address(address), 0, 8 * words)
    return address


@low_level
def find_depths(flush: Flush, phase: Word) -> None:
    """Write down the first and the last depth of each block's notes in a phase."""
    for kind in range(flush.kinds):
        width = flush.blocks[kind].note_words
        head = LOGS + kind * LOG_WORDS
        notes = Array[Word](flush.recorder[head + LOG_ADDRESS])
        at = flush.done[kind]
        first = NO_DEPTH
        last = -1
        while at < flush.recorder[head + LOG_COUNT]:
            depth = notes[at * width + NOTE_DEPTH]
            if depth // PHASE == phase:
                first = depth if depth < first else first
                last = depth if depth > last else last
            at += 1
        flush.first_depth[kind] = first
        flush.last_depth[kind] = last


@low_level
def sort_blocks(flush: Flush, levels: Levels) -> None:
    """Find the blocks whose notes may be in several batches, and those that run before and behind
    them: of each of these, all notes have one depth."""
    begin = NO_DEPTH
    end = -1
    for kind in range(flush.kinds):
        if flush.first_depth[kind] < flush.last_depth[kind]:
            if flush.first_depth[kind] < begin:
                begin = flush.first_depth[kind]
            if flush.last_depth[kind] > end:
                end = flush.last_depth[kind]
    levels.kinds = 0
    for kind in range(flush.kinds):
        if flush.first_depth[kind] >= begin and 0 <= flush.last_depth[kind] <= end:
            levels.number[kind] = levels.kinds
            levels.of[levels.kinds] = kind
            levels.kinds = levels.kinds + 1
    levels.lanes = (levels.kinds + 3) // 4 * 4
    levels.begin = begin
    levels.end = end


@low_level
def find_slots(flush: Flush, levels: Levels) -> Word:
    """Find the slots that the notes may read. Return the words that choosing batches takes."""
    levels.first_slot = flush.recorder[NEXT_SLOT]
    edges = 0
    room = 0
    for number in range(levels.kinds):
        kind = levels.of[number]
        head = LOGS + kind * LOG_WORDS
        notes = Array[Word](flush.recorder[head + LOG_ADDRESS])
        slot = notes[flush.done[kind] * flush.blocks[kind].note_words + NOTE_SLOT]
        if slot < levels.first_slot:
            levels.first_slot = slot
        count = flush.recorder[head + LOG_COUNT] - flush.done[kind]
        room += count
        edges += count * flush.blocks[kind].inputs
    levels.room = room
    levels.slots = flush.recorder[NEXT_SLOT] - levels.first_slot
    words = 3 * levels.slots + 2 * (room + 1) * levels.lanes + 20 * (room + levels.kinds + 2)
    depths = levels.end - levels.begin + 1
    return words + 2 * edges + depths * levels.kinds + 2 * flush.kinds + RUN_WORDS


@inlined
def is_in(flush: Flush, levels: Levels, notes: Array[Word], word: Word) -> Flag:
    """True for a note of the phase whose instance has not failed."""
    going = flush.failures[notes[word + NOTE_INSTANCE]] == 0
    return going and notes[word + NOTE_DEPTH] // PHASE == levels.phase


@low_level
def list_notes(flush: Flush, levels: Levels) -> None:
    """List the notes in the order in which they were taken: what reads a note comes soon after it,
    and both are in the cache."""
    first = levels.first_slot
    taken = Array[Word](take_work(flush, levels.slots))
    kinds = Array[Int](take_work(flush, (levels.slots + 1) // 2))
    for number in range(levels.kinds):
        kind = levels.of[number]
        width = flush.blocks[kind].note_words
        head = LOGS + kind * LOG_WORDS
        notes = Array[Word](flush.recorder[head + LOG_ADDRESS])
        at = flush.done[kind]
        while at < flush.recorder[head + LOG_COUNT]:
            if is_in(flush, levels, notes, at * width):
                slot = notes[at * width + NOTE_SLOT] - first
                taken[slot] = Word(notes) + 8 * at * width
                kinds[slot] = number
            at += 1
    count = 0
    for slot in range(levels.slots):
        if taken[slot] != 0:
            levels.note[count] = taken[slot]
            levels.kind_of[count] = kinds[slot]
            count += 1
            for k in range(flush.blocks[levels.of[kinds[slot]]].outputs):
                levels.maker[slot + k] = count
    levels.notes = count


@low_level
def count_levels(flush: Flush, levels: Levels) -> Word:
    """Count the levels of all notes. Return the fewest batches that there can be."""
    first = levels.first_slot
    lanes = levels.lanes
    level = Word(levels.level)
    for at in range(levels.notes):
        note = Array[Word](levels.note[at])
        kind = 0 + levels.kind_of[at]
        here = Array[Int](level + 4 * at * lanes)
        for k in range(flush.blocks[levels.of[kind]].inputs):
            slot = note[NOTE_OPERANDS + k] - first
            if slot >= 0 and levels.maker[slot] != 0:
                raise_to(here, Array[Int](level + 4 * (levels.maker[slot] - 1) * lanes), lanes)
        here[kind] = here[kind] + 1
        if here[kind] > levels.top[kind]:
            levels.top[kind] = here[kind]
    least = 0
    for kind in range(levels.kinds):
        levels.starts[kind] = least
        least += levels.top[kind]
    return least


@inlined
def batch_at(levels: Levels, at: Word) -> Word:
    """The number of the batch that a note's block and level make."""
    kind = 0 + levels.kind_of[at]
    return levels.starts[kind] + levels.level[at * levels.lanes + kind] - 1


@low_level
def count_needs(levels: Levels) -> None:
    """Write down, for the notes on each block at each level, what has to run before all of them."""
    lanes = levels.lanes
    for at in range(levels.notes):
        needs = Array[Int](Word(levels.needs) + 4 * batch_at(levels, at) * lanes)
        raise_to(needs, Array[Int](Word(levels.level) + 4 * at * lanes), lanes)


@low_level
def order_levels(levels: Levels, turn: Array[Word], ran: Array[Word]) -> Flag:
    """Put the batches of levels into an order in which each comes behind what it needs, and write
    their places to `turn`. False if there is none. ran: a zero for each block."""
    kinds = levels.kinds
    done = 0
    before = -1
    while before < done:
        before = 0 + done
        for kind in range(kinds):
            fits = True
            while fits and ran[kind] < levels.top[kind]:
                batch = levels.starts[kind] + ran[kind]
                needs = Array[Int](Word(levels.needs) + 4 * batch * levels.lanes)
                for other in range(kinds):
                    if needs[other] > ran[other] and other != kind:
                        fits = False
                if fits:
                    turn[batch] = done
                    done += 1
                    ran[kind] = ran[kind] + 1
    return all(ran[kind] == levels.top[kind] for kind in range(kinds))


@low_level
def run_block(flush: Flush, levels: Levels, kind: Word) -> None:
    """Let all notes on a block run in one batch, behind those there are."""
    width = flush.blocks[kind].note_words
    head = LOGS + kind * LOG_WORDS
    notes = Array[Word](flush.recorder[head + LOG_ADDRESS])
    first = last_end(flush)
    end = 0 + first
    at = flush.done[kind]
    while at < flush.recorder[head + LOG_COUNT]:
        if is_in(flush, levels, notes, at * width):
            flush.order[end] = Word(notes) + 8 * at * width
            flush.order_kind[end] = kind
            end += 1
        at += 1
    if end > first:
        flush.batch_kind[flush.batches] = kind
        flush.batch_end[flush.batches] = end
        flush.batches = flush.batches + 1


@low_level
def last_end(flush: Flush) -> Word:
    """The number of notes in all batches."""
    return 0 if flush.batches == 0 else flush.batch_end[flush.batches - 1]


@low_level
def run_blocks(flush: Flush, levels: Levels, begin: Word, end: Word) -> None:
    """Let the notes on each block run in one batch, by rising depths from `begin` up to before
    `end`. All notes on such a block have one depth."""
    depth = 0 + begin
    while depth < end:
        after = 0 + end
        for kind in range(flush.kinds):
            if flush.first_depth[kind] == depth:
                run_block(flush, levels, kind)
            elif depth < flush.first_depth[kind] < after:
                after = flush.first_depth[kind]
        depth = 0 + after


@low_level
def run_levels(
    flush: Flush, levels: Levels, turn: Array[Word], batches: Word, place: Array[Word]
) -> None:
    """Let the notes on each block at each level run together, behind the batches there are. turn:
    the place of each batch in their order. place: a zero for each."""
    for at in range(levels.notes):
        batch = turn[batch_at(levels, at)]
        place[batch] = place[batch] + 1
        flush.batch_kind[flush.batches + batch] = levels.of[levels.kind_of[at]]
    end = last_end(flush)
    for batch in range(batches):
        count = place[batch]
        place[batch] = end
        end += count
        flush.batch_end[flush.batches + batch] = end
    for at in range(levels.notes):
        batch = turn[batch_at(levels, at)]
        flush.order[place[batch]] = levels.note[at]
        flush.order_kind[place[batch]] = levels.of[levels.kind_of[at]]
        place[batch] = place[batch] + 1
    flush.batches = flush.batches + batches


@low_level
def run_depths(flush: Flush, levels: Levels) -> None:
    """Let the notes on each block at each counted depth run together, behind the batches there
    are, in the order of depths and then of blocks."""
    kinds = levels.kinds
    keys = (levels.end - levels.begin + 1) * kinds
    place = Array[Word](take_work(flush, keys))
    for at in range(levels.notes):
        depth = Array[Word](levels.note[at])[NOTE_DEPTH] - levels.begin
        key = depth * kinds + levels.kind_of[at]
        place[key] = place[key] + 1
    end = last_end(flush)
    for key in range(keys):
        count = place[key]
        place[key] = end
        end += count
        if count > 0:
            flush.batch_kind[flush.batches] = levels.of[key % kinds]
            flush.batch_end[flush.batches] = end
            flush.batches = flush.batches + 1
    for at in range(levels.notes):
        depth = Array[Word](levels.note[at])[NOTE_DEPTH] - levels.begin
        key = depth * kinds + levels.kind_of[at]
        flush.order[place[key]] = levels.note[at]
        flush.order_kind[place[key]] = levels.of[levels.kind_of[at]]
        place[key] = place[key] + 1


@low_level
def take_graph(flush: Flush, levels: Levels, run: Run) -> None:
    """Write down which notes read which: notes that a note reads twice in turn count once."""
    notes = levels.notes
    run.nodes = notes
    run.kinds = levels.kinds
    run.lanes = levels.lanes
    run.type_of = levels.kind_of
    run.starts = Array[Word](take_work(flush, notes + 1))
    run.succ_starts = Array[Word](take_work(flush, notes + 2))
    run.alone = Array[Int](take_work(flush, levels.kinds))
    run.reads = Array[Int](Word(flush.work) + 8 * flush.work_used)
    edges = 0
    for at in range(notes):
        note = Array[Word](levels.note[at])
        before = 0
        for k in range(flush.blocks[levels.of[levels.kind_of[at]]].inputs):
            slot = note[NOTE_OPERANDS + k] - levels.first_slot
            source = 0
            if slot >= 0:
                source = 0 + levels.maker[slot]
            if source != 0 and source != before:
                run.reads[edges] = source - 1
                edges += 1
                run.succ_starts[source + 1] = run.succ_starts[source + 1] + 1
                before = 0 + source
        run.starts[at + 1] = edges
    flush.work_used = flush.work_used + edges
    run.readers = Array[Int](take_work(flush, edges))
    for at in range(notes):
        run.succ_starts[at + 1] = run.succ_starts[at + 1] + run.succ_starts[at]
    for at in range(notes):
        edge = run.starts[at]
        while edge < run.starts[at + 1]:
            source = 0 + run.reads[edge]
            run.readers[run.succ_starts[source + 1]] = at
            run.succ_starts[source + 1] = run.succ_starts[source + 1] + 1
            edge += 1


@low_level
def schedule_by(flush: Flush, run: Run, policy: Word, critical: Word) -> Word:
    """Run the graph by a policy. Return how many batches there are, at most `run.most`."""
    notes = run.nodes
    kinds = run.kinds
    run.policy = policy
    run.critical = critical
    run.missing = Array[Int](take_work(flush, notes))
    run.following = Array[Int](take_work(flush, notes))
    run.first = Array[Int](take_work(flush, kinds))
    run.last = Array[Int](take_work(flush, kinds))
    run.ready = Array[Word](take_work(flush, kinds))
    run.order = Array[Int](take_work(flush, notes))
    run.batch_types = Array[Int](take_work(flush, notes))
    run.batch_ends = Array[Word](take_work(flush, notes))
    run.depth = Array[Int](take_work(flush, notes))
    run.depths_left = Array[Word](take_work(flush, kinds))
    run.left = Array[Word](take_work(flush, kinds))
    run.types = Array[Word](take_work(flush, kinds))
    run.top = Array[Word](take_work(flush, kinds))
    run.rank_starts = Array[Word](take_work(flush, kinds + 1))
    run.rank_left = Array[Int](take_work(flush, notes + kinds))
    run.rank_ready = Array[Int](take_work(flush, notes + kinds))
    if critical != 0:
        run.ahead = Array[Int](take_work(flush, notes * run.lanes // 2))
    return batch_schedule(run)


@low_level
def run_graph(flush: Flush, levels: Levels, run: Run, first: Word, batches: Word) -> None:
    """Take the batches that a policy made, behind so many others."""
    flush.batches = first
    start = last_end(flush)
    for at in range(run.nodes):
        node = 0 + run.order[at]
        flush.order[start + at] = levels.note[node]
        flush.order_kind[start + at] = levels.of[levels.kind_of[node]]
    for batch in range(batches):
        flush.batch_kind[first + batch] = levels.of[run.batch_types[batch]]
        flush.batch_end[first + batch] = start + run.batch_ends[batch]
    flush.batches = first + batches


@low_level
def run_policies(flush: Flush, levels: Levels, least: Word) -> None:
    """Let the notes run by their depths, or as one of two policies has them if that takes fewer
    batches. least: the fewest that there can be."""
    first = flush.batches
    run_depths(flush, levels)
    run = Run(take_work(flush, RUN_WORDS))
    take_graph(flush, levels, run)
    used = flush.work_used
    run.most = flush.batches - first
    batches = schedule_by(flush, run, PART, 1)
    if batches < run.most:
        run_graph(flush, levels, run, first, batches)
        run.most = batches
    if batches > least:
        flush.work_used = used
        batches = schedule_by(flush, run, AGENDA, 0)
        if batches < run.most:
            run_graph(flush, levels, run, first, batches)


@low_level
def take_levels(flush: Flush, levels: Levels) -> None:
    """Take the memory in which levels are counted."""
    levels.maker = Array[Int](take_work(flush, (levels.slots + 1) // 2))
    levels.note = Array[Word](take_work(flush, levels.room))
    levels.kind_of = Array[Int](take_work(flush, (levels.room + 1) // 2))
    levels.level = Array[Int](take_work(flush, levels.room * levels.lanes // 2))
    levels.top = Array[Word](take_work(flush, levels.kinds))
    levels.starts = Array[Word](take_work(flush, levels.kinds))


@low_level
def phase_batches(flush: Flush, levels: Levels) -> Word:
    """Put the notes of a phase into batches behind those there are. Return 0, or the words of work
    that it takes where there are too few."""
    find_depths(flush, levels.phase)
    sort_blocks(flush, levels)
    if levels.kinds == 0:
        run_blocks(flush, levels, levels.phase * PHASE, NO_DEPTH)
        return 0
    words = find_slots(flush, levels)
    if words > flush.work_room:
        return words
    take_levels(flush, levels)
    list_notes(flush, levels)
    least = count_levels(flush, levels)
    levels.needs = Array[Int](take_work(flush, least * levels.lanes // 2))
    turn = Array[Word](take_work(flush, least))
    ran = Array[Word](take_work(flush, levels.kinds))
    count_needs(levels)
    run_blocks(flush, levels, levels.phase * PHASE, levels.begin)
    if order_levels(levels, turn, ran):
        run_levels(flush, levels, turn, least, Array[Word](take_work(flush, least)))
    else:
        run_policies(flush, levels, least)
    run_blocks(flush, levels, levels.end + 1, NO_DEPTH)
    return 0


@low_level
def flush_batches(flush: Flush) -> Word:
    """Put the notes of a flush into batches, as few as are found, phase after phase. Return 0, or
    the words of work that it takes where there are too few."""
    if flush.work_room < 2 * flush.kinds:
        return 2 * flush.kinds
    levels = Levels(flush.levels)
    flush.batches = 0
    for phase in range(flush.phases):
        flush.work_used = 0
        levels.phase = phase
        levels.number = Array[Word](take_work(flush, flush.kinds))
        levels.of = Array[Word](take_work(flush, flush.kinds))
        words = phase_batches(flush, levels)
        if words != 0:
            return words
    return 0


FUNCTIONS = (
    take_work, find_depths, sort_blocks, find_slots, is_in, list_notes, count_levels,
    batch_at, count_needs, order_levels, run_block, last_end, run_blocks, run_levels, run_depths,
    take_graph, schedule_by, run_graph, run_policies, take_levels, phase_batches, flush_batches,
)  # fmt: skip
