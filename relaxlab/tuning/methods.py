"""The searches by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, TypeAlias

from relaxlab.schedule.decisions import Decision
from relaxlab.tuning.evolution import Evolution
from relaxlab.tuning.plans import Planner
from relaxlab.tuning.points import Point
from relaxlab.tuning.search import CoordinateDescent, RandomSearch, Search

Method: TypeAlias = Literal["coordinate", "random", "evolution"]
Start: TypeAlias = Callable[[Sequence[Decision], Sequence[Point], Planner], Search]
"""Makes a search from the decisions of the rule's choice that make a difference, the points that
were tried, and the planner of the kernel's schedules."""
METHODS: Mapping[Method, Start] = {
    "coordinate": lambda decisions, tried, _: CoordinateDescent(decisions, tried),
    "random": RandomSearch,
    "evolution": lambda _, tried, planner: Evolution(planner, tried),
}
