"""Results of kernels in the memory of operands that nothing reads any more."""

from __future__ import annotations

import random

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.ir.module import Module
from relaxlab.passes.normalize import normalize
from relaxlab.passes.overwrite_operands import is_overwritable, overwrite_operands
from relaxlab.passes.pipeline import cpu_pipeline
from relaxlab.script import ir as I
from relaxlab.script import relax as R
from relaxlab.script import tir as T
from relaxlab.testing.pass_check import check_module, check_pass, compare_runs
from tests.passes.planned_bytes import bytes_planned


@I.ir_module
class Sum:
    @T.prim_func
    def add(a: T.handle, b: T.handle, c: T.handle):
        n = T.int64()
        A = T.match_buffer(a, (n, 4), "float32")
        B = T.match_buffer(b, (n, 4), "float32")
        C = T.match_buffer(c, (n, 4), "float32")
        for i, j in T.grid(n, 4):
            with T.block("C"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[vi, vj] = A[vi, vj] + B[vi, 3 - vj]

    @R.function
    def main(x: R.Tensor(("n", 4), "float32")) -> R.Tensor(("n", 4), "float32"):
        n = T.int64()
        cls = Sum
        with R.dataflow():
            a = R.call_tir(cls.add, (x, x), out_ty=R.Tensor((n, 4), "float32"))
            b = R.call_tir(cls.add, (x, a), out_ty=R.Tensor((n, 4), "float32"))
            c = R.call_tir(cls.add, (b, a), out_ty=R.Tensor((n, 4), "float32"))
            R.output(c)
        return c


def test_the_last_read_of_an_operand_element_by_element() -> None:
    @I.ir_module
    class Expected:
        @T.prim_func
        def add(a: T.handle, b: T.handle, c: T.handle):
            n = T.int64()
            A = T.match_buffer(a, (n, 4), "float32")
            B = T.match_buffer(b, (n, 4), "float32")
            C = T.match_buffer(c, (n, 4), "float32")
            for i, j in T.grid(n, 4):
                with T.block("C"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    C[vi, vj] = A[vi, vj] + B[vi, 3 - vj]

        @T.prim_func
        def add_inplace(A: T.Buffer(("n", 4), "float32"), B: T.Buffer(("n", 4), "float32")):
            n = T.int64()
            for i, j in T.grid(n, 4):
                with T.block("C"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    A[vi, vj] = A[vi, vj] + B[vi, 3 - vj]

        @R.function
        def main(x: R.Tensor(("n", 4), "float32")) -> R.Tensor(("n", 4), "float32"):
            n = T.int64()
            cls = Expected
            with R.dataflow():
                a = R.call_tir(cls.add, (x, x), out_ty=R.Tensor((n, 4), "float32"))
                b = R.call_tir(cls.add, (x, a), out_ty=R.Tensor((n, 4), "float32"))
                c = R.call_tir_inplace(
                    cls.add_inplace, (b, a), inplace_indices=[0],
                    out_ty=R.Tensor((n, 4), "float32"),
                )  # fmt: skip
                R.output(c)
            return c

    check_pass(overwrite_operands, Sum, Expected)


LOOPS = {
    "element by element": (True, "C[vi, vj] = A[vi, vj] + B[vi, vj]", "n"),
    "reversed rows": (False, "C[vi, vj] = A[n - 1 - vi, vj] + B[vi, vj]", "n"),
    "the element beside it": (False, "C[vi, vj] = A[vi, vj] + A[vi, 3 - vj]", "n"),
    "an element of the result": (False, "C[vi, vj] = A[vi, vj] + C[vi, 3 - vj]", "n"),
    # The last rows are written twice, from what was written first.
    "overlapping tiles": (False, "C[vi, vj] = A[vi, vj] + B[vi, vj]", "n + 2"),
}
TEMPLATE = """
@T.prim_func
def f(A: T.Buffer(("n", 4), "float32"), B: T.Buffer(("n", 4), "float32"),
      C: T.Buffer(("n", 4), "float32")):
    for i, j in T.grid(ROWS, 4):
        with T.block("C"):
            vi = T.axis.spatial(n, ROW)
            vj = T.axis.spatial(4, j)
            BODY
"""


@pytest.mark.parametrize("case", LOOPS)
def test_loops_that_may_overwrite_an_operand(case: str) -> None:
    fits, body, rows = LOOPS[case]
    at = "T.min(i, n - 1)" if rows != "n" else "i"
    text = TEMPLATE.replace("ROWS", rows).replace("ROW", at).replace("BODY", body)
    func = rl.parse(text)["f"]
    a, _, c = func.buffers
    assert is_overwritable(func, a, c) is fits


RESIDUAL = """
@R.function
def main(x: R.Tensor(("n", 32), "float32"), w: R.Tensor((64, 32), "float32"),
         v: R.Tensor((32, 64), "float32"), g: R.Tensor((32,), "float32")):
    with R.dataflow():
        h = R.nn.rms_norm(x, g, axes=[-1])
        f = R.nn.relu(R.linear(h, w))
        y = R.nn.rms_norm(h + R.linear(f, v), g, axes=[-1])
        R.output(y)
    return y
"""


def test_a_residual_sum_takes_no_memory_of_its_own() -> None:
    mod = rl.parse(RESIDUAL)
    sizes = [
        bytes_planned(pipeline.run(mod).result["main"])
        for pipeline in (cpu_pipeline(), cpu_pipeline().without("overwrite_operands"))
    ]
    assert [str(size) for size in sizes] == ["n * 384", "n * 512"]
    rng = np.random.default_rng(0)
    args = [rng.normal(size=s).astype("float32") for s in ((37, 32), (64, 32), (32, 64), (32,))]
    want = rl.interpret(mod, "main", *args)
    for threads in (1, 2):
        exe = rl.compile(mod, threads=threads, use_cache=False)
        np.testing.assert_allclose(exe["main"](*args), want, rtol=1e-4, atol=1e-4)


SHARED = """
@R.function
def main(x: R.Tensor(("n", 32), "float32"), w: R.Tensor((32, 32), "float32")):
    a = R.nn.softmax(x, axis=-1)
    y = CALL
    z = R.add(a, R.linear(x, w))
    return (z, y)
"""


@pytest.mark.parametrize(
    "call",
    [
        "R.builtin.stop_lift_params(a)",
        'R.call_pure_packed("tests.itself", a, sinfo_args=R.Tensor((n, 32), "float32"))',
    ],
)
def test_another_name_for_an_operand_is_read_later(call: str) -> None:
    rl.register_func("tests.itself", lambda x: x, override=True)
    mod = rl.parse(SHARED.replace("CALL", call))
    rng = np.random.default_rng(0)
    args = [rng.normal(size=s).astype("float32") for s in ((5, 32), (32, 32))]
    results = rl.compile(mod, use_cache=False)["main"](*args)
    for got, want in zip(results, rl.interpret(mod, "main", *args), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


# --- Random programs --------------------------------------------------------------------------


def random_program(seed: int) -> Module:
    """Elementwise operators, products, norms and views over a few values that are read again."""
    rng = random.Random(seed)
    values, lines = ["x", "y"], list[str]()
    for i in range(10):
        a, b = rng.sample(values[-3:], 2) if i else values
        lines.append(f"v{i} = " + rng.choice([
            f"R.add({a}, {b})", f"R.nn.relu({a})", *[f"R.add({a}, R.linear({b}, w))"] * 3,
            f"R.nn.softmax({a}, axis=-1)", f"R.flip({a}, axis=0)",
            f"R.reshape(R.reshape({a}, (n, 2, 4)), (n, 8))", f"R.multiply({a}, R.sin({b}))",
        ]))  # fmt: skip
        values.append(f"v{i}")
    results = ", ".join(sorted({values[-1], rng.choice(values[2:])}))
    body = "\n        ".join([*lines, f"R.output({results})"])
    return rl.parse(f"""
@R.function
def main(x: R.Tensor(("n", 8), "float32"), y: R.Tensor(("n", 8), "float32"),
         w: R.Tensor((8, 8), "float32")):
    with R.dataflow():
        {body}
    return ({results},)
""")


def test_random_programs() -> None:
    before = cpu_pipeline()
    names = [p.name for p in before.passes]
    changed = 0
    for seed in range(8):
        trace = before.run(normalize(random_program(seed)))
        at = names.index("overwrite_operands")
        start, after = trace.passes[at - 1].after, trace.passes[at].after
        changed += after is not start
        check_module(overwrite_operands, start, after)
        compare_runs(start, after, seed=seed, sizes=(1, 2, 9), runs=2)
    assert changed > 3
