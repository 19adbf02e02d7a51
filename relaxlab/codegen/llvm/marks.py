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

from relaxlab.ir import host

CAPACITY = 1 << 15
"""Marks of one thread in one run that are kept; later ones are dropped."""
LANES = 64
"""Threads whose marks are kept."""
WAITS = -1
"""Stands for the number of a call in marks of a barrier."""
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
        declarations["clock_gettime"] = "declare i32 @clock_gettime(i32, ptr)"
        memory = f"inttoptr (i64 {ctypes.addressof(self.memory)} to ptr)"
        return f"""define void @relaxlab_mark(i64 %number, i64 %thread) #0 {{
  %now = alloca [2 x i64], align 8
  %kept = icmp ult i64 %thread, {LANES}
  br i1 %kept, label %look, label %done
look:
  %first = mul i64 %thread, {_WORDS}
  %lane = getelementptr i64, ptr {memory}, i64 %first
  %count = load i64, ptr %lane, align 8
  %room = icmp ult i64 %count, {CAPACITY}
  br i1 %room, label %put, label %done
put:
  %failed = call i32 @clock_gettime(i32 {time.CLOCK_MONOTONIC}, ptr %now)
  %seconds = load i64, ptr %now, align 8
  %rest = getelementptr i64, ptr %now, i64 1
  %nanoseconds = load i64, ptr %rest, align 8
  %whole = mul i64 %seconds, 1000000000
  %at = add i64 %whole, %nanoseconds
  %twice = shl i64 %count, 1
  %word = add i64 %twice, 1
  %slot = getelementptr i64, ptr %lane, i64 %word
  store i64 %number, ptr %slot, align 8
  %next = getelementptr i64, ptr %slot, i64 1
  store i64 %at, ptr %next, align 8
  %more = add i64 %count, 1
  store i64 %more, ptr %lane, align 8
  br label %done
done:
  ret void
}}
"""


def timed_barrier(declarations: dict[str, str]) -> str:
    """The LLVM function `relaxlab_barrier` with marks around the waiting."""
    declarations["omp_get_thread_num"] = "declare i32 @omp_get_thread_num()"
    return f"""define void @relaxlab_barrier() #0 {{
  %number = call i32 @omp_get_thread_num()
  %thread = zext i32 %number to i64
  call void @relaxlab_mark(i64 {2 * WAITS}, i64 %thread)
  call void @GOMP_barrier()
  call void @relaxlab_mark(i64 {2 * WAITS + 1}, i64 %thread)
  ret void
}}
"""
