"""Every use of every operator, and models, on a GPU."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import relaxlab as rl
from relaxlab import nn
from relaxlab.ir.dtypes import numpy_dtype
from relaxlab.ir.module import Module
from relaxlab.models.bert import Bert
from relaxlab.models.decoder import Decoder
from relaxlab.models.named_layers import NamedLayers
from relaxlab.models.whisper import Whisper
from relaxlab.ops.block_formats import FORMATS
from relaxlab.runtime.vm.cuda import require_cupy
from relaxlab.testing.op_cases import FAMILIES
from relaxlab.testing.op_check import CaseProgram, compare, concrete_call
from tests.codegen.cuda.test_encoders import BERT, WHISPER, assert_close, weights_of
from tests.codegen.cuda.test_model import check, model
from tests.models.test_model_kernels import COMMON

pytestmark = pytest.mark.gpu


def on_host(result: Any) -> Any:
    """A result of a program in NumPy."""
    if isinstance(result, tuple | list):
        return [on_host(r) for r in result]
    return np.asarray(require_cupy().asnumpy(result))


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_operators(family: str) -> None:
    cases = {f"case{i}": c for i, c in enumerate(FAMILIES[family]())}
    functions = {n: CaseProgram(c, c.sizes[0], symbolic=True).function() for n, c in cases.items()}
    exe = rl.compile(Module.of(functions), target="cuda")
    for name, case in cases.items():
        for seed, env in enumerate(case.sizes):
            arrays, expected = concrete_call(case, env, seed)
            got = on_host(exe[name](*arrays, tuple(env.values())))
            for result, want in zip(got if isinstance(got, list) else [got], expected, strict=True):
                compare(result, want, f"{case} with {dict(env)}, seed={seed}")


def test_the_model() -> None:
    exe = rl.compile(model()[0], target="cuda")

    def call(name: str, ids: Any, past: Any, *rest: Any) -> Any:
        return on_host(exe[name](ids, past, *rest))

    check(call, require_cupy().asarray)


def test_bert() -> None:
    bert = Bert(BERT, NamedLayers({}))
    module, names = bert.build()
    weights, exe = weights_of(bert, names), rl.compile(module, target="cuda")
    rng = np.random.default_rng(1)
    ids, types = (rng.integers(0, high, (2, 7)).astype(np.int32) for high in (20, 2))
    mask = np.array([[1] * 7, [1] * 3 + [0] * 4], np.int32)
    hidden = rl.interpret(module, "hidden", ids, types, mask, *weights)
    assert_close(on_host(exe["hidden"](ids, types, mask, *weights)), hidden)
    for head in ("pooled", "class_logits", "word_logits"):
        want = rl.interpret(module, head, hidden, *weights)
        assert_close(on_host(exe[head](hidden, *weights)), want)


def test_whisper() -> None:
    whisper = Whisper(WHISPER, NamedLayers({}))
    module, names = whisper.build()
    weights, exe = weights_of(whisper, names), rl.compile(module, target="cuda")
    rng = np.random.default_rng(2)
    frames = rng.normal(size=(2, 6, 13)).astype(np.float32)
    memory = rl.interpret(module, "encode", frames, *weights)
    for got, want in zip(on_host(exe["encode"](frames, *weights)), memory, strict=True):
        assert_close(got, want)
    cache = [np.zeros((2, *s), np.float32) for s in whisper.cache_shapes()]
    on_device = [require_cupy().asarray(c) for c in cache]
    for method, past, length in (("prefill", 0, 3), ("decode", 3, 1)):
        ids = rng.integers(0, 20, (2, length)).astype(np.int32)
        got = exe[method](ids, (past,), *on_device, *memory, *weights)
        want = rl.interpret(module, method, ids, (past,), *cache, *memory, *weights)
        assert_close(on_host(got), want)


def random_values(decoder: Decoder, names: list[str]) -> list[np.ndarray[Any, Any]]:
    """Small floats; any bytes as the integers of quantised weights."""
    rng, parameters = np.random.default_rng(3), decoder.named_parameters()
    values: list[np.ndarray[Any, Any]] = []
    for name in names:
        kind, shape = numpy_dtype(parameters[name].dtype), parameters[name].shape
        if kind.kind in "iu":
            # Whole blocks of a file have half-precision scales among their bytes: no NaN.
            most = 64 if name.endswith("blocks") else 256
            values.append(rng.integers(0, most, shape).astype(np.uint8).view(np.int8).astype(kind))
        else:
            values.append((rng.random(shape) / 16).astype(kind))
    return values


@pytest.mark.parametrize("format", ["F16", "BF16", *sorted(FORMATS)])
def test_decoders_of_every_format(format: str) -> None:
    """A decoder with weights in a storage format, a prompt and a step, against the CPU."""
    config = replace(COMMON, hidden_size=256, num_layers=1, head_dim=64, ffn_size=256)
    formats = {n: format if len(s) > 1 else "F32" for n, s in config.tensor_shapes().items()}
    decoder = Decoder(config, formats, max_context=64)
    module, names = decoder.build()
    weights = random_values(decoder, names)
    gpu, cpu = rl.compile(module, target="cuda"), rl.compile(module, use_cache=False)
    shapes = nn.KVCache.shapes(config.num_kv_heads, config.head_dim, 64)
    host = [np.zeros((1, *s), np.float32) for s in shapes]
    device = [require_cupy().asarray(c) for c in host]
    moved = list(cpu["transform_params"](tuple(weights))) if "transform_params" in cpu else weights
    ids = np.random.default_rng(1).integers(0, 384, (1, 40)).astype(np.int32)
    for name, part, past in (("prefill", ids[:, :39], 0), ("decode", ids[:, 39:], 39)):
        want = np.array(cpu[name](part, (past,), *host, *moved))
        got = on_host(gpu[name](part, (past,), *device, *weights))
        # Sums of terms of both signs, in another order: an H100 was 1.5e-4 off with IQ4_XS.
        assert np.abs(got - want).max() <= 5e-4 * np.abs(want).max()
