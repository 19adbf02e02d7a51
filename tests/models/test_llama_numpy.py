"""The NumPy Llama: its invariants on random weights, and sense from real ones."""

import dataclasses
import itertools

import numpy as np
import pytest

from relaxlab.models.chat import ChatTemplate
from relaxlab.models.config import DecoderConfig, Rope
from relaxlab.models.tokenizer_gguf import tokenizer_from_gguf
from relaxlab.testing.llama_numpy import KVCache, LlamaNumpy

CONFIG = DecoderConfig(
    hidden_size=32, num_layers=2, num_heads=4, num_kv_heads=2, head_dim=8, ffn_size=64,
    vocab_size=50, context_length=24, norm_eps=1e-5, rope=Rope(100.0, 8, True),
)  # fmt: skip


@pytest.fixture
def model(rng):
    weights = {
        name: rng.normal(size=shape, scale=shape[-1] ** -0.5).astype(np.float32)
        for name, shape in CONFIG.tensor_shapes().items()
    }
    return LlamaNumpy(CONFIG, weights)


def one_position(model: LlamaNumpy, ids: list[int]) -> np.ndarray:
    """Logits after the last id, in float64, one head and one position at a time."""
    c, w = model.config, {k: v.astype(np.float64) for k, v in model.weights.items()}
    group = c.num_heads // c.num_kv_heads

    def norm(v, name):
        return v / np.sqrt((v * v).mean() + c.norm_eps) * w[f"{name}.weight"]

    def rope(head, position):
        out = head.copy()
        for i in range(c.head_dim // 2):
            turn = np.exp(1j * position * c.rope.theta ** (-2 * i / c.head_dim))
            z = (head[2 * i] + 1j * head[2 * i + 1]) * turn
            out[2 * i], out[2 * i + 1] = z.real, z.imag
        return out

    xs = [w["token_embd.weight"][t] for t in ids]
    for b in (f"blk.{layer}." for layer in range(c.num_layers)):
        normed = [norm(x, b + "attn_norm") for x in xs]
        heads = {
            kind: [(w[f"{b}attn_{kind}.weight"] @ y).reshape(-1, c.head_dim) for y in normed]
            for kind in "qkv"
        }
        for at in range(len(xs)):
            mixed = []
            for h in range(c.num_heads):
                q = rope(heads["q"][at][h], at)
                scores = np.array(
                    [q @ rope(heads["k"][j][h // group], j) for j in range(at + 1)]
                ) / np.sqrt(c.head_dim)
                p = np.exp(scores) / np.exp(scores).sum()
                mixed.append(sum(p[j] * heads["v"][j][h // group] for j in range(at + 1)))
            xs[at] = xs[at] + w[b + "attn_output.weight"] @ np.concatenate(mixed)
            y = norm(xs[at], b + "ffn_norm")
            gate = w[b + "ffn_gate.weight"] @ y
            hidden = gate / (1 + np.exp(-gate)) * (w[b + "ffn_up.weight"] @ y)
            xs[at] = xs[at] + w[b + "ffn_down.weight"] @ hidden
    return w["output.weight"] @ norm(xs[-1], "output_norm")


def test_same_as_position_by_position(model, rng):
    ids = rng.integers(50, size=7).tolist()
    got = model.logits(ids)[-1]
    np.testing.assert_allclose(got, one_position(model, ids), atol=1e-4)


def test_cache_changes_nothing(model, rng):
    ids = rng.integers(50, size=20).tolist()
    whole = model.logits(ids)
    assert whole.shape == (20, 50) and whole.dtype == np.float32
    cache = KVCache()
    parts = [model.logits(ids[a:b], cache) for a, b in [(0, 7), (7, 8), (8, 15), (15, 20)]]
    np.testing.assert_allclose(np.concatenate(parts), whole, atol=1e-5)
    assert len(cache) == 20


def test_later_ids_do_not_matter(model, rng):
    ids = rng.integers(50, size=10)
    other = ids.copy()
    other[6:] = (other[6:] + 1) % 50
    a, b = model.logits(ids), model.logits(other)
    np.testing.assert_allclose(a[:6], b[:6], atol=1e-6)
    assert np.abs(a[6:] - b[6:]).max() > 1e-2


def test_both_rope_layouts_agree(model, rng):
    """Reordering the rows of every head from pairs to halves turns one layout into the other."""
    order = np.r_[0:8:2, 1:8:2]
    weights = dict(model.weights)
    for name, value in weights.items():
        if name.endswith(("attn_q.weight", "attn_k.weight")):
            weights[name] = value.reshape(-1, 8, 32)[:, order].reshape(value.shape)
    halves = LlamaNumpy(dataclasses.replace(CONFIG, rope=Rope(100.0, 8)), weights)
    ids = rng.integers(50, size=9)
    np.testing.assert_allclose(halves.logits(ids), model.logits(ids), atol=1e-5)


def test_greedy_stops_at_the_context_bound(model):
    ids = list(model.greedy([1, 2, 3]))
    assert len(ids) == CONFIG.context_length - 3 + 1
    assert ids[0] == model.logits([1, 2, 3])[-1].argmax()
    assert ids[5] == model.logits([1, 2, 3, *ids[:5]])[-1].argmax()


@pytest.mark.parametrize(
    ("ids", "message"),
    [([], "non-empty"), ([50], r"0\.\.49"), ([-1], r"0\.\.49"), ([0] * 25, "25 positions exceed")],
)
def test_bad_ids_are_refused(model, ids, message):
    with pytest.raises(ValueError, match=message):
        model.logits(ids)


def test_smollm2_answers(smollm2):
    tokenizer = tokenizer_from_gguf(smollm2)
    model = LlamaNumpy.from_gguf(smollm2)
    question = [{"role": "user", "content": "What is the capital of France?"}]
    prompt = ChatTemplate.from_gguf(smollm2, tokenizer).encode(question)
    ids = itertools.takewhile(lambda i: i not in tokenizer.stop_ids, model.greedy(prompt))
    assert tokenizer.decode(itertools.islice(ids, 20)) == "The capital of France is Paris."
