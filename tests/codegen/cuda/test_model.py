"""The tiny model on GPU kernels without a GPU: its logits against the NumPy Llama."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import relaxlab as rl
from relaxlab import nn
from relaxlab.models import tiny
from relaxlab.models.decoder import Decoder
from relaxlab.models.gguf import read_gguf
from relaxlab.models.loader import open_model
from relaxlab.runtime.vm.cuda import CudaExecutable
from relaxlab.runtime.vm.vm import VirtualMachine
from relaxlab.testing.llama_numpy import LlamaNumpy
from tests.codegen.cuda.on_cpu import COMPILER, CpuCuda, kernels_on_cpu

CONTEXT = 24
Call = Callable[..., Any]


@pytest.fixture(scope="module")
def exe() -> CudaExecutable:
    return rl.compile(model()[0], target="cuda")


def model() -> tuple[Any, list[Any], list[Any]]:
    """The module, the weights and empty caches."""
    checkpoint = open_model("tiny")
    config = checkpoint.config
    llama = Decoder(config, checkpoint.formats, max_context=CONTEXT)
    module, names = llama.build(methods=("prefill", "decode"), batch=1)
    shapes = nn.KVCache.shapes(config.num_kv_heads, config.head_dim, CONTEXT)
    cache = [np.zeros((1, *s), "float32") for _ in range(config.num_layers) for s in shapes]
    return module, checkpoint.weights(llama, names), cache


def check(call: Call, place: Call = lambda array: array) -> None:
    """A prompt of seven tokens, then one more. `place` puts caches and weights where they stay."""
    _, weights, cache = model()
    weights, cache = [place(w) for w in weights], [place(c) for c in cache]
    ids = open_model("tiny").tokenizer.encode("What is two plus three?")[:8]
    want = LlamaNumpy.from_gguf(read_gguf(tiny.path())).logits(ids)
    first = call("prefill", np.array([ids[:7]], np.int32), (0,), *cache, *weights)
    second = call("decode", np.array([ids[7:8]], np.int32), (7,), *cache, *weights)
    for got, expected in ((first, want[6]), (second, want[7])):
        assert np.abs(got[0] - expected).max() <= 1e-5 * np.abs(expected).max()


def test_on_the_simt_interpreter(exe: CudaExecutable) -> None:
    check(exe.simulate)


@pytest.mark.skipif(COMPILER is None, reason="needs a C++ compiler")
def test_as_cpp_on_the_cpu(exe: CudaExecutable, tmp_path: Path) -> None:
    kernels = kernels_on_cpu(exe.gpu, CpuCuda(exe.source(), tmp_path))
    check(VirtualMachine(exe.gpu.program, kernels).run)
