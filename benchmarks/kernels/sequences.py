"""An encoder layer on sequences of different lengths: whole, its attention, its parts, and what is
computed of the lengths alone.

Rows of all sequences lie behind each other. The name of a kind has the batch, from which lengths
follow. Some of the sequences are compared with the reference.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping

import numpy as np

from benchmarks.kernels.kind import Array, Kind, Sizes, layer_norm, softmax
from benchmarks.kernels.lengths import BATCHES, QUANTILES, lengths_of

WIDTH, HEADS, HEAD_DIM, INNER = 512, 8, 64, 2048
"""The features of a row, the heads, the features of a head, and those of the inner layer."""
PARTS = ("projections", "scores", "softmax", "mix", "layer norm", "feed forward")
"""The layer's parts: queries, keys and values; products of queries and keys; weights, row by row;
their products with the values; the norm; both products of the inner layer."""
BYTES_OF_A_ROW = 4 * (WIDTH + INNER)
"""Activations that must be in memory at once for each row: the inner layer's, and its input, which
is added to its output."""


def parsed(kind: str) -> tuple[str, Array]:
    """The computation that a kind names, and the int32 lengths of its sequences."""
    what, _, batch = kind.partition(", ")
    data, _, count = batch.partition(" x ")
    return what, lengths_of(data, int(count))


def sizes_of(what: str, data: str, batch: int) -> Sizes:
    """The sizes of a case: n rows, and u scores of a head where these are stored."""
    lengths = lengths_of(data, batch).astype(int)
    squares = {"u": int((lengths**2).sum())} if what in ("scores", "softmax", "mix") else {}
    return {"n": int(lengths.sum()), **squares}


class Sequences:
    """Rows of sequences behind each other, and the sequences that are compared: the first, the
    last, the shortest and the longest."""

    def __init__(self, lengths: Array) -> None:
        self.lengths = lengths.astype(int)
        self.starts = np.concatenate([[0], np.cumsum(self.lengths)])
        self.squares = np.concatenate([[0], np.cumsum(self.lengths**2)])
        ends = (0, len(lengths) - 1, int(lengths.argmin()), int(lengths.argmax()))
        self.chosen = sorted(set(ends))

    def rows(self, x: Array) -> list[Array]:
        """The rows of each of the chosen sequences."""
        return [x[self.starts[i] : self.starts[i + 1]] for i in self.chosen]

    def scores(self, x: Array) -> list[Array]:
        """The (heads, length, length) scores of each of them, which lie behind each other."""
        return [
            x[HEADS * self.squares[i] : HEADS * self.squares[i + 1]].reshape(
                HEADS, self.lengths[i], self.lengths[i]
            )
            for i in self.chosen
        ]

    def of_rows(self, function: Callable[..., Array]) -> Callable[..., Array]:
        """The reference of a function of the rows of a sequence and of weights."""

        def reference(x: Array, *weights: Array) -> Array:
            wide = [w.astype(np.float64) for w in weights]
            return np.concatenate([function(part.astype(np.float64), *wide)
                                   for part in self.rows(x)])  # fmt: skip

        return reference

    def sampled_rows(self, y: Array) -> Array:
        """The rows that a reference has."""
        return np.concatenate(self.rows(y))

    def sampled_scores(self, y: Array) -> Array:
        """The scores that a reference has."""
        return np.concatenate([part.ravel() for part in self.scores(y)])


def _heads(x: Array) -> Array:
    """(rows, heads, features) as (heads, rows, features), in float64."""
    return x.astype(np.float64).swapaxes(0, 1)


def _attention(s: Sequences) -> Callable[..., Array]:
    def reference(q: Array, k: Array, v: Array) -> Array:
        parts = zip(*(map(_heads, s.rows(x)) for x in (q, k, v)), strict=True)
        return np.concatenate([attended(*part) for part in parts])

    return reference


def attended(q: Array, k: Array, v: Array) -> Array:
    """Attention of one sequence: (heads, rows, features) each; the result is (rows, heads,
    features)."""
    weights = softmax(q @ k.swapaxes(1, 2) / math.sqrt(HEAD_DIM))
    return (weights @ v).swapaxes(0, 1)


def encoded(x: Array, *weights: Array) -> Array:
    """An encoder layer on the rows of one sequence, with norms behind its residuals."""
    wi, bi, wo, bo, g1, c1, w1, b1, w2, b2, g2, c2 = weights
    parts = [_heads(t.reshape(len(x), -1, HEAD_DIM)) for t in np.split(x @ wi.T + bi, 3, axis=1)]
    h = layer_norm(x + attended(*parts).reshape(x.shape) @ wo.T + bo, g1, c1)
    return layer_norm(h + feed_forward(h, w1, b1, w2, b2), g2, c2)


def feed_forward(h: Array, w1: Array, b1: Array, w2: Array, b2: Array) -> Array:
    """The inner layer."""
    return np.maximum(h @ w1.T + b1, 0) @ w2.T + b2


def encoder_shapes(n: int) -> list[tuple[int, ...]]:
    """x, then weights (outputs, inputs) and vectors in the order of their use."""
    products = ((3 * WIDTH, WIDTH), (WIDTH, WIDTH), (INNER, WIDTH), (WIDTH, INNER))
    qkv, out, first, second = ([shape, shape[:1]] for shape in products)
    norm = [(WIDTH,)] * 2
    return [(n, WIDTH), *qkv, *out, *norm, *first, *second, *norm]


def _scores(s: Sequences) -> Callable[..., Array]:
    def reference(q: Array, k: Array) -> Array:
        pairs = zip(map(_heads, s.rows(q)), map(_heads, s.rows(k)), strict=True)
        return np.concatenate([(a @ b.swapaxes(1, 2)).ravel() for a, b in pairs])

    return reference


def _weights(s: Sequences) -> Callable[..., Array]:
    def reference(x: Array) -> Array:
        return np.concatenate([softmax(p.astype(np.float64)).ravel() for p in s.scores(x)])

    return reference


def _mix(s: Sequences) -> Callable[..., Array]:
    def reference(x: Array, v: Array) -> Array:
        pairs = zip(s.scores(x), map(_heads, s.rows(v)), strict=True)
        return np.concatenate([(a @ b).swapaxes(0, 1) for a, b in pairs])

    return reference


def _ranges(lengths: Array) -> Callable[..., Array]:
    """The keys before the first one, and the last one, that each row sees."""

    def reference(x: Array) -> Array:
        ends = np.cumsum(lengths.astype(int))
        return np.stack([np.repeat(ends - lengths - 1, lengths), np.repeat(ends - 1, lengths)])

    return reference


def _kinds(data: str, batch: int) -> Iterator[tuple[str, Kind]]:
    lengths = lengths_of(data, batch)
    s = Sequences(lengths)
    squares = float(s.squares[-1])

    def heads(n: int) -> tuple[int, ...]:
        return n, HEADS, HEAD_DIM

    def product(outputs: int, inputs: int) -> float:
        return 2.0 * outputs * inputs

    rows = s.sampled_rows
    on_scores = 2.0 * WIDTH * squares
    """Operations of one product on the scores of all heads."""
    layer = 4 * product(WIDTH, WIDTH) + 2 * product(INNER, WIDTH)
    scale = 1 / math.sqrt(WIDTH)
    found = {
        "attention": Kind(
            lambda z: [heads(z["n"])] * 3, _attention(s), flops=lambda z: 2 * on_scores,
            sample=rows,
        ),
        "encoder": Kind(
            lambda z: encoder_shapes(z["n"]), s.of_rows(encoded), matrices=scale, sample=rows,
            flops=lambda z: 2 * on_scores + z["n"] * layer,
        ),
        "projections": Kind(
            lambda z: encoder_shapes(z["n"])[:3], s.of_rows(lambda x, w, b: x @ w.T + b),
            flops=lambda z: z["n"] * product(3 * WIDTH, WIDTH), matrices=scale, sample=rows,
        ),
        "scores": Kind(
            lambda z: [heads(z["n"])] * 2, _scores(s), flops=lambda z: on_scores,
            sample=s.sampled_scores,
        ),
        "softmax": Kind(
            lambda z: [(HEADS * z["u"],)], _weights(s), result=lambda z: (HEADS * z["u"],),
            sample=s.sampled_scores,
        ),
        "mix": Kind(
            lambda z: [(HEADS * z["u"],), heads(z["n"])], _mix(s), flops=lambda z: on_scores,
            sample=rows,
        ),
        "layer norm": Kind(
            lambda z: [(z["n"], WIDTH), (WIDTH,), (WIDTH,)], s.of_rows(layer_norm),
            result=lambda z: (z["n"], WIDTH), sample=rows,
        ),
        "feed forward": Kind(
            lambda z: [(z["n"], WIDTH), *encoder_shapes(0)[7:11]], s.of_rows(feed_forward),
            flops=lambda z: z["n"] * 2 * product(INNER, WIDTH), matrices=scale, sample=rows,
        ),
        "key ranges": Kind(
            lambda z: [(z["n"],)], _ranges(lengths), moved=lambda z: 16.0 * z["n"],
            sample=lambda y: y,
        ),
    }  # fmt: skip
    for what, kind in found.items():
        yield f"{what}, {data} x {batch}", kind


KINDS: Mapping[str, Kind] = {
    name: kind for data in QUANTILES for batch in BATCHES for name, kind in _kinds(data, batch)
}
