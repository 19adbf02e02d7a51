"""Loop functions over a paged KV cache against NumPy, on every executor."""

from __future__ import annotations

import numpy as np
import pytest

import relaxlab as rl
from relaxlab import nn
from relaxlab.ir.module import Module
from relaxlab.ir.target import Target
from relaxlab.nn import paged_loops
from relaxlab.nn.loop_functions import Scores
from relaxlab.nn.paged_loops import PAGE, PoolShape
from relaxlab.passes.base import Pipeline
from relaxlab.passes.lower_shapes import lower_shapes
from relaxlab.passes.pipeline import GRAPH_PASSES, cpu_pipeline
from relaxlab.passes.schedule_kernels import schedule_kernels
from relaxlab.runtime.interpreter.interpreter import interpret_prim_func
from relaxlab.runtime.simt.simt import simt
from relaxlab.runtime.vm.vm import VirtualMachine
from tests.nn.paged_batches import Batch

NEW, PAST = [1, 5, 18, 1, 3], [70, 0, 20, 15, 129]
TOTAL, FIRST, HEADS = 7, 1, 6
PLAIN = Scores(0.2)
SCORES = {"plain": PLAIN, "window": Scores(0.2, window=20), "softcap": Scores(0.3, softcap=2.0)}


class Attend(nn.Module):
    def __init__(self, shape: PoolShape, rows: int, scores: Scores) -> None:
        self.func = paged_loops.paged_attention(TOTAL, FIRST, HEADS, shape, rows, scores)
        self.shape = shape

    def main(self, *args):
        return args[0].builder.call_loops("attention", self.func, args)[0]

    def module(self) -> Module:
        spec, d = nn.spec.Tensor, self.shape.head_dim
        keys, values = self.shape.of(1)
        ints = {"row_ends": "b", "page_ends": "b", "pages": "n", "positions": "t"}
        inputs = {
            "q": spec((1, "t", TOTAL, d)),
            "keys": spec(("c", *keys[1:]), self.shape.dtype),
            "values": spec(("c", *values[1:]), self.shape.dtype),
            "tiles": spec(("w", 2), "int32"),
            **{name: spec((size,), "int32") for name, size in ints.items()},
        }
        return self.export({"main": inputs})[0]


@pytest.mark.parametrize(
    "dtype, rows, option",
    [
        ("float32", 1, "plain"),
        ("float16", 4, "plain"),
        ("float16", 1, "window"),
        ("float32", 4, "window"),
        ("float32", 2, "softcap"),
    ],
)
def test_attention_over_pages_of_sequences_of_any_lengths(rng, dtype, rows, option):
    shape = PoolShape(2, 32, dtype)
    batch = Batch.random(rng, NEW, PAST, shape)
    q = rng.normal(size=(1, sum(NEW), TOTAL, 32)).astype(np.float32)
    args = batch.arguments(q, rows)
    want = batch.attention(q[:, :, FIRST : FIRST + HEADS], shape, SCORES[option])
    module = Attend(shape, rows, SCORES[option]).module()
    exe = rl.compile(module, threads=2, use_cache=False)
    machine = VirtualMachine(lower_shapes(cpu_pipeline().run(module).result))
    for run in (
        lambda *a: rl.interpret(module, "main", *a),
        exe["main"],
        lambda *a: machine.run("main", *a),
    ):
        assert np.abs(np.asarray(run(*args)) - want).max() < 2e-6


def test_one_compilation_serves_every_batch(rng):
    shape = PoolShape(1, 16)
    exe = rl.compile(Attend(PoolShape(1, 16), 4, PLAIN).module(), use_cache=False)
    for count in (1, 2, 9):
        new, past = rng.integers(1, 40, count).tolist(), rng.integers(0, 90, count).tolist()
        batch = Batch.random(rng, new, past, shape)
        q = rng.normal(size=(1, sum(new), TOTAL, 16)).astype(np.float32)
        got = np.asarray(exe["main"](*batch.arguments(q, 4)))
        want = batch.attention(q[:, :, FIRST : FIRST + HEADS], shape, PLAIN)
        assert np.abs(got - want).max() < 2e-6, (new, past)


@pytest.mark.parametrize("head_dim", [8, 24, 80])
def test_features_that_do_not_fill_vectors(rng, head_dim):
    shape = PoolShape(6, head_dim)
    batch = Batch.random(rng, [3, 1], [0, 40], shape)
    q = rng.normal(size=(1, 4, TOTAL, head_dim)).astype(np.float32)
    exe = rl.compile(Attend(shape, 2, PLAIN).module(), use_cache=False)
    want = batch.attention(q[:, :, FIRST : FIRST + HEADS], shape, PLAIN)
    assert np.abs(np.asarray(exe["main"](*batch.arguments(q, 2))) - want).max() < 2e-6


def test_scores_far_below_zero_and_far_above(rng):
    """The running maximum keeps every exponent at most zero."""
    shape = PoolShape(2, 16)
    batch = Batch.random(rng, [2, 1], [100, 30], shape)
    q = rng.normal(size=(1, 3, TOTAL, 16)).astype(np.float32) * 100
    exe = rl.compile(Attend(shape, 1, PLAIN).module(), use_cache=False)
    want = batch.attention(q[:, :, FIRST : FIRST + HEADS], shape, PLAIN)
    assert np.abs(np.asarray(exe["main"](*batch.arguments(q, 1))) - want).max() < 1e-4


def test_the_scores_never_reach_main_memory_and_tiles_are_shared_out():
    passes = Pipeline((*GRAPH_PASSES, schedule_kernels.with_options(target=Target.host())))
    trace = passes.run(Attend(PoolShape(2, 32), 4, PLAIN).module())
    remarks = [w.reason for r in trace.passes if r.name == "schedule_kernels" for w in r.remarks]
    assert "scheduled by the rule nested" in remarks
    text = trace.result.script()
    assert "T.parallel" in text and "T.vectorized" in text and "workspace" not in text


def test_gpu_threads_compute_it_without_races(rng):
    shape = PoolShape(2, 16, "float16")
    batch = Batch.random(rng, [1, 5], [20, 12], shape)
    q = rng.normal(size=(1, 6, TOTAL, 16)).astype(np.float32)
    module = Attend(shape, 2, PLAIN).module()
    passes = Pipeline((*GRAPH_PASSES, schedule_kernels.with_options(target=Target.cuda())))
    report = simt(passes.run(module).result, "main", *batch.arguments(q, 2)).check()
    want = batch.attention(q[:, :, FIRST : FIRST + HEADS], shape, PLAIN)
    assert np.abs(report.result - want).max() < 2e-6
    gpu = rl.compile(module, "cuda", use_cache=False)
    (resources,) = gpu.resources.values()
    assert resources.registers and resources.shared


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_new_keys_and_values_go_to_their_slots_only(rng, dtype):
    shape, total_k, first_k, total_v, first_v = PoolShape(2, 8, dtype), 3, 1, 5, 3
    batch = Batch.random(rng, [1, 5, 18], [70, 0, 20], shape)
    k = rng.normal(size=(1, 24, total_k, 8)).astype(np.float32)
    v = rng.normal(size=(1, 24, total_v, 8)).astype(np.float32)
    keys, values, slots = batch.keys.copy(), batch.values.copy(), batch.slots()
    keys[slots // PAGE, :, :, slots % PAGE] = k[0, :, first_k : first_k + 2]
    values[slots // PAGE, :, slots % PAGE] = v[0, :, first_v : first_v + 2]
    func = paged_loops.append_pages(total_k, first_k, total_v, first_v, shape)
    interpret_prim_func(func, [k, v, slots, batch.keys, batch.values])
    np.testing.assert_array_equal(batch.keys, keys)
    np.testing.assert_array_equal(batch.values, values)


@pytest.mark.parametrize("interleaved", [True, False])
def test_rotary_turns_rows_by_their_own_position(rng, interleaved):
    x = rng.normal(size=(1, 5, 4, 8)).astype(np.float32)
    angle = rng.normal(size=(16, 4))
    positions = np.array([3, 4, 0, 15, 1], np.int32)
    cos, sin = np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)
    y = np.empty((1, 5, 2, 8), np.float32)
    func = paged_loops.paged_rotary(4, 1, 2, 8, 8, interleaved)
    interpret_prim_func(func, [x, cos, sin, positions, y])
    part = x[:, :, 1:3]
    a, b = (np.s_[..., 0::2], np.s_[..., 1::2])
    if not interleaved:
        a, b = np.s_[..., :4], np.s_[..., 4:]
    turned = (part[a] + 1j * part[b]) * np.exp(1j * angle[positions])[:, None]
    np.testing.assert_allclose(y[a], turned.real, atol=1e-5)
    np.testing.assert_allclose(y[b], turned.imag, atol=1e-5)


def test_the_last_row_of_each_sequence(rng):
    x = rng.normal(size=(9, 4)).astype(np.float32)
    y = np.empty((3, 4), np.float32)
    interpret_prim_func(paged_loops.last_rows(4), [x, np.array([0, 2, 3, 9], np.int32), y])
    np.testing.assert_array_equal(y, x[[1, 2, 8]])
