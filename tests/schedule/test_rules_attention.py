"""Attention over a cache, scheduled and compiled, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import relaxlab as rl
from relaxlab import nn
from relaxlab.ir import expr
from relaxlab.ir.module import Module
from relaxlab.ir.node import Node, rewrite
from relaxlab.ir.target import Target
from relaxlab.nn import loop_functions
from relaxlab.schedule.rules import attention

HEADS, KV_HEADS, WIDTH, POSITIONS = 6, 2, 32, 160
SHAPE = (KV_HEADS, WIDTH, POSITIONS)
SCORES = nn.Scores(WIDTH**-0.5)
SHORTER = "T.min((past + s + 31) // 32"
"""The bound of the shortened loops, for vectors of 16 lanes."""


WIDE = Target("cpu", "x86_64-unknown-linux-gnu", "x86-64-v4", frozenset({"avx512f", "avx512vl"}))


class Attend(nn.Module):
    def __init__(self, dtype: str) -> None:
        self.dtype = dtype

    def main(self, q, past, keys, values):
        func = loop_functions.cached_attention(HEADS, 0, HEADS, SHAPE, self.dtype, SCORES)
        return q.builder.call_loops("attention", func, [q, keys, values], past)[0]


def reference(q: np.ndarray, keys: np.ndarray, values: np.ndarray, past: int) -> np.ndarray:
    """keys, values (kv_heads, positions, width); q (s, heads, width)."""
    length = q.shape[0]
    seen = np.arange(POSITIONS)[None] <= past + np.arange(length)[:, None]
    result = np.empty(q.shape)
    for h in range(HEADS):
        k, v = (x[h // (HEADS // KV_HEADS)].astype(np.float64) for x in (keys, values))
        score = np.where(seen, q[:, h] @ k.T / np.sqrt(WIDTH), -np.inf)
        weight = np.exp(score - score.max(axis=1, keepdims=True))
        result[:, h] = weight @ v / weight.sum(axis=1, keepdims=True)
    return result


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_any_number_of_positions_after_any_other(dtype):
    rng = np.random.default_rng(11)
    spec = nn.spec.Tensor
    shapes = loop_functions.cache_shapes(SHAPE)
    mod, _ = Attend(dtype).export(
        {
            "main": {
                "q": spec(("b", "s", HEADS, WIDTH)),
                "past": nn.spec.Shape(("p",)),
                "keys": spec(("b", *shapes[0]), dtype),
                "values": spec(("b", *shapes[1]), dtype),
            }
        }
    )
    exe = rl.compile(mod, threads=2, use_cache=False)
    keys, values = (
        rng.normal(size=(2, KV_HEADS, POSITIONS, WIDTH)).astype(dtype) for _ in range(2)
    )
    blocked = keys.reshape(2, KV_HEADS, -1, 16, WIDTH).swapaxes(3, 4).copy()
    for past, length in ((0, 1), (0, 8), (0, 33), (0, 160), (5, 1), (31, 2), (32, 9), (90, 70)):
        q = rng.normal(size=(2, length, HEADS, WIDTH)).astype(np.float32)
        got = np.asarray(exe["main"](q, (past,), blocked, values))
        for b in range(2):
            want = reference(q[b], keys[b], values[b], past)
            assert np.abs(got[b] - want).max() < 1e-5, (past, length)


def test_masked_steps_are_left_out_only_where_the_mask_says_so():
    func = loop_functions.cached_attention(HEADS, 0, HEADS, SHAPE, "float32", SCORES)
    scheduled = attention.apply(func, WIDE)
    assert scheduled is not None
    assert SHORTER in Module.of({"f": scheduled}).script()
    # A mask that lets earlier rows see more: no step is masked for all rows of a tile.
    falling = rewrite(func, _turned)
    scheduled = attention.apply(falling, WIDE)
    assert scheduled is not None
    assert SHORTER not in Module.of({"f": scheduled}).script()


def _turned(n: Node) -> Node | None:
    match n:
        case expr.LE(position, expr.Add(past, row)):
            return expr.LE(position, past - row)
        case _:
            return None
