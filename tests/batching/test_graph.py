"""The dataflow graph of a minibatch: arrays, records of handles, paths."""

from __future__ import annotations

import numpy as np
import pytest

from relaxlab.batching.graph import (
    Graph,
    GraphError,
    depths_of,
    graph_of_records,
    minibatch_graph,
    most_on_paths,
    reversed_graph,
)
from relaxlab.testing.minibatches import random_graph


def diamond() -> Graph:
    #   0 (a) -> 1 (b), 2 (a) -> 3 (b)
    return minibatch_graph(["a", "b"], [0, 1, 0, 1], [[], [0], [0], [1, 2]])


def test_edges_are_known_in_both_directions():
    graph = diamond()
    assert len(graph) == 4 and graph.predecessors_of(3) == [1, 2]
    assert graph.successors.tolist() == [1, 2, 3, 3]
    assert graph.succ_starts.tolist() == [0, 2, 3, 4, 4]
    assert repr(graph) == "Graph(4 nodes, 4 edges, types: a, b)"


def test_depths_and_paths():
    graph = diamond()
    assert depths_of(graph).tolist() == [0, 1, 1, 2]
    assert most_on_paths(graph).tolist() == [[1, 0], [1, 1], [2, 0], [2, 2]]


def paths_by_force(graph: Graph, node: int) -> np.ndarray:
    own = np.eye(len(graph.types), dtype=int)[graph.type_of[node]]
    before = [paths_by_force(graph, p) for p in graph.predecessors_of(node)]
    return own + (np.max(before, axis=0) if before else 0)


def test_paths_of_random_graphs():
    for seed in range(50):
        rng = np.random.default_rng(seed)
        graph = random_graph(rng, int(rng.integers(1, 15)), 3)
        most = most_on_paths(graph)
        expected = [paths_by_force(graph, v) for v in range(len(graph))]
        np.testing.assert_array_equal(most, expected, err_msg=f"seed {seed}")
        back = reversed_graph(graph)
        last = len(graph) - 1
        for node in range(len(graph)):
            readers = graph.successors[graph.succ_starts[node] : graph.succ_starts[node + 1]]
            assert sorted(back.predecessors_of(last - node)) == sorted(last - readers), seed


def test_records_become_edges_once_each():
    # Handles 0 and 1 are inputs, 2 and 3 results of record 0, 4 of record 1.
    producer = [-1, -1, 0, 0, 1]
    graph = graph_of_records(["a"], [0, 0, 0], [0, 2, 5, 7], [0, 1, 2, 3, 1, 4, 2], producer)
    assert [graph.predecessors_of(v) for v in range(3)] == [[], [0], [1, 0]]
    with pytest.raises(GraphError, match="handle 9, at place 1 of the records, is none of the 5"):
        graph_of_records(["a"], [0], [0, 2], [0, 9], producer)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((["a"], [0, 0], [[1], []]), "node 0 reads node 1: nodes read earlier ones only"),
        ((["a"], [0], [[0]]), "node 0 reads node 0"),
        ((["a"], [0, 0], [[], [-1]]), "node 1 reads node -1"),
        ((["a"], [1], [[]]), "node 0 is of type 1, of 1 types"),
        ((["a", "a"], [1], [[]]), "two types have the same name: a, a"),
        ((["a"], [0], [[], []]), "from 0 to 0, the number of edges, in 2 numbers"),
        ((["a"], [0], [[]], ["b"]), "no type is called 'b'; the types are: a"),
    ],
)
def test_what_is_no_graph_is_refused(arguments, message):
    with pytest.raises(GraphError, match=message):
        minibatch_graph(*arguments)


def test_starts_that_fall_are_refused():
    starts, read = np.array([0, 1, 0, 1]), np.zeros(1, np.int32)
    with pytest.raises(GraphError, match="starts falls at node 1"):
        Graph(("a",), np.zeros(3, np.int32), starts, read)


def test_a_graph_of_no_nodes():
    graph = minibatch_graph([], [], [])
    assert len(graph) == 0 and depths_of(graph).shape == (0,)
    assert most_on_paths(graph).shape == (0, 0)
