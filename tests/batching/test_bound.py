"""bound <= optimum <= every policy on random graphs; the optimum against a search of all sets."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from relaxlab.batching.bound import SearchLimit, batch_bound, optimum
from relaxlab.batching.execution import check_schedule
from relaxlab.batching.graph import Graph, minibatch_graph
from relaxlab.batching.policies import POLICIES
from relaxlab.testing.minibatches import random_graph

GRAPHS = 150


def batches_by_force(graph: Graph) -> int:
    """The fewest batches, over all subsets of the ready nodes of each type."""
    reads = [set(graph.predecessors_of(v)) for v in range(len(graph))]

    @cache
    def least(done: frozenset[int]) -> int:
        left = set(range(len(graph))) - done
        ready = [v for v in left if reads[v] <= done]
        found = [0] if not left else []
        for of_type in range(len(graph.types)):
            nodes = [v for v in ready if graph.type_of[v] == of_type]
            for chosen in range(1, 1 << len(nodes)):
                batch = frozenset(v for i, v in enumerate(nodes) if chosen >> i & 1)
                if len(batch) == 1 or of_type not in graph.unbatchable:
                    found.append(1 + least(done | batch))
        return min(found)

    return least(frozenset())


@pytest.mark.parametrize("seed", range(25))
def test_the_optimum_is_that_of_a_search_over_everything(seed):
    rng = np.random.default_rng(seed)
    graph = random_graph(rng, int(rng.integers(1, 8)), 3, seed % 3 == 0)
    schedule = optimum(graph)
    check_schedule(schedule)
    assert len(schedule) == batches_by_force(graph)


def test_bound_optimum_and_policies_are_in_order():
    sums = {"bound": 0, "optimum": 0, **dict.fromkeys(POLICIES, 0)}
    for seed in range(GRAPHS):
        rng = np.random.default_rng(seed)
        graph = random_graph(rng, int(rng.integers(1, 12)), 3, seed % 4 == 0)
        best = optimum(graph)
        found = {name: len(policy.schedule(graph)) for name, policy in POLICIES.items()}
        assert batch_bound(graph) <= len(best) <= min(found.values()), f"seed {seed}"
        for name, count in (found | {"bound": batch_bound(graph), "optimum": len(best)}).items():
            sums[name] += count
    assert sums["ratio"] <= 1.01 * sums["optimum"] and sums["critical"] <= 1.01 * sums["optimum"]


def test_the_bound_is_not_always_reached():
    # a then b in one instance, b then a in another.
    graph = minibatch_graph(["a", "b"], [0, 1, 1, 0], [[], [0], [], [2]])
    assert batch_bound(graph) == 2 and len(optimum(graph)) == 3


def test_unbatchable_nodes_count_one_by_one():
    graph = minibatch_graph(["a", "b"], [0, 1, 1, 0], [[], [], [], [0]], unbatchable=["b"])
    assert batch_bound(graph) == 4 and len(optimum(graph)) == 4


def test_a_search_that_is_too_long_is_refused():
    graph = random_graph(np.random.default_rng(0), 60, 6)
    with pytest.raises(SearchLimit, match="takes more than 50 sets of nodes to find: ask for its"):
        optimum(graph, most_states=50)


def test_no_nodes():
    graph = minibatch_graph(["a"], [], [])
    assert batch_bound(graph) == 0 and len(optimum(graph)) == 0
