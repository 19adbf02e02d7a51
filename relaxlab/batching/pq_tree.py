"""PQ-trees: all orders of some leaves in which given sets of them are contiguous.

A P-node's children may be put into any order, a Q-node's into the one given or its reverse. Trees
and their reduction are those of Booth and Lueker, *Testing for the Consecutive Ones Property,
Interval Graphs, and Graph Planarity Using PQ-Tree Algorithms* (1976), as functions on values
instead of templates on a linked structure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Leaf:
    """A leaf."""

    name: int

    @property
    def leaves(self) -> frozenset[int]:
        """The leaf alone."""
        return frozenset((self.name,))


@dataclass(frozen=True, slots=True)
class PNode:
    """Children, two at least, in any order. Each is contiguous."""

    children: tuple[Tree, ...]
    leaves: frozenset[int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "leaves", _leaves(self.children))


@dataclass(frozen=True, slots=True)
class QNode:
    """Children, three at least, in this order or its reverse. Each is contiguous."""

    children: tuple[Tree, ...]
    leaves: frozenset[int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "leaves", _leaves(self.children))


Tree: TypeAlias = Leaf | PNode | QNode


def _leaves(children: Iterable[Tree]) -> frozenset[int]:
    return frozenset().union(*(child.leaves for child in children))


class NoOrder(Exception):
    """No order of the tree has all leaves of a set side by side."""


def universal(names: Iterable[int]) -> Tree:
    """Return the tree of all orders of some leaves, one at least."""
    return _group([Leaf(name) for name in names])


def reduced(tree: Tree, wanted: frozenset[int]) -> Tree:
    """Return the tree of those orders in which the wanted leaves are contiguous.

    Raises NoOrder where there are none.
    """
    if _is_empty(tree, wanted) or tree.leaves <= wanted:
        return tree
    assert not isinstance(tree, Leaf), "a leaf is wanted or not"
    touched = [child for child in tree.children if not _is_empty(child, wanted)]
    if len(touched) == 1:
        inside = reduced(touched[0], wanted)
        children = tuple(inside if c is touched[0] else c for c in tree.children)
        return PNode(children) if isinstance(tree, PNode) else QNode(children)
    if isinstance(tree, QNode):
        return _q_node(list(_spliced(tree.children, wanted)))
    empty, half, full = _parted(tree.children, wanted)
    if len(half) > 2:
        raise NoOrder
    middle = _group(full) if not half else _q_node([
        *_half(half[0], wanted),
        *([_group(full)] if full else []),
        *(_half(half[1], wanted)[::-1] if len(half) == 2 else []),
    ])  # fmt: skip
    return _group([*empty, middle])


def _half(tree: Tree, wanted: frozenset[int]) -> list[Tree]:
    """Return a node that is partly wanted as pieces in an order, the unwanted ones first."""
    assert not isinstance(tree, Leaf), "a leaf is wanted or not"
    if isinstance(tree, PNode):
        empty, half, full = _parted(tree.children, wanted)
        if len(half) > 1:
            raise NoOrder
        return [
            *([_group(empty)] if empty else []),
            *(_half(half[0], wanted) if half else []),
            *([_group(full)] if full else []),
        ]
    for children in (tree.children, tree.children[::-1]):
        ranks = [_rank(child, wanted) for child in children]
        if all(a <= b for a, b in pairwise(ranks)) and ranks.count(1) <= 1:
            return [
                piece
                for child, rank in zip(children, ranks, strict=True)
                for piece in (_half(child, wanted) if rank == 1 else [child])
            ]
    raise NoOrder


def _spliced(children: Sequence[Tree], wanted: frozenset[int]) -> Iterator[Tree]:
    """Yield a Q-node's children with the partly wanted ones, which may stand at either end of the
    wanted ones, taken apart."""
    ranks = [_rank(child, wanted) for child in children]
    first = next(i for i, rank in enumerate(ranks) if rank)
    last = len(ranks) - next(i for i, rank in enumerate(reversed(ranks)) if rank) - 1
    if any(rank < 2 for rank in ranks[first + 1 : last]):
        raise NoOrder
    for place, (child, rank) in enumerate(zip(children, ranks, strict=True)):
        pieces = _half(child, wanted) if rank == 1 else [child]
        yield from pieces if place == first else reversed(pieces)


def _rank(tree: Tree, wanted: frozenset[int]) -> int:
    """0 for a tree without wanted leaves, 1 with some, 2 if all are wanted."""
    return 0 if _is_empty(tree, wanted) else 2 if tree.leaves <= wanted else 1


def _is_empty(tree: Tree, wanted: frozenset[int]) -> bool:
    return tree.leaves.isdisjoint(wanted)


def _parted(
    children: Iterable[Tree], wanted: frozenset[int]
) -> tuple[list[Tree], list[Tree], list[Tree]]:
    """Return the children without wanted leaves, those with some, and those that are all wanted."""
    parts: tuple[list[Tree], list[Tree], list[Tree]] = ([], [], [])
    for child in children:
        parts[_rank(child, wanted)].append(child)
    return parts


def _group(nodes: Sequence[Tree]) -> Tree:
    return nodes[0] if len(nodes) == 1 else PNode(tuple(nodes))


def _q_node(pieces: Sequence[Tree]) -> Tree:
    """Return pieces in an order: two of them are a P-node, which has the same orders."""
    return QNode(tuple(pieces)) if len(pieces) > 2 else _group(pieces)


def contiguous(tree: Tree, within: frozenset[int]) -> set[frozenset[int]]:
    """Return sets of two leaves and more, of those in `within`, that every order of the tree keeps
    contiguous: those of nodes, and of neighbouring children of Q-nodes."""
    if tree.leaves.isdisjoint(within) or isinstance(tree, Leaf):
        return set()
    found = {tree.leaves}
    for child in tree.children:
        found |= contiguous(child, within)
    if isinstance(tree, QNode):
        sets = [child.leaves for child in tree.children]
        for start in range(len(sets)):
            together = sets[start]
            for other in sets[start + 1 :]:
                together |= other
                found.add(together)
    return {leaves for leaves in found if leaves <= within}


def frontier(tree: Tree) -> list[int]:
    """Return the leaves in the order in which the tree is written."""
    if isinstance(tree, Leaf):
        return [tree.name]
    return [name for child in tree.children for name in frontier(child)]
