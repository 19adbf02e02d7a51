"""Random inputs for the networks of this package, from the distributions of treebanks and corpora,
and random weights. Everything is made by a generator that is given: the same seed, the same inputs.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from relaxlab.ir import expr, graph, types
from relaxlab.ir.dtypes import numpy_dtype
from relaxlab.ir.module import Module

Array = np.ndarray[Any, Any]
Tree = tuple[np.int64, Array, Array, Array]
"""The root's number, then left children, right children and words, by node; children first."""


def random_weights(mod: Module, rng: np.random.Generator, scale: float = 0.1) -> list[Array]:
    """Return normally distributed weights for `main`, by the types of the parameters after its
    inputs."""
    fn = mod["main"]
    assert isinstance(fn, graph.Function)
    made: list[Array] = []
    for p in fn.params[fn.attrs["num_input"] :]:
        assert isinstance(p.ty, types.TensorType) and p.ty.dtype is not None
        shape = [d.value for d in p.ty.shape or () if isinstance(d, expr.IntImm)]
        made.append((rng.standard_normal(shape) * scale).astype(numpy_dtype(p.ty.dtype)))
    return made


def sentence_leaves(rng: np.random.Generator) -> int:
    """The number of words of a sentence, as in a treebank of film reviews: 19.1 +- 9.3."""
    return int(np.clip(round(rng.gamma(4.3, 4.45)), 2, 56))


def sentence_length(rng: np.random.Generator) -> int:
    """The number of tokens of a sentence in a corpus of questions: 20 +- 8."""
    return int(np.clip(round(rng.gamma(5.5, 3.6)), 3, 60))


def parse_tree(rng: np.random.Generator, leaves: int, words: int) -> Tree:
    """Return a binary tree with so many leaves and random words, as high as parse trees are: with
    probability 0.6 a node's left side has one to three leaves, with 0.1 its right side one."""

    def left_leaves(count: int) -> int:
        draw = rng.random()
        if draw < 0.6:
            size = int(rng.choice([1, 2, 3], p=[0.6, 0.25, 0.15]))
        elif draw < 0.7:
            size = count - 1
        else:
            size = round(rng.beta(1, 1.3) * count)
        return min(max(size, 1), count - 1)

    return tree_of(rng, leaves, words, left_leaves)


def chain_tree(rng: np.random.Generator, leaves: int, words: int) -> Tree:
    """Return the highest tree with so many leaves: each inner node has a leaf on its right."""
    return tree_of(rng, leaves, words, lambda count: count - 1)


def complete_tree(rng: np.random.Generator, leaves: int, words: int) -> Tree:
    """Return the lowest tree with so many leaves."""
    return tree_of(rng, leaves, words, lambda count: count // 2)


def tree_of(rng: np.random.Generator, leaves: int, words: int, left_leaves: Any) -> Tree:
    """Return the tree in which `left_leaves(count)` of a node's leaves are on its left side."""
    left, right, word = list[int](), list[int](), list[int]()
    # (leaves below, children known): children come before their parents, without recursion.
    pending, done = [(leaves, False)], list[int]()
    while pending:
        count, ready = pending.pop()
        if count == 1:
            children = (-1, -1, int(rng.integers(words)))
        elif ready:
            b, a = done.pop(), done.pop()
            children = (a, b, -1)
        else:
            size = left_leaves(count)
            pending += [(count, True), (count - size, False), (size, False)]
            continue
        for column, value in zip((left, right, word), children, strict=True):
            column.append(value)
        done.append(len(left) - 1)
    columns = [np.array(c, np.int64) for c in (left, right, word)]
    return np.int64(done[0]), columns[0], columns[1], columns[2]


def token_vectors(rng: np.random.Generator, length: int, hidden: int) -> tuple[np.int64, Array]:
    """Return the inputs of `bi_rnn` for a sentence of this length."""
    return np.int64(length), rng.standard_normal((length, hidden)).astype(np.float32)
