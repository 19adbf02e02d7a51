"""The structures of workloads are distributed like those of the data that they stand for."""

from __future__ import annotations

import numpy as np

from relaxlab.batching.graph import depths_of
from relaxlab.models.dynamic.inputs import sentence_leaves
from relaxlab.testing.minibatches import (
    WORKLOADS,
    bilstm_tagger,
    draw_tree,
    lattice_lstm,
    tree_lstm,
)


def test_trees_are_as_wide_and_high_as_a_treebanks():
    rng = np.random.default_rng(0)
    leaves = [sentence_leaves(rng) for _ in range(1000)]
    assert abs(np.mean(leaves) - 19.2) < 1 and abs(np.std(leaves) - 9.2) < 0.8
    heights: dict[int, list[int]] = {}
    for count in leaves:
        tree = draw_tree(rng, count)
        assert len(tree) == 2 * count - 1 and tree.count(None) == count
        height: list[int] = []
        for children in tree:
            height.append(0 if children is None else 1 + max(height[c] for c in children))
        heights.setdefault(count, []).append(height[-1])
    assert abs(np.mean([h for of_size in heights.values() for h in of_size]) - 9.9) < 0.5
    for low, expected in ((5, 5.1), (15, 9.5), (25, 12.6), (35, 15.2)):
        among = [h for n in range(low, low + 5) for h in heights.get(n, [])]
        assert abs(np.mean(among) - expected) < 1, low


def test_a_tree_of_one_word():
    assert draw_tree(np.random.default_rng(0), 1) == [None]


def test_graphs_have_the_cells_of_their_models():
    rng = np.random.default_rng(0)
    graph = tree_lstm(rng, 8)
    leaves, inner, outputs = np.bincount(graph.type_of)
    assert outputs == 8 and inner == leaves - 8
    graph = bilstm_tagger(rng, 8)
    assert len(set(np.bincount(graph.type_of))) == 1 and len(graph.types) == 6
    graph = lattice_lstm(rng, 32)
    characters, words, sums, tags = np.bincount(graph.type_of)
    assert tags == characters and 0.4 < sums / characters < words / characters < 0.6
    assert depths_of(graph).max() > 100


def test_the_same_seed_draws_the_same():
    for make in WORKLOADS.values():
        one, other = (make(np.random.default_rng(7), 4) for _ in range(2))
        assert one.predecessors.tolist() == other.predecessors.tolist()
        assert one.type_of.tolist() == other.type_of.tolist()
