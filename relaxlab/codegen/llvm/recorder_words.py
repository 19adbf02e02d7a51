"""The memory that code which records, and its caller, share: words by their numbers."""

from __future__ import annotations

(
    NEXT_SLOT, FAILED, STACK_END, INSTANCE, HEAP_NEXT, HEAP_END, FIBER, FREE_FIBER, FIBERS_END,
    FAILURES, MEMO, LOGS,
) = range(12)  # fmt: skip
"""Words of a recorder, among them the addresses of the fiber that runs, of one that is free, of the
end of those that were ever used in the batch, and of an array with the failure of each instance (0
for those that go on), and of the memory of memoised notes; the logs begin at `LOGS`."""
MEMO_ENTRIES = 4096
"""Memoised notes of a block that are remembered. Entries of three machine words take 98 KB, a tenth
of a second-level cache of 1 MB; those of vocabularies of 4,096 words never push out each other. A
note that is forgotten for another with the same place is taken again."""
LOG_ADDRESS, LOG_COUNT, LOG_ROOM, LOG_WORDS = 0, 1, 2, 3
"""Words of a log, and how many there are."""
NOTE_DEPTH, NOTE_SLOT, NOTE_INSTANCE, NOTE_OPERANDS = 0, 1, 2, 3
"""Words of a note on a block: its depth, the slot of its first output, the number of the instance,
then the slots of its inputs and its scalars."""
ROW_SLOT, ROW_OF, ROW_INDEX, ROW_WORDS = 0, 1, 2, 3
"""Words of a note on a row of an input array: its slot, the array's, and the row's number."""
PHASE_BITS, ROUND_BITS = 32, 40
"""Bits of a depth below those that count phases, and below those by which notes of several rounds
are distinguished when they are put together."""
TOO_DEEP, NO_ROOM, REFUSED, FIRST_MESSAGE = 1, 2, 3, 4
"""Failures: a recursion that took more stack; values of data types that found no room, for which
the caller makes some; arguments that do not fit, for which nothing is recorded. Others are numbers
from `FIRST_MESSAGE` on: see `messages`."""
