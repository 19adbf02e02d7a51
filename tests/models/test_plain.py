"""A Llama in plain operators against the NumPy Llama: compiled, its caches donated and returned."""

from __future__ import annotations

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.analysis.well_formed import check_well_formed
from relaxlab.models import tiny
from relaxlab.models.gguf import read_gguf
from relaxlab.models.loader import Checkpoint, open_model
from relaxlab.passes.combine_parallel_matmul import combine_parallel_matmul
from relaxlab.passes.move_reshapes import move_reshapes
from relaxlab.passes.pipeline import cpu_pipeline
from relaxlab.passes.quantize_activations import quantize_activations
from relaxlab.testing.llama_numpy import LlamaNumpy
from tests.models.llama_plain import LlamaPlain

CONTEXT = 40


@pytest.fixture(scope="module")
def checkpoint() -> Checkpoint:
    return open_model("tiny")


@pytest.fixture(scope="module")
def module(checkpoint: Checkpoint):
    return LlamaPlain(checkpoint.config, checkpoint.formats).build(CONTEXT)


def test_no_function_says_how_anything_is_computed(module) -> None:
    mod, _ = module
    assert not mod.loop_functions() and not check_well_formed(mod)


@pytest.mark.parametrize("cut", [1, 9])
def test_logits_and_caches(checkpoint: Checkpoint, module, cut: int) -> None:
    mod, sources = module
    config, oracle = checkpoint.config, LlamaNumpy.from_gguf(read_gguf(tiny.path()))
    exe = rl.compile(mod).load(checkpoint.arrays(sources, {}))
    ids = checkpoint.tokenizer.encode("What is two plus three? It is five.")[:CONTEXT]
    want = oracle.logits(ids)
    shape = 1, CONTEXT, config.num_kv_heads, config.head_dim
    caches = [np.full(shape, np.nan, np.float32) for _ in range(2 * config.num_layers)]
    steps = ((0, cut), (cut, len(ids) - 1), (len(ids) - 1, len(ids)))
    for start, end in steps:
        step = exe["prefill" if end - start > 1 else "decode"]
        logits, *kept = step(np.array([ids[start:end]], np.int32), (start,), *caches)
        assert all(np.shares_memory(a, b) for a, b in zip(kept, caches, strict=True))
        assert np.abs(logits[0] - want[end - 1]).max() <= 1e-5 * np.abs(want).max()
        assert all(np.isnan(c[:, end:]).all() and not np.isnan(c[:, :end]).any() for c in caches)


QUANTISED = cpu_pipeline().before(
    "eliminate_common_subexpr", combine_parallel_matmul, quantize_activations, move_reshapes
)
"""Products of integers, those of queries, keys and values as one."""


def test_quantised_activations(checkpoint: Checkpoint) -> None:
    """By passes alone, and caches in half precision: logits as near as those of `nn`."""
    config, oracle = checkpoint.config, LlamaNumpy.from_gguf(read_gguf(tiny.path()))
    mod, sources = LlamaPlain(config, checkpoint.formats).build(CONTEXT, "float16")
    assert not mod.loop_functions()
    exe = rl.compile(mod, pipeline=QUANTISED).load(checkpoint.arrays(sources, {}))
    ids = checkpoint.tokenizer.encode("What is two plus three? It is five.")[:CONTEXT]
    want = oracle.logits(ids)
    shape = 1, CONTEXT, config.num_kv_heads, config.head_dim
    caches = [np.full(shape, np.nan, np.float16) for _ in range(2 * config.num_layers)]
    for start, end in ((0, len(ids) - 1), (len(ids) - 1, len(ids))):
        step = exe["prefill" if end - start > 1 else "decode"]
        logits, *_ = step(np.array([ids[start:end]], np.int32), (start,), *caches)
        assert 0 < np.abs(logits[0] - want[end - 1]).max() <= 0.05 * np.abs(want).max()


def test_quantised_products_are_few_and_have_what_follows(checkpoint: Checkpoint) -> None:
    mod, _ = LlamaPlain(checkpoint.config, checkpoint.formats).build(CONTEXT)
    names = QUANTISED.run(mod).result.loop_functions()
    assert not any("decode_blocks_linear" in n for n in names)
    assert any(n.startswith("fused_quantized_linear_add") for n in names)
    assert any(n.startswith("fused_strided_slice_rope") for n in names)


def test_attention_reads_the_caches_where_they_are(module) -> None:
    mod, _ = module
    kernels = rl.trace(mod).result.loop_functions()
    assert any("slice_scatter_inplace" in name for name in kernels)
    attention = [n for n in kernels if n.endswith(("_attention", "_attention1"))]
    assert attention == [f"fused_strided_slice_strided_slice_attention{i}" for i in ("", 1)]
