"""Choosing the next token from logits: greedy, temperature, top-k, top-p."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from relaxlab.ir.arguments import methods_name_arguments
from relaxlab.ir.errors import UserError, expect_number


class SamplingError(UserError, ValueError):
    """A setting out of range, or logits that nothing can be drawn from."""


@methods_name_arguments
@dataclass(slots=True)
class Sampler:
    """A sampler of token ids. With `temperature` 0 it is greedy: the most likely token, the lowest
    id on a tie. Otherwise logits are divided by `temperature`, the `top_k` most likely are kept (0
    keeps all), then the fewest whose probability reaches `top_p`, and one is drawn.

    The same `seed` gives the same draws. Raises SamplingError for an argument out of range.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0
    _rng: np.random.Generator = field(init=False, repr=False)

    def __post_init__(self) -> None:
        for name in ("temperature", "top_p"):
            expect_number(getattr(self, name), f"{name} is a number")
        for name in ("top_k", "seed"):
            expect_number(getattr(self, name), f"{name} is a whole number", whole=True)
        if not (0 <= self.temperature < float("inf")):
            raise SamplingError(f"temperature must be a finite number >= 0, is {self.temperature}")
        if self.top_k < 0:
            raise SamplingError(f"top_k must be >= 0 (0 keeps every token), is {self.top_k}")
        if not 0 < self.top_p <= 1:
            raise SamplingError(f"top_p must lie in (0, 1], is {self.top_p}")
        if self.seed < 0:
            raise SamplingError(f"seed must be >= 0, is {self.seed}")
        self._rng = np.random.default_rng(self.seed)

    def __call__(self, logits: np.ndarray[Any, Any]) -> int:
        """One token id from float logits (vocab_size,); SamplingError if they are not one
        non-empty row, or hold NaN or +inf."""
        if logits.ndim != 1 or not logits.size:
            raise SamplingError(f"logits must be one non-empty row, got shape {logits.shape}")
        best = int(logits.argmax())  # NaN counts as the largest
        if not logits[best] < np.inf or logits[best] == -np.inf:
            raise SamplingError(f"logits[{best}] is {logits[best]}: nothing can be drawn from them")
        if self.temperature == 0:
            return best
        return self._draw(logits)

    def _draw(self, logits: np.ndarray[Any, Any]) -> int:
        # Stable: the same seed draws the same token where logits are equal.
        order = np.argsort(-logits, kind="stable")
        if self.top_k:
            order = order[: self.top_k]
        # Subtracting first keeps a tiny temperature from overflowing.
        below = logits[order].astype(np.float64) - float(logits[order[0]])
        with np.errstate(over="ignore"):  # below the smallest number, the token is never drawn
            scaled = below / self.temperature
        probabilities = np.exp(scaled)
        probabilities /= probabilities.sum()
        # The one that reaches `top_p` belongs to them, so there is always one.
        count = int(np.searchsorted(np.cumsum(probabilities), self.top_p)) + 1
        probabilities = probabilities[:count] / probabilities[:count].sum()
        return int(self._rng.choice(order[:count], p=probabilities))
