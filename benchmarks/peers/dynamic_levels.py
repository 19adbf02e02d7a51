"""The networks as one batches them by hand: relaxlab's kernels for many rows, called for all nodes
of one height, or all tokens at one place, together."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks.peers.dynamic import MODELS, Dynamic, levels_of, weights_of

_CLASSIFY = """
@R.function
def classify(
    h: R.Tensor(("n", H), "float32"), Wc: R.Tensor((H, 5), "float32"),
    bc: R.Tensor((5,), "float32"),
):
    R.func_attr({"num_input": 1})
    out = h @ Wc + bc
    return out
"""
_TREE_LSTM = """
@R.function
def leaf(
    words: R.Tensor(("n",), "int64"), E: R.Tensor((W, H), "float32"),
    Wl: R.Tensor((H, 3 * H), "float32"), bl: R.Tensor((3 * H,), "float32"),
):
    R.func_attr({"num_input": 1})
    g = R.split(R.take(E, words, axis=0) @ Wl + bl, 3, axis=1)
    c = R.sigmoid(g[0]) * R.tanh(g[2])
    out = (R.sigmoid(g[1]) * R.tanh(c), c)
    return out

@R.function
def inner(
    ah: R.Tensor(("n", H), "float32"), ac: R.Tensor(("n", H), "float32"),
    bh: R.Tensor(("n", H), "float32"), bc: R.Tensor(("n", H), "float32"),
    U: R.Tensor((2 * H, 5 * H), "float32"), bu: R.Tensor((5 * H,), "float32"),
):
    R.func_attr({"num_input": 4})
    g = R.split(R.concat((ah, bh), axis=1) @ U + bu, 5, axis=1)
    c = R.sigmoid(g[0]) * R.tanh(g[4]) + R.sigmoid(g[1]) * ac + R.sigmoid(g[2]) * bc
    out = (R.sigmoid(g[3]) * R.tanh(c), c)
    return out
"""
_MV_RNN = """
@R.function
def inner(
    av: R.Tensor(("n", H), "float32"), am: R.Tensor(("n", H, H), "float32"),
    bv: R.Tensor(("n", H), "float32"), bm: R.Tensor(("n", H, H), "float32"),
    V: R.Tensor((2 * H, H), "float32"), bias: R.Tensor((H,), "float32"),
    M: R.Tensor((H, 2 * H), "float32"),
):
    R.func_attr({"num_input": 4})
    left = R.squeeze(R.matmul(R.expand_dims(av, 1), bm), axis=[1])
    right = R.squeeze(R.matmul(R.expand_dims(bv, 1), am), axis=[1])
    v = R.tanh(R.concat((left, right), axis=1) @ V + bias)
    out = (v, R.matmul(M, R.concat((am, bm), axis=1)))
    return out
"""
_BI_RNN = """
@R.function
def project(
    x: R.Tensor(("n", H), "float32"), W: R.Tensor((H, H), "float32"),
    b: R.Tensor((H,), "float32"),
):
    R.func_attr({"num_input": 1})
    out = x @ W + b
    return out

@R.function
def step(
    p: R.Tensor(("n", H), "float32"), h: R.Tensor(("n", H), "float32"),
    W: R.Tensor((H, H), "float32"),
):
    R.func_attr({"num_input": 2})
    out = R.sigmoid(p + h @ W)
    return out

@R.function
def classify(
    f: R.Tensor(("n", H), "float32"), b: R.Tensor(("n", H), "float32"),
    Wc: R.Tensor((2 * H, 16), "float32"), bc: R.Tensor((16,), "float32"),
):
    R.func_attr({"num_input": 2})
    out = R.nn.log_softmax(R.concat((f, b), axis=1) @ Wc + bc, axis=1)
    return out
"""


class RelaxlabLevels(Dynamic):
    """relaxlab's kernels, called from Python for all nodes of a level."""

    def __init__(self, model: str, hidden: int, threads: int, batched: int) -> None:
        import relaxlab as rl

        self.model, self.hidden, self._threads, self._rl = model, hidden, threads, rl
        weights = weights_of(MODELS[model].make(hidden), hidden)
        start = time.perf_counter()
        self.run = {
            "tree_lstm": self._tree_lstm, "mv_rnn": self._mv_rnn, "bi_rnn": self._bi_rnn,
        }[model](weights)  # fmt: skip
        self.about = {"version": rl.__version__, "compile_s": time.perf_counter() - start}

    def _kernel(self, text: str, name: str, *weights: Any) -> Any:
        """One function of a program, with its weights packed."""
        whole = self._rl.parse(f"H = {self.hidden}\nW = 1000\n{text}")
        others = [n for n in whole.graph_functions() if n != name]
        exe = self._rl.compile(whole.without(*others), threads=self._threads)
        return exe.load(weights)[name]

    def _tree_lstm(self, weights: Sequence[Any]) -> Any:
        table, wl, bl, u, bu, wc, bc = weights
        leaf = self._kernel(_TREE_LSTM, "leaf", table, wl, bl)
        inner = self._kernel(_TREE_LSTM, "inner", u, bu)
        classify = self._kernel(_TREE_LSTM + _CLASSIFY, "classify", wc, bc)

        def run(trees: Sequence[Any]) -> list[Any]:
            left, right, word, roots, levels = levels_of(trees)
            h, c = (np.empty((len(left), self.hidden), np.float32) for _ in range(2))
            h[levels[0]], c[levels[0]] = leaf(word[levels[0]])
            for at in levels[1:]:
                a, b = left[at], right[at]
                h[at], c[at] = inner(h[a], c[a], h[b], c[b])
            return list(classify(h[roots])[:, None])

        return run

    def _mv_rnn(self, weights: Sequence[Any]) -> Any:
        vectors, matrices, v, bias, m, wc, bc = weights
        inner = self._kernel(_MV_RNN, "inner", v, bias, m)
        classify = self._kernel(_MV_RNN + _CLASSIFY, "classify", wc, bc)

        def run(trees: Sequence[Any]) -> list[Any]:
            left, right, word, roots, levels = levels_of(trees)
            h = np.empty((len(left), self.hidden), np.float32)
            x = np.empty((len(left), self.hidden, self.hidden), np.float32)
            h[levels[0]], x[levels[0]] = vectors[word[levels[0]]], matrices[word[levels[0]]]
            for at in levels[1:]:
                a, b = left[at], right[at]
                h[at], x[at] = inner(h[a], x[a], h[b], x[b])
            return list(classify(h[roots])[:, None])

        return run

    def _bi_rnn(self, weights: Sequence[Any]) -> Any:
        start, wf, bf, wb, bb, wc, bc = weights
        hidden = self.hidden
        forth, back = (
            (
                self._kernel(_BI_RNN, "project", np.ascontiguousarray(w[:hidden]), b),
                self._kernel(_BI_RNN, "step", np.ascontiguousarray(w[hidden:])),
            )
            for w, b in ((wf, bf), (wb, bb))
        )
        classify = self._kernel(_BI_RNN, "classify", wc, bc)

        def walk(kernels: Any, tokens: Any, begins: Any, lengths: Any, signs: int) -> Any:
            """The states of all tokens; sentences are sorted by falling length."""
            project, step = kernels
            projected, states = project(tokens), np.empty_like(tokens)
            h = np.repeat(start, len(lengths), axis=0)
            first = begins if signs > 0 else begins + lengths - 1
            for t in range(int(lengths[0])):
                going = int(np.searchsorted(-lengths, -t, side="left"))
                at = first[:going] + signs * t
                h = step(projected[at], h[:going])
                states[at] = h
            return states

        def run(sentences: Sequence[Any]) -> list[Any]:
            lengths = np.array([int(n) for n, _ in sentences])
            order = np.argsort(-lengths, kind="stable")
            tokens = np.concatenate([sentences[i][1] for i in order])
            lengths = lengths[order]
            begins = np.cumsum(lengths) - lengths
            f, b = (walk(k, tokens, begins, lengths, s) for k, s in ((forth, 1), (back, -1)))
            sums = np.add.reduceat(classify(f, b), begins, axis=0)
            results = np.empty_like(sums)
            results[order] = sums
            return list(results[:, None])

        return run
