"""All orders of a PQ-tree, one by one."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations, product
from math import factorial, prod

from relaxlab.batching.pq_tree import Leaf, PNode, Tree


def count_orders(tree: Tree) -> int:
    """Return the number of orders of a tree."""
    if isinstance(tree, Leaf):
        return 1
    own = factorial(len(tree.children)) if isinstance(tree, PNode) else 2
    return own * prod(map(count_orders, tree.children))


def orders(tree: Tree) -> Iterator[tuple[int, ...]]:
    """Yield every order of a tree once."""
    if isinstance(tree, Leaf):
        yield (tree.name,)
        return
    ways = permutations(tree.children) if isinstance(tree, PNode) else (
        tree.children, tree.children[::-1]
    )  # fmt: skip
    for children in ways:
        for parts in product(*map(lambda child: list(orders(child)), children)):
            yield tuple(name for part in parts for name in part)
