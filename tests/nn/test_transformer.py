"""Layers on ragged batches, against NumPy one sequence after the other."""

from __future__ import annotations

import os
from collections.abc import Mapping
from math import sqrt

import numpy as np
import pytest

import relaxlab as rl
from relaxlab import nn
from relaxlab.analysis.evaluate import evaluate
from relaxlab.ir.errors import UserError
from relaxlab.ir.substitute import symbols_in
from relaxlab.passes.pipeline import cpu_pipeline
from relaxlab.passes.plan_memory import memory_plan_of

SEED = int(os.environ.get("RELAXLAB_SEED", "1"))
Array = np.ndarray
Weights = Mapping[str, Array]
LENGTHS = ([3, 0, 1, 6], [1], [2, 2])


def attention(q: Array, k: Array, v: Array, *, causal: bool) -> Array:
    """Return the attention of one head, (s, d), for q (s, d), k and v (t, d)."""
    scores = q @ k.T / sqrt(q.shape[1])
    if causal:
        scores = np.where(np.tri(*scores.shape, dtype=bool), scores, -np.inf)
    e = np.exp(scores - scores.max(1, keepdims=True, initial=-1e30))
    return e / e.sum(1, keepdims=True) @ v


def multihead(x: Array, memory: Array, w: Weights, path: str, *, causal: bool = False) -> Array:
    """Two heads of four features."""
    weight, bias = w[f"{path}in_proj_weight"], w[f"{path}in_proj_bias"]
    q, k, v = (t @ weight[i : i + 8].T + bias[i : i + 8]
               for t, i in ((x, 0), (memory, 8), (memory, 16)))  # fmt: skip
    heads = [attention(q[:, h], k[:, h], v[:, h], causal=causal)
             for h in (slice(0, 4), slice(4, 8))]  # fmt: skip
    return np.hstack(heads) @ w[f"{path}out_proj.weight"].T + w[f"{path}out_proj.bias"]


def norm(x: Array, w: Weights, path: str) -> Array:
    scaled = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5)
    return scaled * w[f"{path}.weight"] + w[f"{path}.bias"]


def encoder(x: Array, w: Weights, *, first: bool) -> Array:
    def feed_forward(y: Array) -> Array:
        hidden = np.maximum(y @ w["linear1.weight"].T + w["linear1.bias"], 0)
        return hidden @ w["linear2.weight"].T + w["linear2.bias"]

    if first:
        y = norm(x, w, "norm1")
        x = x + multihead(y, y, w, "self_attn.")
        return x + feed_forward(norm(x, w, "norm2"))
    x = norm(x + multihead(x, x, w, "self_attn."), w, "norm1")
    return norm(x + feed_forward(x), w, "norm2")


def weights(model: nn.Module) -> dict[str, Array]:
    """Random values of all parameters, biases too."""
    print(f"RELAXLAB_SEED={SEED}")
    rng = np.random.default_rng(SEED)
    return {k: rng.standard_normal(v.shape, "float32") / 2 for k, v in model.state_dict().items()}


def rows(*counts: int) -> list[Array]:
    rng = np.random.default_rng([SEED, *counts])
    return [rng.standard_normal((n, 8), "float32") for n in counts]


RAGGED = {"s": nn.spec.Lengths("b", "n", at_most=64), "x": nn.spec.Ragged(("b", "s[i]", 8))}


class Layer(nn.Module):
    """An encoder layer that takes the lengths, too."""

    def __init__(self, *, first: bool) -> None:
        self.layer = nn.TransformerEncoderLayer(8, 2, 12, norm_first=first)

    def forward(self, s: nn.Tensor, x: nn.Tensor) -> nn.Tensor:
        return self.layer(x)


def test_memory_of_several_layers() -> None:
    """The inner layer and its input, which is added to its output, need 2560 numbers of a row.
    While attention of a second layer runs, its input is kept, too: keys of one head are packed."""

    class Layers(nn.Module):
        def __init__(self) -> None:
            self.layers = nn.Sequential(
                *(nn.TransformerEncoderLayer(512, 8, 2048) for _ in range(2))
            )

        def forward(self, s: nn.Tensor, x: nn.Tensor) -> nn.Tensor:
            return self.layers(x)

    given = {**RAGGED, "x": nn.spec.Ragged(("b", "s[i]", 512))}
    mod, _ = Layers().export({"forward": given})
    made = cpu_pipeline().without("plan_memory").run(mod).result
    (arena,) = memory_plan_of(made["forward"], made).arenas
    sizes = {v: {"b": 32, "n": 1000}[v.name] for v in symbols_in(arena.size)}
    assert evaluate(arena.size, sizes) <= 1.05 * 1000 * 2560 * 4


@pytest.mark.parametrize("first", [False, True])
def test_an_encoder_layer(first: bool) -> None:
    model = Layer(first=first)
    w = weights(model)
    mod, names = model.export({"forward": RAGGED})
    given = [w.get(n, w.get(n.removesuffix(".data"))) for n in names]
    one = {k.removeprefix("layer."): v for k, v in w.items()}
    for lengths in LENGTHS:
        parts = rows(*lengths)
        want = np.concatenate([encoder(p, one, first=first) for p in parts])
        batch = rl.ragged(parts)
        got = rl.interpret(mod, "forward", batch.lengths, batch.data, *given)
        np.testing.assert_allclose(got, want, 1e-4, 1e-4)


class Small(nn.Module):
    """A linear map and a norm."""

    def __init__(self) -> None:
        self.linear, self.norm = nn.Linear(8, 6, bias=True), nn.LayerNorm(6)

    def forward(self, s: nn.Tensor, x: nn.Tensor) -> nn.Tensor:
        return self.norm(self.linear(x))


def test_small_layers_natively() -> None:
    model = Small()
    w = weights(model)
    exe = rl.compile(model.export({"forward": RAGGED})[0]).load(w)
    parts = rows(*LENGTHS[0])
    batch = rl.ragged(parts)
    want = norm(batch.data @ w["linear.weight"].T + w["linear.bias"], w, "norm")
    np.testing.assert_allclose(np.asarray(exe(batch.lengths, batch)), want, 1e-4, 1e-4)


class Cross(nn.Module):
    """Attention to other sequences, and causal attention."""

    def __init__(self) -> None:
        self.to_others = nn.MultiheadAttention(8, 2)
        self.to_itself = nn.MultiheadAttention(8, 2, causal=True)

    def forward(self, s: nn.Tensor, x: nn.Tensor, t: nn.Tensor, y: nn.Tensor) -> list[nn.Tensor]:
        return [self.to_others(x, y), self.to_itself(y)]


def test_attention_to_sequences_of_other_lengths() -> None:
    model = Cross()
    w = weights(model)
    mod, names = model.export({"forward": {
        **RAGGED, "t": nn.spec.Lengths("b", "m"), "y": nn.spec.Ragged(("b", "t[i]", 8)),
    }})  # fmt: skip
    given = [w.get(n, w.get(n.removesuffix(".data"))) for n in names]
    xs, ys = rows(3, 0, 2), rows(1, 4, 5)
    x, y = rl.ragged(xs), rl.ragged(ys)
    got = rl.interpret(mod, "forward", x.lengths, x.data, y.lengths, y.data, *given)
    others = [multihead(p, q, w, "to_others.") for p, q in zip(xs, ys, strict=True)]
    itself = [multihead(q, q, w, "to_itself.", causal=True) for q in ys]
    np.testing.assert_allclose(got[0], np.concatenate(others), 1e-4, 1e-4)
    np.testing.assert_allclose(got[1], np.concatenate(itself), 1e-4, 1e-4)


def test_the_same_layer_on_sequences_of_equal_lengths() -> None:
    model = nn.TransformerEncoderLayer(8, 2, 12)
    w = weights(model)
    mod, names = model.export({"forward": {"x": nn.spec.Tensor(("b", "s", 8))}})
    given = [w.get(n, w.get(n.removesuffix(".data"))) for n in names]
    x = np.stack(rows(3, 3))
    want = np.stack([encoder(p, w, first=False) for p in x])
    np.testing.assert_allclose(rl.interpret(mod, "forward", x, *given), want, 1e-4, 1e-4)


class Sums(nn.Module):
    """Sums of tensors with themselves."""

    def forward(
        self, s: nn.Tensor, x: nn.Tensor, k: object, y: nn.Tensor, a: nn.Tensor, b: nn.Tensor
    ) -> tuple[nn.Tensor, ...]:
        return tuple(t + t for t in (x, y, a, b))


def test_extents_that_follow_from_lengths_and_the_index() -> None:
    mod, _ = Sums().export({"forward": {
        **RAGGED,
        "k": nn.spec.Shape(("k",)),
        "y": nn.spec.Ragged(("b", "(s[i] + 1) // 2 + 1", 8)),
        "a": nn.spec.Ragged(("k", "i + 1", 3)),
        "b": nn.spec.Ragged(("k", "k - i")),
    }})  # fmt: skip
    x, y = rl.ragged(rows(3, 0, 2)), rl.ragged(rows(3, 1, 2))
    a, b = np.ones((10, 3), "float32"), np.arange(10, dtype="float32")
    given = [x.data, (4,), y.data, a, b]
    sums = rl.interpret(mod, "forward", x.lengths, *given)
    for got, t in zip(sums, (x.data, y.data, a, b), strict=True):
        np.testing.assert_array_equal(got, t + t)
    for wrong in ([x.data, (4,), y.data[1:], a, b], [x.data, (4,), y.data, a, b[1:]]):
        with pytest.raises(UserError, match="expected"):
            rl.interpret(mod, "forward", x.lengths, *wrong)


def test_lengths_that_no_argument_has_are_refused() -> None:
    model = Layer(first=False)
    for shape, why in (
        (("b", "t[i]", 8), r"t \(int64\) cannot be indexed; .* s\[i\]"),
        (("b", 4, 8), "no dimension that differs from element to element"),
        (("b", "s[i] - 1", 8), "a dimension of .*, which may be negative"),
        (("b", "s[i] +", 8), "is not an expression"),
        (("c", "s[i]", 8), "has c sequences"),
    ):
        with pytest.raises(ValueError, match=f"'x' cannot have the shape .*: .*{why}"):
            model.export({"forward": {**RAGGED, "x": nn.spec.Ragged(shape)}})
    with pytest.raises(ValueError, match="'x' needs two dimensions or more"):
        model.export({"forward": {**RAGGED, "x": nn.spec.Ragged(("b",))}})
    with pytest.raises(ValueError, match="3 heads do not share 8 features"):
        nn.MultiheadAttention(8, 3)
