"""A minibatch's graph run batch by batch: ready nodes, frontiers, and the schedule that results."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from relaxlab.batching.graph import (
    Graph,
    GraphError,
    Int32Array,
    Int64Array,
    most_on_paths,
    reached_types,
    reversed_graph,
)
from relaxlab.ir.errors import counted


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Schedule:
    """Batches in the order in which they run.

    types: (batches,), the type of each. nodes: (nodes of the graph,); batch i runs
    nodes[starts[i]:starts[i + 1]], in this order of lanes.
    """

    graph: Graph
    types: Int32Array
    starts: Int64Array
    nodes: Int32Array

    def __len__(self) -> int:
        return len(self.types)

    def __iter__(self) -> Iterator[tuple[int, Int32Array]]:
        """Yield the type and the nodes of each batch."""
        for number, of_type in enumerate(self.types.tolist()):
            yield of_type, self.nodes[self.starts[number] : self.starts[number + 1]]

    def __repr__(self) -> str:
        batches = counted(len(self), "batch", "batches")
        return f"Schedule({counted(len(self.nodes), 'node')} in {batches})"


def schedule_of(graph: Graph, batches: list[tuple[int, list[int]]]) -> Schedule:
    """Return batches, each a type and its nodes, as a schedule."""
    sizes = np.array([len(nodes) for _, nodes in batches], dtype=np.int64)
    return Schedule(
        graph,
        np.array([of_type for of_type, _ in batches], dtype=np.int32),
        np.concatenate(([0], np.cumsum(sizes))),
        np.array([node for _, nodes in batches for node in nodes], dtype=np.int32),
    )


def check_schedule(schedule: Schedule) -> None:
    """Raise GraphError where a schedule runs a node twice or never, with another type's, before a
    node that it reads, or with others though its type is unbatchable."""
    graph = schedule.graph
    times = np.bincount(schedule.nodes, minlength=len(graph))
    wrong = np.flatnonzero(times != 1)
    if len(wrong):
        raise GraphError(f"node {wrong[0]} runs {counted(int(times[wrong[0]]), 'time')}")
    batch_of = np.empty(len(graph), dtype=np.int64)
    for number, (of_type, nodes) in enumerate(schedule):
        batch_of[nodes] = number
        if (graph.type_of[nodes] != of_type).any():
            raise GraphError(f"batch {number} has nodes of several types")
        if of_type in graph.unbatchable and len(nodes) > 1:
            raise GraphError(f"batch {number} has several nodes of an unbatchable type")
    reader = np.repeat(np.arange(len(graph)), np.diff(graph.starts))
    early = np.flatnonzero(batch_of[graph.predecessors] >= batch_of[reader])
    if len(early):
        edge = early[0]
        raise GraphError(f"node {reader[edge]} runs before node {graph.predecessors[edge]} has run")


class Execution:
    """A graph that is run batch by batch.

    ready: of each type the nodes that wait for nothing any more, in the order in which they became
    ready, so that the lanes of a batch follow those of the batch that it reads. Running all nodes
    and edges takes O(nodes + edges).
    """

    __slots__ = ("_missing", "_starts", "_successors", "_type_of", "batches", "graph", "ready")

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.ready: list[list[int]] = [[] for _ in graph.types]
        self.batches: list[tuple[int, list[int]]] = []
        self._type_of: list[int] = graph.type_of.tolist()
        self._starts: list[int] = graph.succ_starts.tolist()
        self._successors: list[int] = graph.successors.tolist()
        degrees = np.diff(graph.starts)
        self._missing: list[int] = degrees.tolist()
        for node in np.flatnonzero(degrees == 0).tolist():
            self.ready[self._type_of[node]].append(node)

    def ready_types(self) -> list[int]:
        """Return the types that have ready nodes, in the order of their numbers."""
        return [number for number, nodes in enumerate(self.ready) if nodes]

    def run(self, of_type: int) -> list[int]:
        """Run a batch of all ready nodes of a type, or the first of them if the type is
        unbatchable, and return its nodes."""
        nodes, self.ready[of_type] = self.ready[of_type], []
        if of_type in self.graph.unbatchable:
            nodes, self.ready[of_type] = nodes[:1], nodes[1:]
        missing, starts, successors = self._missing, self._starts, self._successors
        ready, type_of = self.ready, self._type_of
        for node in nodes:
            for reader in successors[starts[node] : starts[node + 1]]:
                missing[reader] -= 1
                if not missing[reader]:
                    ready[type_of[reader]].append(reader)
        self.batches.append((of_type, nodes))
        return nodes

    def schedule(self) -> Schedule:
        """Return the batches run so far."""
        return schedule_of(self.graph, self.batches)


class Chooser(Protocol):
    """Chooses the batches of one execution."""

    def choose(self, execution: Execution, types: list[int]) -> int:
        """Return the type of the next batch, one of the ready types."""
        ...

    def ran(self, of_type: int, nodes: list[int]) -> None:
        """Take note of a batch, chosen or not."""
        ...


def run_by(graph: Graph, chooser: Chooser) -> Schedule:
    """Return the schedule of a graph whose batches are chosen one after the other. Unbatchable
    nodes run as soon as they are ready."""
    execution = Execution(graph)
    alone = sorted(graph.unbatchable)
    while types := execution.ready_types():
        drained = next((t for t in alone if execution.ready[t]), None)
        of_type = chooser.choose(execution, types) if drained is None else drained
        chooser.ran(of_type, execution.run(of_type))
    return execution.schedule()


class Frontier:
    """The frontiers of a graph's types: nodes of a type that wait for none of the same type.

    A node waits for a type t as long as one of the nodes that it reads is of type t and has not
    run, or is of another type and waits for t itself. Only nodes of type t, and those that lie
    between two of them on a path (*bridges*), are counted for t: one item per pair.
    """

    __slots__ = ("_missing", "_starts", "_successors", "_type_of", "graph")

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        count, kinds = len(graph), len(graph.types)
        own = [1 << t for t in graph.type_of.tolist()]
        after = reached_types(reversed_graph(graph))[::-1]
        between = [b & a & ~o for b, a, o in zip(reached_types(graph), after, own, strict=True)]
        item = np.full((count, kinds), -1, dtype=np.int64)
        item[np.arange(count), graph.type_of] = np.arange(count)
        bridges = [(v, t) for v, types in enumerate(between) if types for t in _bits(types)]
        for number, bridge in enumerate(bridges, count):
            item[bridge] = number
        self._type_of: list[int] = graph.type_of.tolist()
        reader = np.repeat(np.arange(count), np.diff(graph.starts))
        source, target = item[graph.predecessors], item[reader]
        related = (source >= 0) & (target >= 0)
        source, target = source[related], target[related]
        order = np.argsort(source, kind="stable")
        items = count + len(bridges)
        uses = np.bincount(source, minlength=items)
        self._starts: list[int] = np.concatenate(([0], np.cumsum(uses))).tolist()
        self._successors: list[int] = target[order].tolist()
        self._missing: list[int] = np.bincount(target, minlength=items).tolist()

    def counter(self) -> FrontierCounter:
        """Return the counts before anything has run."""
        sizes = [0] * len(self.graph.types)
        for of_type, missing in zip(self._type_of, self._missing, strict=False):
            sizes[of_type] += not missing
        return FrontierCounter(
            sizes, self._missing.copy(), self._starts, self._successors, self._type_of
        )


@dataclass(slots=True, eq=False, repr=False)
class FrontierCounter:
    """Sizes of frontiers, kept while batches run. sizes: by type."""

    sizes: list[int]
    _missing: list[int]
    _starts: list[int]
    _successors: list[int]
    _type_of: list[int]

    def ran(self, of_type: int, nodes: list[int]) -> None:
        """Take note of a batch."""
        sizes, missing, count = self.sizes, self._missing, len(self._type_of)
        sizes[of_type] -= len(nodes)
        stack = list(nodes)
        while stack:
            item = stack.pop()
            for reader in self._successors[self._starts[item] : self._starts[item + 1]]:
                missing[reader] -= 1
                if missing[reader]:
                    continue
                if reader < count:
                    sizes[self._type_of[reader]] += 1
                else:
                    stack.append(reader)


class CriticalPaths:
    """The longest paths of a graph by types.

    A node's *rank* is the most nodes of its own type on a path that begins with it. The bound of
    what has not run (`bound.batch_bound`) is the sum of the largest ranks of all types.
    """

    __slots__ = ("_counts", "_ranks")

    def __init__(self, graph: Graph) -> None:
        ahead = most_on_paths(reversed_graph(graph))[::-1]
        ranks = ahead[np.arange(len(graph)), graph.type_of]
        by_type = [ranks[graph.type_of == of_type] for of_type in range(len(graph.types))]
        self._ranks: list[int] = ranks.tolist()
        self._counts: list[list[int]] = [np.bincount(ranks).tolist() for ranks in by_type]

    def counter(self) -> PathCounter:
        """Return the counts before anything has run."""
        return PathCounter(
            self._ranks,
            [counts.copy() for counts in self._counts],
            [[0] * len(counts) for counts in self._counts],
            [len(counts) - 1 for counts in self._counts],
            [0] * len(self._counts),
        )


@dataclass(slots=True, eq=False, repr=False)
class PathCounter:
    """Nodes by type and rank, kept while batches run: those that have not run (`_left`) and those
    that are ready; `_top`: the largest rank that is left; `_seen`: ready nodes that are counted."""

    _ranks: list[int]
    _left: list[list[int]]
    _ready: list[list[int]]
    _top: list[int]
    _seen: list[int]

    @property
    def bound(self) -> int:
        """The sum of the largest ranks: the bound of what is left, unbatchable types apart."""
        return sum(self._top)

    def lossless(self, execution: Execution, types: list[int]) -> list[int]:
        """Return those of the ready types whose batch lowers the bound of what is left: all their
        nodes of the largest rank are ready."""
        for of_type in types:
            nodes, ready = execution.ready[of_type], self._ready[of_type]
            for node in nodes[self._seen[of_type] :]:
                ready[self._ranks[node]] += 1
            self._seen[of_type] = len(nodes)
        left, ready, top = self._left, self._ready, self._top
        return [t for t in types if ready[t][top[t]] == left[t][top[t]]]

    def ran(self, of_type: int, nodes: list[int]) -> None:
        """Take note of a batch."""
        left, ready, top = self._left[of_type], self._ready[of_type], self._top[of_type]
        counted_before = self._seen[of_type]
        for place, node in enumerate(nodes):
            left[self._ranks[node]] -= 1
            if place < counted_before:
                ready[self._ranks[node]] -= 1
        while top and not left[top]:
            top -= 1
        self._top[of_type] = top
        self._seen[of_type] = max(0, counted_before - len(nodes))


def _bits(number: int) -> list[int]:
    """Return the places of the bits of an integer that are set."""
    return [place for place in range(number.bit_length()) if number >> place & 1]
