"""Products of few terms in the kernels that read their rows: which may join, and why not."""

from __future__ import annotations

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.ir.equal import assert_structural_equal
from relaxlab.passes.normalize import normalize
from relaxlab.script import ir as I
from relaxlab.script import relax as R
from relaxlab.script import tir as T
from tests.passes.row_programs import LOW_RANK, low_rank
from tests.passes.test_fuse_ops import fused, kernels, reasons


def test_a_product_joins_the_sum_of_its_rows():
    @I.ir_module
    class Before:
        @R.function
        def main(a: R.Tensor(("n", 4), "float32"), b: R.Tensor((4, 24), "float32")):
            with R.dataflow():
                y = R.sum(R.nn.relu(R.matmul(a, b)), axis=-1)
                R.output(y)
            return y

    @I.ir_module
    class Merged:
        @R.function
        def main(
            a: R.Tensor(("n", 4), "float32"), b: R.Tensor((4, 24), "float32")
        ) -> R.Tensor(("n",), "float32"):
            n = T.int64()
            cls = Merged
            with R.dataflow():
                y = R.call_tir(
                    cls.fused_matmul_relu_sum, (a, b), out_sinfo=R.Tensor((n,), "float32")
                )
                R.output(y)
            return y

        @T.prim_func
        def fused_matmul_relu_sum(a: T.handle, b: T.handle, out: T.handle):
            T.func_attr({"op_pattern": 4, "tir.noalias": True})
            n = T.int64()
            A = T.match_buffer(a, (n, 4), "float32")
            B = T.match_buffer(b, (4, 24), "float32")
            Out = T.match_buffer(out, (n,), "float32")
            P = T.alloc_buffer((n, 24), "float32")
            Q = T.alloc_buffer((n, 24), "float32")
            for i, j, k in T.grid(n, 24, 4):
                with T.block("T_matmul"):
                    vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                    with T.init():
                        P[vi, vj] = T.float32(0)
                    P[vi, vj] = P[vi, vj] + A[vi, vk] * B[vk, vj]
            for i, j in T.grid(n, 24):
                with T.block("T_relu"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    Q[vi, vj] = T.max(T.float32(0), P[vi, vj])
            for i, r in T.grid(n, 24):
                with T.block("T_sum"):
                    vi, vr = T.axis.remap("SR", [i, r])
                    with T.init():
                        Out[vi] = T.float32(0)
                    Out[vi] = Out[vi] + Q[vi, vr]

    assert_structural_equal(fused(Before), normalize(Merged))


@pytest.mark.parametrize("kind", LOW_RANK)
@pytest.mark.parametrize("width", ['"d"', "24"])
def test_readers_of_rows_make_them_in_their_kernel(kind, width):
    mod = low_rank(kind, width)
    assert len(kernels(fused(mod))) == 1
    steps = rl.trace(mod).find("fuse_ops").remarks
    assert "sums of 8 products cost less than to store and load a row" in steps[-1].reason


ONE = "a kernel keeps the loops of one of "
REFUSED = {
    "many terms": (
        "R.nn.softmax(R.matmul(c, w))", "matmul and softmax: an element is a sum of 17 products",
    ),
    "how many is a symbol": (
        "R.nn.softmax(R.matmul(d, e))", "matmul and softmax: an element is a sum of k products",
    ),
    "rows run the other way": (
        "R.nn.softmax(R.matmul(a, b), axis=0)",
        "matmul and softmax: softmax does not go through matmul row by row",
    ),
    "one row": (
        "R.sum(R.matmul(a, b))", "matmul and sum: sum does not go through matmul row by row",
    ),
    "wide rows": (
        "R.nn.softmax(R.matmul(a, f))", "matmul and softmax: a row of matmul may have more than",
    ),
    "rows in two dimensions": (
        "R.sum(R.matmul(g, b), axis=[1, 2])", "matmul and sum: a row of matmul may have more than",
    ),
    "an operand to compute first": (
        "R.nn.softmax(R.matmul(a, R.permute_dims(h)))",
        "matmul and softmax: permute_dims would be repeated for every row",
    ),
    "an operand that is read across": ("R.nn.softmax(R.linear(a, h))", "linear and softmax"),
    "another product": ("R.matmul(R.matmul(a, b), R.matmul(d, e))", "matmul and matmul"),
}  # fmt: skip


@pytest.mark.parametrize("kind", REFUSED)
def test_reasons_against_fusion(kind):
    body, reason = REFUSED[kind]
    mod = rl.parse(f"""
@R.function
def main(a: R.Tensor(("n", 8), "float32"), b: R.Tensor((8, 24), "float32"),
         c: R.Tensor(("n", 17), "float32"), w: R.Tensor((17, 24), "float32"),
         d: R.Tensor((24, "k"), "float32"), e: R.Tensor(("k", 24), "float32"),
         f: R.Tensor((8, 8193), "float32"), g: R.Tensor((3, "n", 8), "float32"),
         h: R.Tensor((24, 8), "float32")):
    with R.dataflow():
        y = {body}
        R.output(y)
    return y
""")
    found = list(reasons(mod).values())
    assert any(ONE + reason in r for r in found), found
    assert len(kernels(fused(mod))) > 1


def test_values_that_are_used_again_stay_in_main_memory():
    @I.ir_module
    class Before:
        @R.function
        def main(a: R.Tensor(("n", 8), "float32"), b: R.Tensor((8, 24), "float32")):
            with R.dataflow():
                p = R.matmul(a, b)
                y = R.nn.softmax(p)
                R.output(p, y)
            return (p, y)

    assert kernels(fused(Before)) == ["matmul", "softmax"]


def test_rows_with_more_than_one_leading_axis(rng):
    mod = rl.parse("""
@R.function
def main(a: R.Tensor((2, "n", 3), "float32"), b: R.Tensor((2, 3, "d"), "float32")):
    with R.dataflow():
        y = R.nn.softmax(R.matmul(a, b))
        R.output(y)
    return y
""")
    assert len(kernels(fused(mod))) == 1
    exe = rl.compile(mod, threads=2)
    for n, d in ((1, 5), (5, 40)):
        a, b = (rng.standard_normal(s, "float32") for s in ((2, n, 3), (2, 3, d)))
        np.testing.assert_allclose(exe["main"](a, b), rl.interpret(mod, "main", a, b), 1e-5, 1e-6)
