"""Learning: the published update by hand, policies on minibatches that were not trained on."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.batching.automaton import StateReader
from relaxlab.batching.bound import batch_bound
from relaxlab.batching.execution import Frontier, check_schedule, run_by
from relaxlab.batching.graph import GraphError, minibatch_graph
from relaxlab.batching.learn import Learned, _Explorer
from relaxlab.batching.policies import POLICIES, schedule_batches
from relaxlab.testing.minibatches import bilstm_tagger, lattice_lstm, tree_lstm_two_types


def learned(make, instances: int, episodes: int) -> tuple[Learned, list]:
    rng = np.random.default_rng(3)
    graphs = [make(rng, instances) for _ in range(5)]
    return rl.learn_policy(graphs[:4], episodes=episodes), graphs[4:]


@pytest.fixture(scope="module")
def lattices() -> tuple[Learned, list]:
    return learned(lattice_lstm, 12, 50)


def batches(policy, graphs) -> int:
    schedules = [policy.schedule(graph) for graph in graphs]
    for schedule in schedules:
        check_schedule(schedule)
    return sum(map(len, schedules))


def test_a_tagger_is_batched_as_well_as_the_bound_allows():
    found, held = learned(bilstm_tagger, 8, 50)
    assert batches(found.policy, held) <= 1.02 * sum(map(batch_bound, held))
    assert found.checks[found.policy.encoding][-1].batches <= 1.01 * found.bound


def test_trees_of_two_types_need_little_more_than_the_bound():
    found, held = learned(tree_lstm_two_types, 16, 50)
    assert batches(found.policy, held) <= 1.35 * sum(map(batch_bound, held))
    assert found.held_out["fsm base"] > found.held_out["fsm critical"]


def test_lattices_need_far_less_than_by_agenda(lattices):
    found, held = lattices
    assert batches(found.policy, held) <= 0.66 * batches(POLICIES["agenda"], held)
    counts = found.held_out
    assert found.policy.encoding == "critical" and len(found.policy.table) <= 16
    assert counts["bound"] <= counts["fsm critical"] < counts["ratio"] < counts["agenda"]
    assert str(found).splitlines()[1].split() == ["bound", str(counts["bound"])]


def test_a_learned_policy_never_takes_more_batches_than_agenda(lattices):
    found, _ = lattices
    for seed in range(20):
        graph = lattice_lstm(np.random.default_rng(seed), 1)
        agenda = len(POLICIES["agenda"].schedule(graph))
        assert len(schedule_batches(graph, found.policy)) <= agenda, f"seed {seed}"


def test_learning_is_repeatable():
    graphs = [lattice_lstm(np.random.default_rng(seed), 2) for seed in range(3)]
    one, other = (rl.learn_policy(graphs, episodes=20) for _ in range(2))
    assert one.policy.to_json() == other.policy.to_json() and one.checks == other.checks
    different = rl.learn_policy(graphs, episodes=20, seed=1, encodings=[one.policy.encoding])
    assert different.policy.to_json() != one.policy.to_json()


def test_values_move_towards_what_followed():
    """The state of a and b, in which a is half of its frontier, then b alone, then a alone."""
    graph = minibatch_graph(["a", "b"], [0, 1, 0], [[], [], [1]])
    values: dict = {}
    counter = Frontier(graph).counter()
    explorer = _Explorer(values, StateReader("base", None), counter, Random(0), 0.0)
    schedule = run_by(graph, explorer)
    assert schedule.types.tolist() == [0, 1, 0]
    assert explorer.rewards == [-0.5, 0.0, 0.0]
    explorer.learn()
    assert values[0, 1] == {0: pytest.approx(0.4 * -0.5), 1: 0.0}
    assert values[1,] == {1: 0.0} and values[0,] == {0: 0.0}


def test_the_value_after_ten_steps_counts():
    """All steps have one state; nothing follows the last ten."""
    size = 14
    graph = minibatch_graph(["a"], [0] * size, [[], *([v] for v in range(size - 1))])
    values = {(0,): {0: -3.0}}
    counter = Frontier(graph).counter()
    explorer = _Explorer(values, StateReader("base", None), counter, Random(0), 0.0)
    run_by(graph, explorer)
    explorer.learn()
    value = -3.0
    for step in range(size):
        outcome = value if step + 10 < size else 0.0
        value += 0.4 * (outcome - value)
    assert values[0,][0] == pytest.approx(value)


def test_too_little_to_learn_from():
    a, b = (minibatch_graph([name], [0], [[]]) for name in "ab")
    with pytest.raises(GraphError, match="1 minibatch: learning takes two at least"):
        rl.learn_policy([a])
    with pytest.raises(GraphError, match="minibatch 1 has the types b, the first one a"):
        rl.learn_policy([a, b])
    with pytest.raises(GraphError, match="no encoding is called 'best'; there are base, max"):
        rl.learn_policy([a, a], encodings=["best"])
    with pytest.raises(GraphError, match="no encoding is called ''"):
        rl.learn_policy([a, a], encodings=[])
    assert len(rl.learn_policy([a, a]).policy.schedule(a)) == 1
