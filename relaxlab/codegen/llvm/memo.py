"""Native code that remembers which notes a batch has: the memory behind `Record.memoized`.

Its first word counts how often recording began anew, so that nothing has to be cleared: entries of
other counts are empty. Then come, for each block, `MEMO_ENTRIES` entries: the count, the slots and
scalars of the note, and the slot of its first output.
"""

from __future__ import annotations

from collections.abc import Sequence

from relaxlab.codegen.llvm.builder import Builder
from relaxlab.codegen.llvm.memory_words import load_word, pointer_of, store_word
from relaxlab.codegen.llvm.recorder_words import MEMO, MEMO_ENTRIES
from relaxlab.ir import recording as rec

_MULTIPLIER = -7046029254386353131
"""2^64 by the golden ratio, as a signed word (multiplicative hashing: Knuth, volume 3, 6.4)."""
_INDEX_BITS = MEMO_ENTRIES.bit_length() - 1


def memo_places(program: rec.RecordingProgram) -> tuple[dict[int, int], int]:
    """The first word of the entries of each block that has some, and the number of words in all."""
    steps = (s for f in program.functions.values() for s in rec.walk_steps(f.steps))
    memoized = {s.block for s in steps if isinstance(s, rec.Record) and s.memoized}
    places: dict[int, int] = {}
    end = 1
    for number in sorted(memoized):
        places[number] = end
        block = program.blocks[number]
        end += MEMO_ENTRIES * _entry_words(len(block.inputs) + len(block.scalars))
    return places, end


def forget_notes(b: Builder, when: str) -> None:
    """Emit a step that empties all entries where a bit is set."""
    memo = _memo(b)
    more = b.emit(f"zext i1 {when} to i64")
    store_word(b, memo, 0, b.emit(f"add i64 {load_word(b, memo, 0)}, {more}"))


def find_note(b: Builder, place: int, operands: Sequence[str]) -> tuple[str, str]:
    """Emit the search for a note on these operands among the entries from word `place` on. Returns
    the address of the only entry that can have it, and a bit: whether it has."""
    memo = _memo(b)
    first = b.emit(f"mul i64 {_index(b, operands)}, {_entry_words(len(operands))}")
    at = b.emit(f"add i64 {first}, {place}")
    entry = b.emit(f"getelementptr inbounds i64, ptr {memo}, i64 {at}")
    differs = "0"
    for i, word in enumerate((load_word(b, memo, 0), *operands)):
        differs = b.emit(f"or i64 {differs}, {b.emit(f'xor i64 {load_word(b, entry, i)}, {word}')}")
    return entry, b.emit(f"icmp eq i64 {differs}, 0")


def found_slot(b: Builder, entry: str, operands: Sequence[str]) -> str:
    """Emit the load of the slot of the first output of the note in an entry."""
    return load_word(b, entry, 1 + len(operands))


def keep_note(b: Builder, entry: str, operands: Sequence[str], slot: str) -> None:
    """Emit stores of a note into an entry."""
    for i, word in enumerate((load_word(b, _memo(b), 0), *operands, slot)):
        store_word(b, entry, i, word)


def _entry_words(operands: int) -> int:
    return 1 + operands + 1


def _memo(b: Builder) -> str:
    return pointer_of(b, load_word(b, "%recorder", MEMO))


def _index(b: Builder, operands: Sequence[str]) -> str:
    """The entry of a note. One operand, such as the number of a word, is its own hash: those of a
    small vocabulary never collide."""
    if len(operands) == 1:
        return b.emit(f"and i64 {operands[0]}, {MEMO_ENTRIES - 1}")
    mixed = "0"
    for word in operands:
        mixed = b.emit(f"mul i64 {b.emit(f'xor i64 {mixed}, {word}')}, {_MULTIPLIER}")
    return b.emit(f"lshr i64 {mixed}, {64 - _INDEX_BITS}")
