"""The networks in DyNet, instance by instance; DyNet's own automatic batching puts the nodes of all
instances together when results are asked for (Neubig, Goldberg and Dyer, 2017)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.metadata import version
from typing import Any

import numpy as np

from benchmarks.peers.dynamic import MODELS, Dynamic
from relaxlab.models.dynamic.inputs import random_weights

MEGABYTES = 2048
"""Memory that DyNet takes at its start."""


class DyNetDynamic(Dynamic):
    """A network by one of DyNet's policies: 1 runs the type whose nodes lie least deep on average,
    2 goes by depth, 0 does not batch. A process has one."""

    def __init__(self, model: str, hidden: int, threads: int, batched: int) -> None:
        if threads != 1:
            raise ValueError("DyNet computes on one thread")
        import dynet_config

        dynet_config.set(mem=MEGABYTES, autobatch=batched, random_seed=1)
        import dynet

        self.model, self.hidden, self._dy = model, hidden, dynet
        self.about = {"version": version("dyNET38")}
        self._weights = random_weights(MODELS[model](hidden), np.random.default_rng(0))
        self._collection = dynet.ParameterCollection()
        networks: dict[str, Callable[[], Callable[..., Any]]] = {
            "tree_lstm": self._tree_lstm, "mv_rnn": self._mv_rnn, "bi_rnn": self._bi_rnn,
        }  # fmt: skip
        self._network = networks[model]()

    def run(self, instances: Sequence[Any]) -> Sequence[Any]:
        """Build the graphs of all instances, and compute their results together."""
        self._dy.renew_cg()
        results = [self._network(*instance) for instance in instances]
        self._dy.forward(results)
        return [r.npvalue() for r in results]

    def _matrix(self, weight: Any) -> Any:
        """A parameter of columns, as DyNet's vectors are."""
        return self._collection.parameters_from_numpy(np.ascontiguousarray(weight.T))

    def _table(self, weight: Any) -> Any:
        return self._collection.lookup_parameters_from_numpy(weight)

    def _over_trees(
        self, leaf: Callable[[int], Any], inner: Callable[[Any, Any], Any],
        classify: Callable[[Any], Any],
    ) -> Callable[..., Any]:  # fmt: skip
        def network(root: Any, left: Any, right: Any, word: Any) -> Any:
            nodes: list[Any] = []
            for a, b, w in zip(left.tolist(), right.tolist(), word.tolist(), strict=True):
                nodes.append(leaf(w) if a < 0 else inner(nodes[a], nodes[b]))
            return classify(nodes[int(root)])

        return network

    def _tree_lstm(self) -> Callable[..., Any]:
        dy, hidden = self._dy, self.hidden
        table, wl, bl, u, bu, wc, bc = self._weights
        words = self._table(table)
        wl, bl, u, bu, wc, bc = map(self._matrix, (wl, bl, u, bu, wc, bc))

        def gates(sums: Any, count: int) -> list[Any]:
            return [dy.pick_range(sums, n * hidden, (n + 1) * hidden) for n in range(count)]

        def leaf(word: int) -> Any:
            i, o, update = gates(dy.affine_transform([bl, wl, words[word]]), 3)
            c = dy.cmult(dy.logistic(i), dy.tanh(update))
            return dy.cmult(dy.logistic(o), dy.tanh(c)), c

        def inner(a: Any, b: Any) -> Any:
            sums = dy.affine_transform([bu, u, dy.concatenate([a[0], b[0]])])
            i, f, g, o, update = gates(sums, 5)
            kept = dy.cmult(dy.logistic(f), a[1]) + dy.cmult(dy.logistic(g), b[1])
            c = dy.cmult(dy.logistic(i), dy.tanh(update)) + kept
            return dy.cmult(dy.logistic(o), dy.tanh(c)), c

        return self._over_trees(leaf, inner, lambda s: dy.affine_transform([bc, wc, s[0]]))

    def _mv_rnn(self) -> Callable[..., Any]:
        dy = self._dy
        vectors, matrices, v, bv, m, wc, bc = self._weights
        # The matrices of nodes are transposed, like the weights: a row times a matrix becomes a
        # matrix times a column. A table's numbers are taken row by row and stored column by column.
        of_words, at = self._table(vectors), self._table(matrices)
        v, bv, m, wc, bc = map(self._matrix, (v, bv, m, wc, bc))

        def inner(a: Any, b: Any) -> Any:
            crossed = dy.concatenate([b[1] * a[0], a[1] * b[0]])
            made = dy.concatenate_cols([a[1], b[1]]) * m
            return dy.tanh(dy.affine_transform([bv, v, crossed])), made

        return self._over_trees(
            lambda w: (of_words[w], at[w]), inner, lambda s: dy.affine_transform([bc, wc, s[0]])
        )

    def _bi_rnn(self) -> Callable[..., Any]:
        dy = self._dy
        start, *weights = self._weights
        wf, bf, wb, bb, wc, bc = map(self._matrix, weights)
        first = start.ravel()

        def walk(tokens: list[Any], w: Any, b: Any) -> list[Any]:
            states = [dy.inputTensor(first)]
            for x in tokens:
                both = dy.concatenate([x, states[-1]])
                states.append(dy.logistic(dy.affine_transform([b, w, both])))
            return states[1:]

        def network(length: Any, tokens: Any) -> Any:
            xs = [dy.inputTensor(x) for x in tokens[: int(length)]]
            forth, back = walk(xs, wf, bf), walk(xs[::-1], wb, bb)[::-1]
            pairs = (dy.concatenate([*pair]) for pair in zip(forth, back, strict=True))
            return dy.esum([dy.log_softmax(dy.affine_transform([bc, wc, p])) for p in pairs])

        return network
