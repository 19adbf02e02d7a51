"""A profile of a compiled program: when each kernel runs, and for how long.

The program is compiled once more with marks around its calls (`codegen.llvm.marks`); otherwise it
is the same code, run by the same threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter_ns
from typing import Any

from relaxlab.codegen.llvm.marks import LANES, WAITS, Mark, Marks, TimedCall
from relaxlab.codegen.program import compile_program
from relaxlab.ir import host
from relaxlab.ir.target import Target
from relaxlab.runtime.check.inputs import copy_value
from relaxlab.runtime.executable import Executable

WARM_UPS = 3
"""Runs before those measured: they fill caches and start threads."""
REPEATS = 20
"""Runs at most, of which the fastest counts; long calls end earlier, after `SECONDS`."""
SECONDS = 2.0
"""After which no further repetition begins."""


@dataclass(frozen=True, slots=True)
class Timed:
    """One execution of a call: its callee, the function it is in, its start after that of the
    program, and its duration; seconds."""

    call: TimedCall
    start: float
    seconds: float

    @property
    def name(self) -> str:
        """The kernel or function that is called."""
        return self.call.instr.function

    @property
    def kind(self) -> str:
        """`kernel`, or `packed` for a function outside the program."""
        return "kernel" if isinstance(self.call.instr, host.CallKernel) else "packed"


@dataclass(frozen=True, slots=True)
class Interval:
    """A stretch of time of a thread inside a call: at work (`waits` False), or waiting for the team
    at a barrier. `start` is when it began after the program did; seconds."""

    call: TimedCall
    waits: bool
    start: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Profile:
    """The fastest of some runs. `seconds`: of the whole call from Python, `runs`: of all runs,
    `lanes`: what each thread that took part did, thread 0 first."""

    name: str
    calls: tuple[Timed, ...]
    seconds: float
    runs: tuple[float, ...]
    threads: int
    lanes: tuple[tuple[Interval, ...], ...]


def profile(
    program: host.HostProgram,
    target: Target,
    name: str,
    args: Sequence[Any],
    threads: int | None = None,
) -> Profile:
    """Compile with marks and call the function some times.

    Arguments that are updated in place are copied once, and not reset between the runs. Raises
    what compilation and the call itself raise.
    """
    marks = Marks()
    exe = Executable(compile_program(program, target, marks=marks), target, threads)
    given = copies_where_updated(program.functions[name], args)
    for _ in range(WARM_UPS):
        exe[name](*given)
    begin = perf_counter_ns()
    runs: list[float] = []
    best: list[list[Mark]] = [[]]
    began = 0
    while len(runs) < REPEATS and (perf_counter_ns() - begin) < SECONDS * 1e9:
        marks.clear()
        start = perf_counter_ns()
        exe[name](*given)
        end = perf_counter_ns()
        if not runs or (end - start) / 1e9 < min(runs):
            best = [marks.read(thread) for thread in range(min(exe.threads, LANES))]
            began = start
        runs.append((end - start) / 1e9)
    calls = _calls(marks.calls, best[0], began)
    lanes = tuple(_intervals(marks.calls, lane, began) for lane in best)
    return Profile(name, calls, min(runs), tuple(runs), exe.threads, lanes)


def copies_where_updated(fn: host.HostFunction, args: Sequence[Any]) -> list[Any]:
    """The arguments of a function, with copies of those that it updates in place."""
    updated = [any(r in fn.written for r in host.leaves(p.value)) for p in fn.params]
    pairs = zip(args, updated, strict=False)
    return [copy_value(a) if changes else a for a, changes in pairs]


def _calls(calls: Sequence[TimedCall], marks: Sequence[Mark], start: int) -> tuple[Timed, ...]:
    """Return the calls of a thread: each begin with the end that follows, as calls do not nest."""
    found: list[Timed] = []
    own = [m for m in marks if m.call != WAITS]
    for first, last in zip(own, own[1:], strict=False):
        if not first.end and last.end and first.call == last.call:
            began, took = first.nanoseconds - start, last.nanoseconds - first.nanoseconds
            found.append(Timed(calls[first.call], began / 1e9, took / 1e9))
    return tuple(found)


def _intervals(
    calls: Sequence[TimedCall], marks: Sequence[Mark], start: int
) -> tuple[Interval, ...]:
    """Return the intervals of a thread between its marks, without those outside of calls."""
    found: list[Interval] = []
    current: int | None = None
    for mark, after in zip(marks, marks[1:], strict=False):
        waits = mark.call == WAITS and not mark.end
        if mark.call != WAITS:
            current = None if mark.end else mark.call
        took = after.nanoseconds - mark.nanoseconds
        if current is not None and took > 0:
            began = (mark.nanoseconds - start) / 1e9
            found.append(Interval(calls[current], waits, began, took / 1e9))
    return tuple(found)
