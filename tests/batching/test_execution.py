"""A graph run batch by batch: ready nodes and frontiers against their definitions."""

from __future__ import annotations

import numpy as np
import pytest

from relaxlab.batching.execution import (
    Execution,
    Frontier,
    check_schedule,
    schedule_of,
)
from relaxlab.batching.graph import Graph, GraphError, minibatch_graph
from relaxlab.testing.minibatches import lattice_lstm, random_graph

CHAIN = minibatch_graph(["a", "b"], [0, 1, 0, 0], [[], [0], [1], []], unbatchable=["b"])


def frontier_by_force(graph: Graph, done: set[int]) -> list[int]:
    """Sizes of the frontiers by definition: no node of the type before it is left."""
    before: list[set[int]] = []
    for node in range(len(graph)):
        read = graph.predecessors_of(node)
        before.append(set(read).union(*(before[p] for p in read)))
    sizes = [0] * len(graph.types)
    for node in set(range(len(graph))) - done:
        own = {p for p in before[node] if graph.type_of[p] == graph.type_of[node]}
        sizes[graph.type_of[node]] += own <= done
    return sizes


@pytest.mark.parametrize("seed", range(40))
def test_ready_nodes_and_frontiers_are_as_defined(seed):
    rng = np.random.default_rng(seed)
    graph = random_graph(rng, 40, 4, seed % 2 == 1) if seed else lattice_lstm(rng, 1)
    execution, counter = Execution(graph), Frontier(graph).counter()
    done: set[int] = set()
    while types := execution.ready_types():
        left = set(range(len(graph))) - done
        ready = {v for v in left if set(graph.predecessors_of(v)) <= done}
        assert {v for nodes in execution.ready for v in nodes} == ready
        assert counter.sizes == frontier_by_force(graph, done)
        chosen = types[int(rng.integers(len(types)))]
        nodes = execution.run(chosen)
        counter.ran(chosen, nodes)
        done.update(nodes)
    check_schedule(execution.schedule())


def test_a_batch_has_the_order_of_the_one_that_it_reads():
    graph = minibatch_graph(["a", "b"], [0, 0, 1, 1], [[], [], [1], [0]])
    execution = Execution(graph)
    assert execution.run(0) == [0, 1] and execution.run(1) == [3, 2]


def test_an_unbatchable_node_runs_alone():
    graph = minibatch_graph(["a"], [0, 0], [[], []], unbatchable=["a"])
    execution = Execution(graph)
    assert execution.run(0) == [0] and execution.run(0) == [1]


@pytest.mark.parametrize(
    ("batches", "message"),
    [
        ([(0, [0, 3]), (1, [1])], "node 2 runs 0 times"),
        ([(0, [0, 3]), (1, [1]), (0, [2]), (0, [2])], "node 2 runs 2 times"),
        ([(0, [0, 1, 3]), (0, [2])], "batch 0 has nodes of several types"),
        ([(0, [0, 2, 3]), (1, [1])], "node 2 runs before node 1 has run"),
    ],
)
def test_wrong_schedules_are_refused(batches, message):
    check_schedule(schedule_of(CHAIN, [(0, [0, 3]), (1, [1]), (0, [2])]))
    with pytest.raises(GraphError, match=message):
        check_schedule(schedule_of(CHAIN, batches))


def test_unbatchable_nodes_in_one_batch_are_refused():
    graph = minibatch_graph(["a"], [0, 0], [[], []], unbatchable=["a"])
    schedule = schedule_of(graph, [(0, [0, 1])])
    assert repr(schedule) == "Schedule(2 nodes in 1 batch)"
    with pytest.raises(GraphError, match="batch 0 has several nodes of an unbatchable type"):
        check_schedule(schedule)


def test_long_chains_take_time_and_memory_in_proportion():
    """Each node of one type stands between nodes of the other one."""
    size = 20_000
    graph = minibatch_graph(["a", "b"], np.arange(size) % 2, [[], *([v] for v in range(size - 1))])
    frontier = Frontier(graph)
    assert len(frontier.counter()._missing) == 2 * size - 2
