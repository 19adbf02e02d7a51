"""Policies in Python, as simple as possible: oracles for the compiled ones."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from relaxlab.batching.execution import (
    Chooser,
    CriticalPaths,
    Execution,
    Frontier,
    FrontierCounter,
    PathCounter,
    Schedule,
    run_by,
)
from relaxlab.batching.graph import Graph, depths_of


def reference_schedule(graph: Graph, policy: str) -> Schedule:
    """Return the schedule of `agenda`, `ratio` or `critical`."""
    return run_by(graph, _chooser(graph, policy))


def _chooser(graph: Graph, policy: str) -> Chooser:
    if policy == "agenda":
        return AgendaChooser(graph)
    ratio = RatioChooser(Frontier(graph).counter())
    return ratio if policy == "ratio" else CriticalChooser(CriticalPaths(graph).counter(), ratio)


class AgendaChooser:
    """Keeps the sum of depths and the number of nodes that have not run, by type."""

    __slots__ = ("_depths", "_left", "_sums")

    def __init__(self, graph: Graph) -> None:
        depths = depths_of(graph)
        kinds = len(graph.types)
        self._depths: list[int] = depths.tolist()
        self._left: list[int] = np.bincount(graph.type_of, minlength=kinds).tolist()
        sums = np.bincount(graph.type_of, weights=depths, minlength=kinds)
        self._sums: list[float] = sums.tolist()

    def choose(self, execution: Execution, types: list[int]) -> int:
        """Return the type of the smallest mean depth."""
        return min(types, key=lambda t: self._sums[t] / self._left[t])

    def ran(self, of_type: int, nodes: list[int]) -> None:
        """Take note of a batch."""
        self._left[of_type] -= len(nodes)
        depths = self._depths
        self._sums[of_type] -= sum([depths[node] for node in nodes])


@dataclass(slots=True)
class RatioChooser:
    counter: FrontierCounter

    def choose(self, execution: Execution, types: list[int]) -> int:
        """Return the type with the largest part of its frontier ready."""
        ready, sizes = execution.ready, self.counter.sizes
        return max(types, key=lambda t: (len(ready[t]) / sizes[t], len(ready[t])))

    def ran(self, of_type: int, nodes: list[int]) -> None:
        """Take note of a batch."""
        self.counter.ran(of_type, nodes)


@dataclass(slots=True)
class CriticalChooser:
    paths: PathCounter
    ratio: RatioChooser

    def choose(self, execution: Execution, types: list[int]) -> int:
        """Return a type that loses nothing, or else that with most of its frontier ready."""
        return self.ratio.choose(execution, self.paths.lossless(execution, types) or types)

    def ran(self, of_type: int, nodes: list[int]) -> None:
        """Take note of a batch."""
        self.paths.ran(of_type, nodes)
        self.ratio.ran(of_type, nodes)
