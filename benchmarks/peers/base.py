"""The interface of a peer: read a prompt, continue it greedily, return logits."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds for reading a prompt and choosing the first token, then for all further tokens;
    and the tokens."""

    prefill_s: float
    decode_s: float
    ids: list[int]


class Peer:
    """A loaded model. `about`: its description in the results (version, seconds of loading and
    compiling). `reset` and `feed` are all that a peer needs; one whose interface only generates
    overrides `generate` instead."""

    about: dict[str, Any]

    def reset(self) -> None:
        """Forget the sequence."""
        raise NotImplementedError

    def feed(self, ids: Sequence[int]) -> Array:
        """Append `ids` to the sequence; return the logits float32 (vocab_size,) of the next
        token."""
        raise NotImplementedError

    def generate(self, ids: Sequence[int], steps: int) -> Timing:
        """Read the prompt `ids` as a new sequence, then take `steps` greedy steps."""
        self.reset()
        start = time.perf_counter()
        found = [int(self.feed(ids).argmax())]
        middle = time.perf_counter()
        for _ in range(steps):
            found.append(int(self.feed(found[-1:]).argmax()))
        return Timing(middle - start, time.perf_counter() - middle, found)

    def logits(self, ids: Sequence[int], lengths: Sequence[int]) -> Array:
        """Logits float32 (len(lengths), vocab_size) after the first n of `ids` for n in `lengths`,
        which must increase: each part is appended to what was read before."""
        self.reset()
        ends = zip((0, *lengths), lengths, strict=False)
        return np.stack([np.array(self.feed(ids[a:b])) for a, b in ends])
