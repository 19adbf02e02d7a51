"""Dataflow graphs of minibatches of dynamic networks, a node per cell, with structures drawn like
those of the data that papers on batching use."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from relaxlab.batching.graph import Graph, minibatch_graph
from relaxlab.models.dynamic.inputs import parse_tree, sentence_leaves
from relaxlab.models.dynamic.lattices import lattice_length, tagger_length

Rng = np.random.Generator


class _Cells:
    """Collects the nodes of a graph. types: names by number."""

    def __init__(self, *types: str) -> None:
        self.types = types
        self.type_of: list[int] = []
        self.reads: list[list[int]] = []

    def add(self, of_type: str, *reads: int) -> int:
        """Add a node, and return its number."""
        self.type_of.append(self.types.index(of_type))
        self.reads.append(list(reads))
        return len(self.reads) - 1

    def graph(self) -> Graph:
        return minibatch_graph(self.types, self.type_of, self.reads)


def draw_tree(rng: Rng, leaves: int) -> list[tuple[int, int] | None]:
    """Return a parse tree in post-order: None for a leaf, the numbers of its children for a node.

    Heights: 10 on average for the leaves that `sentence_leaves` draws.
    """
    _, left, right, _ = parse_tree(rng, leaves, words=1)
    return [(a, b) if a >= 0 else None for a, b in zip(left.tolist(), right.tolist(), strict=True)]


def tree_lstm(rng: Rng, instances: int, inner: tuple[str, ...] = ("inner",)) -> Graph:
    """Return the graph of a TreeLSTM: a cell per leaf, one per inner node, of a type drawn from
    `inner`, and a classifier at the root."""
    cells = _Cells("leaf", *inner, "output")
    for _ in range(instances):
        made: list[int] = []
        for children in draw_tree(rng, sentence_leaves(rng)):
            if children is None:
                made.append(cells.add("leaf"))
            else:
                of_type = inner[int(rng.integers(len(inner)))]
                made.append(cells.add(of_type, *(made[child] for child in children)))
        cells.add("output", made[-1])
    return cells.graph()


def tree_lstm_two_types(rng: Rng, instances: int) -> Graph:
    """Return the graph of a TreeLSTM whose inner nodes have one of two sets of weights each."""
    return tree_lstm(rng, instances, ("inner 1", "inner 2"))


def bilstm_tagger(rng: Rng, instances: int) -> Graph:
    """Return the graph of a tagger of two bidirectional LSTM layers: per word an embedding, two
    cells per layer and a classifier; sentences of 2 to 144 words, 23 on average."""
    cells = _Cells("embed", "forward 1", "backward 1", "forward 2", "backward 2", "tag")
    for _ in range(instances):
        words = tagger_length(rng)
        below = [[cells.add("embed")] for _ in range(words)]
        for layer in (1, 2):
            forward = _chain(cells, f"forward {layer}", below)
            backward = _chain(cells, f"backward {layer}", below[::-1])[::-1]
            below = [[f, b] for f, b in zip(forward, backward, strict=True)]
        for reads in below:
            cells.add("tag", *reads)
    return cells.graph()


def _chain(cells: _Cells, of_type: str, inputs: list[list[int]]) -> list[int]:
    """Add a recurrent chain, and return its nodes."""
    made: list[int] = []
    for reads in inputs:
        made.append(cells.add(of_type, *reads, *made[-1:]))
    return made


def lattice_lstm(rng: Rng, instances: int) -> Graph:
    """Return the graph of a lattice LSTM: per character a cell and a classifier, per word that ends
    there a cell that goes on from the state before the word, and where there are words a sum.

    Sentences have 3 to 211 characters, 44 on average; at every second of them a word ends, mostly
    of two characters.
    """
    cells = _Cells("character", "word", "sum", "tag")
    for _ in range(instances):
        length = lattice_length(rng)
        states: list[int] = []
        for end in range(length):
            here = cells.add("character", *states[-1:])
            spans = rng.choice((2, 3, 4, 5), size=_words_ending(rng), p=_SPANS)
            words = [
                cells.add("word", *states[end - span : end - span + 1])
                for span in sorted(set(spans.tolist()))
                if span <= end + 1
            ]
            states.append(cells.add("sum", here, *words) if words else here)
            cells.add("tag", states[-1])
    return cells.graph()


_SPANS = (0.861, 0.112, 0.021, 0.006)


def _words_ending(rng: Rng) -> int:
    return int(rng.choice(4, p=(0.53, 0.417, 0.047, 0.006)))


WORKLOADS: Mapping[str, Callable[[Rng, int], Graph]] = {
    "TreeLSTM": tree_lstm,
    "TreeLSTM, two types": tree_lstm_two_types,
    "BiLSTM tagger": bilstm_tagger,
    "lattice LSTM": lattice_lstm,
}
"""Graphs of minibatches by model: of a generator of random numbers and the number of instances."""


def random_graph(rng: Rng, nodes: int, types: int, unbatchable: bool = False) -> Graph:
    """Return a graph of random edges, each node reading two others on average; `unbatchable`: with
    one type that is."""
    names = tuple(f"t{number}" for number in range(types))
    reads = [
        sorted(rng.choice(node, size=min(node, int(rng.integers(0, 4))), replace=False).tolist())
        if node else []
        for node in range(nodes)
    ]  # fmt: skip
    alone = names[:1] if unbatchable else ()
    return minibatch_graph(names, rng.integers(types, size=nodes), reads, alone)
