"""The networks in DyNet, instance by instance; DyNet's own automatic batching puts the nodes of all
instances together when results are asked for (Neubig, Goldberg and Dyer, 2017)."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from importlib.metadata import version
from typing import Any

import numpy as np

from benchmarks.peers.dynamic import MODELS, Dynamic, weights_of
from benchmarks.peers.networks import NETWORKS, Framework, run_together

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

        self.model, self.hidden = model, hidden
        self.about = {"version": version("dyNET38")}
        weights = weights_of(MODELS[model].make(hidden), hidden)
        framework = DyNetFramework(dynet)
        networks = {**NETWORKS, "berxit": DyNetEncoder}
        network = networks[model](framework, weights)
        self.run = lambda instances: run_together(framework, network, instances)


class DyNetFramework(Framework):
    """DyNet's vectors are columns, its weights transposed: a row times a matrix becomes a matrix
    times a column. The numbers of a table of matrices are taken row by row and stored column by
    column, which transposes them."""

    def __init__(self, dynet: Any) -> None:
        self._dy = self.dynet = dynet
        self._collection = dynet.ParameterCollection()
        self.sigmoid, self.tanh, self.exp = dynet.logistic, dynet.tanh, dynet.exp
        self.relu, self.log_softmax, self.total = dynet.rectify, dynet.log_softmax, dynet.esum
        self.times, self.over = dynet.cmult, dynet.cdiv

    def begin(self) -> None:
        self._dy.renew_cg()

    def weight(self, array: Any) -> Any:
        return self._collection.parameters_from_numpy(np.ascontiguousarray(array.T))

    def table(self, array: Any) -> Any:
        return self._collection.lookup_parameters_from_numpy(array)

    def vector(self, array: Any) -> Any:
        return self._dy.inputTensor(array)

    def row(self, table: Any, index: int) -> Any:
        return table[index]

    def linear(self, x: Any, weight: Any, bias: Any = None) -> Any:
        return weight * x if bias is None else self._dy.affine_transform([bias, weight, x])

    def rest(self, x: Any) -> Any:
        return -x + 1.0

    def through(self, x: Any, matrix: Any) -> Any:
        return matrix * x

    def stacked(self, weight: Any, a: Any, b: Any) -> Any:
        return self._dy.concatenate_cols([a, b]) * weight

    def concat(self, *xs: Any) -> Any:
        return self._dy.concatenate(list(xs))

    def parts(self, x: Any, count: int) -> Sequence[Any]:
        size = x.dim()[0][0] // count
        return [self._dy.pick_range(x, n * size, (n + 1) * size) for n in range(count)]

    def values(self, xs: Sequence[Any]) -> list[np.ndarray[Any, Any]]:
        if xs:
            self._dy.forward(list(xs))
        return [x.npvalue() for x in xs]


class DyNetEncoder:
    """The encoder with early exits: `encoder(tokens)` is a network that waits for its decisions. A
    sequence is a matrix with a column for each token."""

    def __init__(
        self, framework: DyNetFramework, weights: Sequence[Any], heads: int = 2, depth: int = 6
    ) -> None:
        self._f, self._dy = framework, framework.dynet
        self._heads, self._depth = heads, depth
        *matrices, g1, b1, g2, b2, leave, classify = weights
        self._qkv, self._o, self._up, self._down = map(framework.weight, matrices)
        self._norms = [tuple(framework.weight(x[None]) for x in n) for n in ((g1, b1), (g2, b2))]
        self._leave, self._classify = map(framework.weight, (leave, classify))

    def __call__(self, tokens: Any) -> Generator[list[Any], list[Any], list[Any]]:
        dy = self._dy
        x = dy.inputTensor(tokens.T)
        for layer in range(self._depth):
            x = self._layer(x, len(tokens))
            if layer + 1 < self._depth:
                (chance,) = yield [self._f.linear(dy.pick(x, 0, 1), self._leave)]
                if not chance.sum() < 0:
                    break
        return [self._f.linear(dy.mean_dim(x, [1], False), self._classify)]

    def _layer(self, x: Any, length: int) -> Any:
        dy, mixed = self._dy, list[Any]()
        parts = self._f.parts(self._qkv * x, 3 * self._heads)
        of = [parts[n * self._heads : (n + 1) * self._heads] for n in range(3)]
        for q, k, v in zip(*of, strict=True):
            scores = dy.transpose(k) * q * (q.dim()[0][0] ** -0.5)
            mixed.append(v * dy.softmax(scores, d=0))
        a = self._normed(x + self._o * dy.concatenate(mixed), 0, length)
        up = self._up * a
        gelu = dy.cmult(up * 0.5, dy.erf(up * 0.5**0.5) + 1.0)
        return self._normed(a + self._down * gelu, 1, length)

    def _normed(self, x: Any, norm: int, length: int) -> Any:
        """Each column with mean 0 and variance 1, scaled and shifted."""
        dy, (scale, shift) = self._dy, self._norms[norm]
        apart = x - dy.reshape(dy.mean_dim(x, [0], False), (1, length))
        spread = dy.reshape(dy.mean_dim(dy.square(apart), [0], False), (1, length))
        return dy.cmult(dy.cdiv(apart, dy.sqrt(spread + 1e-5)), scale) + shift
