"""A profile of a compiled program: when each kernel runs, and for how long.

The program is compiled once more with marks around its calls (`codegen.llvm.marks`); otherwise it
is the same code, run by the same threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter_ns
from typing import Any

from relaxlab.codegen.llvm.marks import Mark, Marks, TimedCall
from relaxlab.codegen.program import compile_program
from relaxlab.ir.target import Target
from relaxlab.passes import host
from relaxlab.runtime.check_inputs import copy_value
from relaxlab.runtime.executable import Executable

WARM_UPS = 3
REPEATS = 20
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
class Profile:
    """The fastest of some runs. `seconds`: of the whole call from Python, `runs`: of all runs."""

    name: str
    calls: tuple[Timed, ...]
    seconds: float
    runs: tuple[float, ...]
    threads: int


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
    best: tuple[Timed, ...] = ()
    while len(runs) < REPEATS and (perf_counter_ns() - begin) < SECONDS * 1e9:
        marks.clear()
        start = perf_counter_ns()
        exe[name](*given)
        end = perf_counter_ns()
        if not runs or (end - start) / 1e9 < min(runs):
            best = _calls(marks.calls, marks.read(), start)
        runs.append((end - start) / 1e9)
    return Profile(name, best, min(runs), tuple(runs), exe.threads)


def copies_where_updated(fn: host.HostFunction, args: Sequence[Any]) -> list[Any]:
    """The arguments of a function, with copies of those that it updates in place."""
    updated = [any(r in fn.written for r in host.leaves(p.value)) for p in fn.params]
    pairs = zip(args, updated, strict=False)
    return [copy_value(a) if changes else a for a, changes in pairs]


def _calls(calls: Sequence[TimedCall], marks: Sequence[Mark], start: int) -> tuple[Timed, ...]:
    """Begins and ends in pairs; calls do not nest."""
    found: list[Timed] = []
    for first, last in zip(marks, marks[1:], strict=False):
        if not first.end and last.end and first.call == last.call:
            began, took = first.nanoseconds - start, last.nanoseconds - first.nanoseconds
            found.append(Timed(calls[first.call], began / 1e9, took / 1e9))
    return tuple(found)
