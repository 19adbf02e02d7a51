"""An order of a block's variables in memory with which batched kernels copy little.

The lanes of a batched kernel are kernels of the block that run as one. It finds an operand where it
lies if its variables, one per lane, are side by side in the order of the lanes, else it copies them
together; likewise its results. The use of PQ-trees for this is ED-Batch's (Chen and others, 2023).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from relaxlab.batching.bound import SearchLimit, optimum
from relaxlab.batching.execution import Schedule
from relaxlab.batching.graph import GraphError, minibatch_graph
from relaxlab.batching.policies import POLICIES
from relaxlab.batching.pq_tree import (
    Leaf,
    NoOrder,
    PNode,
    QNode,
    Tree,
    contiguous,
    reduced,
    universal,
)
from relaxlab.ir.arguments import names_arguments
from relaxlab.ir.brief import Brief

Permutation: TypeAlias = tuple[int, ...]
Order: TypeAlias = tuple[int, ...]
"""Numbers of variables as they lie in memory."""


@dataclass(frozen=True, slots=True)
class BlockKernel:
    """A kernel of a block, whose result is the variable of its own number.

    of_type: kernels of one type run as one. operands: numbers of variables, None for what is not
    the block's own: inputs and weights. bytes: of the result and of each operand.
    """

    name: str
    of_type: str
    operands: tuple[int | None, ...]
    bytes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Operand:
    """Variables that a batched kernel wants side by side, one per lane. bytes: of one of them."""

    name: str
    lanes: tuple[int, ...]
    bytes: int

    @property
    def bytes_of_all(self) -> int:
        """Bytes that are copied where they do not lie side by side."""
        return self.bytes * len(self.lanes)


@dataclass(frozen=True, slots=True)
class Pattern:
    """A batched kernel: its results and those of its operands that are variables of the block, each
    a different one. All have the same lanes, two at least."""

    name: str
    operands: tuple[Operand, ...]

    @property
    def bytes(self) -> int:
        """Bytes of all operands."""
        return sum(operand.bytes_of_all for operand in self.operands)


@dataclass(frozen=True, slots=True)
class Step:
    """An attempt to place an operand of a pattern. trees: after each reduction, with the variables
    that were to be contiguous; refused: why it is copied instead, "" if it is not."""

    pattern: Pattern
    operand: Operand
    trees: tuple[tuple[frozenset[int], Tree], ...]
    refused: str


@dataclass(frozen=True, slots=True, repr=False)
class Layout(Brief):
    """The order of a block's variables, with the attempts that led to it. tree: all orders with
    which the operands placed are contiguous. Sums of bytes are those copied per row."""

    names: tuple[str, ...]
    patterns: tuple[Pattern, ...]
    steps: tuple[Step, ...]
    tree: Tree
    order: Order

    @property
    def program_order(self) -> Order:
        """The variables in the order in which the program makes them."""
        return tuple(range(len(self.names)))

    def copies(self, order: Order) -> tuple[Operand, ...]:
        """Return the operands that are copied with an order of the variables."""
        return tuple(o for pattern in self.patterns for o in copied(pattern, order))

    def __str__(self) -> str:
        before, after = map(self.copied_bytes, (self.program_order, self.order))
        order = " ".join(self.names[variable] for variable in self.order)
        return f"{order}\n{after} bytes copied per row, {before} in the order of the program"

    def copied_bytes(self, order: Order) -> int:
        """Return the bytes that are copied with an order of the variables."""
        return sum(operand.bytes_of_all for operand in self.copies(order))


def block_patterns(kernels: Sequence[BlockKernel]) -> tuple[Schedule, tuple[Pattern, ...]]:
    """Return the batches that a block's kernels run in, and those of several lanes as patterns.

    The batches are as few as there can be, or those of the policy `critical` for blocks that are
    too large to search. Raises GraphError for operands that are not made before.
    """
    types = tuple(dict.fromkeys(kernel.of_type for kernel in kernels))
    reads = [[v for v in kernel.operands if v is not None] for kernel in kernels]
    graph = minibatch_graph(types, [types.index(k.of_type) for k in kernels], reads)
    try:
        schedule = optimum(graph, most_states=20_000)
    except SearchLimit:
        schedule = POLICIES["critical"].schedule(graph)
    found: list[Pattern] = []
    for of_type, nodes in schedule:
        lanes = nodes.tolist()
        if len(lanes) < 2:
            continue
        name = f"{types[of_type]} x {len(lanes)}"
        found.append(Pattern(name, tuple(_operands(kernels, lanes))))
    return schedule, tuple(found)


@names_arguments
def block_layout(kernels: Sequence[BlockKernel]) -> Layout:
    """Return an order of the results of a block's kernels in memory with which its batched kernels
    copy little: `layout` of `block_patterns`. Raises GraphError as these do."""
    return layout([kernel.name for kernel in kernels], block_patterns(kernels)[1])


def _operands(kernels: Sequence[BlockKernel], lanes: list[int]) -> Iterator[Operand]:
    """Yield the results, and the operands that are different variables of the block."""
    yield Operand("results", tuple(lanes), kernels[lanes[0]].bytes[0])
    for number in range(len(kernels[lanes[0]].operands)):
        read = [kernels[lane].operands[number] for lane in lanes]
        own = tuple(v for v in read if v is not None)
        if len(set(own)) == len(lanes):
            yield Operand(f"operand {number + 1}", own, kernels[lanes[0]].bytes[number + 1])


def layout(names: Sequence[str], patterns: Sequence[Pattern]) -> Layout:
    """Return an order of a block's variables with which few bytes are copied: none where that is
    possible, and never more, nor more operands, than in the order given.

    Operands are placed one at a time, those of the patterns with most bytes first; one that does
    not fit those before it is copied. Where there are such, it is tried to place each of them
    first. Raises GraphError for a pattern of other variables.
    """
    _check(names, patterns)
    operands = [(p, o) for p in sorted(patterns, key=lambda p: -p.bytes) for o in p.operands]
    best = _placed(names, patterns, operands)
    for step in [step for step in best.steps if step.refused]:
        first = (step.pattern, step.operand)
        other = _placed(names, patterns, [first, *(o for o in operands if o != first)])
        best = min(best, other, key=_cost)
    program = replace(best, order=tuple(range(len(names))))
    costs, most = _cost(best), _cost(program)
    return best if costs[0] <= most[0] and costs[1] <= most[1] else program


def _cost(found: Layout) -> tuple[int, int]:
    return found.copied_bytes(found.order), len(found.copies(found.order))


def _placed(
    names: Sequence[str], patterns: Sequence[Pattern], operands: Sequence[tuple[Pattern, Operand]]
) -> Layout:
    """Return the layout that comes of placing operands in an order."""
    tree = universal(range(len(names))) if names else Leaf(0)
    kept: dict[Pattern, list[Operand]] = {}
    steps: list[Step] = []
    for pattern, operand in operands:
        own = [*kept.get(pattern, ()), operand]
        attempt = [Pattern(p.name, tuple(o)) for p, o in {**kept, pattern: own}.items()]
        trees: list[tuple[frozenset[int], Tree]] = []
        refused = ""
        try:
            found = propagated(tree, attempt, trees)
            aligned(found, attempt)
            tree, kept[pattern] = found, own
        except NoOrder:
            refused = "its variables cannot lie side by side with those that are placed"
        except NotAligned:
            refused = "its lanes would lie in another order than those of the other operands"
        steps.append(Step(pattern, operand, tuple(trees), refused))
    order = aligned(tree, [Pattern(p.name, tuple(o)) for p, o in kept.items()]) if names else ()
    return Layout(tuple(names), tuple(patterns), tuple(steps), tree, order)


def copied(pattern: Pattern, order: Order) -> tuple[Operand, ...]:
    """Return the operands of a pattern that are copied with an order of the variables: those that
    are not contiguous, and those whose lanes lie in another order than those of most bytes."""
    place = {variable: number for number, variable in enumerate(order)}
    in_place: dict[Permutation, list[Operand]] = {}
    for operand in pattern.operands:
        places = [place[variable] for variable in operand.lanes]
        if max(places) - min(places) == len(places) - 1:
            lanes = tuple(sorted(range(len(places)), key=lambda lane: places[lane]))
            in_place.setdefault(lanes, []).append(operand)
    groups = list(in_place.values())
    stay = max(groups, key=lambda g: sum(o.bytes_of_all for o in g), default=[])
    return tuple(operand for operand in pattern.operands if operand not in stay)


def propagated(
    tree: Tree, patterns: Sequence[Pattern], trees: list[tuple[frozenset[int], Tree]]
) -> Tree:
    """Return the tree reduced by the operands of patterns, and by what follows: lanes that one
    operand of a pattern keeps contiguous have to be so in its others.

    trees: gets each set and the tree after it. Raises NoOrder.
    """
    for pattern in patterns:
        for operand in pattern.operands:
            tree = _reduced(tree, frozenset(operand.lanes), trees)
    changed = True
    while changed:
        before = len(trees)
        for pattern in patterns:
            together: set[frozenset[int]] = set()
            for operand in pattern.operands:
                lane_of = {variable: lane for lane, variable in enumerate(operand.lanes)}
                for variables in contiguous(tree, frozenset(operand.lanes)):
                    together.add(frozenset(lane_of[v] for v in variables))
            for lanes in sorted(together, key=sorted):
                for operand in pattern.operands:
                    wanted = frozenset(operand.lanes[lane] for lane in lanes)
                    tree = _reduced(tree, wanted, trees)
        changed = len(trees) > before
    return tree


def _reduced(tree: Tree, wanted: frozenset[int], trees: list[tuple[frozenset[int], Tree]]) -> Tree:
    """Return the tree reduced by a set, noted if that leaves fewer orders."""
    if len(wanted) < 2 or wanted in contiguous(tree, wanted):
        return tree
    tree = reduced(tree, wanted)
    trees.append((wanted, tree))
    return tree


class NotAligned(Exception):
    """No order of a tree has all operands of a pattern in one order of lanes."""


def aligned(tree: Tree, patterns: Sequence[Pattern]) -> Order:
    """Return an order of a tree, reduced by `propagated`, in which the operands of each pattern
    have one order of lanes. Raises NotAligned where there is none."""
    turns = _Turns()
    for pattern in patterns:
        first, *others = pattern.operands
        one = _part(tree, first)
        for operand in others:
            _match(one, _part(tree, operand), turns)
    return tuple(_read(tree, turns))


@dataclass(frozen=True, slots=True)
class _Part:
    """A node, or neighbouring children of a Q-node, with the lanes of an operand for leaves. owner:
    the leaves of the node, which tell it from all others."""

    owner: frozenset[int]
    children: tuple[Tree, ...]
    ordered: bool
    lane_of: dict[int, int]

    def lanes(self) -> list[frozenset[int]]:
        """Return the lanes of each child."""
        return [frozenset(self.lane_of[v] for v in child.leaves) for child in self.children]

    def child(self, number: int) -> _Part:
        """Return one of the children."""
        return _part_of(self.children[number], self.lane_of)


def _part_of(tree: Tree, lane_of: dict[int, int]) -> _Part:
    if isinstance(tree, Leaf):
        return _Part(tree.leaves, (), True, lane_of)
    ordered = isinstance(tree, QNode) or len(tree.children) == 2
    return _Part(tree.leaves, tree.children, ordered, lane_of)


def _part(tree: Tree, operand: Operand) -> _Part:
    """Return the part of a tree that has exactly the variables of an operand for leaves."""
    wanted = frozenset(operand.lanes)
    lane_of = {variable: lane for lane, variable in enumerate(operand.lanes)}
    while tree.leaves != wanted:
        assert not isinstance(tree, Leaf), "the tree was reduced by the operand"
        touched = [child for child in tree.children if not child.leaves.isdisjoint(wanted)]
        if len(touched) > 1:
            return _Part(tree.leaves, tuple(touched), True, lane_of)
        tree = touched[0]
    return _part_of(tree, lane_of)


def _match(one: _Part, other: _Part, turns: _Turns) -> None:
    """Have the lanes of two parts lie in the same order. Raises NotAligned where they cannot."""
    lanes, others = one.lanes(), other.lanes()
    if set(lanes) != set(others) or one.ordered != other.ordered:
        raise NotAligned
    to = tuple(others.index(child) for child in lanes)
    if not to:
        return
    if one.ordered:
        straight = tuple(range(len(to)))
        if to not in (straight, straight[::-1]):
            raise NotAligned
        turns.join(one.owner, other.owner, (0, 1) if to == straight else (1, 0))
    else:
        turns.join(one.owner, other.owner, to)
    for number, place in enumerate(to):
        _match(one.child(number), other.child(place), turns)


@dataclass(slots=True)
class _Turns:
    """Nodes whose orders depend on each other: union-find with permutations.

    A node's order is a permutation of its children; that of a Q-node or of two children is (0, 1)
    as written or (1, 0) reversed. It is the permutation kept here after the order of the parent.
    """

    _parent: dict[frozenset[int], tuple[frozenset[int], Permutation]] = field(
        default_factory=dict[frozenset[int], tuple[frozenset[int], Permutation]]
    )

    def find(self, node: frozenset[int], size: int) -> tuple[frozenset[int], Permutation]:
        """Return the root of a node, and the permutation that leads from the root's order to the
        node's; size: of the permutation."""
        turn: Permutation = tuple(range(size))
        while node in self._parent:
            node, step = self._parent[node]
            turn = _after(turn, step)
        return node, turn

    def join(self, one: frozenset[int], other: frozenset[int], to: Permutation) -> None:
        """Have the order of `other` be `to` after that of `one`. Raises NotAligned where it already
        is another."""
        root, turn = self.find(one, len(to))
        other_root, other_turn = self.find(other, len(to))
        step = _after(_inverse(other_turn), _after(to, turn))
        if root != other_root:
            self._parent[other_root] = (root, step)
        elif step != tuple(range(len(to))):
            raise NotAligned


def _after(second: Permutation, first: Permutation) -> Permutation:
    """Return the permutation that does one after the other."""
    return tuple(second[place] for place in first)


def _inverse(permutation: Permutation) -> Permutation:
    return tuple(sorted(range(len(permutation)), key=lambda place: permutation[place]))


def _read(tree: Tree, turns: _Turns) -> Iterator[int]:
    """Yield the leaves with every node in its order."""
    if isinstance(tree, Leaf):
        yield tree.name
        return
    children = tree.children
    if isinstance(tree, PNode) and len(children) > 2:
        _, turn = turns.find(tree.leaves, len(children))
        children = tuple(children[place] for place in turn)
    elif turns.find(tree.leaves, 2)[1] == (1, 0):
        children = children[::-1]
    for child in children:
        yield from _read(child, turns)


def _check(names: Sequence[str], patterns: Sequence[Pattern]) -> None:
    """Raise GraphError for a pattern that is none of these variables."""
    for pattern in patterns:
        for operand in pattern.operands:
            lanes = operand.lanes
            unknown = [v for v in lanes if not 0 <= v < len(names)]
            if unknown:
                raise GraphError(
                    f"{pattern.name}, {operand.name}: there is no variable {unknown[0]}, only "
                    f"{len(names)}"
                )
            if len(set(lanes)) != len(lanes) or len(lanes) != len(pattern.operands[0].lanes):
                raise GraphError(
                    f"{pattern.name}, {operand.name}: an operand has a different variable for "
                    "each lane of the kernel"
                )
