"""The networks with control flow as one writes them in a framework, instance by instance, over the
few operators on vectors that PyTorch and DyNet both have.

A network that decides by its own values is a generator: it yields the vectors that it waits for,
and is given their values.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np

Vector: TypeAlias = Any
"""A vector, or a matrix, of the framework."""
Waiting: TypeAlias = "Generator[list[Vector], list[np.ndarray[Any, Any]], list[Vector]]"
"""A network that waits for values, and at last returns its results."""


class Framework(Protocol):
    """Operators on vectors; `weight` is a matrix that `linear` multiplies vectors with from the
    right."""

    def weight(self, array: Any) -> Any:
        ...

    def table(self, array: Any) -> Any:
        """Rows, or matrices, which `row` picks."""

    def vector(self, array: Any) -> Vector:
        ...

    def row(self, table: Any, index: int) -> Vector:
        ...

    def linear(self, x: Vector, weight: Any, bias: Any = None) -> Vector:
        ...

    def through(self, x: Vector, matrix: Vector) -> Vector:
        """A vector times a matrix that was computed."""

    def stacked(self, weight: Any, a: Vector, b: Vector) -> Vector:
        """A weight times two matrices below each other."""

    def concat(self, *xs: Vector) -> Vector:
        ...

    def parts(self, x: Vector, count: int) -> Sequence[Vector]:
        ...

    def times(self, x: Vector, y: Vector) -> Vector:
        ...

    def rest(self, x: Vector) -> Vector:
        """1 - x"""

    def over(self, x: Vector, y: Vector) -> Vector:
        ...

    def sigmoid(self, x: Vector) -> Vector:
        ...

    def tanh(self, x: Vector) -> Vector:
        ...

    def exp(self, x: Vector) -> Vector:
        ...

    def relu(self, x: Vector) -> Vector:
        ...

    def log_softmax(self, x: Vector) -> Vector:
        ...

    def total(self, xs: Sequence[Vector]) -> Vector:
        ...

    def values(self, xs: Sequence[Vector]) -> list[np.ndarray[Any, Any]]:
        """The values of vectors, which are computed together."""

    def begin(self) -> None:
        """Forget what was computed for the last instances."""


def run_together(
    f: Framework, network: Callable[..., Any], instances: Sequence[Any]
) -> list[list[np.ndarray[Any, Any]]]:
    """The results of all instances. Those that wait are computed together, as far as each goes."""
    f.begin()
    results: list[list[Vector]] = [[] for _ in instances]
    waiting: list[tuple[int, Waiting, list[Vector]]] = []
    for i, instance in enumerate(instances):
        made = network(*instance)
        if isinstance(made, Generator):
            _resume(i, made, None, waiting, results)  # type: ignore[arg-type]
        else:
            results[i] = made
    while waiting:
        turn, waiting = waiting, []
        values = iter(f.values([x for _, _, xs in turn for x in xs]))
        for i, made, xs in turn:
            _resume(i, made, [next(values) for _ in xs], waiting, results)
    values = iter(f.values([x for r in results for x in r]))
    return [[next(values) for _ in r] for r in results]


def _resume(
    i: int, made: Waiting, values: Any, waiting: list[tuple[int, Waiting, list[Vector]]],
    results: list[list[Vector]],
) -> None:  # fmt: skip
    try:
        waiting.append((i, made, made.send(values)))
    except StopIteration as end:
        results[i] = end.value


# -- trees -----------------------------------------------------------------------------------------


def _over_trees(
    leaf: Callable[[int], Any], inner: Callable[[Any, Any], Any], classify: Callable[[Any], Vector]
) -> Callable[..., list[Vector]]:
    def network(root: Any, left: Any, right: Any, word: Any) -> list[Vector]:
        nodes: list[Any] = []
        for a, b, w in zip(left.tolist(), right.tolist(), word.tolist(), strict=True):
            nodes.append(leaf(w) if a < 0 else inner(nodes[a], nodes[b]))
        return [classify(nodes[int(root)])]

    return network


def tree_lstm(f: Framework, weights: Sequence[Any]) -> Callable[..., Any]:
    words = f.table(weights[0])
    wl, bl, u, bu, wc, bc = map(f.weight, weights[1:])

    def leaf(word: int) -> Any:
        i, o, update = f.parts(f.linear(f.row(words, word), wl, bl), 3)
        c = f.times(f.sigmoid(i), f.tanh(update))
        return f.times(f.sigmoid(o), f.tanh(c)), c

    def inner(a: Any, b: Any) -> Any:
        i, f1, f2, o, update = f.parts(f.linear(f.concat(a[0], b[0]), u, bu), 5)
        kept = f.times(f.sigmoid(f1), a[1]) + f.times(f.sigmoid(f2), b[1])
        c = f.times(f.sigmoid(i), f.tanh(update)) + kept
        return f.times(f.sigmoid(o), f.tanh(c)), c

    return _over_trees(leaf, inner, lambda s: f.linear(s[0], wc, bc))


def mv_rnn(f: Framework, weights: Sequence[Any]) -> Callable[..., Any]:
    vectors, matrices = map(f.table, weights[:2])
    v, bv, m, wc, bc = map(f.weight, weights[2:])

    def inner(a: Any, b: Any) -> Any:
        crossed = f.concat(f.through(a[0], b[1]), f.through(b[0], a[1]))
        return f.tanh(f.linear(crossed, v, bv)), f.stacked(m, a[1], b[1])

    def leaf(word: int) -> Any:
        return f.row(vectors, word), f.row(matrices, word)

    return _over_trees(leaf, inner, lambda s: f.linear(s[0], wc, bc))


def tree_gru(f: Framework, weights: Sequence[Any]) -> Callable[..., Any]:
    words = f.table(weights[0])
    wl, bl, u, bu, c, bc, wc = map(f.weight, weights[1:])

    def leaf(word: int) -> Any:
        gate, new = f.parts(f.linear(f.row(words, word), wl, bl), 2)
        return f.times(f.sigmoid(gate), f.tanh(new))

    def inner(a: Any, b: Any) -> Any:
        g = f.parts(f.sigmoid(f.linear(f.concat(a, b), u, bu)), 3)
        new = f.tanh(f.linear(f.concat(f.times(g[0], a), f.times(g[1], b)), c, bc))
        return f.times(g[2], a + b) + f.times(f.rest(g[2]), new)

    return _over_trees(leaf, inner, lambda h: f.linear(h, wc))


def tree_fc(f: Framework, weights: Sequence[Any]) -> Callable[..., Any]:
    words = f.table(weights[0])
    w, b, wc = map(f.weight, weights[1:])
    return _over_trees(
        lambda word: f.row(words, word),
        lambda left, right: f.relu(f.linear(f.concat(left, right), w, b)),
        lambda h: f.linear(h, wc),
    )


# -- sequences -------------------------------------------------------------------------------------


def bi_rnn(f: Framework, weights: Sequence[Any]) -> Callable[..., Any]:
    wf, bf, wb, bb, wc, bc = map(f.weight, weights[1:])

    def walk(tokens: list[Any], w: Any, b: Any) -> list[Any]:
        states = [f.vector(weights[0].ravel())]
        for x in tokens:
            states.append(f.sigmoid(f.linear(f.concat(x, states[-1]), w, b)))
        return states[1:]

    def network(length: Any, tokens: Any) -> list[Vector]:
        xs = [f.vector(x) for x in tokens[: int(length)]]
        forth, back = walk(xs, wf, bf), walk(xs[::-1], wb, bb)[::-1]
        pairs = (f.concat(*pair) for pair in zip(forth, back, strict=True))
        return [f.total([f.log_softmax(f.linear(p, wc, bc)) for p in pairs])]

    return network


def _lstm(f: Framework, x: Any, h: Any, c: Any, w: Any, b: Any) -> tuple[Any, Any]:
    i, update, forget, o = f.parts(f.linear(f.concat(x, h), w, b), 4)
    new = f.times(f.sigmoid(i), f.tanh(update)) + f.times(f.sigmoid(forget), c)
    return f.times(f.sigmoid(o), f.tanh(new)), new


def bi_lstm_tagger(f: Framework, weights: Sequence[Any]) -> Callable[..., Any]:
    words = f.table(weights[1])
    wf, bf, wb, bb, wc, bc = map(f.weight, weights[2:])

    def walk(xs: list[Any], w: Any, b: Any) -> list[Any]:
        h = c = f.vector(weights[0].ravel())
        states: list[Any] = []
        for x in xs:
            h, c = _lstm(f, x, h, c, w, b)
            states.append(h)
        return states

    def network(length: Any, tokens: Any) -> list[Vector]:
        xs = [f.row(words, int(w)) for w in tokens[: int(length)]]
        pairs = zip(walk(xs, wf, bf), walk(xs[::-1], wb, bb)[::-1], strict=True)
        return [f.linear(f.concat(*pair), wc, bc) for pair in pairs]

    return network


def lattice_lstm(f: Framework, weights: Sequence[Any]) -> Callable[..., Any]:
    of_characters, of_words = map(f.table, weights[1:3])
    wc, bc, ww, bw, g, bg, v = map(f.weight, weights[3:])

    def gate(x: Any, cell: Any) -> Any:
        return f.exp(f.sigmoid(f.linear(f.concat(x, cell), g, bg)))

    def network(length: Any, characters: Any, first: Any, span: Any, word: Any) -> list[Vector]:
        start = f.vector(weights[0].ravel())
        states: list[tuple[Any, Any]] = []
        for t in range(int(length)):
            x = f.row(of_characters, int(characters[t]))
            h, c = _lstm(f, x, *(states[-1] if states else (start, start)), wc, bc)
            arcs = range(int(first[t]), int(first[t + 1]))
            if arcs:
                sums, gates = [f.times(gate(x, c), c)], [gate(x, c)]
                for k in arcs:
                    steps = int(span[k])
                    before = states[-steps] if steps <= len(states) else (start, start)
                    new = _lstm(f, f.row(of_words, int(word[k])), *before, ww, bw)[1]
                    gates.append(gate(x, new))
                    sums.append(f.times(gates[-1], new))
                c = f.over(f.total(sums), f.total(gates))
                h = f.times(h, f.tanh(c))
            states.append((h, c))
        return [f.linear(states[-1][0], v)]

    return network


# -- networks that decide --------------------------------------------------------------------------


def drnn(f: Framework, weights: Sequence[Any], most: int = 6) -> Callable[..., Any]:
    wa, ws, u, v = map(f.weight, weights)

    def network(seed: Any) -> Waiting:
        root = f.vector(seed.ravel())
        front, made = [(root, root, most)], list[Any]()
        while front:  # all nodes at once that depend on the same number of decisions
            states = [
                f.tanh(f.linear(f.concat(f.tanh(f.linear(p, wa)), f.tanh(f.linear(s, ws))), u))
                for p, s, _ in front
            ]
            chances = yield [f.linear(h, v) for h in states]
            following: list[tuple[Any, Any, int]] = []
            for (parent, _, left), h, chance in zip(front, states, chances, strict=True):
                if chance.sum() > -0.1:
                    made.append(h)
                    nothing = f.vector(np.zeros_like(seed.ravel()))
                    following += [(h, nothing, left - 1), (parent, h, left - 1)]
            front = [node for node in following if node[2] > 0]
        return made

    return network


def nested_rnn(f: Framework, weights: Sequence[Any]) -> Callable[..., Any]:
    w, b, g, c, v, classify = map(f.weight, weights)

    def network(length: Any, steps: Any, draws: Any, start: Any) -> Waiting:
        h = f.vector(start.ravel())
        for t in range(int(length)):
            x = h
            for _ in range(int(steps[t])):
                x = f.tanh(f.linear(x, w, b))
            reset, keep = f.parts(f.sigmoid(f.linear(f.concat(x, h), g)), 2)
            new = f.tanh(f.linear(f.concat(x, f.times(reset, h)), c))
            h = f.times(keep, h) + f.times(f.rest(keep), new)
            if t + 1 < int(length):
                (chance,) = yield [f.sigmoid(f.linear(h, v))]
                if not draws[t, 0] < chance.sum() + np.float32(0.4):
                    break
        return [f.linear(h, classify)]

    return network


def stack_rnn(f: Framework, weights: Sequence[Any]) -> Callable[..., Any]:
    wi, wr, wd, wc = map(f.weight, weights[1:])

    def network(length: Any, tokens: Any) -> Waiting:
        xs = [f.vector(x) for x in tokens[: int(length)]]
        stack: list[Any] = []
        at = 0
        while at < len(xs) or len(stack) > 1:
            shift = len(stack) < 2
            if not shift and at < len(xs):
                (scores,) = yield [f.linear(f.concat(stack[-1], xs[at]), wd)]
                shift = int(scores.argmax()) == 0
            if shift:
                stack.append(f.tanh(f.linear(xs[at], wi)))
                at += 1
            else:
                right, left = stack.pop(), stack.pop()
                stack.append(f.tanh(f.linear(f.concat(left, right), wr)))
        return [f.linear(stack[-1], wc)]

    return network


NETWORKS: dict[str, Callable[[Framework, Sequence[Any]], Callable[..., Any]]] = {
    network.__name__: network
    for network in (
        tree_lstm, mv_rnn, tree_gru, tree_fc, bi_rnn, bi_lstm_tagger, lattice_lstm, drnn,
        nested_rnn, stack_rnn,
    )
}  # fmt: skip
"""All networks but the encoder with early exits, which has attention: each framework's own."""
