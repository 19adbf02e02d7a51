"""Peers that run networks whose control flow depends on the input: relaxlab, in batches and one
instance at a time, and PyTorch, one at a time and batched by tree level by hand."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any

import numpy as np

from benchmarks.peers.networks import NETWORKS, Framework, run_together
from relaxlab import dynamic
from relaxlab.ir.data import DataValue
from relaxlab.ir.module import Module
from relaxlab.models.dynamic.inputs import random_weights
from relaxlab.passes.batch_twins import batch_twins

WORDS = 1000
"""Words that trees draw from, evenly: 64 trees had 663 different ones among 1,099."""
LEARNED, LEARNED_FROM = "learned policy", 6
"""The policy that is learned, and the minibatches of eight instances from which."""


@dataclass(frozen=True, slots=True)
class Model:
    """A network: `make(hidden)` is its program, `instance(rng, hidden)` draws the arrays of an
    input, `given` makes of these what the program takes, and `multiply_adds(hidden, instances)`
    counts those that a batch needs at least, of the products alone."""

    make: Callable[[int], Module]
    instance: Callable[[np.random.Generator, int], Any]
    given: Callable[[Module, Any], Any] = lambda _, instance: instance
    multiply_adds: Callable[[int, Sequence[Any]], int] | None = None


def _tree(rng: np.random.Generator, _: int, words: int = WORDS) -> Any:
    return dynamic.parse_tree(rng, dynamic.sentence_leaves(rng), words)


def _of_trees(
    leaf: Callable[[int], int], inner: Callable[[int], int]
) -> Callable[[int, Sequence[Any]], int]:
    """Each word once, and all inner nodes."""

    def count(hidden: int, trees: Sequence[Any]) -> int:
        words = {w for _, left, _, word in trees for w in word[left < 0].tolist()}
        nodes = sum(int((left >= 0).sum()) for _, left, _, _ in trees)
        return len(words) * leaf(hidden) + nodes * inner(hidden)

    return count


def _tokens(rng: np.random.Generator, hidden: int) -> Any:
    return dynamic.token_vectors(rng, dynamic.sentence_length(rng), hidden)


def _rows(count: int) -> Callable[[np.random.Generator, int], Any]:
    def rows(rng: np.random.Generator, hidden: int) -> Any:
        return (rng.standard_normal((count, hidden)).astype(np.float32),)

    return rows


MODELS: dict[str, Model] = {
    "tree_lstm": Model(
        dynamic.tree_lstm, _tree,
        multiply_adds=_of_trees(lambda h: 3 * h * h, lambda h: 10 * h * h),
    ),
    "mv_rnn": Model(
        dynamic.mv_rnn, partial(_tree, words=100),  # a matrix for each word
        multiply_adds=_of_trees(lambda _: 0, lambda h: 2 * h**3 + 4 * h * h),
    ),
    "bi_rnn": Model(
        dynamic.bi_rnn, _tokens,
        multiply_adds=lambda h, sentences: sum(2 * int(s[0]) * 2 * h * h for s in sentences),
    ),
    "tree_gru": Model(dynamic.tree_gru, _tree, dynamic.tree_value),
    "tree_fc": Model(dynamic.tree_fc, _tree, dynamic.tree_value),
    "bi_lstm_tagger": Model(
        dynamic.bi_lstm_tagger,
        lambda rng, _: dynamic.tagged_sentence(rng, dynamic.tagger_length(rng)),
    ),
    "lattice_lstm": Model(
        dynamic.lattice_lstm, lambda rng, _: dynamic.lattice(rng, dynamic.lattice_length(rng))
    ),
    "drnn": Model(dynamic.drnn, _rows(1)),
    "nested_rnn": Model(dynamic.nested_rnn, dynamic.nested_items),
    "stack_rnn": Model(dynamic.stack_rnn, _tokens),
    "berxit": Model(dynamic.berxit, _rows(16)),
}  # fmt: skip


def weights_of(mod: Module, hidden: int) -> list[np.ndarray[Any, Any]]:
    """The same weights for all peers, of a size that lets recurrences forget: with a deviation of
    0.1 the inner network of a NestedRNN of 256 features was chaotic, and each peer's results were
    others after 40 steps."""
    return random_weights(mod, np.random.default_rng(0), hidden**-0.5)


def numbers_of(result: Any) -> Iterator[np.ndarray[Any, Any]]:
    """All tensors of a result."""
    if isinstance(result, DataValue):
        result = result.fields
    if isinstance(result, list | tuple):
        for part in result:
            yield from numbers_of(part)
    else:
        yield np.asarray(result, np.float64)


class Dynamic:
    """A network; `time_instances` runs instances together."""

    about: dict[str, Any]
    model: str
    hidden: int

    def run(self, instances: Sequence[Any]) -> Sequence[Any]:
        """The results of all instances."""
        raise NotImplementedError

    def given(self, instances: Sequence[Any]) -> Sequence[Any]:
        """Instances as `run` takes them."""
        return instances

    def time_instances(self, batch: int, seed: int, repeats: int) -> dict[str, Any]:
        """The median time for a batch, the sum of each instance's result, and the multiply-adds of
        all."""
        rng, model = np.random.default_rng(seed), MODELS[self.model]
        arrays = [model.instance(rng, self.hidden) for _ in range(batch)]
        instances = self.given(arrays)
        results = self.run(instances)
        seconds = [_seconds(lambda: self.run(instances)) for _ in range(repeats)]
        sums = [float(sum(np.abs(x).sum() for x in numbers_of(r))) for r in results]
        count = model.multiply_adds
        work = count(self.hidden, arrays) if count else 0
        return {"seconds": median(seconds), "sums": sums, "multiply_adds": work, **self.counts()}

    def counts(self) -> dict[str, Any]:
        """More about the last batch."""
        return {}


def _seconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


class RelaxlabDynamic(Dynamic):
    """relaxlab: in batches, or the same program compiled for one instance at a time.

    leave_out: the pass and the option that is to be off, where one is. add: a pass of `ADDED`.
    policy: the one that chooses batches; else machine code does.
    """

    def __init__(
        self, model: str, hidden: int, threads: int, batched: int, leave_out: str = "",
        add: str = "", policy: str = "",
    ) -> None:  # fmt: skip
        import relaxlab as rl

        self.model, self.hidden = model, hidden
        self._mod = MODELS[model].make(hidden)
        weights = weights_of(self._mod, hidden)
        start = time.perf_counter()
        pipeline = None
        if batched:
            pipeline = without(rl.batched_pipeline(), leave_out)
            pipeline = pipeline.after(*ADDED[add]) if add else pipeline
        exe = rl.compile(self._mod, threads=threads, pipeline=pipeline)
        self.about = {"version": rl.__version__, "compile_s": time.perf_counter() - start}
        self._batched: Any = None
        if batched:
            self._batched = exe["main"].bind(*weights)
            self.run = self._batched.batch
            if policy:
                choose = rl.batches_by(self._learned() if policy == LEARNED else policy)
                self.run = lambda instances: self._batched.batch(instances, choose)
        else:
            main = exe.load(weights)["main"]
            self.run = lambda instances: [main(*i) for i in instances]

    def given(self, instances: Sequence[Any]) -> Sequence[Any]:
        made = [MODELS[self.model].given(self._mod, i) for i in instances]
        return [i if isinstance(i, tuple) else (i,) for i in made]

    def _learned(self) -> Any:
        """A policy that was learned from other instances."""
        import relaxlab as rl

        rng, model = np.random.default_rng(12345), MODELS[self.model]
        graphs: list[Any] = []
        for _ in range(LEARNED_FROM):
            instances = self.given([model.instance(rng, self.hidden) for _ in range(8)])
            graphs.append(rl.recorded_graph(self._batched.record(instances)))
        return rl.learn_policy(graphs).policy

    def counts(self) -> dict[str, Any]:
        if self._batched is None:
            return {}
        report = self._batched.last_batch
        return {
            "nodes": report.nodes, "batches": report.batches, "gathered": report.bytes_gathered,
        }  # fmt: skip


ADDED = {"batch_twins": ("combine_gates", batch_twins)}
"""Passes that CPUs do without: the pass behind which each goes, and itself."""


def without(pipeline: Any, left_out: str) -> Any:
    """A pipeline without a pass, or with an option of one off (`pass.option`)."""
    if not left_out:
        return pipeline
    name, _, option = left_out.partition(".")
    if option:
        return pipeline.with_options(name, **{option: False})
    return pipeline.without(name)


def levels_of(trees: Sequence[Any]) -> tuple[Any, Any, Any, Any, list[Any]]:
    """The nodes of all trees behind each other: left and right children, words, the roots, and the
    nodes of each height."""
    starts = np.cumsum([0] + [len(t[1]) for t in trees])
    left, right, word = (np.concatenate([t[k] for t in trees]) for k in (1, 2, 3))
    shift = np.repeat(starts[:-1], np.diff(starts))
    is_inner = left >= 0
    left, right = np.where(is_inner, left + shift, -1), np.where(is_inner, right + shift, -1)
    height = [0] * len(left)
    for i, (a, b) in enumerate(zip(left.tolist(), right.tolist(), strict=True)):
        if a >= 0:
            height[i] = 1 + max(height[a], height[b])
    order = np.argsort(height, kind="stable")
    levels = np.split(order, np.flatnonzero(np.diff(np.array(height)[order])) + 1)
    roots = starts[:-1] + np.array([int(t[0]) for t in trees])
    return left, right, word, roots, levels


class PyTorchDynamic(Dynamic):
    """PyTorch, instance by instance; or the TreeLSTM with all nodes of a height at once."""

    def __init__(self, model: str, hidden: int, threads: int, batched: int) -> None:
        import torch

        if batched and model != "tree_lstm":
            raise ValueError(f"there is no {model} by level of PyTorch here")
        torch.set_num_threads(threads)
        torch.set_grad_enabled(False)
        self.model, self.hidden, self._torch = model, hidden, torch
        weights = weights_of(MODELS[model].make(hidden), hidden)
        self._weights = [torch.from_numpy(w) for w in weights]
        self.about = {"version": torch.__version__}
        if batched:
            self.run = self._by_level
        elif model == "berxit":
            self.run = lambda instances: [self._berxit(*i) for i in instances]
        else:
            framework = PyTorchFramework(torch)
            network = NETWORKS[model](framework, weights)
            self.run = lambda instances: run_together(framework, network, instances)

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

    def _berxit(self, tokens: Any, heads: int = 2, depth: int = 6) -> Any:
        torch, (wqkv, wo, w1, w2, g1, b1, g2, b2, leave, classify) = self._torch, self._weights
        f, x = torch.nn.functional, torch.from_numpy(tokens)
        shape = (self.hidden,)
        for layer in range(depth):
            q, k, v = (x @ wqkv).view(len(x), 3 * heads, -1).chunk(3, dim=1)
            mixed = f.scaled_dot_product_attention(*(t.transpose(0, 1) for t in (q, k, v)))
            a = f.layer_norm(x + mixed.transpose(0, 1).reshape(len(x), -1) @ wo, shape, g1, b1)
            x = f.layer_norm(a + f.gelu(a @ w1) @ w2, shape, g2, b2)
            if layer + 1 == depth or not (x[:1] @ leave).item() < 0:
                break
        return x.mean(0, keepdim=True) @ classify

    def _by_level(self, instances: Sequence[Any]) -> list[Any]:
        """Nodes of all trees by their height; a level is one call."""
        torch = self._torch
        left, right, word, roots, levels = levels_of(instances)
        h, c = (torch.empty(len(left), self.hidden) for _ in range(2))
        for height, nodes in enumerate(levels):
            at = torch.from_numpy(nodes)
            if height == 0:
                h[at], c[at] = self._leaf(torch.from_numpy(word[nodes]))
                continue
            a, b = torch.from_numpy(left[nodes]), torch.from_numpy(right[nodes])
            h[at], c[at] = self._inner(h[a], c[a], h[b], c[b])
        return list(self._classify(h[torch.from_numpy(roots)])[:, None])


class PyTorchFramework(Framework):
    """PyTorch's vectors are matrices of one row."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self.sigmoid, self.tanh, self.exp = torch.sigmoid, torch.tanh, torch.exp
        self.relu, self.times, self.over = torch.relu, torch.mul, torch.div

    def weight(self, array: Any) -> Any:
        return self._torch.from_numpy(array)

    def table(self, array: Any) -> Any:
        return self._torch.from_numpy(array)

    def vector(self, array: Any) -> Any:
        return self._torch.from_numpy(array)[None]

    def row(self, table: Any, index: int) -> Any:
        return table[index : index + 1] if table.ndim == 2 else table[index]

    def linear(self, x: Any, weight: Any, bias: Any = None) -> Any:
        return x @ weight if bias is None else self._torch.addmm(bias, x, weight)

    def rest(self, x: Any) -> Any:
        return 1 - x

    def through(self, x: Any, matrix: Any) -> Any:
        return x @ matrix

    def stacked(self, weight: Any, a: Any, b: Any) -> Any:
        return weight @ self._torch.cat((a, b), 0)

    def concat(self, *xs: Any) -> Any:
        return self._torch.cat(xs, 1)

    def parts(self, x: Any, count: int) -> Sequence[Any]:
        return x.chunk(count, dim=1)

    def log_softmax(self, x: Any) -> Any:
        return self._torch.log_softmax(x, 1)

    def total(self, xs: Sequence[Any]) -> Any:
        return sum(xs[1:], xs[0])

    def values(self, xs: Sequence[Any]) -> list[np.ndarray[Any, Any]]:
        return [x.numpy() for x in xs]
