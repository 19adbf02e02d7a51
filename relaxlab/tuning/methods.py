"""The searches by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, TypeAlias

from relaxlab.schedule.decisions import RULES, SPACE, Decision
from relaxlab.tuning.evolution import Evolution
from relaxlab.tuning.generic import GENERIC
from relaxlab.tuning.plans import Planner
from relaxlab.tuning.points import Point
from relaxlab.tuning.search import CoordinateDescent, RandomSearch, Search

Method: TypeAlias = Literal["coordinate", "random", "evolution", "own"]
Start: TypeAlias = Callable[[Sequence[Decision], Sequence[Point], Planner], Search]
"""Makes a search from the decisions of the rule's choice that make a difference, the points that
were tried, and the planner of the kernel's schedules."""


def _in_own_spaces(tried: Sequence[Point], planner: Planner) -> RandomSearch:
    """Draws of a kernel's own spaces; the rules' and the generic one count where it has none."""
    own = tuple(name for name in planner.spaces if name != GENERIC)
    if not own:
        return RandomSearch(planner.plan({}).decisions, tried, planner)
    return RandomSearch([Decision(SPACE, own, RULES, RULES)], tried, planner)


METHODS: Mapping[Method, Start] = {
    "coordinate": lambda decisions, tried, _: CoordinateDescent(decisions, tried),
    "random": RandomSearch,
    "evolution": lambda _, tried, planner: Evolution(planner, tried),
    "own": lambda _, tried, planner: _in_own_spaces(tried, planner),
}
