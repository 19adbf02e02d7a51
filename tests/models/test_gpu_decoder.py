"""Prompts of a decoder on GPUs, attention over the cache by tensor cores, against its float32
logits on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import relaxlab as rl
from relaxlab import nn
from relaxlab.ir.dtypes import numpy_dtype
from relaxlab.ir.module import Module
from relaxlab.models.config import DecoderConfig, Rope
from relaxlab.models.decoder import Decoder
from relaxlab.runtime.vm.cuda import CudaExecutable, require_cupy

ON_GPUS = nn.Precision(several="bfloat16", plain="bfloat16", queries="cache")
TOLERANCE = 0.02
"""The norm of what bfloat16 activations change of the logits, in relation to that of these."""


def configuration(
    layers: int, hidden: int, ffn: int, heads: tuple[int, int, int], vocab: int
) -> DecoderConfig:
    """The sizes of a Llama; `heads`: of queries, of keys, and features of a head."""
    return DecoderConfig(
        hidden_size=hidden, num_layers=layers, num_heads=heads[0], num_kv_heads=heads[1],
        head_dim=heads[2], ffn_size=ffn, vocab_size=vocab, context_length=8192, norm_eps=1e-5,
        rope=Rope(500000.0, heads[2]),
    )  # fmt: skip


class Model:
    """A decoder of bfloat16 matrices with room for some positions."""

    def __init__(self, config: DecoderConfig, positions: int) -> None:
        formats = {n: "BF16" if len(s) > 1 else "F32" for n, s in config.tensor_shapes().items()}
        self.config, self.positions = config, positions
        self._decoder = partial(Decoder, config, formats, max_context=positions)
        rng, parameters = np.random.default_rng(3), self._decoder().named_parameters()
        self.weights = [
            np.ones(p.shape, np.float32)
            if len(p.shape) == 1
            else (rng.standard_normal(p.shape, np.float32) / np.sqrt(p.shape[-1])).astype(
                numpy_dtype(p.dtype)
            )
            for p in parameters.values()
        ]
        for name, table in zip(("cos", "sin"), config.rope.tables(positions), strict=True):
            self.weights[list(parameters).index(f"rotary.{name}")] = table

    def module(self, **options: Any) -> Module:
        return self._decoder(**options).build(methods=("prefill",))[0]

    def cache(self, dtype: str) -> list[np.ndarray]:
        """Empty caches, in whose positions nothing counts."""
        config = self.config
        shapes = nn.KVCache.shapes(config.num_kv_heads, config.head_dim, self.positions)
        return [np.full((1, *s), np.nan, dtype) for _ in range(config.num_layers) for s in shapes]

    def logits(
        self, call: Callable[..., Any], arrays: list[Any], lengths: tuple[int, ...]
    ) -> np.ndarray:
        """Logits behind each piece of a text; `call` takes the function's name and its
        arguments, `arrays` are the caches and the weights."""
        ids = np.random.default_rng(4).integers(0, self.config.vocab_size, (1, sum(lengths)))
        found, past = [], 0
        for n in lengths:
            piece = ids[:, past : past + n].astype(np.int32)
            found.append(np.array(call("prefill", piece, (past,), *arrays)))
            past += n
        return np.concatenate(found)


def assert_near(got: np.ndarray, want: np.ndarray) -> None:
    for mine, right in zip(got, want, strict=True):
        assert np.linalg.norm(mine - right) <= TOLERANCE * np.linalg.norm(right)


def compiled(model: Model, target: str) -> CudaExecutable:
    return rl.compile(model.module(precision=ON_GPUS, kv_dtype="float16"), target)


def test_pieces_of_a_prompt_on_simulated_threads() -> None:
    model = Model(configuration(1, 64, 96, (4, 2, 32), 80), 256)
    exe, lengths = compiled(model, "cuda:sm_80"), (70, 1, 30)
    (name,) = (n for n in exe.gpu.kernels if "cached_attention" in n)
    assert "mma_m16n8k16<__half>" in exe.source(name)
    got = model.logits(exe.simulate, [*model.cache("float16"), *model.weights], lengths)
    run = partial(rl.interpret, model.module())
    want = model.logits(run, [*model.cache("float32"), *model.weights], lengths)
    assert_near(got, want)


@pytest.mark.gpu
def test_a_llama_on_a_gpu() -> None:
    """The sizes of Llama-3-8B but for layers and tokens."""
    cupy, model = require_cupy(), Model(configuration(2, 4096, 14336, (32, 8, 128), 4096), 2048)
    exe, lengths = compiled(model, "cuda"), (1024, 1, 300)
    cache = [cupy.asarray(a) for a in model.cache("float16")]
    got = model.logits(
        lambda name, *args: cupy.asnumpy(exe[name](*args)), [*cache, *model.weights], lengths
    )
    cpu = rl.compile(model.module())
    weights = cpu["prefill_transform_params"](tuple(model.weights))
    want = model.logits(
        lambda name, *args: cpu[name](*args), [*model.cache("float32"), *weights], lengths
    )
    assert_near(got, want)
