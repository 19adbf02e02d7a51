"""The search for one kernel: proposals are built, measured beside the best so far, and what is left
at the end is confirmed beside the default."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from relaxlab.ir.brief import Brief
from relaxlab.ir.target import Target
from relaxlab.runtime.cache import compiler_version, machine_key
from relaxlab.schedule.compiled import schedule_of, steps_of
from relaxlab.schedule.decisions import Decision
from relaxlab.schedule.trace import Instruction
from relaxlab.tuning.children import TrialFailed
from relaxlab.tuning.database import Database, Key, Outcome, Point, Record
from relaxlab.tuning.kernels import KERNEL, Kernel, schedule_alone
from relaxlab.tuning.search import METHODS, Method, Search, deciding, frozen, keys_at
from relaxlab.tuning.statistics import Interval
from relaxlab.tuning.workshop import ROUNDS, Built, Refused, Workshop

CONFIRMING = 31
"""Rounds of the measurement that decides."""


@dataclass(frozen=True, slots=True, repr=False)
class TunedKernel(Brief):
    """The result of the search for a kernel. point: the decisions that were accepted, empty for the
    rule's own; interval: how many times as fast as the default the kernel is with them, None for
    the default. seconds: of a call with the default, at each of the sizes; trials: how many there
    were by outcome, refusals: by reason; note: why it ended so."""

    name: str
    key: str
    sizes: tuple[dict[str, int], ...]
    point: Point
    interval: Interval | None
    seconds: tuple[float, ...]
    trials: dict[str, int]
    refusals: dict[str, int]
    note: str
    duration: float


@dataclass(frozen=True, slots=True)
class Limits:
    """When a search ends: after so many trials, or at a time of `time.monotonic` (None: any)."""

    trials: int
    end: float | None = None

    @property
    def left(self) -> float | None:
        """The seconds that are left."""
        return None if self.end is None else max(0.0, self.end - time.monotonic())


@dataclass(frozen=True, slots=True, repr=False)
class State(Brief):
    """The search for a kernel while it runs. ratio: of the best so far to the default, about."""

    kernel: Kernel
    limits: Limits
    trials: int
    ratio: float
    rate: float


Report = Callable[[State], None]


@dataclass(slots=True)
class KernelTuner:
    """One search. `chain` has the programs that were the best, the default first; `decisions` and
    `trace` are of the schedule of the last."""

    kernel: Kernel
    workshop: Workshop
    database: Database
    target: Target
    threads: int
    limits: Limits
    report: Report
    method: Method = "coordinate"
    resume: bool = False
    decisions: Sequence[Decision] = ()
    trace: Sequence[Instruction] = ()
    chain: list[Built] = field(default_factory=list[Built])
    ratio: float = 1.0
    outcomes: Counter[str] = field(default_factory=Counter[str])
    refusals: Counter[str] = field(default_factory=Counter[str])
    digests: set[str] = field(default_factory=set[str])
    started: float = field(default_factory=time.monotonic)
    interrupted: bool = False

    def run(self) -> TunedKernel:
        """Search, and confirm. Ctrl-C ends the search; a second one, while the best is confirmed,
        is raised."""
        default = self.workshop.open(self.kernel)
        if isinstance(default, Refused):
            return self._result({}, None, (), f"the default {default.outcome}: {default.reason}")
        self.chain, self.digests = [default], {default.digest}
        every = range(len(self.kernel.sizes))
        _, seconds = self.workshop.measure(default, default, every, 1)
        self._schedule({})
        key = Key(self.kernel.key, machine_key(self.target), self.threads)
        known = list(self.database.records(key))
        seeds = _seeds(known)
        tried = [r.point for r in known if self.resume and r.version == compiler_version()]
        search = METHODS[self.method](self._deciding(), tried)
        try:
            waiting = self._search(search, seeds)
        except KeyboardInterrupt:
            self.interrupted, waiting = True, bool(seeds)
        return self._confirmed(seconds, waiting)

    def _schedule(self, point: Point) -> None:
        """Have the decisions of the kernel's schedule for a point, and its trace, at hand."""
        made = schedule_alone(self.kernel.program, self.target, point)
        self.decisions = list(schedule_of(made, KERNEL).decisions.values())
        self.trace = steps_of(made, KERNEL)

    def _deciding(self) -> list[Decision]:
        return deciding(self.decisions, self.trace, self.kernel.sizes)

    def _search(self, search: Search, seeds: Sequence[Point]) -> bool:
        """Try points until the limits; return True if some of the seeds were left."""
        waiting = list(seeds)
        self._report()
        while (count := self._open_trials()) > 0:
            points = waiting[:count] or search.propose(count)
            if not points:
                break
            faster: list[tuple[float, Built]] = []
            for made in self.workshop.build(points, self.digests):
                gain = self._tried(made)
                if isinstance(made, Built) and gain is not None:
                    faster.append((gain, made))
                self._report()
            waiting = waiting[count:]
            if faster:
                self._improve(search, sorted(faster, key=lambda one: -one[0]))
        return bool(waiting)

    def _improve(self, search: Search, faster: Sequence[tuple[float, Built]]) -> None:
        """Go on from the first of the programs that are faster than the best so far."""
        (gain, best), *others = faster
        before = self.chain[-1].point
        self.chain.append(best)
        self.ratio *= gain
        self._schedule(best.point)
        promising = [
            (key, value)
            for _, other in others
            for key, value in other.point.items()
            if key in changed_keys(before, other.point)
        ]
        search.improve(best.point, self._deciding(), promising)

    def _open_trials(self) -> int:
        """The number of trials that may be made next."""
        if self.limits.left == 0.0:
            return 0
        return min(self.workshop.batch, self.limits.trials - self.outcomes.total())

    def _tried(self, made: Built | Refused) -> float | None:
        """Measure a program beside the best so far, and keep a record of the trial. Return how many
        times as fast it is over all sizes; None for one that is not faster."""
        if isinstance(made, Refused):
            self._record(made.outcome, made.reason, made.point, made.trace)
            return None
        self.digests.add(made.digest)
        sizes = self._affected(self.chain[-1].point, made.point)
        try:
            found, _ = self.workshop.measure(self.chain[-1], made, sizes, ROUNDS)
        except TrialFailed as error:
            self._record("failed", str(error), made.point, made.trace)
            return None
        reason = "" if found.interval else f"{found.ratio:.3g} times as fast in its first samples"
        self._record("measured", reason, made.point, made.trace, found.interval, sizes)
        if not found.is_faster:
            return None
        return found.ratio ** (len(sizes) / len(self.kernel.sizes))

    def _affected(self, one: Point, other: Point) -> list[int]:
        """The sizes, by number, at which two points may differ, the schedule of the best so far
        having the decisions of either; all where that is not known."""
        keys = changed_keys(one, other)
        sizes = self.kernel.sizes
        found = [i for i, s in enumerate(sizes) if keys & keys_at(self.trace, s)]
        unknown = keys - {d.key for d in self.decisions}
        return found if found and not unknown else list(range(len(sizes)))

    def _confirmed(self, seconds: tuple[float, ...], waiting: bool) -> TunedKernel:
        """The last of the best programs that is faster than the default when it is measured once
        more, at all sizes that its decisions are about."""
        note = "no other choice is faster"
        for best in reversed(self.chain[1:]):
            sizes = self._affected({}, best.point)
            try:
                found, _ = self.workshop.measure(self.chain[0], best, sizes, CONFIRMING)
            except TrialFailed as error:
                note = f"the best was not confirmed: {error}"
                continue
            interval = found.interval
            if found.is_faster and interval is not None:
                self._record("accepted", "", best.point, best.trace, interval, sizes)
                return self._result(best.point, interval, seconds, "confirmed")
            note = f"the best was not confirmed: {found.ratio:.3g} times as fast as the default"
        if not waiting:
            # An earlier search's choice was tried again, if there was one.
            self._record("default", note, {}, self.chain[0].trace)
        return self._result({}, None, seconds, note)

    def _record(
        self, outcome: Outcome, reason: str, point: Point, trace: str,
        interval: Interval | None = None, sizes: Sequence[int] = (),
    ) -> None:  # fmt: skip
        if outcome not in ("accepted", "default"):
            self.outcomes[outcome] += 1
            if reason and outcome != "measured":
                self.refusals[f"{outcome}: {reason}"] += 1
        measured = tuple(self.kernel.sizes[i] for i in sizes)
        bounds = None if interval is None else interval.as_tuple()
        self.database.add(
            Record(
                self.kernel.key, machine_key(self.target), self.threads, compiler_version(),
                self.target.cpu, time.time(), outcome, reason, point, measured, bounds, trace,
            )
        )  # fmt: skip

    def _report(self) -> None:
        trials = self.outcomes.total()
        rate = trials / max(1e-3, time.monotonic() - self.started)
        self.report(State(self.kernel, self.limits, trials, self.ratio, rate))

    def _result(
        self, point: Point, interval: Interval | None, seconds: tuple[float, ...], note: str
    ) -> TunedKernel:
        return TunedKernel(
            self.kernel.name, self.kernel.key, self.kernel.sizes, point, interval, seconds,
            dict(self.outcomes), dict(self.refusals), note, time.monotonic() - self.started,
        )  # fmt: skip


def _seeds(records: Sequence[Record]) -> list[Point]:
    """The points that other searches accepted, the latest first: of other versions of the compiler
    and of this one, each once."""
    found = {frozen(r.point): r.point for r in reversed(records) if r.outcome == "accepted"}
    return list(found.values())


def changed_keys(one: Point, other: Point) -> set[str]:
    """The decisions in which two points differ."""
    return {key for key, _ in frozen(one) ^ frozen(other)}
