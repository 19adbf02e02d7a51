"""The report of a SIMT run: problems, launches, and their text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

from relaxlab.ir.display import Displayed
from relaxlab.ir.errors import counted
from relaxlab.runtime.arrays import ExecutionError
from relaxlab.runtime.simt.access import Access, Site
from relaxlab.runtime.simt.counters import Counters

Triple: TypeAlias = tuple[int, int, int]

ProblemKind: TypeAlias = Literal[
    "data race",
    "barrier divergence",
    "shuffle divergence",
    "out of bounds",
    "uninitialised read",
    "division by zero",
    "assertion failed",
    "deadlock",
    "launch limit",
]


class SimtError(ExecutionError):
    """A SIMT run had problems; `report` has them all."""

    def __init__(self, report: SimtReport) -> None:
        super().__init__(str(report))
        self.report = report


@dataclass(frozen=True, slots=True)
class Thread:
    """One thread of a launch: `blockIdx` and `threadIdx`, each (x, y, z)."""

    block: Triple
    index: Triple

    def __str__(self) -> str:
        return f"thread {self.index} of block {self.block}"


@dataclass(frozen=True, slots=True)
class Geometry:
    """The sizes of a launch: `grid` blocks of `block` threads, each (x, y, z).

    Threads are numbered through the whole launch, block after block, x fastest.
    """

    grid: Triple
    block: Triple

    @property
    def threads(self) -> int:
        """Threads per block."""
        return self.block[0] * self.block[1] * self.block[2]

    @property
    def blocks(self) -> int:
        return self.grid[0] * self.grid[1] * self.grid[2]

    def thread(self, number: int) -> Thread:
        """The thread of that number."""
        block, index = divmod(int(number), self.threads)
        return Thread(_unravel(block, self.grid), _unravel(index, self.block))

    def block_number(self, block: Triple) -> int:
        """The number of a block. Raises ExecutionError when the grid has no such block."""
        if any(not 0 <= b < g for b, g in zip(block, self.grid, strict=True)):
            raise ExecutionError(f"there is no block {block} in a grid of {self.grid}")
        return block[0] + self.grid[0] * (block[1] + self.grid[1] * block[2])


def _unravel(number: int, sizes: Triple) -> Triple:
    rest, x = divmod(number, sizes[0])
    z, y = divmod(rest, sizes[1])
    return x, y, z


@dataclass(frozen=True, slots=True)
class Problem:
    """A defect, at its first occurrence; `count` is the number of accesses (or arrivals at a
    barrier) showed it. `other` is the earlier of two accesses that race."""

    kind: ProblemKind
    kernel: str
    message: str
    threads: tuple[Thread, ...] = ()
    buffer: str = ""
    index: tuple[int, ...] = ()
    site: Site | None = None
    other: Site | None = None
    count: int = 1

    def __str__(self) -> str:
        lines = [f"{self.kind}: {self.message}"]
        if self.site is not None:
            lines.append(f"  {self.site}")
        if self.other is not None and self.other != self.site:
            lines.append(f"  before, {self.other}")
        if self.count > 1:
            lines.append(f"  {self.count} times")
        return "\n".join(lines)


@dataclass(slots=True)
class Problems:
    """Collects problems: the first one of each key, and how often it came."""

    found: dict[Hashable, Problem] = field(default_factory=dict[Hashable, Problem])

    def add(self, key: Hashable, count: int, make: Callable[[], Problem]) -> None:
        """Count a problem; `make` describes it when it is the first of its key."""
        old = self.found.get(key)
        self.found[key] = (
            replace(make(), count=count) if old is None else replace(old, count=old.count + count)
        )


@dataclass(frozen=True, slots=True)
class LaunchReport:
    """A launch that ran. `barriers` is the number of barriers of the busiest block; `accesses` are
    those of the recorded block, in order, and `counters` its work."""

    kernel: str
    geometry: Geometry
    barriers: int
    accesses: tuple[Access, ...] = ()
    counters: Counters | None = None

    def __str__(self) -> str:
        g = self.geometry
        met = f", {counted(self.barriers, 'barrier')}" if self.barriers else ""
        head = f"{self.kernel}: {counted(g.blocks, 'block')} of {counted(g.threads, 'thread')}"
        lines = [f"  {line}" for line in self.counters.lines()] if self.counters else []
        return "\n".join([f"{head} (grid {g.grid}, block {g.block}){met}", *lines])


@dataclass(frozen=True, slots=True, repr=False)
class SimtReport(Displayed):
    """The findings of running a function on simulated threads.

    `result` is the value of a graph function; a loop function stores into its arguments.
    """

    name: str
    launches: tuple[LaunchReport, ...]
    problems: tuple[Problem, ...]
    result: Any = None

    @property
    def ok(self) -> bool:
        """True if nothing was wrong."""
        return not self.problems

    def check(self) -> SimtReport:
        """This report. Raises SimtError with all of its text when something was wrong."""
        if self.problems:
            raise SimtError(self)
        return self

    def __repr__(self) -> str:
        many = len(self.problems)
        verdict = counted(many, "problem") if many else "no problems"
        lines = [f"{self.name}: {verdict}"]
        for text, count in Counter(map(str, self.launches)).items():
            head, *rest = text.splitlines()
            lines += [f"  {head}{f', {count} times' if count > 1 else ''}"]
            lines += [f"  {line}" for line in rest]
        for problem in self.problems:
            lines += ["", *str(problem).splitlines()]
        return "\n".join(lines)
