"""Reductions over short windows, compiled, against their references."""

from __future__ import annotations

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.ir.loops import For
from relaxlab.ir.module import Module
from relaxlab.ir.node import walk
from relaxlab.testing.op_check import CaseProgram, OpCase, T, compare, concrete_call

WINDOWS = {"pool_size": 3, "strides": 2, "padding": 1}
CASES = (
    OpCase("nn.max_pool2d", (T("n", 2, "h", "w"),), WINDOWS),
    OpCase("nn.avg_pool2d", (T("n", 2, "h", "w", dtype="float16"),),
           {**WINDOWS, "ceil_mode": True}),
    OpCase("nn.max_pool1d", (T("h", 3, "w", dtype="int8", low=-99, high=99),),
           {"pool_size": 2, "strides": 3, "dilation": 2}),
)  # fmt: skip
SIZES = tuple({"n": n, "h": h, "w": w} for n, h, w in ((1, 4, 3), (2, 3, 70), (1, 9, 131)))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_windows_of_any_width(case: OpCase) -> None:
    """Symbolic extents, borders, strides, dilation; also as a debug build."""
    env = {k: v for k, v in SIZES[0].items() if k in {d for t in case.args for d in t.shape}}
    mod = Module.of({"main": CaseProgram(case, env, symbolic=True).function()})
    reasons = [r.reason for p in rl.trace(mod).passes for r in p.remarks]
    assert "scheduled by the rule windows" in reasons
    for exe in (rl.compile(mod), rl.compile(mod, checks="all")):
        for seed, sizes in enumerate(SIZES):
            now = {name: sizes[name] for name in env}
            arrays, (want,) = concrete_call(case, now, seed)
            got = exe["main"](*arrays, tuple(now.values()))
            compare(np.asarray(got), want, f"{case} with {now}, seed={seed}")


SHORT_ROWS = {
    "norm": "R.sqrt(R.sum(R.multiply(x, x), axis=1))",
    "argmax": "R.argmax(x, axis=1)",
    "variance": "R.variance(x, axis=1)",
    "softmax": "R.nn.softmax(x, axis=1)",
    "log_softmax": "R.nn.log_softmax(x, axis=1)",
    "scaled": "R.multiply(R.max(x, axis=1, keepdims=True), y)",
    "normalised": "R.divide(x - R.mean(x, axis=1, keepdims=True), R.std(x, axis=1, keepdims=True))",
}


@pytest.mark.parametrize("op", SHORT_ROWS)
def test_several_reductions_of_short_rows(op: str, rng: np.random.Generator) -> None:
    """Vectors of rows where these have up to seven elements, whatever is stored for each row;
    versions of them for symbolic ones."""
    dtypes = ("float32", "float64", "int8") if op == "argmax" else ("float32", "float64")
    widths = rng.choice(range(2, 9), len(dtypes), replace=False)
    for width, dtype in zip(widths, dtypes, strict=True):
        symbolic = rng.integers(2)
        columns = '"d"' if symbolic else width
        mod = rl.parse(f"""
@R.function
def main(x: R.Tensor(("n", {columns}), "{dtype}"), y: R.Tensor(("n", 40), "{dtype}")):
    with R.dataflow():
        z = {SHORT_ROWS[op]}
        R.output(z)
    return z
""")
        exes = rl.compile(mod, threads=1), rl.compile(mod, threads=1, checks="all")
        for n in (0, 1, 7, 16, 33):
            width = rng.integers(1, 9) if symbolic else width
            x = rng.integers(-9, 9, (n, width)).astype(dtype)  # some are equal, not all of a row
            x[:, 0] += x.argmax(1) == 0
            y = rng.integers(1, 9, (n, 40)).astype(dtype)
            want = np.asarray(rl.interpret(mod, "main", x, y))
            for exe in exes:
                got = np.asarray(exe["main"](x, y))
                np.testing.assert_allclose(got, want, 1e-4, 1e-5, err_msg=f"{op} {x.shape}")


@pytest.mark.parametrize(("width", "rule"), [(3, "windows"), (7, "windows"), (8, "rows")])
def test_short_rows_are_lanes(width: int, rule: str) -> None:
    mod = rl.parse(
        f'@R.function\ndef main(x: R.Tensor(("n", {width}), "float32")):\n'
        "    return R.nn.softmax(x, axis=1)\n"
    )
    reasons = [r.reason for p in rl.trace(mod).passes for r in p.remarks]
    assert f"scheduled by the rule {rule}" in reasons


POOL = """
@R.function
def main(x: R.Tensor(("n", 37), "float32")):
    with R.dataflow():
        y = R.nn.relu(R.nn.max_pool1d(R.expand_dims(x, 0), pool_size=3, strides=2, padding=1))
        R.output(y)
    return y
"""


def test_what_follows_joins_the_window(rng: np.random.Generator) -> None:
    """In one kernel of vectors; NaN wins, minus infinity beside the border does not."""
    mod = rl.parse(POOL)
    (kernel,) = rl.trace(mod).result.loop_functions().values()
    assert any(isinstance(n, For) and n.kind == "vectorized" for n in walk(kernel.body))
    x = rng.standard_normal((5, 37)).astype(np.float32)
    x[0, 3], x[1, :], x[2, 36] = np.nan, -np.inf, np.inf
    got = np.asarray(rl.compile(mod)["main"](x))
    padded = np.pad(x, ((0, 0), (1, 1)), constant_values=-np.inf)
    want = np.max([padded[:, k : k + 37 : 2] for k in range(3)], axis=0)
    np.testing.assert_array_equal(got[0], np.maximum(want, 0))


def test_windows_without_results() -> None:
    """Windows of no columns, or of fewer than none, beside loops that run."""
    for columns in ("0", "1, 0"):
        func = rl.parse(f"""
@T.prim_func
def f(A: T.Buffer((3, 9), "int32"), B: T.Buffer((3, 2), "int32")):
    for i in range(3):
        for j in range({columns}):
            B[i, j] = T.int32(2)
            for k in range(3):
                B[i, j] = T.max(B[i, j], A[i, j + k])
    for i in range(3):
        B[i, 1] = T.int32(5)
""")
        b = np.full((3, 2), 7, "int32")
        rl.compile(func, use_cache=False)(np.zeros((3, 9), "int32"), b)
        assert b.tolist() == [[7, 5]] * 3
