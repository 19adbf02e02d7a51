"""The search for one kernel: proposals are built, measured beside the best so far, and what is left
at the end is confirmed beside the default."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from relaxlab.ir.brief import Brief
from relaxlab.ir.errors import UserError
from relaxlab.ir.target import Target
from relaxlab.runtime.cache import compiler_version, machine_key
from relaxlab.schedule.decisions import Decision, is_in_space
from relaxlab.schedule.rules.base import Space
from relaxlab.schedule.trace import Instruction
from relaxlab.tuning.children import TrialFailed
from relaxlab.tuning.database import Database, Key, Outcome, Record
from relaxlab.tuning.finals import Contest, Final
from relaxlab.tuning.kernels import Kernel
from relaxlab.tuning.matrix import Matrix
from relaxlab.tuning.measured import GAIN, Measured
from relaxlab.tuning.methods import METHODS, Method
from relaxlab.tuning.plans import NoPlan, Planner, Proposal
from relaxlab.tuning.points import Point, changed_keys, frozen
from relaxlab.tuning.search import Search, deciding, keys_at
from relaxlab.tuning.statistics import Interval
from relaxlab.tuning.workshop import ROUNDS, Built, Refused, Workshop, measure_one

CONFIRMING = 31
"""Rounds of the measurement that decides."""


@dataclass(frozen=True, slots=True, repr=False)
class Tried(Brief):
    """A trial that was measured. ratio: how many times as fast as the default it is, about; trace:
    of its schedule, as JSON, "" where the rules make it."""

    ratio: float
    point: Point
    trace: str


@dataclass(frozen=True, slots=True, repr=False)
class TunedKernel(Brief):
    """The result of the search for a kernel. point: the decisions that were accepted, empty for the
    rule's own; interval: how many times as fast as the default the kernel is with them, None for
    the default. seconds: of a call with the default, at each of the sizes; trials: how many there
    were by outcome, refusals: by reason; note: why it ended so; duration: in seconds. matrix: what
    was measured at each size in the end, None for nothing. tried: what was measured before."""

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
    matrix: Matrix | None = None
    tried: tuple[Tried, ...] = ()


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


@dataclass(frozen=True, slots=True, repr=False)
class Trial(Brief):
    """A program beside the best so far. sizes: the numbers of those at which it was measured; gain:
    how many times as fast it is over all sizes."""

    measured: Measured
    sizes: Sequence[int]
    gain: float


@dataclass(slots=True)
class KernelTuner:
    """One search. `chain` has the programs that were the best, the default first; `decisions` and
    `trace` are of the schedule of the last. ratio: how many times as fast as the default the last
    is, about, over all sizes; ratios: at each; best_at: the same of the fastest at each size, by
    number, with the program. spaces: by name, beside the rules."""

    kernel: Kernel
    workshop: Workshop
    database: Database
    target: Target
    threads: int
    limits: Limits
    report: Report
    method: Method = "coordinate"
    resume: bool = False
    spaces: Mapping[str, Space] = field(default_factory=dict[str, Space])
    decisions: Sequence[Decision] = ()
    trace: Sequence[Instruction] = ()
    default_trace: Sequence[Instruction] = ()
    chain: list[Built] = field(default_factory=list[Built])
    ratio: float = 1.0
    ratios: list[float] = field(default_factory=list[float])
    best_at: dict[int, tuple[float, Built]] = field(default_factory=dict[int, tuple[float, Built]])
    tried: list[Tried] = field(default_factory=list[Tried])
    outcomes: Counter[str] = field(default_factory=Counter[str])
    refusals: Counter[str] = field(default_factory=Counter[str])
    digests: set[str] = field(default_factory=set[str])
    started: float = field(default_factory=time.monotonic)
    interrupted: bool = False
    planner: Planner = field(init=False)

    def run(self) -> TunedKernel:
        """Search, and confirm. Ctrl-C ends the search; a second one, while the best is confirmed,
        is raised."""
        self.planner = Planner(self.kernel, self.target, self.spaces, self.threads)
        if self.limits.left == 0.0:
            return self._result({}, None, (), "no time was left for it")
        default = self.workshop.open(self.kernel)
        if isinstance(default, Refused):
            return self._result({}, None, (), f"the default {default.outcome}: {default.reason}")
        self.chain, self.digests = [default], {default.digest}
        self.ratios = [1.0] * len(self.kernel.sizes)
        every = range(len(self.kernel.sizes))
        seconds = measure_one(self.workshop, default, default, every, 1).seconds
        self._schedule({})
        self.default_trace = self.trace
        key = Key(self.kernel.key, machine_key(self.target), self.threads)
        known = list(self.database.records(key))
        seeds = _seeds(known)
        lost = [point for point in seeds if not self._is_known(point)]
        seeds = [point for point in seeds if point not in lost]
        tried = [r.point for r in known if self.resume and r.version == compiler_version()]
        search = METHODS[self.method](self._deciding(), tried, self.planner)
        try:
            waiting = self._search(search, seeds)
        except KeyboardInterrupt:
            self.interrupted, waiting = True, bool(seeds)
        return self._confirmed(seconds, waiting or bool(lost))

    def _is_known(self, point: Point) -> bool:
        """False for a point in a space that this search does not have."""
        spaces = (v for key, v in point.items() if is_in_space({key: v}))
        return all(space in self.spaces for space in spaces)

    def _schedule(self, point: Point) -> None:
        """Have the decisions of the kernel's schedule for a point, and its trace, at hand."""
        made = self.planner.plan(point)
        self.decisions, self.trace = made.decisions, made.steps

    def _built(self, points: Sequence[Point], known: Collection[str]) -> list[Built | Refused]:
        """The programs of points, in their order."""
        made: list[Proposal | Refused] = []
        for point in points:
            try:
                made.append(self.planner.proposal(point))
            except NoPlan as error:
                made.append(Refused(point, "invalid", str(error)))
        built = iter(self.workshop.build([p for p in made if isinstance(p, Proposal)], known))
        return [next(built) if isinstance(p, Proposal) else p for p in made]

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
            faster = self._tried(self._built(points, self.digests), search)
            waiting = waiting[count:]
            if faster:
                self._improve(search, sorted(faster, key=lambda one: -one[0].gain))
        return bool(waiting)

    def _improve(self, search: Search, faster: Sequence[tuple[Trial, Built]]) -> None:
        """Go on from the first of the programs that are faster than the best so far."""
        (trial, best), *others = faster
        before = self.chain[-1].point
        self.chain.append(best)
        self.ratio *= trial.gain
        for i, size in enumerate(trial.sizes):
            self.ratios[size] *= trial.measured.at(i).middle
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

    def _tried(
        self, programs: Sequence[Built | Refused], search: Search
    ) -> list[tuple[Trial, Built]]:
        """Measure programs beside the best so far, and keep a record of each trial. Return those
        that are faster over all sizes."""
        for one in programs:
            if isinstance(one, Refused):
                self._failed(one.outcome, one.reason, one, search)
        built = [one for one in programs if isinstance(one, Built)]
        self.digests.update(one.digest for one in built)
        best = self.chain[-1]
        pairs = [(one, self._affected(best.point, one.point)) for one in built]
        faster: list[tuple[Trial, Built]] = []
        for number, found in self.workshop.measure(best, pairs, ROUNDS):
            one, sizes = pairs[number]
            if isinstance(found, TrialFailed):
                self._failed("failed", str(found), one, search)
                continue
            trial = self._measured(one, found.measured, sizes, search)
            if trial is not None:
                faster.append((trial, one))
        return faster

    def _failed(self, outcome: Outcome, reason: str, made: Built | Refused, search: Search) -> None:
        predicted = search.predicted(made.point)
        self._record(outcome, reason, made.point, made.trace, predicted=predicted)
        search.learn(made.point, None)
        self._report()

    def _measured(
        self, made: Built, found: Measured, sizes: Sequence[int], search: Search
    ) -> Trial | None:
        """Keep a record of a measurement; return it if the program is faster over all sizes."""
        reason = "" if found.interval else f"{found.ratio:.3g} times as fast in its first samples"
        self._record(
            "measured", reason, made.point, made.trace, found.interval, sizes,
            beside=self.chain[-1].point, predicted=search.predicted(made.point),
        )  # fmt: skip
        for i, size in enumerate(sizes):
            ratio = self.ratios[size] * found.at(i).middle
            if found.at(i).low > 1 and ratio > self.best_at.get(size, (1.0,))[0]:
                self.best_at[size] = ratio, made
        gain = found.ratio ** (len(sizes) / len(self.kernel.sizes))
        search.learn(made.point, self.ratio * gain)
        self.tried.append(Tried(self.ratio * gain, made.point, made.trace))
        self._report()
        return Trial(found, sizes, gain) if found.is_faster else None

    def _affected(self, one: Point, other: Point) -> list[int]:
        """The sizes, by number, at which two points may differ, the schedule of the best so far
        having the decisions of either; all where that is not known."""
        keys = changed_keys(one, other)
        sizes = self.kernel.sizes
        found = [i for i, s in enumerate(sizes) if keys & keys_at(self.trace, s)]
        unknown = keys - {d.key for d in self.decisions}
        return found if found and not unknown else list(range(len(sizes)))

    def _confirmed(self, seconds: tuple[float, ...], waiting: bool) -> TunedKernel:
        """The program that has the best for each size, or else the last of the best that is faster
        than the default when it is measured once more."""
        notes = ["no other choice is faster"]
        if not self.outcomes and self.limits.left == 0.0:
            took = time.monotonic() - self.started
            notes = [f"no other choice was tried: the default alone took {took:.3g} s; "
                     "give more seconds"]  # fmt: skip
        found = [self._final(built, notes) for built in self._finalists()]
        contest = Contest.of(
            self.kernel.sizes, [f for f in found if f is not None], self.default_trace
        )
        for final, sizes in self._winners(contest, notes):
            measured = final.among(sizes)
            interval = measured.interval
            if final.is_faster_at(sizes) and interval is not None:
                matrix, best = contest.matrix(final), final.built
                self._record(
                    "accepted", "", best.point, best.trace, interval, sizes, matrix=matrix,
                    beside={},
                )  # fmt: skip
                return self._result(best.point, interval, seconds, "confirmed", matrix)
            notes.append(
                f"the best was not confirmed: {measured.ratio:.3g} times as fast as the default"
            )
        matrix = contest.matrix() if contest.finals else None
        if not waiting:
            # An earlier search's choice was tried again, if there was one.
            self._record("default", notes[-1], {}, self.chain[0].trace, matrix=matrix)
        return self._result({}, None, seconds, notes[-1], matrix)

    def _finalists(self) -> list[Built]:
        """The best over all sizes, and those that seemed faster still at one of them."""
        best = {b.digest: b for b in self.chain[1:][-1:]}
        for size, (ratio, built) in self.best_at.items():
            if ratio > GAIN * self.ratios[size]:
                best[built.digest] = built
        return list(best.values())

    def _winners(self, contest: Contest, notes: list[str]) -> Iterator[tuple[Final, Sequence[int]]]:
        """Yield what may be accepted, measured beside the default, and the sizes at which it is to
        be faster: what has the best for each size, then what was the best over all, latest first.
        """
        measured = {frozen(f.built.point): f for f in contest.finals}
        point, changed = contest.winner()
        final = measured.get(frozen(point))
        if point and final is None:
            (made,) = self._built([point], ())
            if isinstance(made, Built):
                final = self._final(made, notes)
            else:
                notes.append(f"the best of each size do not make a kernel: {made.reason}")
        if final is not None:
            yield final, [i for i in changed if i in final.sizes]
        for best in reversed(self.chain[1:]):
            final = measured.get(frozen(best.point)) or self._final(best, notes)
            if final is not None:
                yield final, final.sizes

    def _final(self, built: Built, notes: list[str]) -> Final | None:
        """A program measured beside the default at all sizes that its decisions are about; None,
        and a note, where that fails."""
        try:
            self._schedule(built.point)
            sizes = self._affected({}, built.point)
            found = measure_one(self.workshop, self.chain[0], built, sizes, CONFIRMING)
        except (TrialFailed, UserError) as error:
            notes.append(f"the best was not confirmed: {error}")
            return None
        return Final(built, tuple(sizes), found.measured, self.trace)

    def _record(
        self, outcome: Outcome, reason: str, point: Point, trace: str,
        interval: Interval | None = None, sizes: Sequence[int] = (), *,
        matrix: Matrix | None = None, beside: Point | None = None, predicted: float | None = None,
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
                matrix, predicted, beside,
            )
        )  # fmt: skip

    def _report(self) -> None:
        trials = self.outcomes.total()
        rate = trials / max(1e-3, time.monotonic() - self.started)
        self.report(State(self.kernel, self.limits, trials, self.ratio, rate))

    def _result(
        self, point: Point, interval: Interval | None, seconds: tuple[float, ...], note: str,
        matrix: Matrix | None = None,
    ) -> TunedKernel:  # fmt: skip
        left = {f"not tried: {reason}": n for reason, n in self.planner.refused.items()}
        return TunedKernel(
            self.kernel.name, self.kernel.key, self.kernel.sizes, point, interval, seconds,
            dict(self.outcomes), {**self.refusals, **left}, note, time.monotonic() - self.started,
            matrix, tuple(self.tried),
        )  # fmt: skip


def _seeds(records: Sequence[Record]) -> list[Point]:
    """The points that other searches accepted, the latest first: of other versions of the compiler
    and of this one, each once."""
    found = {frozen(r.point): r.point for r in reversed(records) if r.outcome == "accepted"}
    return list(found.values())
