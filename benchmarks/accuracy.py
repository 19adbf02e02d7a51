"""The distance of logits from a float32 evaluation of the dequantised weights in NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.peers.base import Array
from benchmarks.process import Worker
from relaxlab.testing.llama_numpy import LlamaNumpy

TEXT = Path(__file__).with_name("text.txt")
CLEAR = 0.3
"""A lead of the most likely token over the second that float32 rounding cannot undo."""

Report = dict[str, float]


def compare(got: Array, want: Array) -> Report:
    """Both float32 (positions, vocab_size). Differences are relative to the largest logit of their
    position; the divergence is that of the predicted distributions, in nats."""
    distance = np.abs(got - want).max(axis=-1) / np.abs(want).max(axis=-1)
    p, q = _log_softmax(want), _log_softmax(got)
    divergence = np.sum(np.exp(p) * (p - q), axis=-1)
    same = got.argmax(axis=-1) == want.argmax(axis=-1)
    clear = _lead(want) > CLEAR
    return {
        "positions": len(want),
        "worst_error": float(distance.max()),
        "median_error": float(np.median(distance)),
        "mean_divergence": float(divergence.mean()),
        "agreement": float(same.mean()),
        "clear_positions": int(clear.sum()),
        "clear_agreement": float(same[clear].mean()) if clear.any() else 1.0,
    }


def _log_softmax(logits: Array) -> Array:
    shifted = logits.astype(np.float64) - logits.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def _lead(logits: Array) -> Array:
    second, first = np.sort(logits, axis=-1)[:, -2:].T
    return first - second


def measure(
    worker: Worker, ids: Sequence[int], want: Array, prompts: Sequence[int], folder: Path
) -> dict[str, Report]:
    """Compare after every position of `ids` read one at a time (`steps`), and after each of the
    lengths `prompts`, each read at once as a new sequence (`prompts`). `want` has the logits at
    all positions."""

    def logits(lengths: Sequence[int]) -> Array:
        file = folder / "logits.npy"
        worker.ask("logits", ids=list(ids), lengths=list(lengths), file=str(file))
        found = np.load(file)
        file.unlink()
        return found

    steps = compare(logits(range(1, len(ids) + 1)), want)
    at_once = np.concatenate([logits([n]) for n in prompts])
    return {"steps": steps, "prompts": compare(at_once, want[np.array(prompts) - 1])}


def greedy(worker: Worker, oracle: LlamaNumpy, prompt: Sequence[int], steps: int) -> Report:
    """Continue a prompt greedily; how many tokens are the oracle's choice given those before."""
    found = worker.ask("generate", ids=list(prompt), steps=steps - 1)["ids"]
    logits = oracle.logits([*prompt, *found])[len(prompt) - 1 : -1]
    same = logits.argmax(axis=-1) == np.array(found)
    clear = _lead(logits) > CLEAR
    return {
        "tokens": len(found),
        "equal": int(same.sum()),
        "clear": int(clear.sum()),
        "clear_equal": int(same[clear].sum()),
    }
