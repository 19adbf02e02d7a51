"""Building and measuring the kernels of a program, in worker processes."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from relaxlab.ir.brief import Brief
from relaxlab.ir.target import Target
from relaxlab.tuning.children import Child, Pool, TrialFailed, pool_of
from relaxlab.tuning.database import Outcome
from relaxlab.tuning.kernels import Kernel
from relaxlab.tuning.measured import Measured
from relaxlab.tuning.messages import Message
from relaxlab.tuning.plans import Proposal
from relaxlab.tuning.points import Point

FIRST_SECONDS = 600.0
"""Limit for the build of the default, and for its first measurement beside itself: no hang is to be
expected of it, but a busy machine, and processes that have to start first."""
TIMES_FIRST = 5.0
"""Other builds and measurements may take so many times as long as the first, and at least:"""
BUILD_SECONDS = 60.0
MEASURE_SECONDS = 10.0


@dataclass(frozen=True, slots=True, repr=False)
class Built(Brief):
    """A kernel that was built with the decisions of a point."""

    point: Point
    digest: str
    trace: str
    code: bytes


@dataclass(frozen=True, slots=True, repr=False)
class Refused(Brief):
    """A point without a program of its own, and why."""

    point: Point
    outcome: Outcome
    reason: str
    trace: str = ""


class Workshop(Protocol):
    """Builds and measures programs of one kernel at a time. batch: points that are built side by
    side."""

    batch: int

    def open(self, kernel: Kernel) -> Built | Refused:
        """Go on to a kernel, and return its default program."""
        ...

    def build(self, proposals: Sequence[Proposal], known: Collection[str]) -> list[Built | Refused]:
        """Build programs; those whose digest is known are refused as the same."""
        ...

    def measure(
        self, base: Built, other: Built, sizes: Sequence[int], rounds: int
    ) -> tuple[Measured, tuple[float, ...]]:
        """Measure a program beside another at some of the kernel's sizes, by number. Also the
        seconds of a call of the other one at each. Raises TrialFailed."""
        ...


class Workers:
    """A workshop of processes: builds in a pool, and then, while nothing is built, measurements in
    a process of their own."""

    def __init__(self, pool: Pool, child: Child, target: Target, threads: int) -> None:
        self.batch = 2 * pool.count
        self._pool, self._child = pool, child
        self._target, self._threads = target, threads
        self._kernel: Kernel | None = None
        self._text = ""
        self._build_limit = self._limit = FIRST_SECONDS

    def open(self, kernel: Kernel) -> Built | Refused:
        """See `Workshop`."""
        self._kernel, self._text = kernel, kernel.program.script()
        self._build_limit = self._limit = FIRST_SECONDS
        start = time.monotonic()
        default = self.build([Proposal({})], ())[0]
        self._build_limit = max(BUILD_SECONDS, TIMES_FIRST * (time.monotonic() - start))
        if isinstance(default, Refused):
            return default
        try:
            message = self._message("open", sizes=list(kernel.sizes), threads=self._threads)
            self._child.open(message, [default.code])
            start = time.monotonic()
            self.measure(default, default, range(len(kernel.sizes)), 1)
        except TrialFailed as error:
            return Refused({}, "failed", str(error))
        self._limit = max(MEASURE_SECONDS, TIMES_FIRST * (time.monotonic() - start))
        return default

    def _message(self, do: str, **parts: object) -> Message:
        return {"do": do, "program": self._text, "target": self._target.to_json(), **parts}

    def build(self, proposals: Sequence[Proposal], known: Collection[str]) -> list[Built | Refused]:
        """See `Workshop`."""

        def one(child: Child, proposal: Proposal) -> Built | Refused:
            point = proposal.point
            message = self._message("build", point=point, trace=proposal.trace, known=list(known))
            try:
                answer, code = child.ask(message, seconds=self._build_limit)
            except TrialFailed as error:
                return Refused(point, "failed", f"build: {error}")
            if "invalid" in answer:
                return Refused(point, "invalid", answer["invalid"])
            if not code:
                return Refused(point, "same", "the program of another trial", answer["trace"])
            return Built(point, answer["digest"], answer["trace"], code[0])

        found: list[Built | Refused] = []
        seen: set[str] = set()
        for made in self._pool.map(one, proposals):
            if isinstance(made, Built) and made.digest in seen:
                made = Refused(made.point, "same", "the program of another trial", made.trace)
            elif isinstance(made, Built):
                seen.add(made.digest)
            found.append(made)
        return found

    def measure(
        self, base: Built, other: Built, sizes: Sequence[int], rounds: int
    ) -> tuple[Measured, tuple[float, ...]]:
        """See `Workshop`."""
        assert self._kernel is not None
        names = [sizes_text(one) for one in self._kernel.sizes]
        message = {"do": "measure", "sizes": list(sizes), "names": names, "rounds": rounds}
        # A limit per sample, of which there are two a round and size.
        limit = self._limit * max(1.0, rounds / ROUNDS)
        answer, _ = self._child.ask(message, [base.code, other.code], seconds=limit)
        return Measured(tuple(map(tuple, answer["ratios"]))), tuple(answer["seconds"])


ROUNDS = 15
"""Rounds of a measurement: the interval is from the fourth lowest to the fourth highest ratio."""


@contextmanager
def processes(count: int, target: Target, threads: int) -> Iterator[Workers]:
    """A workshop with so many processes for builds, which end with the context."""
    child = Child()
    try:
        with pool_of(count) as pool:
            yield Workers(pool, child, target, threads)
    finally:
        child.close()


def sizes_text(sizes: dict[str, int]) -> str:
    """The values of symbols as text; "" without any."""
    return ", ".join(f"{name}={value}" for name, value in sizes.items())
