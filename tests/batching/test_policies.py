"""Policies: valid schedules, the batches that each is known for, none worse than `agenda`."""

from __future__ import annotations

import numpy as np
import pytest

from relaxlab.batching.bound import batch_bound
from relaxlab.batching.execution import check_schedule
from relaxlab.batching.graph import Graph, minibatch_graph
from relaxlab.batching.policies import (
    POLICIES,
    Fewest,
    PolicyError,
    policy_called,
    schedule_batches,
)
from relaxlab.testing.minibatches import WORKLOADS, random_graph


@pytest.fixture(scope="module")
def minibatches() -> dict[str, list[Graph]]:
    rng = np.random.default_rng(2)
    return {name: [make(rng, 32) for _ in range(2)] for name, make in WORKLOADS.items()}


@pytest.fixture(scope="module")
def batches(minibatches) -> dict[str, dict[str, int]]:
    """Batches, in sum, by model and policy, and the bound."""
    found: dict[str, dict[str, int]] = {}
    for name, graphs in minibatches.items():
        found[name] = {"bound": sum(map(batch_bound, graphs))}
        for policy in POLICIES.values():
            schedules = [policy.schedule(graph) for graph in graphs]
            for schedule in schedules:
                check_schedule(schedule)
            found[name][policy.name] = sum(map(len, schedules))
    return found


def test_policies_of_trees(batches):
    found = batches["TreeLSTM"]
    assert found["ratio"] == found["critical"] == found["bound"] < found["agenda"] < found["depth"]
    found = batches["TreeLSTM, two types"]
    assert found["critical"] <= 1.35 * found["bound"]
    assert found["critical"] <= found["ratio"] < found["agenda"] < found["depth"]


def test_policies_of_chains(batches):
    found = batches["BiLSTM tagger"]
    assert found["ratio"] == found["critical"] == found["bound"]
    assert 1.2 * found["bound"] < found["agenda"] < found["depth"]


def test_policies_of_lattices(batches):
    found = batches["lattice LSTM"]
    assert found["critical"] <= 0.58 * found["agenda"]
    assert found["critical"] < found["ratio"] <= 0.7 * found["agenda"]
    assert found["agenda"] < found["depth"]


def test_depth_counts_pairs_of_depth_and_type():
    graph = minibatch_graph(["a", "b"], [0, 1, 0, 1, 1], [[], [0], [], [2, 1], [0]])
    schedule = policy_called("depth").schedule(graph)
    assert [(t, nodes.tolist()) for t, nodes in schedule] == [(0, [0, 2]), (1, [1, 4]), (1, [3])]


def test_agenda_takes_the_smallest_mean_depth():
    # Depths of a: 0, 3, on average 1.5; of b: 0, 1, 2. With the first b run it is the other way.
    graph = minibatch_graph(["a", "b"], [0, 1, 1, 1, 0], [[], [], [1], [2], [3]])
    order = [t for t, _ in policy_called("agenda").schedule(graph)]
    assert order == [1, 0, 1, 1, 0]


def test_a_batch_that_lowers_the_bound_is_taken_before_a_larger_part_of_a_frontier():
    # Of a, a chain of three is ready and two short ones are not; of b, three nodes are, and a chain
    # of two that comes last is not.
    types = [0, 0, 0, 1, 1, 1, 0, 0, 1, 1]
    reads = [[], [0], [1], [], [], [], [3], [4], [2], [8]]
    graph = minibatch_graph(["a", "b"], types, reads)
    first = {name: int(policy_called(name).schedule(graph).types[0]) for name in POLICIES}
    assert first["ratio"] == 1 and first["critical"] == 0


@pytest.mark.parametrize("policy", [*POLICIES.values(), Fewest(tuple(POLICIES.values()))])
def test_unbatchable_nodes_are_drained_first(policy):
    graph = minibatch_graph(["a", "b"], [0, 1, 1, 0], [[], [], [], [1, 2]], unbatchable=["b"])
    schedule = policy.schedule(graph)
    check_schedule(schedule)
    if policy.name != "depth":
        assert [(t, n.tolist()) for t, n in schedule][:2] == [(1, [1]), (1, [2])]


def test_no_schedule_has_more_batches_than_agenda(minibatches):
    for seed in range(30):
        rng = np.random.default_rng(seed)
        graph = random_graph(rng, int(rng.integers(1, 60)), 4, seed % 3 == 0)
        agenda = len(POLICIES["agenda"].schedule(graph))
        for policy in POLICIES.values():
            schedule = schedule_batches(graph, policy)
            check_schedule(schedule)
            found = min(agenda, len(policy.schedule(graph)))
            assert len(schedule) == found, f"{policy.name}, seed {seed}"


def test_the_same_graph_has_the_same_schedule(minibatches):
    (graph, _) = minibatches["lattice LSTM"]
    for policy in POLICIES.values():
        one, other = policy.schedule(graph), policy.schedule(graph)
        assert one.nodes.tolist() == other.nodes.tolist()


def test_a_graph_of_no_nodes_has_no_batches():
    graph = minibatch_graph(["a"], [], [])
    assert [len(p.schedule(graph)) for p in POLICIES.values()] == [0] * len(POLICIES)
    assert len(schedule_batches(graph)) == 0


def test_a_policy_that_is_not_there():
    graph = minibatch_graph(["a"], [0], [[]])
    with pytest.raises(PolicyError, match="no policy is called 'fold': there are depth, agenda"):
        schedule_batches(graph, "fold")
    with pytest.raises(PolicyError, match="no policies to choose from"):
        Fewest(()).schedule(graph)
