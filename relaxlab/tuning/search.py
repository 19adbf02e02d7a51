"""Searches: which decisions of a kernel are tried next."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol, TypeAlias

from relaxlab.analysis.evaluate import CannotEvaluate, evaluate
from relaxlab.ir.expr import PrimExpr
from relaxlab.ir.substitute import symbols_in
from relaxlab.schedule.decisions import (
    JOINED,
    SPACE,
    Decision,
    Sampled,
    Value,
    is_in_space,
    key_of,
    other_choices,
    version_name,
)
from relaxlab.schedule.trace import Instruction, Steps
from relaxlab.tuning.plans import Plan, Planner
from relaxlab.tuning.points import Point, changed, frozen

Change: TypeAlias = tuple[str, Value]
"""The key of a decision and a value for it."""


class Search(Protocol):
    """Proposes points, starting from the rule's own choice."""

    def propose(self, count: int) -> list[Point]:
        """Return up to so many points that were not tried yet; none where there are no more."""
        ...

    def improve(
        self, point: Point, decisions: Sequence[Decision], promising: Sequence[Change]
    ) -> None:
        """Go on from a point that is faster. decisions: those of its schedule; promising: other
        changes that were faster than what it was measured beside."""
        ...

    def learn(self, point: Point, ratio: float | None) -> None:
        """Take note of a trial. ratio: how many times as fast as the default the point is, about,
        over all sizes; None for one that failed."""
        ...

    def predicted(self, point: Point) -> float | None:
        """The ratio that was predicted for a point before it was built; None without a model."""
        ...


class CoordinateDescent:
    """Tries changes of one decision of the best point, the nearest candidates first, then those
    further away. It ends where no change of a single decision is faster."""

    def __init__(self, decisions: Sequence[Decision], tried: Sequence[Point] = ()) -> None:
        self.best: Point = {}
        self._decisions = list(decisions)
        self._tried = {frozen(p) for p in tried} | {frozen({})}
        self._first: list[Change] = []

    def propose(self, count: int) -> list[Point]:
        """See `Search`."""
        found: list[Point] = []
        for key, value in self._changes():
            point = changed(self.best, key, value, self._decisions)
            if len(found) < count and frozen(point) not in self._tried:
                self._tried.add(frozen(point))
                found.append(point)
        return found

    def _changes(self) -> Iterator[Change]:
        known = {d.key for d in self._decisions}
        yield from (change for change in self._first if change[0] in known)
        yield from ((d.key, value) for d, value in other_choices(self._decisions))

    def improve(
        self, point: Point, decisions: Sequence[Decision], promising: Sequence[Change]
    ) -> None:
        """See `Search`. What goes further in the direction of the change comes first."""
        before = {d.key: d for d in self._decisions}
        self._first = list(promising)
        for d in decisions:
            old = before.get(d.key)
            if old is None or old.value == d.value or old.value not in d.candidates:
                continue
            came, at = d.candidates.index(old.value), d.candidates.index(d.value)
            ahead = d.candidates[at + 1 :] if at > came else d.candidates[:at][::-1]
            self._first += [(d.key, value) for value in ahead[:1]]
        self.best, self._decisions = point, list(decisions)

    def learn(self, point: Point, ratio: float | None) -> None:
        """See `Search`. Neighbours depend on the best alone."""

    def predicted(self, point: Point) -> float | None:
        """See `Search`."""
        return None


class RandomSearch:
    """Draws every decision from its candidates, all equally likely: the baseline of a search."""

    def __init__(
        self, decisions: Sequence[Decision], tried: Sequence[Point] = (),
        planner: Planner | None = None,
    ) -> None:  # fmt: skip
        self._decisions, self._planner = list(decisions), planner
        self._tried = {frozen(p) for p in tried} | {frozen({})}
        self._random = random.Random(0)

    def propose(self, count: int) -> list[Point]:
        """See `Search`."""
        found: list[Point] = []
        # In a small space most draws were tried before: enough of them find what is left.
        for _ in range(DRAWS * count):
            drawn = {d.key: self._random.choice(d.candidates) for d in self._decisions}
            point = {d.key: drawn[d.key] for d in self._decisions if drawn[d.key] != d.default}
            if len(found) < count and self._planner and is_in_space(point):
                plan = in_space(self._planner, point[SPACE], self._random)
                if plan is None:
                    continue
                point = plan.point
            if len(found) < count and frozen(point) not in self._tried:
                self._tried.add(frozen(point))
                found.append(point)
        return found

    def improve(
        self, point: Point, decisions: Sequence[Decision], promising: Sequence[Change]
    ) -> None:
        """See `Search`. Draws do not depend on what was found."""

    def learn(self, point: Point, ratio: float | None) -> None:
        """See `Search`. Draws do not depend on what was found."""

    def predicted(self, point: Point) -> float | None:
        """See `Search`."""
        return None


def in_space(planner: Planner, space: Value, rng: random.Random) -> Plan | None:
    """Draw the decisions of a space; None where they do not fit each other."""
    return planner.drawn({SPACE: space}, Sampled(rng.getrandbits(64)))


DRAWS = 64
"""Draws for each requested point."""


def deciding(
    decisions: Sequence[Decision], trace: Sequence[Instruction], sizes: Sequence[Mapping[str, int]]
) -> list[Decision]:
    """The decisions that make a difference at some of the sizes."""
    keys = set[str]().union(*(keys_at(trace, one) for one in sizes))
    return [d for d in decisions if d.key in keys]


def keys_at(
    trace: Sequence[Instruction], sizes: Mapping[str, int], within: tuple[str, ...] = ()
) -> set[str]:
    """The keys of the decisions of what runs for values of the symbols: of the versions of a
    function, those that are chosen then."""
    found: set[str] = set()
    for step in trace:
        args = dict(step.args)
        if "decision" in args:
            found.add(key_of(within, args["name"]))
        nested: Steps | tuple[Steps, ...] = args.get("schedule", ())
        if isinstance(nested, Steps):
            found |= keys_at(nested.trace, sizes, (*within, JOINED))
        elif nested:
            size: PrimExpr = args["size"]
            for steps in _running(nested, size, sizes):
                name = version_name(size, steps.bound)
                found |= keys_at(steps.trace, sizes, (*within, name))
    return found


def _running(
    versions: Sequence[Steps], size: PrimExpr, sizes: Mapping[str, int]
) -> Sequence[Steps]:
    """The version for the sizes, the first being the general one; all where it is not known."""
    try:
        value = evaluate(size, {s: sizes[s.name] for s in symbols_in(size) if s.name in sizes})
    except CannotEvaluate:
        return versions
    fitting = [v for v in versions[1:] if v.bound is not None and value <= v.bound]
    return [min(fitting, key=lambda v: v.bound or 0, default=versions[0])]
