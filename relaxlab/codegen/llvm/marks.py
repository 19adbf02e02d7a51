"""Times of calls: code that records the begin and end of each call of a kernel.

A timed program has the address of the memory for its marks written into it, so it serves the
process that compiled it alone, and is never cached. Thread 0 makes the marks; a kernel ends for it
when all threads have met. Times are those of `CLOCK_MONOTONIC`, Python's `perf_counter` on Linux.
"""

from __future__ import annotations

import ctypes
import time
from dataclasses import dataclass, field

from relaxlab.passes import host

CAPACITY = 1 << 16
"""Most marks of one run; later ones are dropped."""


@dataclass(frozen=True, slots=True)
class TimedCall:
    """A call in a program whose executions are timed."""

    function: str
    instr: host.CallKernel | host.CallPacked


@dataclass(frozen=True, slots=True)
class Mark:
    """The begin or end of a call: nanoseconds, and the call's number among those of the program."""

    call: int
    end: bool
    nanoseconds: int


@dataclass(slots=True)
class Marks:
    """The memory for the marks of a program, and the calls that they mark. Must outlive the
    program."""

    calls: list[TimedCall] = field(default_factory=list[TimedCall])
    memory: ctypes.Array[ctypes.c_int64] = field(
        default_factory=lambda: (ctypes.c_int64 * (1 + 2 * CAPACITY))()
    )

    def number(self, function: str, instr: host.CallKernel | host.CallPacked) -> int:
        """The number of a new call."""
        self.calls.append(TimedCall(function, instr))
        return len(self.calls) - 1

    def clear(self) -> None:
        """Forget the marks of earlier runs."""
        self.memory[0] = 0

    def read(self) -> list[Mark]:
        """The marks since `clear`, in order."""
        words = self.memory[1 : 1 + 2 * self.memory[0]]
        pairs = zip(words[::2], words[1::2], strict=True)
        return [Mark(number // 2, bool(number % 2), at) for number, at in pairs]

    def text(self, declarations: dict[str, str]) -> str:
        """The LLVM function `relaxlab_mark(number, thread)`."""
        declarations["clock_gettime"] = "declare i32 @clock_gettime(i32, ptr)"
        memory = f"inttoptr (i64 {ctypes.addressof(self.memory)} to ptr)"
        return f"""define void @relaxlab_mark(i64 %number, i64 %thread) #0 {{
  %now = alloca [2 x i64], align 8
  %first = icmp eq i64 %thread, 0
  br i1 %first, label %look, label %done
look:
  %count = load i64, ptr {memory}, align 8
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
  %slot = getelementptr i64, ptr {memory}, i64 %word
  store i64 %number, ptr %slot, align 8
  %next = getelementptr i64, ptr %slot, i64 1
  store i64 %at, ptr %next, align 8
  %more = add i64 %count, 1
  store i64 %more, ptr {memory}, align 8
  br label %done
done:
  ret void
}}
"""
