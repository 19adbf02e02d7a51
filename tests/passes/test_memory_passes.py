"""Passes on allocations and copies."""

from __future__ import annotations

import relaxlab as rl
from relaxlab.passes.kill_after_last_use import kill_after_last_use
from relaxlab.passes.lower_alloc_tensor import lower_alloc_tensor
from relaxlab.passes.rewrite_dataflow_reshape import rewrite_dataflow_reshape
from relaxlab.script import ir as I
from relaxlab.script import relax as R
from relaxlab.script import tir as T
from relaxlab.testing.pass_check import check_pass


@I.ir_module
class Allocating:
    @T.prim_func(s_tir=True)
    def double(A: T.Buffer((4, 3), "float32"), B: T.Buffer((4, 3), "float32")):
        for i, j in T.grid(4, 3):
            with T.sblock("double"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj] * T.float32(2)

    @R.function
    def main(x: R.Tensor((4, 3), "float32")):
        R.func_attr({"relax.force_pure": True})
        cls = Allocating
        a = R.builtin.alloc_tensor(R.shape([4, 3]), R.dtype("float32"), 0, R.str("global"))
        _ = cls.double(x, a)
        b = R.builtin.alloc_tensor(R.shape([4, 3]), R.dtype("float32"), 0, R.str("global"))
        _1 = cls.double(a, b)
        return b


def test_storages_of_their_own_and_their_ends() -> None:
    @I.ir_module
    class Expected:
        @T.prim_func(s_tir=True)
        def double(A: T.Buffer((4, 3), "float32"), B: T.Buffer((4, 3), "float32")):
            for i, j in T.grid(4, 3):
                with T.sblock("double"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    B[vi, vj] = A[vi, vj] * T.float32(2)

        @R.function
        def main(x: R.Tensor((4, 3), "float32")):
            R.func_attr({"relax.force_pure": True})
            cls = Expected
            s = R.memory.alloc_storage(R.shape([48]), 0, R.str("global"), R.dtype("uint8"))
            a = R.memory.alloc_tensor(s, 0, R.shape([4, 3]), R.dtype("float32"), 0)
            _ = cls.double(x, a)
            t = R.memory.alloc_storage(R.shape([48]), 0, R.str("global"), R.dtype("uint8"))
            b = R.memory.alloc_tensor(t, 0, R.shape([4, 3]), R.dtype("float32"), 0)
            _1 = cls.double(a, b)
            return b

    after = check_pass(lower_alloc_tensor, Allocating, Expected)
    text = kill_after_last_use(after).script()
    assert text.count("R.memory.kill_storage(storage)") == 1
    assert text.index("R.memory.kill_tensor(a)") > text.index("cls.double(a, b)")
    assert "kill_tensor(b)" not in text
    check_pass(kill_after_last_use, after, kill_after_last_use(rl.find_pass("normalize")(after)))


COPY = """
@R.function
def main(x: R.Tensor((8, 3), "float32")):
    with R.dataflow():
        y = R.call_tir(cls.copy, (x,), out_ty=R.Tensor((2, 4, 3), "float32"))
        z = R.exp(y)
        R.output(z)
    return z

@T.prim_func(s_tir=True)
def copy(A: T.Buffer((8, 3), "float32"), B: T.Buffer((2, 4, 3), "float32")):
    for i, j, k in T.grid(2, 4, 3):
        with T.sblock("copy"):
            a, b, c = T.axis.remap("SSS", [i, j, k])
            B[a, b, c] = A[PLACE, c]
"""


def test_copies_in_the_order_of_memory_are_reshapes() -> None:
    before = rl.parse(COPY.replace("PLACE", "((a * 4 + b) * 3 + c) // 3"))
    expected = before.with_functions(
        {
            "main": rl.parse(
                COPY.replace("PLACE", "0").replace(
                    'R.call_tir(cls.copy, (x,), out_ty=R.Tensor((2, 4, 3), "float32"))',
                    "R.reshape(x, R.shape([2, 4, 3]))",
                )
            )["main"]
        }
    )
    check_pass(rewrite_dataflow_reshape, before, expected)


def test_other_copies_stay() -> None:
    check_pass(rewrite_dataflow_reshape, rl.parse(COPY.replace("PLACE", "b * 2 + a")))
