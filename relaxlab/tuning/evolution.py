"""Evolution of points by a cost model: the search of Ansor and MetaSchedule (Zheng et al., *Ansor*,
section 5.1; Shao et al., *Tensor Program Optimization with Probabilistic Programs*, section 4).

The programs that were measured are the population. Each turn makes a pool of points from it, by
changing one decision of a fast point or by taking the decisions of two, and some at random; the
model says which of the pool are built and measured, but for a share of them that is drawn.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from relaxlab.ir.equal import structural_key
from relaxlab.schedule.decisions import RULES, SPACE, Decision, Sampled, Value
from relaxlab.tuning.cost_model import Array, CostModel, Learned
from relaxlab.tuning.features import features_of
from relaxlab.tuning.plans import Plan, Planner
from relaxlab.tuning.points import Point, frozen
from relaxlab.tuning.search import Change, keys_at

POOL = 4
"""Points that are made for each that is measured: scheduling one takes about as long as a fifth of
building and measuring it."""
RANDOM = 0.2
"""The share of points that are drawn, without regard to what is fast or predicted to be."""
CROSSED = 0.3
"""The share of the others that are made of two points."""
BEST = 12
"""Points of the population that others are made from."""


@dataclass(frozen=True, slots=True)
class Inherited:
    """The decider that takes given values, by key, where they are candidates: those of another
    point, some of whose decisions may be about something else here."""

    values: Mapping[str, Value]

    def __call__(self, key: str, candidates: Sequence[Value]) -> Value | None:
        value = self.values.get(key)
        fits = any(value == c and type(value) is type(c) for c in candidates)
        return value if fits else None


class Evolution:
    """Changes and crosses the fastest points, and tries what a model finds promising."""

    def __init__(
        self, planner: Planner, tried: Sequence[Point] = (), model: CostModel | None = None
    ) -> None:
        """model: a new `Learned`, unless there is another. Raises LightGBMNotFound."""
        self._planner, self._model = planner, model or Learned()
        default = planner.plan({})
        self._tried = {frozen(p) for p in tried} | {frozen({})}
        # Many decisions make no difference: programs are told apart by what they are.
        self._programs = {structural_key(default.func)}
        self._random = random.Random(0)
        self._population: list[tuple[float, Plan]] = [(1.0, default)]
        self._rows: list[Array] = [self._features(self._population[0][1])]
        self._ratios = [1.0]
        self._predicted: dict[frozenset[tuple[str, str]], float] = {}
        # The default point of each space comes first.
        self._first = list(planner.spaces)
        self._sizes = {RULES: len(default.decisions)}

    def propose(self, count: int) -> list[Point]:
        """See `Search`."""
        pool: list[Plan] = []
        while self._first and len(pool) < count:
            space = self._first.pop(0)
            plan = self._planner.drawn({SPACE: space})
            self._sizes[space] = 1 if plan is None else len(plan.decisions)
            self._take(pool, plan)
        chosen = list(pool)
        for _ in range(POOL * count):
            self._take(pool, self._child())
        rest = pool[len(chosen) :]
        ratios = self._predict(pool)
        rest.sort(key=lambda plan: -ratios[frozen(plan.point)])
        while rest and len(chosen) < count:
            drawn = self._random.random() < RANDOM
            chosen.append(rest.pop(self._random.randrange(len(rest)) if drawn else 0))
        # What was not chosen may come again.
        self._tried -= {frozen(plan.point) for plan in rest}
        self._programs -= {structural_key(plan.func) for plan in rest}
        return [plan.point for plan in chosen]

    def _take(self, pool: list[Plan], plan: Plan | None) -> None:
        if plan is None or frozen(plan.point) in self._tried:
            return
        self._tried.add(frozen(plan.point))
        program = structural_key(plan.func)
        if program not in self._programs:
            self._programs.add(program)
            pool.append(plan)

    def _child(self) -> Plan | None:
        best = self._population[:BEST]
        if self._random.random() < RANDOM or len(self._population) < 3:
            # The more there is to decide in a space, the more of it is drawn.
            spaces, counts = zip(*self._sizes.items(), strict=True)
            space = self._random.choices(spaces, counts)[0]
            return self._planner.drawn({SPACE: space}, Sampled(self._random.getrandbits(64)))
        parent = self._chosen(best)
        if self._random.random() < CROSSED:
            return self._crossed(parent, self._chosen(best))
        return self._changed(parent)

    def _chosen(self, best: Sequence[tuple[float, Plan]]) -> Plan:
        """One of the best, the faster the likelier."""
        weights = [ratio**4 for ratio, _ in best]
        return self._random.choices([plan for _, plan in best], weights)[0]

    def _changed(self, plan: Plan) -> Plan | None:
        """The point with another value for one of its decisions, often a neighbour."""
        sizes = self._planner.kernel.sizes
        keys = set[str]().union(*(keys_at(plan.steps, one) for one in sizes))
        deciding = [d for d in plan.decisions if len(d.candidates) > 1 and d.key in keys]
        deciding = [d for d in deciding if d.name != SPACE]
        if not deciding:
            return None
        d = self._random.choice(deciding)
        at = d.candidates.index(d.value)
        others = [i for i in range(len(d.candidates)) if i != at]
        if self._random.random() < 0.5:
            others = [i for i in others if abs(i - at) == 1]
        return self._inherited({**_values(plan), d.key: d.candidates[self._random.choice(others)]})

    def _crossed(self, one: Plan, other: Plan) -> Plan | None:
        """A point with decisions of two, in the space of the first."""
        mine, others = _values(one), _values(other)
        taken = {k: v for k, v in others.items() if self._random.random() < 0.5 and k != SPACE}
        return self._inherited({**mine, **taken})

    def _inherited(self, values: Mapping[str, Value]) -> Plan | None:
        return self._planner.drawn({}, Inherited(values))

    def _predict(self, plans: Sequence[Plan]) -> dict[frozenset[tuple[str, str]], float]:
        if plans:
            found = self._model.predict(np.array([self._features(p) for p in plans]))
            made = {frozen(p.point): float(r) for p, r in zip(plans, found, strict=True)}
            self._predicted |= made
        return self._predicted

    def _features(self, plan: Plan) -> Array:
        """The features of a program, the mean over the sizes."""
        planner = self._planner
        return np.mean(
            [
                features_of(plan.func, planner.target, sizes, planner.threads)
                for sizes in planner.kernel.sizes
            ],
            axis=0,
        )

    def improve(
        self, point: Point, decisions: Sequence[Decision], promising: Sequence[Change]
    ) -> None:
        """See `Search`. The population has what is fast already."""

    def learn(self, point: Point, ratio: float | None) -> None:
        """See `Search`."""
        self._tried.add(frozen(point))
        if ratio is None:
            return
        plan = self._planner.plan(point)
        self._population.append((ratio, plan))
        self._population.sort(key=lambda one: -one[0])
        self._rows.append(self._features(plan))
        self._ratios.append(ratio)
        self._model.update(np.array(self._rows), np.array(self._ratios))

    def predicted(self, point: Point) -> float | None:
        """See `Search`."""
        return self._predicted.get(frozen(point))


def _values(plan: Plan) -> dict[str, Value]:
    """All decisions of a plan, by key."""
    return {d.key: d.value for d in plan.decisions}
