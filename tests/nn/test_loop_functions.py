"""Loop functions of transformer layers against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from relaxlab.analysis.loops_check import check_loops
from relaxlab.nn import loop_functions
from relaxlab.nn.loop_functions import Scores
from relaxlab.runtime.interpreter.interpreter import interpret_prim_func

D = 8


def in_blocks(keys):
    """Keys (b, heads, d, positions) as the cache has them: (b, heads, blocks, d, 16)."""
    b, heads, d, positions = keys.shape
    padded = np.full((b, heads, d, -(-positions // 16) * 16), np.nan, keys.dtype)
    padded[..., :positions] = keys
    return np.ascontiguousarray(padded.reshape(b, heads, d, -1, 16).transpose(0, 1, 3, 2, 4))


def test_the_shapes_of_the_cache():
    assert loop_functions.cache_shapes((3, D), 20) == ((3, 2, D, 16), (3, 20, D))


@pytest.mark.parametrize("dims", [D, D - 2])
@pytest.mark.parametrize("interleaved", [True, False])
def test_rotary_turns_pairs(rng, interleaved, dims):
    total, first, heads, past = 5, 1, 3, 4
    x = rng.normal(size=(2, 3, total, D)).astype(np.float32)
    angle = rng.normal(size=(16, dims // 2))
    cos, sin = np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)
    func = loop_functions.rotary(total, first, heads, D, dims, interleaved)
    y = np.empty((2, 3, heads, D), np.float32)
    interpret_prim_func(func, [x, cos, sin, y, past])
    part = x[:, :, first : first + heads]
    a, b = (np.s_[..., 0:dims:2], np.s_[..., 1:dims:2])
    if not interleaved:
        a, b = np.s_[..., : dims // 2], np.s_[..., dims // 2 : dims]
    np.testing.assert_array_equal(y[..., dims:], part[..., dims:])
    turned = (part[a] + 1j * part[b]) * np.exp(1j * angle[past : past + 3])[None, :, None]
    np.testing.assert_allclose(y[a], turned.real, atol=1e-5)
    np.testing.assert_allclose(y[b], turned.imag, atol=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_append_kv_writes_its_positions_only(rng, dtype):
    heads, capacity, past, s = 2, 20, 14, 4
    k = rng.normal(size=(2, s, 3, D)).astype(np.float32)
    v = rng.normal(size=(2, s, 5, D)).astype(np.float32)
    keys = rng.normal(size=(2, heads, D, capacity)).astype(dtype)
    values = rng.normal(size=(2, heads, capacity, D)).astype(dtype)
    want_keys, want_values = keys.copy(), values.copy()
    want_keys[..., past : past + s] = k[:, :, 1:3].transpose(0, 2, 3, 1)
    want_values[:, :, past : past + s] = v[:, :, 3:5].transpose(0, 2, 1, 3)
    func = loop_functions.append_kv(3, 1, 5, 3, (heads, D), dtype)
    stored = in_blocks(keys)
    interpret_prim_func(func, [k, v, stored, values, past])
    np.testing.assert_array_equal(stored, in_blocks(want_keys))
    np.testing.assert_array_equal(values, want_values)


SCORES = [
    Scores(D**-0.5),
    Scores(0.1, softcap=2.0),
    Scores(D**-0.5, window=1),
    Scores(0.5, softcap=1.0, window=6),
]


def attention(q, keys, values, past, how=SCORES[0]):
    """Causal attention of q (b, s, heads, d) over the first past + s positions of the caches."""
    group = q.shape[2] // keys.shape[1]
    length = past + q.shape[1]
    k = np.repeat(keys[..., :length], group, axis=1).astype(np.float64)
    v = np.repeat(values[:, :, :length], group, axis=1).astype(np.float64)
    scores = q.transpose(0, 2, 1, 3) @ k * how.scale
    if how.softcap is not None:
        scores = how.softcap * np.tanh(scores / how.softcap)
    distance = past + np.arange(q.shape[1])[:, None] - np.arange(length)
    seen = (distance >= 0) & (distance < (how.window or length))
    scores = np.where(seen, scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    return (weights @ v).transpose(0, 2, 1, 3)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize(("s", "past"), [(1, 0), (1, 17), (5, 0), (3, 14)])
@pytest.mark.parametrize("scores", SCORES)
def test_cached_attention(rng, dtype, s, past, scores):
    heads, kv_heads, capacity, total, first = 4, 2, 20, 6, 1
    q = rng.normal(size=(2, s, total, D)).astype(np.float32)
    keys = rng.normal(size=(2, kv_heads, D, capacity)).astype(dtype)
    values = rng.normal(size=(2, kv_heads, capacity, D)).astype(dtype)
    # What lies beyond must not be read: past and new positions end before it.
    keys[..., past + s :], values[:, :, past + s :] = np.nan, np.nan
    shape = (kv_heads, D)
    func = loop_functions.cached_attention(total, first, heads, shape, dtype, scores)
    y = np.empty((2, s, heads, D), np.float32)
    interpret_prim_func(func, [q, in_blocks(keys), values, y, past])
    want = attention(q[:, :, first : first + heads], keys, values, past, scores)
    np.testing.assert_allclose(y, want, rtol=1e-4, atol=1e-5)


def test_attention_survives_large_scores():
    q = np.full((1, 2, 1, D), 100, np.float32)
    keys = np.full((1, 1, D, 4), 100, np.float32)
    values = np.arange(4 * D, dtype=np.float32).reshape(1, 1, 4, D)
    y = np.empty_like(q)
    func = loop_functions.cached_attention(1, 0, 1, (1, D), "float32", SCORES[0])
    interpret_prim_func(func, [q, in_blocks(keys), values, y, 0])
    np.testing.assert_allclose(y, attention(q, keys, values, 0), rtol=1e-5)


def test_last_position(rng):
    x = rng.normal(size=(2, 3, 4)).astype(np.float32)
    y = np.empty((2, 4), np.float32)
    interpret_prim_func(loop_functions.last_position(4), [x, y])
    np.testing.assert_array_equal(y, x[:, -1])


def test_all_are_well_formed():
    shape = (2, D)
    for func in (
        loop_functions.rotary(5, 1, 3, D, D, True),
        loop_functions.rotary(5, 1, 3, D, D // 2, False),
        loop_functions.append_kv(3, 1, 5, 3, shape, "float16"),
        *(loop_functions.cached_attention(6, 1, 4, shape, "float16", s) for s in SCORES),
        loop_functions.last_position(4),
    ):
        assert not check_loops("f", func)
