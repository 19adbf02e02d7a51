"""Attention without a causal mask, compiled, against NumPy: any lengths, batches and masks."""

from __future__ import annotations

import numpy as np
import pytest

import relaxlab as rl
from relaxlab import nn
from relaxlab.ir.module import Module
from relaxlab.passes.pipeline import cpu_pipeline
from relaxlab.runtime.executable import Executable
from relaxlab.runtime.native.function import CheckFailed

HEADS, WIDTH, LONGEST = 3, 16, 72
HIDDEN = HEADS * WIDTH


class Both(nn.Module):
    """Self-attention with a mask; cross-attention whose keys and values are kept between calls."""

    def __init__(self) -> None:
        def linear() -> nn.Linear:
            return nn.Linear(HIDDEN, HIDDEN, bias=True)

        qkv = nn.MergedLinear(HIDDEN, dict.fromkeys("qkv", HIDDEN), dict.fromkeys("qkv", "F32"))
        self.own = nn.SelfAttention(qkv, linear(), heads=HEADS, head_dim=WIDTH)
        parts = (linear() for _ in range(4))
        self.other = nn.CrossAttention(*parts, heads=HEADS, head_dim=WIDTH)

    def attend(self, x, mask):
        b, s, _ = x.shape
        y = self.own(x.reshape(b * s, HIDDEN), b, s, mask)
        return y.reshape(b, s, HIDDEN)

    def remember(self, x):
        b, t, _ = x.shape
        return self.other.remember(x.reshape(b * t, HIDDEN), b, t)

    def look_up(self, x, memory):
        b, s, _ = x.shape
        return self.other(x.reshape(b * s, HIDDEN), b, s, *memory).reshape(b, s, HIDDEN)


def exported() -> tuple[Module, list[str]]:
    spec = nn.spec.Tensor
    memory = nn.CrossAttention.spec("b", "t", HEADS, WIDTH)
    methods = {
        "attend": {"x": spec(("b", "s", HIDDEN)), "mask": spec(("b", "s"), "int32")},
        "remember": {"x": spec(("b", "t", HIDDEN))},
        "look_up": {"x": spec(("b", "s", HIDDEN)), "memory": memory},
    }
    return Both().export(methods, {"s": LONGEST, "t": LONGEST})


@pytest.fixture(scope="module")
def compiled() -> tuple[Executable, dict[str, np.ndarray], list[np.ndarray]]:
    """The program, the weights by name, and the weights as its functions take them."""
    mod, names = exported()
    rng = np.random.default_rng(5)
    weights = {}
    for name, parameter in Both().named_parameters().items():
        weights[name] = (rng.normal(size=parameter.shape) / 7).astype(np.float32)
    exe = rl.compile(mod, use_cache=False)
    return exe, weights, list(exe["transform_params"](tuple(weights[n] for n in names)))


def softmax_mix(q, k, v, mask=None):
    """q (b, s, h, d), k and v (b, t, h, d), mask (b, t)."""
    score = np.einsum("bshd,bthd->bhst", q, k) / np.sqrt(WIDTH)
    if mask is not None:
        score = np.where(mask[:, None, None] != 0, score, -3.4e38)
    weight = np.exp(score - score.max(-1, keepdims=True))
    weight /= weight.sum(-1, keepdims=True)
    return np.einsum("bhst,bthd->bshd", weight, v).reshape(*q.shape[:2], HIDDEN)


def linear(x, weights, path):
    return x @ weights[f"{path}.weight.data"].T + weights[f"{path}.bias"]


def heads(x):
    return x.reshape(*x.shape[:2], HEADS, WIDTH)


SIZES = [(1, 1), (1, 16), (2, 17), (3, 7), (1, LONGEST)]


@pytest.mark.parametrize(("batch", "length"), SIZES)
def test_self_attention(compiled, rng, batch, length):
    exe, weights, prepared = compiled
    x = rng.normal(size=(batch, length, HIDDEN)).astype(np.float32)
    mask = rng.integers(0, 2, (batch, length)).astype(np.int32)
    mask[0] = 0  # nothing to look at: the mean of all values
    qkv = x @ weights["own.qkv.linears.0.weight.data"].T
    q, k, v = (heads(part) for part in np.split(qkv, 3, axis=-1))
    want = linear(softmax_mix(q, k, v, mask), weights, "own.output")
    np.testing.assert_allclose(exe["attend"](x, mask, *prepared), want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("batch", "length"), SIZES)
def test_cross_attention_over_what_was_remembered(compiled, rng, batch, length):
    exe, weights, prepared = compiled
    there = rng.normal(size=(batch, length, HIDDEN)).astype(np.float32)
    memory = exe["remember"](there, *prepared)
    assert [m.shape for m in memory] == [(batch, HEADS, length, WIDTH)] * 2
    k, v = (heads(linear(there, weights, f"other.{part}")) for part in ("key", "value"))
    for queries in (1, 5):
        x = rng.normal(size=(batch, queries, HIDDEN)).astype(np.float32)
        q = heads(linear(x, weights, "other.query"))
        want = linear(softmax_mix(q, k, v), weights, "other.output")
        got = exe["look_up"](x, *memory, *prepared)
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_lengths_beyond_the_bound_are_refused(compiled):
    exe, _, prepared = compiled
    x = np.zeros((1, LONGEST + 1, HIDDEN), np.float32)
    with pytest.raises(CheckFailed, match=f"s .* may be at most {LONGEST}"):
        exe["attend"](x, np.ones(x.shape[:2], np.int32), *prepared)


def test_scores_stay_with_the_thread():
    trace = cpu_pipeline().run(exported()[0])
    remarks = [w for r in trace.passes if r.name == "schedule_kernels" for w in r.remarks]
    rules = {w.subject: w.reason.rpartition(" ")[2] for w in remarks if w.applied}
    found = [rules[name] for name in rules if "attention" in name]
    assert found and set(found) == {"attention"}
    assert "fallback" not in rules.values()
