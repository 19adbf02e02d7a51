"""Times of calls: code that records the begin and end of each call of a kernel on each thread, and
of each wait for the other threads.

A timed program has the address of the memory for its marks written into it, so it serves the
process that compiled it alone, and is never cached. Every thread has marks of its own; a kernel
ends for a thread when all threads have met. Times are those of `CLOCK_MONOTONIC`, Python's
`perf_counter` on Linux.
"""

from __future__ import annotations

import ctypes
import time
from dataclasses import dataclass, field

from relaxlab.codegen.llvm.lowlevel import Array, Int, Word, external, low_level, stack
from relaxlab.codegen.llvm.lowlevel_text import low_level_text
from relaxlab.codegen.llvm.support import wait_for_team
from relaxlab.ir import host

CAPACITY = 1 << 15
"""Marks of one thread in one run that are kept; later ones are dropped."""
LANES = 64
"""Threads whose marks are kept."""
WAITS = -1
"""Stands for the number of a call in marks of a barrier."""
WAITING = 2 * WAITS
"""The number of a mark for the begin of waiting; the next is for its end."""
CLOCK = time.CLOCK_MONOTONIC
MEMORY = 0
"""The address of a program's memory for marks, which is put in its place."""
_WORDS = 1 + 2 * CAPACITY
"""Words of memory of a thread: how many marks there are, then a number and a time for each. Memory
that is never touched takes no space."""


@dataclass(frozen=True, slots=True)
class TimedCall:
    """A call in a program whose executions are timed."""

    function: str
    instr: host.CallKernel | host.CallPacked


@dataclass(frozen=True, slots=True)
class Mark:
    """The begin or end of a call on a thread, or of waiting at a barrier (`WAITS`): nanoseconds,
    and the call's number among those of the program."""

    call: int
    end: bool
    nanoseconds: int


@dataclass(slots=True)
class Marks:
    """The memory for the marks of a program, and the calls that they mark. Must outlive the
    program."""

    calls: list[TimedCall] = field(default_factory=list[TimedCall])
    memory: ctypes.Array[ctypes.c_int64] = field(
        default_factory=lambda: (ctypes.c_int64 * (LANES * _WORDS))()
    )

    def number(self, function: str, instr: host.CallKernel | host.CallPacked) -> int:
        """The number of a new call."""
        self.calls.append(TimedCall(function, instr))
        return len(self.calls) - 1

    def clear(self) -> None:
        """Forget the marks of earlier runs."""
        for thread in range(LANES):
            self.memory[thread * _WORDS] = 0

    def read(self, thread: int = 0) -> list[Mark]:
        """The marks of a thread since `clear`, in order."""
        first = thread * _WORDS + 1
        words = self.memory[first : first + 2 * self.memory[first - 1]]
        pairs = zip(words[::2], words[1::2], strict=True)
        return [Mark(number // 2, bool(number % 2), at) for number, at in pairs]

    def text(self, declarations: dict[str, str]) -> str:
        """The LLVM function `relaxlab_mark(number, thread)`."""
        return low_level_text(mark, declarations, given={"MEMORY": ctypes.addressof(self.memory)})


@external("clock_gettime")
def clock_gettime(clock: Int, now: Array[Word]) -> Int: ...
@external("omp_get_thread_num")
def omp_get_thread_num() -> Int: ...


@low_level
def mark(number: Word, thread: Word) -> None:
    """Write down a number and the time, if there is room."""
    if thread >= LANES:
        return
    lane = Array[Word](MEMORY + 8 * thread * _WORDS)
    count = lane[0]
    if count >= CAPACITY:
        return
    now = stack(2)
    clock_gettime(CLOCK, now)
    lane[2 * count + 1] = number
    lane[2 * count + 2] = now[0] * 1000000000 + now[1]
    lane[0] = count + 1


@low_level
def timed_barrier() -> None:
    """`relaxlab_barrier` with marks around the waiting."""
    thread = omp_get_thread_num()
    mark(WAITING, thread)
    wait_for_team()
    mark(WAITING + 1, thread)


def timed_barrier_text(declarations: dict[str, str]) -> str:
    """The LLVM function `relaxlab_barrier` with marks around the waiting."""
    return low_level_text(timed_barrier, declarations, "relaxlab_barrier")
