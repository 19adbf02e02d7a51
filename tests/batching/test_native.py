"""Compiled schedules against the policies in Python, batch by batch and lane by lane."""

from __future__ import annotations

import os
from random import Random

import numpy as np
import pytest

from relaxlab.batching.automaton import ENCODINGS, Automaton, Entry
from relaxlab.batching.bound import batch_bound
from relaxlab.batching.execution import Schedule, check_schedule, run_by
from relaxlab.batching.graph import Graph, minibatch_graph, most_on_paths
from relaxlab.batching.policies import POLICIES
from relaxlab.testing.minibatches import WORKLOADS, random_graph
from tests.batching.choosers import reference_schedule

GRAPHS = 120


@pytest.fixture(scope="module")
def graphs() -> list[Graph]:
    seed = int(os.environ.get("RELAXLAB_SEED", Random().randrange(1 << 30)))
    print(f"seed {seed}")
    rng = np.random.default_rng(seed)
    drawn = [random_graph(rng, int(rng.integers(0, 60)), 5, i % 3 == 0) for i in range(GRAPHS)]
    return drawn + [make(rng, 3) for make in WORKLOADS.values()]


def same(one: Schedule, other: Schedule) -> bool:
    check_schedule(one)
    fields = ("types", "starts", "nodes")
    return all(getattr(one, f).tolist() == getattr(other, f).tolist() for f in fields)


@pytest.mark.parametrize("policy", ["agenda", "ratio", "critical"])
def test_policies(graphs, policy):
    for graph in graphs:
        assert same(POLICIES[policy].schedule(graph), reference_schedule(graph, policy)), graph


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_automata(graphs, encoding):
    """With tables that have an action for some of the states."""
    random = Random(3)
    for graph in graphs:
        kinds = range(len(graph.types))
        states = {tuple(t for t in kinds if random.random() < 0.5) for _ in range(20)} - {()}
        if encoding in ("sort", "max"):
            states = {tuple(random.sample(s, len(s))) for s in states}
        if encoding == "max":
            states = {(s[0], *sorted(s)) for s in states}
        table = {s: Entry({random.choice(s): 0.0}, 1) for s in sorted(states)}
        automaton = Automaton(graph.types, encoding, table)
        expected = run_by(graph, automaton.chooser(graph))
        assert same(automaton.schedule(graph), expected), graph


def test_bounds(graphs):
    for graph in graphs:
        most = most_on_paths(graph).max(axis=0, initial=0)
        alone = np.isin(graph.type_of, sorted(graph.unbatchable)).sum()
        batchable = [t for t in range(len(graph.types)) if t not in graph.unbatchable]
        assert batch_bound(graph) == alone + most[batchable].sum()


def test_many_types_and_a_long_chain():
    """More types than a word has bits; more nodes than a stack of calls could hold."""
    kinds, size = 100, 30_000
    names = [f"t{t}" for t in range(kinds)]
    chain = [[], *([v] for v in range(size - 1))]
    graph = minibatch_graph(names, np.arange(size) % kinds, chain)
    for policy in POLICIES.values():
        assert len(policy.schedule(graph)) == batch_bound(graph) == size
