"""sort_bindings, fuse_transpose_matmul."""

from __future__ import annotations

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.passes.fuse_transpose_matmul import fuse_transpose_matmul
from relaxlab.passes.normalize import normalize
from relaxlab.passes.sort_bindings import sort_bindings
from relaxlab.script import ir as I
from relaxlab.script import relax as R
from relaxlab.script import tir as T
from relaxlab.testing.pass_check import check_pass


def names(mod: rl.Module) -> str:
    block = mod.graph_functions()["main"].body.blocks[0]
    return " ".join(b.var.name for b in block.bindings)


@I.ir_module
class Chains:
    @R.function
    def main(x: R.Tensor((3,), "float32"), y: R.Tensor((3,), "float32")):
        with R.dataflow():
            a = R.exp(x)
            b = R.exp(y)
            c = R.abs(a)
            d = R.abs(b)
            e = R.add(c, d)
            R.output(e)
        return e


@pytest.mark.parametrize(
    ("depth_first", "from_outputs", "order"),
    [(True, False, "a c b d e"), (False, False, "a b c d e"), (True, True, "a c b d e"),
     (False, True, "b a d c e")],
)  # fmt: skip
def test_the_order_of_each_search(depth_first: bool, from_outputs: bool, order: str) -> None:
    start = normalize(Chains)
    one = sort_bindings.with_options(depth_first=depth_first, from_outputs=from_outputs)
    after = one(start)
    assert names(after) == order
    assert one(after) is after or depth_first is from_outputs is False
    x, y = np.arange(3, dtype="float32"), np.ones(3, "float32")
    want = rl.interpret(start, "main", x, y)
    np.testing.assert_array_equal(rl.interpret(after, "main", x, y), want)


def test_what_mentions_a_symbol_stays_behind_the_claim_that_binds_it() -> None:
    @I.ir_module
    class Claims:
        @R.function
        def main(x: R.Tensor((3,), "float32"), y: R.Tensor(ndim=1, dtype="float32")):
            n = T.int64()
            with R.dataflow():
                z = R.match_cast(y, R.Tensor((n,), "float32"))
                a = R.zeros(R.shape([n]), "float32")
                b = R.exp(x)
                R.output(a, b, z)
            return (a, b, z)

    assert names(sort_bindings(normalize(Claims))) == "b z a"


def test_products_of_transposed_matrices() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor(("n", 4), "float32"), w: R.Tensor((5, 4), "float32")):
            with R.dataflow():
                t = R.permute_dims(w, axes=[1, 0])
                y = R.matmul(x, t)
                R.output(y)
            return y

    @I.ir_module
    class After:
        @R.function
        def main(x: R.Tensor(("n", 4), "float32"), w: R.Tensor((5, 4), "float32")):
            with R.dataflow():
                y = R.linear(x, w)
                R.output(y)
            return y

    check_pass(fuse_transpose_matmul, Before, After)
