"""Encoders as shared libraries: loaded again, they give the same bits."""

from __future__ import annotations

import pathlib

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.models.bert import Bert
from relaxlab.models.named_layers import NamedLayers
from relaxlab.models.weights import prepared
from relaxlab.models.whisper import Whisper
from tests.codegen.cuda.test_encoders import BERT, WHISPER, weights_of

pytestmark = pytest.mark.usefixtures("needs_compiler")


def test_bert(rng, tmp_path: pathlib.Path) -> None:
    bert = Bert(BERT, NamedLayers({}))
    module, names = bert.build()
    here = rl.compile(module)
    weights = prepared(here, weights_of(bert, names))
    here.export(tmp_path / "bert.so")
    there = rl.load(tmp_path / "bert.so")
    for batch, length in ((1, 12), (3, 5)):
        ids = rng.integers(0, 20, (batch, length)).astype(np.int32)
        mask = (rng.random((batch, length)) < 0.7).astype(np.int32)
        hidden = here["hidden"](ids, mask, mask, *weights)
        np.testing.assert_array_equal(there["hidden"](ids, mask, mask, *weights), hidden)
        want = here["word_logits"](hidden, *weights)
        np.testing.assert_array_equal(there["word_logits"](hidden, *weights), want)


def test_whisper(rng, tmp_path: pathlib.Path) -> None:
    whisper = Whisper(WHISPER, NamedLayers({}))
    module, names = whisper.build()
    here = rl.compile(module)
    weights = prepared(here, weights_of(whisper, names))
    here.export(tmp_path / "whisper.so")
    there = rl.load(tmp_path / "whisper.so")
    frames = rng.normal(size=(2, 6, 15)).astype(np.float32)
    ids = rng.integers(0, 20, (2, 4)).astype(np.int32)
    logits = []
    for exe in (here, there):
        memory = exe["encode"](frames, *weights)
        cache = [np.zeros((2, *s), np.float32) for s in whisper.cache_shapes()]
        logits.append(exe["prefill"](ids, (0,), *cache, *memory, *weights))
    np.testing.assert_array_equal(*logits)
