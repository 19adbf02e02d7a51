"""The dataflow graph of a minibatch: which node reads which, and which nodes may share a batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from relaxlab.ir.arguments import names_arguments
from relaxlab.ir.errors import UserError, counted, kind_of
from relaxlab.ir.names import among

Int32Array: TypeAlias = NDArray[np.int32]
Int64Array: TypeAlias = NDArray[np.int64]


class GraphError(UserError):
    """Arrays that describe no dataflow graph."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Graph:
    """Nodes in an order in which they could run one by one.

    types: names of the types; nodes of one type run the same code on the same weights, so that they
    can share a batch. type_of: (nodes,), numbers of types. starts: (nodes + 1,); node v reads the
    results of the nodes predecessors[starts[v]:starts[v + 1]], each of which is before v.
    unbatchable: numbers of the types whose nodes run one by one.

    succ_starts and successors say the same in the other direction.

    Raises GraphError where the arrays do not fit together, or where a node reads a later one.
    """

    types: tuple[str, ...]
    type_of: Int32Array
    starts: Int64Array
    predecessors: Int32Array
    unbatchable: frozenset[int] = frozenset()
    succ_starts: Int64Array = field(init=False)
    successors: Int32Array = field(init=False)

    def __post_init__(self) -> None:
        _check(self)
        count = len(self.type_of)
        reader = np.repeat(np.arange(count, dtype=np.int32), np.diff(self.starts))
        order = np.argsort(self.predecessors, kind="stable")
        uses = np.bincount(self.predecessors, minlength=count)
        object.__setattr__(self, "successors", reader[order])
        object.__setattr__(self, "succ_starts", np.concatenate(([0], np.cumsum(uses))))

    def __len__(self) -> int:
        return len(self.type_of)

    def __repr__(self) -> str:
        nodes = counted(len(self), "node")
        edges = counted(len(self.predecessors), "edge")
        return f"Graph({nodes}, {edges}, types: {', '.join(self.types)})"

    def predecessors_of(self, node: int) -> list[int]:
        """Return the nodes that a node reads, in the order of its operands."""
        return self.predecessors[self.starts[node] : self.starts[node + 1]].tolist()


def require_graph(given: object) -> None:
    """Raise GraphError for what is no graph."""
    if not isinstance(given, Graph):
        raise GraphError(
            f"expected a graph, got {kind_of(given)}: `rl.recorded_graph(main.record(instances))` "
            "is the graph of instances"
        )


@names_arguments
def minibatch_graph(
    types: Sequence[str],
    type_of: ArrayLike,
    reads: Sequence[Sequence[int]],
    unbatchable: Sequence[str] = (),
) -> Graph:
    """Return a graph from lists: of each node its type's number and the nodes that it reads.

    unbatchable: names of types. Raises GraphError as `Graph` does.
    """
    names = tuple(types)
    unknown = [name for name in unbatchable if name not in names]
    if unknown:
        known = among(unknown[0], names)
        raise GraphError(f"no type is called {unknown[0]!r}; the types are: {known}")
    starts = np.concatenate(([0], np.cumsum([len(r) for r in reads], dtype=np.int64)))
    flat = np.fromiter((p for r in reads for p in r), dtype=np.int32, count=int(starts[-1]))
    alone = frozenset(names.index(name) for name in unbatchable)
    return Graph(names, np.asarray(type_of, dtype=np.int32), starts, flat, alone)


def graph_of_records(
    types: Sequence[str],
    type_of: ArrayLike,
    starts: ArrayLike,
    handles: ArrayLike,
    producer: ArrayLike,
) -> Graph:
    """Return the graph of a recorded minibatch.

    Record v, of the type type_of[v], reads the values handles[starts[v]:starts[v + 1]]; handle h is
    a result of record producer[h], or an input of the minibatch where that is -1. A record that
    reads several results of another one depends on it once.

    Raises GraphError for a handle without an entry in `producer`, and as `Graph` does.
    """
    firsts = np.asarray(starts, dtype=np.int64)
    read = np.asarray(handles, dtype=np.int64)
    made_by = np.asarray(producer, dtype=np.int32)
    wrong = np.flatnonzero((read < 0) | (read >= len(made_by)))
    if len(wrong):
        raise GraphError(
            f"handle {read[wrong[0]]}, at place {wrong[0]} of the records, is none of the "
            f"{len(made_by)} that have a producer"
        )
    reader = np.repeat(np.arange(len(firsts) - 1), np.diff(firsts))
    sources = made_by[read]
    pairs = np.stack((reader, sources), axis=1)[sources >= 0]
    _, first = np.unique(pairs, axis=0, return_index=True)
    kept = pairs[np.sort(first)]
    counts = np.bincount(kept[:, 0], minlength=len(firsts) - 1)
    return Graph(
        tuple(types),
        np.asarray(type_of, dtype=np.int32),
        np.concatenate(([0], np.cumsum(counts))),
        kept[:, 1].astype(np.int32),
        frozenset(),
    )


def reversed_graph(graph: Graph) -> Graph:
    """Return a graph with its edges and the order of its nodes turned around."""
    last = len(graph) - 1
    degrees = np.diff(graph.succ_starts)[::-1]
    # A node's edges follow each other in any order: all can be turned around at once.
    return Graph(
        graph.types,
        graph.type_of[::-1].copy(),
        np.concatenate(([0], np.cumsum(degrees))),
        (last - graph.successors[::-1]).astype(np.int32),
        graph.unbatchable,
    )


def depths_of(graph: Graph) -> Int32Array:
    """Return the edges on the longest path to each node, shape (nodes,)."""
    starts, read = graph.starts.tolist(), graph.predecessors.tolist()
    depths: list[int] = []
    for node in range(len(graph)):
        before = read[starts[node] : starts[node + 1]]
        depths.append(1 + max([depths[p] for p in before]) if before else 0)
    return np.array(depths, dtype=np.int32)


def most_on_paths(graph: Graph) -> Int32Array:
    """Return, shape (nodes, types), the most nodes of each type on any path that ends with a node,
    the node included."""
    starts, read = graph.starts.tolist(), graph.predecessors.tolist()
    rows: list[list[int]] = []
    for node, of_type in enumerate(graph.type_of.tolist()):
        before = read[starts[node] : starts[node + 1]]
        match before:
            case []:
                row = [0] * len(graph.types)
            case [only]:
                row = rows[only].copy()
            case _:
                row = list(map(max, *[rows[p] for p in before]))
        row[of_type] += 1
        rows.append(row)
    return np.array(rows, dtype=np.int32).reshape(len(graph), len(graph.types))


def reached_types(graph: Graph) -> list[int]:
    """Return of each node the types of the nodes before it on paths that end with it, as bits of an
    integer."""
    starts, read = graph.starts.tolist(), graph.predecessors.tolist()
    own = [1 << t for t in graph.type_of.tolist()]
    found: list[int] = []
    for node in range(len(graph)):
        types = 0
        for before in read[starts[node] : starts[node + 1]]:
            types |= found[before] | own[before]
        found.append(types)
    return found


def _check(graph: Graph) -> None:
    """Raise GraphError where the arrays of a graph do not fit together."""
    count, starts, read = len(graph.type_of), graph.starts, graph.predecessors
    if len(set(graph.types)) < len(graph.types):
        raise GraphError(f"two types have the same name: {', '.join(graph.types)}")
    wrong = np.flatnonzero((graph.type_of < 0) | (graph.type_of >= len(graph.types)))
    if len(wrong):
        raise GraphError(
            f"node {wrong[0]} is of type {graph.type_of[wrong[0]]}, of {len(graph.types)} types"
        )
    if len(starts) != count + 1 or starts[0] != 0 or starts[-1] != len(read):
        raise GraphError(
            f"starts has to lead from 0 to {len(read)}, the number of edges, in {count + 1} numbers"
        )
    degrees = np.diff(starts)
    if (degrees < 0).any():
        raise GraphError(f"starts falls at node {int(np.argmax(degrees < 0))}")
    reader = np.repeat(np.arange(count), degrees)
    wrong = np.flatnonzero((read < 0) | (read >= reader))
    if len(wrong):
        edge = wrong[0]
        raise GraphError(
            f"node {reader[edge]} reads node {read[edge]}: nodes read earlier ones only, so that "
            "none waits for itself"
        )
