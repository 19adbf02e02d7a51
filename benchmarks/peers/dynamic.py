"""Peers that run networks whose control flow depends on the input: relaxlab, in batches and one
instance at a time, and PyTorch, one at a time and batched by tree level by hand."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

import numpy as np

from relaxlab.models.dynamic.inputs import (
    parse_tree,
    random_weights,
    sentence_leaves,
    sentence_length,
    token_vectors,
)
from relaxlab.models.dynamic.sequences import bi_rnn
from relaxlab.models.dynamic.trees import mv_rnn, tree_lstm

MODELS = {"tree_lstm": tree_lstm, "mv_rnn": mv_rnn, "bi_rnn": bi_rnn}
WORDS = 100


def instances_of(model: str, hidden: int, count: int, seed: int) -> list[Any]:
    """The same instances in every process."""
    rng = np.random.default_rng(seed)
    if model == "bi_rnn":
        return [token_vectors(rng, sentence_length(rng), hidden) for _ in range(count)]
    return [parse_tree(rng, sentence_leaves(rng), WORDS) for _ in range(count)]


class Dynamic:
    """A network; `time_instances` runs instances together."""

    about: dict[str, Any]
    model: str
    hidden: int

    def run(self, instances: Sequence[Any]) -> Sequence[Any]:
        """The results of all instances."""
        raise NotImplementedError

    def time_instances(self, batch: int, seed: int, repeats: int) -> dict[str, Any]:
        """The median time for a batch, and the sum of each instance's result."""
        instances = instances_of(self.model, self.hidden, batch, seed)
        results = self.run(instances)
        seconds = [_seconds(lambda: self.run(instances)) for _ in range(repeats)]
        sums = [float(np.abs(np.asarray(r, np.float64)).sum()) for r in results]
        return {"seconds": median(seconds), "sums": sums, **self.counts()}

    def counts(self) -> dict[str, Any]:
        """More about the last batch."""
        return {}


def _seconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


class RelaxlabDynamic(Dynamic):
    """relaxlab: in batches, or the same program compiled for one instance at a time."""

    def __init__(self, model: str, hidden: int, threads: int, batched: int) -> None:
        import relaxlab as rl

        self.model, self.hidden = model, hidden
        mod = MODELS[model](hidden)
        weights = random_weights(mod, np.random.default_rng(0))
        start = time.perf_counter()
        pipeline = rl.batched_pipeline() if batched else None
        exe = rl.compile(mod, threads=threads, pipeline=pipeline)
        self.about = {"version": rl.__version__, "compile_s": time.perf_counter() - start}
        self._batched: Any = None
        if batched:
            self._batched = exe["main"].bind(*weights)
            self.run = self._batched.batch
        else:
            main = exe.load(weights)["main"]
            self.run = lambda instances: [main(*i) for i in instances]

    def counts(self) -> dict[str, Any]:
        if self._batched is None:
            return {}
        report = self._batched.last_batch
        return {
            "nodes": report.nodes, "batches": report.batches, "gathered": report.bytes_gathered,
        }  # fmt: skip


class PyTorchDynamic(Dynamic):
    """The TreeLSTM in PyTorch: node by node, or all nodes of a height at once, by hand."""

    def __init__(self, model: str, hidden: int, threads: int, batched: int) -> None:
        import torch

        if model != "tree_lstm":
            raise ValueError(f"there is no {model} of PyTorch here")
        torch.set_num_threads(threads)
        torch.set_grad_enabled(False)
        self.model, self.hidden, self._torch = model, hidden, torch
        weights = random_weights(MODELS[model](hidden), np.random.default_rng(0))
        self._weights = [torch.from_numpy(w) for w in weights]
        self.about = {"version": torch.__version__}
        self.run = self._by_level if batched else lambda trees: [self._one(*t) for t in trees]

    def _leaf(self, words: Any) -> tuple[Any, Any]:
        torch, (table, wl, bl, *_) = self._torch, self._weights
        i, o, u = torch.addmm(bl, table[words], wl).chunk(3, dim=1)
        c = torch.sigmoid(i) * torch.tanh(u)
        return torch.sigmoid(o) * torch.tanh(c), c

    def _inner(self, ah: Any, ac: Any, bh: Any, bc: Any) -> tuple[Any, Any]:
        torch, (_, _, _, weight, bias, *_) = self._torch, self._weights
        i, f, g, o, u = torch.addmm(bias, torch.cat((ah, bh), 1), weight).chunk(5, dim=1)
        c = torch.sigmoid(i) * torch.tanh(u) + torch.sigmoid(f) * ac + torch.sigmoid(g) * bc
        return torch.sigmoid(o) * torch.tanh(c), c

    def _classify(self, h: Any) -> Any:
        return self._torch.addmm(self._weights[6], h, self._weights[5])

    def _one(self, root: int, left: Any, right: Any, word: Any) -> Any:
        states: list[Any] = []
        for a, b, w in zip(left.tolist(), right.tolist(), word.tolist(), strict=True):
            states.append(self._leaf([w]) if a < 0 else self._inner(*states[a], *states[b]))
        return self._classify(states[root][0])

    def _by_level(self, trees: Sequence[Any]) -> list[Any]:
        """Nodes of all trees by their height; a level is one call."""
        torch = self._torch
        starts = np.cumsum([0] + [len(t[1]) for t in trees])
        left, right, word = (np.concatenate([t[k] for t in trees]) for k in (1, 2, 3))
        shift = np.repeat(starts[:-1], np.diff(starts))
        inner = left >= 0
        left, right = np.where(inner, left + shift, -1), np.where(inner, right + shift, -1)
        height = np.zeros(len(left), np.int64)
        for i in np.flatnonzero(inner).tolist():
            height[i] = 1 + max(height[left[i]], height[right[i]])
        h, c = (torch.empty(len(left), self.hidden) for _ in range(2))
        order = np.argsort(height, kind="stable")
        for nodes in np.split(order, np.flatnonzero(np.diff(height[order])) + 1):
            at = torch.from_numpy(nodes)
            if height[nodes[0]] == 0:
                h[at], c[at] = self._leaf(torch.from_numpy(word[nodes]))
                continue
            a, b = torch.from_numpy(left[nodes]), torch.from_numpy(right[nodes])
            h[at], c[at] = self._inner(h[a], c[a], h[b], c[b])
        roots = torch.from_numpy(starts[:-1] + np.array([int(t[0]) for t in trees]))
        return list(self._classify(h[roots])[:, None])
