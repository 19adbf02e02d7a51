"""The distance of a compiled model's logits from a float32 evaluation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from relaxlab.models.generate import TextGenerator
from relaxlab.testing.llama_numpy import LlamaNumpy


@dataclass(frozen=True, slots=True)
class LogitsEffect:
    """Per position, the largest difference of a logit relative to the largest logit: `worst` and
    `mean` over the positions; and how often the most likely token is the same (`agreement`), also
    among the positions where it leads by more than 0.3 (`clear_agreement`)."""

    positions: int
    worst: float
    mean: float
    agreement: float
    clear_agreement: float

    def __str__(self) -> str:
        return (
            f"{self.positions} positions: logits differ by {self.mean:.2e} on average, "
            f"{self.worst:.2e} at most; same top-1 at {self.agreement:.1%}, "
            f"{self.clear_agreement:.1%} where the margin exceeds 0.3"
        )


def logits_effect(generator: TextGenerator, oracle: LlamaNumpy, ids: Sequence[int]) -> LogitsEffect:
    """Compare at every position of `ids`, which the generator reads one at a time."""
    want = oracle.logits(ids)
    got = np.stack([generator.logits(ids[: n + 1]) for n in range(len(ids))])
    distance = np.abs(got - want).max(axis=-1) / np.abs(want).max(axis=-1)
    same = got.argmax(axis=-1) == want.argmax(axis=-1)
    second, first = np.sort(want, axis=-1)[:, -2:].T
    clear = same[first - second > 0.3]
    return LogitsEffect(
        len(ids), float(distance.max()), float(distance.mean()), float(same.mean()),
        float(clear.mean()) if clear.size else 1.0,
    )  # fmt: skip
