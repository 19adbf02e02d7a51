"""PQ-trees against all permutations of their leaves."""

from __future__ import annotations

import os
from itertools import permutations
from random import Random

import pytest

from relaxlab.batching.pq_tree import (
    Leaf,
    NoOrder,
    PNode,
    QNode,
    Tree,
    contiguous,
    frontier,
    reduced,
    universal,
)
from tests.batching.tree_orders import count_orders, orders

SEQUENCES = 100


def is_contiguous(order: tuple[int, ...], wanted: frozenset[int]) -> bool:
    places = [order.index(name) for name in wanted]
    return max(places) - min(places) == len(wanted) - 1


def test_reductions_keep_exactly_the_orders_that_are_wanted():
    seed = int(os.environ.get("RELAXLAB_SEED", Random().randrange(1 << 30)))
    print(f"seed {seed}")
    random = Random(seed)
    refused = 0
    for _ in range(SEQUENCES):
        size = random.choice((2, 3, 4, 5, 5, 6, 6, 7))
        tree: Tree = universal(range(size))
        left = set(permutations(range(size)))
        for _ in range(random.randint(1, 6)):
            wanted = frozenset(random.sample(range(size), random.randint(1, size)))
            after = {order for order in left if is_contiguous(order, wanted)}
            try:
                tree = reduced(tree, wanted)
            except NoOrder:
                assert not after
                refused += 1
                break
            found = list(orders(tree))
            assert set(found) == after and len(found) == len(after) == count_orders(tree)
            assert tuple(frontier(tree)) in after
            left = after
    assert 0 < refused < SEQUENCES


def test_sets_that_every_order_keeps_contiguous():
    random = Random(5)
    for _ in range(60):
        tree: Tree = universal(range(5))
        for _ in range(3):
            wanted = frozenset(random.sample(range(5), random.randint(2, 4)))
            try:
                tree = reduced(tree, wanted)
            except NoOrder:
                break
        within = frozenset(random.sample(range(5), 4))
        kept = {
            frozenset(n for n in range(5) if bits >> n & 1) for bits in range(32)
        }  # fmt: skip
        expected = {
            s for s in kept
            if len(s) > 1 and s <= within and all(is_contiguous(o, s) for o in orders(tree))
        }  # fmt: skip
        assert contiguous(tree, within) == expected


def test_forms_of_trees():
    tree = reduced(reduced(universal(range(4)), frozenset((0, 1))), frozenset((1, 2)))
    assert tree == PNode((Leaf(3), QNode((Leaf(0), Leaf(1), Leaf(2)))))
    with pytest.raises(NoOrder):
        reduced(tree, frozenset((1, 3)))
    assert universal([4]) == Leaf(4)
