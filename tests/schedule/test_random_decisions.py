"""Kernels that rules schedule with random decisions compute what their programs do: on CPUs as
debug builds, on GPUs on simulated threads. Whatever a rule's candidates allow has to be right."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from relaxlab.codegen.cuda.dialect import CUDA_C
from relaxlab.codegen.gpu.program import launches_of, sources_of
from relaxlab.ir.module import Module
from relaxlab.passes.pipeline import cpu_pipeline, cuda_pipeline
from relaxlab.runtime.build import compile
from relaxlab.runtime.check.inputs import copy_value, random_arguments
from relaxlab.runtime.interpreter.interpreter import interpret
from relaxlab.runtime.simt.simt import simt
from relaxlab.script.parser import parse
from relaxlab.testing.pass_check import assert_same
from relaxlab.testing.replay import replay_kernels

SIZES = (1, 2, 5, 17, 40, 70)
"""Values of symbols: single rows, part of a tile, more than one."""
TOLERANCE = 2e-4
"""The relative difference of float32 sums taken in different orders."""

X = 'x: R.Tensor(("n", "m"), "float32")'
CALLS = {
    "product": (
        'x: R.Tensor(("n", "k"), "float32"), w: R.Tensor(("k", "m"), "float32")',
        "R.nn.relu(R.matmul(x, w))",
    ),
    "product by constants": (
        'x: R.Tensor((37, 50), "float32"), w: R.Tensor((50, 45), "float32")', "R.matmul(x, w)",
    ),
    "product of few rows": (
        'x: R.Tensor((3, 90), "float16"), w: R.Tensor((66, 90), "float16")',
        "R.matmul(R.nn.relu(x), R.permute_dims(w))",
    ),
    "product in batches": (
        'x: R.Tensor(("b", "n", 19), "float64"), w: R.Tensor(("b", 19, "m"), "float64")',
        "R.matmul(x, w)",
    ),
    "product of bytes": (
        'x: R.Tensor(("n", 33), "int8"), w: R.Tensor((33, 48), "int8")',
        'R.matmul(x, w, out_dtype="int32")',
    ),
    "product with itself": (
        'x: R.Tensor(("n", 20), "float32")', "R.matmul(x, R.permute_dims(x))",
    ),
    "product with a vector": (
        'x: R.Tensor(("n", "k"), "float32"), w: R.Tensor(("k",), "float32")', "R.matmul(x, w)",
    ),
    "sum of columns": (X, "R.sum(x, axis=0)"),
    "maximum of the middle": ('x: R.Tensor(("n", 9, "m"), "float32")', "R.max(x, axis=1)"),
    "mean of rows": (X, "R.mean(x, axis=1)"),
    "sum of everything": (X, "R.sum(x)"),
    "minimum of bytes": ('x: R.Tensor((5, 130), "uint8")', "R.min(x, axis=-1)"),
    "argmax": (X, "R.argmax(x, axis=1)"),
    "cumulative sum": (X, "R.cumsum(x, axis=1)"),
    "softmax": (X, "R.nn.softmax(x)"),
    "softmax of 48 KB": ('x: R.Tensor((2, 12288), "float32")', "R.nn.softmax(x)"),
    "softmax of constants": ('x: R.Tensor((6, 300), "float32")', "R.nn.softmax(x)"),
    "softmax of columns": (X, "R.nn.softmax(x, axis=0)"),
    "layer norm": (
        'x: R.Tensor(("n", 96), "float32"), g: R.Tensor((96,), "float32"), '
        'b: R.Tensor((96,), "float32")',
        "R.nn.layer_norm(x, g, b, axes=[-1])",
    ),
    "convolution": (
        'x: R.Tensor(("n", 3, 9, 11), "float32"), w: R.Tensor((5, 3, 3, 3), "float32")',
        "R.nn.conv2d(x, w, strides=(2, 1), padding=(1, 1, 1, 1))",
    ),
    "pool": ('x: R.Tensor((2, 3, 9, "m"), "float32")', "R.nn.max_pool2d(x, pool_size=(2, 2))"),
    "transpose": ('x: R.Tensor(("n", 3, "m"), "float32")', "R.permute_dims(x, axes=[2, 1, 0])"),
    "transpose of halves": (
        'x: R.Tensor((40, 72), "float16")', 'R.permute_dims(x) + R.const(1, "float16")',
    ),
    "elementwise": (X, "R.nn.gelu(x) * R.sigmoid(x)"),
    "elementwise of constants": ('x: R.Tensor((7, 24), "int8")', "R.add(x, x)"),
    "gather": ('x: R.Tensor(("n", 24), "float32")', 'R.take(x, R.const([0, 0], "int64"), axis=0)'),
    "attention": (
        'q: R.Tensor((1, "n", 4, 8), "float32"), k: R.Tensor((1, "m", 2, 8), "float32"), '
        'v: R.Tensor((1, "m", 2, 6), "float32")',
        'R.nn.attention(q, k, v, causal_mask="BottomRight")',
    ),
    "attention of few positions": (
        'q: R.Tensor((2, "n", 2, 16), "float32"), k: R.Tensor((2, 30, 2, 16), "float32")',
        "R.nn.attention(q, k, k)",
    ),
}  # fmt: skip
"""Programs by what they compute: parameters and the call."""


def program(name: str) -> Module:
    """The program of that name."""
    params, call = CALLS[name]
    return parse(f"@R.function\ndef main({params}):\n    return {call}\n")


def check_drawn(mod: Module, kind: str, seed: int, rng: np.random.Generator) -> None:
    """Compare a program whose kernels have decisions drawn from `seed` with the interpreter: on a
    CPU as a debug build, on a GPU simulated."""
    pipeline = {"cpu": cpu_pipeline, "cuda": cuda_pipeline}[kind]()
    drawn = pipeline.with_options("schedule_kernels", seed=seed)
    args = random_arguments(mod["main"], rng, SIZES)  # type: ignore[arg-type]
    want = interpret(mod, "main", *copy_value(args))
    shapes = [np.shape(a) for a in args]
    assert_same(_run(mod, drawn, kind, args), want, f"seed {seed}, {shapes}", TOLERANCE)


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
@pytest.mark.parametrize("case", range(4))
def test_any_decisions_make_right_kernels(case: int, kind: str, rng: np.random.Generator) -> None:
    name, seed = random.choice(list(CALLS)), random.getrandbits(32)
    print(f"{name}, decisions of seed {seed}")
    check_drawn(program(name), kind, seed, rng)


def _run(mod: Module, drawn: Any, kind: str, args: tuple[Any, ...]) -> Any:
    trace = drawn.run(mod)
    replay_kernels(trace)
    if kind == "cpu":
        return compile(mod, pipeline=drawn, checks="all", use_cache=False)["main"](*args)
    sources_of(launches_of(trace.result.loop_functions()), CUDA_C)
    return simt(trace.result, "main", *args).check().result


DECIDED = {
    "matmul": {
        "any n / row_threads": 8, "any n / column_threads": 16, "any n / thread_rows": 2,
        "any n / thread_columns": 3, "any n / reduction_step": 8, "any n / unroll_reduction": 4,
        "any n / operand_in_shared_memory(A)": False, "any n / copy_width(B_shared)": 2,
    },
    "softmax": {
        "threads_per_row": 32, "rows_per_block": 4, "unroll_terms": 2, "row_in_registers": False,
    },
    "exp": {"threads_per_block": 128, "results_per_thread": 2, "vector_width(T_exp)": 2},
}  # fmt: skip
DECIDED_CALLS = '''
@R.function
def main(x: R.Tensor(("n", 40), "float32"), w: R.Tensor((40, 96), "float32")):
    return R.exp(x), R.nn.softmax(x), R.matmul(x, w)
'''


def test_decisions_say_what_kernels_for_gpus_are_like(rng: np.random.Generator) -> None:
    """Threads of a block, memory and registers of each kernel, as they were decided."""
    mod = parse(DECIDED_CALLS)
    made = cuda_pipeline().with_options("schedule_kernels", decisions=DECIDED).run(mod)
    kernels = launches_of(made.result.loop_functions())
    _, source = sources_of(kernels, CUDA_C)
    (exp,) = kernels["exp"].launches
    (softmax,) = kernels["softmax"].launches
    _, product = kernels["matmul"].launches
    threads = [[str(d) for d in x.extents("threadIdx")] for x in (exp, softmax, product)]
    assert threads == [["128", "1", "1"], ["32", "4", "1"], ["16", "8", "1"]]
    assert [str(b.shape[0]) for b in softmax.shared if b.name == "T_softmax_exp"] == ["4"]
    assert [b.name for b in product.shared] == ["B_shared"]
    assert [[str(d) for d in b.shape] for b in product.local] == [["2", "3"]]
    assert "Vec<float, 2> A_vec" in source and "Vec<float, 2> B_vec" in source
    args = [rng.normal(size=s).astype("float32") for s in ((19, 40), (40, 96))]
    got = simt(made.result, "main", *args).check().result
    assert_same(got, interpret(mod, "main", *args), "results", TOLERANCE)


def test_rows_of_dot_products_beside_three_columns(rng: np.random.Generator) -> None:
    """The seed draws three columns; registers would hold five rows then, which is no candidate."""
    check_drawn(program("product with itself"), "cpu", 4087761129, rng)
