"""Building and measuring the kernels of a program, in the worker processes of an executor."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from relaxlab.ir.brief import Brief
from relaxlab.ir.target import Target
from relaxlab.tuning.children import Answer, Request, TrialFailed
from relaxlab.tuning.database import Outcome
from relaxlab.tuning.executor import Executor, Reply
from relaxlab.tuning.kernels import Kernel
from relaxlab.tuning.measured import Measured, measured_of
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


@dataclass(frozen=True, slots=True, repr=False)
class Timed(Brief):
    """A program that was measured beside another at some sizes. seconds: of a call of the other one
    at each."""

    measured: Measured
    seconds: tuple[float, ...]


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
        self, base: Built, others: Sequence[tuple[Built, Sequence[int]]], rounds: int
    ) -> Iterator[tuple[int, Timed | TrialFailed]]:
        """Measure programs beside one, each at some of the kernel's sizes, by number. Yield the
        number of each program with the result, in any order."""
        ...


class Workers:
    """A workshop of worker processes, which measure while nothing is built."""

    def __init__(self, executor: Executor, target: Target, threads: int) -> None:
        self.batch = 2 * executor.builders
        self._executor = executor
        self._target, self._threads = target, threads
        self._kernel: Kernel | None = None
        self._text = ""
        self._opening: Request | None = None
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
        message = self._message("open", sizes=list(kernel.sizes), threads=self._threads)
        self._opening = Request(message, (default.code,))
        every = range(len(kernel.sizes))
        try:
            measure_one(self, default, default, every, 1)  # which also starts the process
            start = time.monotonic()
            measure_one(self, default, default, every, 1)
        except TrialFailed as error:
            return Refused({}, "failed", str(error))
        self._limit = max(MEASURE_SECONDS, TIMES_FIRST * (time.monotonic() - start))
        return default

    def _message(self, do: str, **parts: object) -> Message:
        return {"do": do, "program": self._text, "target": self._target.to_json(), **parts}

    def build(self, proposals: Sequence[Proposal], known: Collection[str]) -> list[Built | Refused]:
        """See `Workshop`."""
        requests = [
            Request(
                self._message("build", point=p.point, trace=p.trace, known=list(known)),
                seconds=self._build_limit,
            )
            for p in proposals
        ]
        replies = dict(self._executor.build(requests))
        found: list[Built | Refused] = []
        seen: set[str] = set()
        for number, proposal in enumerate(proposals):
            made = _made(proposal.point, replies[number])
            if isinstance(made, Built) and made.digest in seen:
                made = _same(made.point, made.trace)
            elif isinstance(made, Built):
                seen.add(made.digest)
            found.append(made)
        return found

    def measure(
        self, base: Built, others: Sequence[tuple[Built, Sequence[int]]], rounds: int
    ) -> Iterator[tuple[int, Timed | TrialFailed]]:
        """See `Workshop`."""
        assert self._kernel is not None
        names = [sizes_text(one) for one in self._kernel.sizes]
        # A limit per sample, of which there are two a round and size.
        limit = self._limit * max(1.0, rounds / ROUNDS)
        requests = [
            Request(
                {"do": "measure", "sizes": list(sizes), "names": names, "rounds": rounds},
                (base.code, other.code), limit, self._opening,
            )
            for other, sizes in others
        ]  # fmt: skip
        for number, reply in self._executor.measure(requests):
            yield number, reply if isinstance(reply, TrialFailed) else _timed(reply)


def measure_one(
    workshop: Workshop, base: Built, other: Built, sizes: Sequence[int], rounds: int
) -> Timed:
    """One program measured beside another. Raises TrialFailed."""
    ((_, found),) = workshop.measure(base, [(other, sizes)], rounds)
    if isinstance(found, TrialFailed):
        raise found
    return found


def _made(point: Point, reply: Reply) -> Built | Refused:
    if isinstance(reply, TrialFailed):
        return Refused(point, "failed", f"build: {reply}")
    answer, code = reply
    if "invalid" in answer:
        return Refused(point, "invalid", answer["invalid"])
    if not code:
        return _same(point, answer["trace"])
    return Built(point, answer["digest"], answer["trace"], code[0])


def _same(point: Point, trace: str) -> Refused:
    return Refused(point, "same", "the program of another trial", trace)


def _timed(answer: Answer) -> Timed:
    message, _ = answer
    return Timed(measured_of(message["ratios"]), tuple(message["seconds"]))


ROUNDS = 15
"""Rounds of a measurement: the interval is from the fourth lowest to the fourth highest ratio."""


def sizes_text(sizes: dict[str, int]) -> str:
    """The values of symbols as text; "" without any."""
    return ", ".join(f"{name}={value}" for name, value in sizes.items())
