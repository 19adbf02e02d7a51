"""BERT and Whisper for GPUs without a GPU: simulated threads against the interpreter, and NVRTC."""

from __future__ import annotations

from typing import Any

import numpy as np

import relaxlab as rl
from relaxlab import nn
from relaxlab.codegen.cuda import nvrtc
from relaxlab.ir.module import Module
from relaxlab.models.bert import Bert, BertConfig
from relaxlab.models.named_layers import NamedLayers
from relaxlab.models.whisper import Whisper, WhisperConfig
from relaxlab.runtime.vm.cuda import CudaExecutable

BERT = BertConfig(
    hidden_size=16, num_layers=1, num_heads=2, ffn_size=24, vocab_size=20, max_length=12,
    token_types=2, norm_eps=1e-5, activation="gelu", has_pooler=True, has_masked_lm=True,
    labels=("a", "b"),
)  # fmt: skip
WHISPER = WhisperConfig(
    mel_bands=6, hidden_size=16, encoder_layers=1, encoder_heads=2, encoder_ffn=24,
    decoder_layers=1, decoder_heads=2, decoder_ffn=24, vocab_size=20, max_frames=16, max_tokens=12,
    activation="gelu",
)  # fmt: skip


def weights_of(module: nn.Module, names: list[str]) -> list[np.ndarray[Any, Any]]:
    rng, parameters = np.random.default_rng(9), module.named_parameters()
    return [(rng.normal(size=parameters[n].shape) / 3).astype(np.float32) for n in names]


def compiled(module: Module) -> CudaExecutable:
    exe = rl.compile(module, target="cuda")
    if nvrtc.is_available():
        for result in (nvrtc.compile_cuda(exe.source(), arch) for arch in ("sm_80", "sm_90")):
            assert max(r.spill_stores for r in result.resources.values()) <= 64
    return exe


def assert_close(got, want):
    assert np.abs(got - want).max() <= 1e-5 * max(1, np.abs(want).max())


def test_bert() -> None:
    bert = Bert(BERT, NamedLayers({}))
    module, names = bert.build()
    weights, exe = weights_of(bert, names), compiled(module)
    rng = np.random.default_rng(1)
    ids, types = (rng.integers(0, high, (2, 7)).astype(np.int32) for high in (20, 2))
    mask = np.array([[1] * 7, [1] * 3 + [0] * 4], np.int32)
    hidden = rl.interpret(module, "hidden", ids, types, mask, *weights)
    assert_close(exe.simulate("hidden", ids, types, mask, *weights), hidden)
    for head in ("pooled", "class_logits", "word_logits"):
        want = rl.interpret(module, head, hidden, *weights)
        assert_close(exe.simulate(head, hidden, *weights), want)


def test_whisper() -> None:
    whisper = Whisper(WHISPER, NamedLayers({}))
    module, names = whisper.build()
    weights, exe = weights_of(whisper, names), compiled(module)
    rng = np.random.default_rng(2)
    frames = rng.normal(size=(2, 6, 13)).astype(np.float32)
    memory = rl.interpret(module, "encode", frames, *weights)
    for got, want in zip(exe.simulate("encode", frames, *weights), memory, strict=True):
        assert_close(got, want)
    caches = [[np.zeros((2, *s), np.float32) for s in whisper.cache_shapes()] for _ in range(2)]
    for method, past, length in (("prefill", 0, 3), ("decode", 3, 1)):
        ids = rng.integers(0, 20, (2, length)).astype(np.int32)
        got = exe.simulate(method, ids, (past,), *caches[0], *memory, *weights)
        want = rl.interpret(module, method, ids, (past,), *caches[1], *memory, *weights)
        assert_close(got, want)
