"""Ragged batches over pages, and what attention makes of them according to NumPy."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from relaxlab.nn.loop_functions import Scores
from relaxlab.nn.paged_loops import PAGE, PoolShape


@dataclass(slots=True)
class Batch:
    """New rows of sequences, and a pool in which the sequences' pages lie in any order."""

    keys: np.ndarray
    values: np.ndarray
    row_ends: np.ndarray
    page_ends: np.ndarray
    pages: np.ndarray
    positions: np.ndarray

    @staticmethod
    def random(rng: np.random.Generator, new: list[int], past: list[int], shape: PoolShape):
        """`new[s]` rows of sequence s after `past[s]` positions."""
        counts = [-(-(n + p) // PAGE) for n, p in zip(new, past, strict=True)]
        total = sum(counts) + 3
        keys, values = (rng.normal(size=s).astype(shape.dtype) for s in shape.of(total))
        rows = [p + np.arange(n) for n, p in zip(new, past, strict=True)]
        return Batch(
            keys,
            values,
            np.cumsum([0, *new]).astype(np.int32),
            np.cumsum([0, *counts]).astype(np.int32),
            rng.permutation(total)[: sum(counts)].astype(np.int32),
            np.concatenate(rows).astype(np.int32),
        )

    def tiles(self, rows: int) -> np.ndarray:
        """Tiles of at most `rows` rows that hold every row."""
        ends = self.row_ends
        return np.array(
            [(s, r) for s in range(len(ends) - 1) for r in range(ends[s], ends[s + 1], rows)],
            np.int32,
        )

    def slots(self) -> np.ndarray:
        """Return the slot of each row's key and value."""
        found = []
        for s in range(len(self.row_ends) - 1):
            pages = self.pages[self.page_ends[s] : self.page_ends[s + 1]]
            at = self.positions[self.row_ends[s] : self.row_ends[s + 1]]
            found.append(pages[at // PAGE] * PAGE + at % PAGE)
        return np.concatenate(found).astype(np.int32)

    def arguments(self, q: np.ndarray, rows: int) -> list[np.ndarray]:
        """The inputs of `paged_attention`."""
        return [
            q, self.keys, self.values, self.tiles(rows),
            self.row_ends, self.page_ends, self.pages, self.positions,
        ]  # fmt: skip

    def attention(self, q: np.ndarray, shape: PoolShape, scores: Scores) -> np.ndarray:
        """q (1, t, heads, d) -> float64 (1, t, heads, d), row by row."""
        d, group = shape.head_dim, q.shape[2] // shape.kv_heads
        out = np.empty(q.shape)
        for s in range(len(self.row_ends) - 1):
            pages = self.pages[self.page_ends[s] : self.page_ends[s + 1]]
            k = self.keys[pages].astype(np.float64).transpose(1, 0, 3, 2)
            v = self.values[pages].astype(np.float64).transpose(1, 0, 2, 3)
            k, v = (x.reshape(shape.kv_heads, -1, d) for x in (k, v))
            for r in range(self.row_ends[s], self.row_ends[s + 1]):
                end = self.positions[r] + 1
                start = 0 if scores.window is None else max(0, end - scores.window)
                for h in range(q.shape[2]):
                    score = k[h // group, start:end] @ q[0, r, h] * scores.scale
                    if scores.softcap is not None:
                        score = scores.softcap * np.tanh(score / scores.softcap)
                    weight = np.exp(score - score.max())
                    out[0, r, h] = weight @ v[h // group, start:end] / weight.sum()
        return out
