"""Kernels scheduled for GPUs by rule are right and free of problems, and race without barriers."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.codegen.gpu.lower import lower_launches
from relaxlab.codegen.gpu.thread_loops import is_sync
from relaxlab.ir.expr import const
from relaxlab.ir.loops import Evaluate, PrimFunc
from relaxlab.ir.node import Node, map_children
from relaxlab.ir.target import Target
from relaxlab.passes.pipeline import cuda_pipeline
from relaxlab.runtime.simt.simt import simt_device_kernel
from relaxlab.schedule.rules import schedule_kernel
from relaxlab.schedule.rules.context import Context
from relaxlab.script import ir as I
from relaxlab.script import relax as R
from relaxlab.testing.op_cases import FAMILIES
from relaxlab.testing.op_check import OpCase, T, check_op

SIZES = (1, 2, 3, 7, 31, 32, 33, 65, 100, 257)


@I.ir_module
class Block:
    @R.function
    def main(
        x: R.Tensor(("n", "d"), "float32"),
        w: R.Tensor(("d", "e"), "float32"),
        g: R.Tensor(("e",), "float32"),
    ):
        with R.dataflow():
            y = R.matmul(x, w)
            z = R.nn.silu(R.nn.rms_norm(y, g, axes=[-1]))
            s = R.nn.softmax(R.matmul(z, R.permute_dims(z)), axis=-1)
            t = R.matmul(s, y)
            R.output(t)
        return t


@I.ir_module
class Attention:
    @R.function
    def main(
        q: R.Tensor(("b", "s", 4, 16), "float32"),
        k: R.Tensor(("b", "m", 2, 16), "float32"),
        v: R.Tensor(("b", "m", 2, 16), "float32"),
    ):
        with R.dataflow():
            o = R.nn.attention(q, k, v, causal_mask="BottomRight")
            R.output(o)
        return o


@I.ir_module
class Statistics:
    @R.function
    def main(
        x: R.Tensor(("a", "b", "c"), "float32"),
        i: R.Tensor(("k",), "int64"),
        g: R.Tensor(("c",), "float32"),
    ):
        with R.dataflow():
            first = R.sum(x, axis=[0, 2])
            all_of_it = R.max(x)
            norm = R.nn.layer_norm(x, g, g, axes=[-1])
            picked = R.take(norm, i, axis=0)
            sums = R.cumsum(x, axis=1)
            order = R.argsort(x, axis=-1)
            R.output(first, all_of_it, picked, sums, order)
        return (first, all_of_it, picked, sums, order)


def floats(rng: random.Random, *shape: int) -> np.ndarray:
    return np.random.default_rng(rng.randrange(2**32)).standard_normal(shape).astype("float32")


def block_arguments(rng: random.Random) -> tuple[np.ndarray, ...]:
    n, d, e = rng.choice(SIZES[:-2]), rng.choice(SIZES), rng.choice(SIZES[:-2])
    return floats(rng, n, d), floats(rng, d, e), floats(rng, e)


def attention_arguments(rng: random.Random) -> tuple[np.ndarray, ...]:
    b, s, more = rng.choice([1, 2]), rng.choice(SIZES[:-4]), rng.choice([0, 1, 40])
    return floats(rng, b, s, 4, 16), *(floats(rng, b, s + more, 2, 16) for _ in "kv")


def statistics_arguments(rng: random.Random) -> tuple[np.ndarray, ...]:
    a, b, c = rng.choice([1, 3]), rng.choice([1, 2, 33]), rng.choice([1, 5, 34])
    picks = [rng.randrange(a) for _ in range(rng.choice([1, 4]))]
    return floats(rng, a, b, c), np.array(picks), floats(rng, c)


@pytest.mark.parametrize(
    ("module", "arguments"),
    [
        (Block, block_arguments),
        (Attention, attention_arguments),
        (Statistics, statistics_arguments),
    ],
    ids=["block", "attention", "statistics"],
)
def test_modules_at_random_sizes(module, arguments):
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    scheduled = cuda_pipeline().run(module).result
    for _ in range(3):
        args = arguments(rng)
        shapes = [a.shape for a in args]
        print(shapes)
        got = rl.simt(scheduled, "main", *args).check().result
        want = rl.interpret(module, "main", *args)
        pairs = zip(got, want, strict=True) if isinstance(want, tuple) else [(got, want)]
        for a, b in pairs:
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4, err_msg=str(shapes))


def gpu_run(func: PrimFunc, args: list) -> None:
    scheduled = schedule_kernel("f", func, Context(Target.cuda()))
    simt_device_kernel(scheduled, lower_launches(scheduled, "f"), args).check()


def test_a_sample_of_all_operators():
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    for cases in FAMILIES.values():
        for case in rng.sample(cases(), 3):
            print(case)
            check_op(case, rng.choice(list(case.sizes)), symbolic=True, run=gpu_run)


def without_barriers(n: Node) -> Node:
    return Evaluate(const(0)) if is_sync(n) else map_children(n, without_barriers)


CASES = [
    OpCase("nn.softmax", (T(3, "n"),)),
    OpCase("sum", (T("n", 5, "n"),), {"axis": (0, 2)}),
    OpCase("matmul", (T("n", 40), T(40, "n"))),
    OpCase("nn.attention", (T(1, 3, 4, 8), T(1, "n", 2, 8), T(1, "n", 2, 8))),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_kernels_race_without_their_barriers(case: OpCase):
    found: list[str] = []

    def run(func: PrimFunc, args: list) -> None:
        scheduled = schedule_kernel("f", func, Context(Target.cuda()))
        kernel = lower_launches(scheduled, "f")
        broken = tuple(replace(x, body=without_barriers(x.body)) for x in kernel.launches)
        copies = [a.copy() for a in args]
        report = simt_device_kernel(scheduled, replace(kernel, launches=broken), copies)
        found.extend(p.kind for p in report.problems)
        simt_device_kernel(scheduled, kernel, args).check()

    check_op(case, {"n": 70}, symbolic=True, run=run)
    assert "data race" in found, case
