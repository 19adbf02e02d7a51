"""Every family against transformers, on small random models: one compilation each for all prompt
lengths and batch sizes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import relaxlab as rl
from relaxlab import nn
from relaxlab.models.decoder import Decoder
from relaxlab.models.loader import Checkpoint, open_model
from tests.models.family_models import CASES, POSITIONS, Case

TOLERANCE = 2e-5
"""Largest error of logits, relative to the largest."""


class Compiled:
    """A model compiled once, with caches of its own for each batch."""

    def __init__(self, checkpoint: Checkpoint, **options: Any) -> None:
        config = checkpoint.config
        model = Decoder(config, checkpoint.formats, max_context=POSITIONS, **options)
        module, names = model.build(batch="b", bounds={"s": POSITIONS, "p": POSITIONS, "b": 8})
        self.exe = rl.compile(module, threads=2, use_cache=False)
        weights = checkpoint.weights(model, names)
        if "transform_params" in self.exe:
            weights = list(self.exe["transform_params"](tuple(weights)))
        self.weights = weights
        self.shapes = nn.KVCache.shapes(config.num_kv_heads, config.head_dim, POSITIONS)
        self.layers = config.num_layers

    def start(self, batch: int) -> Callable[[np.ndarray], np.ndarray]:
        """A function that takes the next ids (batch, n) and gives the logits after them."""
        cache = [
            np.full((batch, *shape), np.nan, np.float32)
            for _ in range(self.layers)
            for shape in self.shapes
        ]
        past = 0

        def feed(ids: np.ndarray) -> np.ndarray:
            nonlocal past
            function = self.exe["decode" if ids.shape[1] == 1 else "prefill"]
            logits = function(ids.astype(np.int32), (past,), *cache, *self.weights)
            past += ids.shape[1]
            return np.array(logits)

        return feed


def assert_close(got: np.ndarray, want: np.ndarray, tolerance: float = TOLERANCE) -> None:
    assert np.abs(got - want).max() <= tolerance * np.abs(want).max()


def check_all(model: Compiled, ids: np.ndarray, want: np.ndarray) -> None:
    """Prompts of several lengths, in one piece, in pieces and step by step."""
    for batch, length in ((1, 1), (2, 3), (1, 12), (3, 17), (1, 31), (3, POSITIONS)):
        assert_close(model.start(batch)(ids[:batch, :length]), want[:batch, length - 1])
    feed, at = model.start(2), 0
    for end in (13, 14, 29, *range(30, POSITIONS + 1)):
        assert_close(feed(ids[:2, at:end]), want[:2, end - 1])
        at = end


@pytest.mark.parametrize("name", ["gemma2", "phi"])
def test_kernels_for_gpus_compute_the_same(family_models: Path, name: str) -> None:
    checkpoint = open_model(family_models / name)
    config = checkpoint.config
    model = Decoder(config, checkpoint.formats, max_context=POSITIONS)
    module, names = model.build()
    exe = rl.compile(module, "cuda", use_cache=False)
    shapes = nn.KVCache.shapes(config.num_kv_heads, config.head_dim, POSITIONS)
    cache = [np.zeros((1, *s), np.float32) for _ in range(config.num_layers) for s in shapes]
    weights = checkpoint.weights(model, names)
    answers = np.load(family_models / f"{name}.npz")
    ids, want = answers["ids"][:1].astype(np.int32), answers["logits"][0]
    prompt = exe.simulate("prefill", ids[:, :17], (0,), *cache, *weights)
    assert_close(prompt[0], want[16])
    step = exe.simulate("decode", ids[:, 17:18], (17,), *cache, *weights)
    assert_close(step[0], want[17])


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_logits_are_those_of_transformers(family_models: Path, case: Case) -> None:
    answers = np.load(family_models / f"{case.name}.npz")
    model = Compiled(open_model(family_models / case.name))
    ids, want = answers["ids"], answers["logits"]
    if case.name == "phi3-long":  # transformers rotates short prompts as if they stayed short
        assert_close(model.start(3)(ids), want[:, -1])
        assert_close(model.start(1)(ids[:1, :20]), want[:1, 19])
    else:
        check_all(model, ids, want)
