"""The fewest batches that a graph can do with: a lower bound for all graphs, the optimum for small
ones."""

from __future__ import annotations

import heapq
from itertools import count

from relaxlab.batching.execution import Schedule, schedule_of
from relaxlab.batching.graph import Graph, most_on_paths, require_graph, reversed_graph
from relaxlab.batching.native import native_bound
from relaxlab.ir.arguments import names_arguments
from relaxlab.ir.errors import UserError


class SearchLimit(UserError):
    """A graph whose optimum takes longer to find than was allowed."""


@names_arguments
def batch_bound(graph: Graph) -> int:
    """Return a number of batches that no schedule has less of: the unbatchable nodes, and of each
    other type the most nodes that lie on one path, since nodes on a path never share a batch.

    Raises GraphError for what is no graph.
    """
    require_graph(graph)
    return native_bound(graph)


def optimum(graph: Graph, most_states: int = 200_000) -> Schedule:
    """Return a schedule with as few batches as there can be.

    It is found by A* over the sets of nodes that have run. A batch of all ready nodes of a type is
    at least as good as one of a part of them, and unbatchable nodes run as soon as they are ready,
    so that a set has at most one successor per type. What a set still needs is estimated by the
    lower bound of the rest, which a batch lowers by one at most: the first schedule that is found
    complete is an optimum.

    Raises SearchLimit after `most_states` sets, whose number grows exponentially with the graph's
    width, and GraphError for what is no graph.
    """
    require_graph(graph)
    search = _Search(graph)
    order = count()
    start, alone = search.drained(0)
    first = search.estimate(start) + len(alone)
    heap = [(first, next(order), len(alone), start)]
    came: dict[int, tuple[int, tuple[tuple[int, int], ...]]] = {start: (-1, alone)}
    least = {start: len(alone)}
    while heap:
        _, _, cost, done = heapq.heappop(heap)
        if cost > least[done]:
            continue
        if done == search.all:
            return _schedule(graph, came, done)
        for of_type, nodes in search.batches(done):
            after, alone = search.drained(done | nodes)
            reached = cost + 1 + len(alone)
            if reached >= least.get(after, reached + 1):
                continue
            least[after] = reached
            came[after] = (done, ((of_type, nodes), *alone))
            if len(least) > most_states:
                raise SearchLimit(
                    f"the optimum of {graph!r} takes more than {most_states} sets of nodes to "
                    "find: ask for its lower bound, or give `most_states`"
                )
            # Of equally promising sets the one nearest to the end, which is soon complete.
            heapq.heappush(heap, (reached + search.estimate(after), -next(order), reached, after))
    raise AssertionError("the set of all nodes is reached from every other one")


class _Search:
    """Sets of nodes are the bits of integers."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        size = len(graph)
        self.all = (1 << size) - 1
        self.type_of: list[int] = graph.type_of.tolist()
        self.reads = [sum({1 << p for p in graph.predecessors_of(v)}) for v in range(size)]
        self.batchable = [t for t in range(len(graph.types)) if t not in graph.unbatchable]
        # The most nodes of each type on a path that begins with a node.
        self.ahead: list[list[int]] = most_on_paths(reversed_graph(graph))[::-1].tolist()

    def ready(self, done: int) -> list[int]:
        """Return the nodes that may run once those of a set have."""
        left = self.all & ~done
        found: list[int] = []
        while left:
            node = (left & -left).bit_length() - 1
            left &= left - 1
            if not self.reads[node] & ~done:
                found.append(node)
        return found

    def batches(self, done: int) -> list[tuple[int, int]]:
        """Return, for each ready type, its number and its ready nodes."""
        found: dict[int, int] = {}
        for node in self.ready(done):
            found[self.type_of[node]] = found.get(self.type_of[node], 0) | 1 << node
        return sorted(found.items())

    def drained(self, done: int) -> tuple[int, tuple[tuple[int, int], ...]]:
        """Return a set with all unbatchable nodes added that can run, and these as batches."""
        ran: list[tuple[int, int]] = []
        alone = self.graph.unbatchable
        while alone and (found := [v for v in self.ready(done) if self.type_of[v] in alone]):
            ran += [(self.type_of[v], 1 << v) for v in found]
            done |= sum(1 << v for v in found)
        return done, tuple(ran)

    def estimate(self, done: int) -> int:
        """Return the lower bound of what has not run; paths begin with ready nodes."""
        ahead = [self.ahead[node] for node in self.ready(done)]
        most = sum(max((row[t] for row in ahead), default=0) for t in self.batchable)
        if not self.graph.unbatchable:
            return most
        left = self.all & ~done
        return most + sum(
            left >> v & 1 for v, t in enumerate(self.type_of) if t in self.graph.unbatchable
        )


def _schedule(
    graph: Graph, came: dict[int, tuple[int, tuple[tuple[int, int], ...]]], done: int
) -> Schedule:
    """Return the batches by which a set was reached."""
    batches: list[tuple[int, list[int]]] = []
    while done >= 0:
        done, ran = came[done]
        for of_type, nodes in reversed(ran):
            batches.append((of_type, [v for v in range(len(graph)) if nodes >> v & 1]))
    return schedule_of(graph, batches[::-1])
