# pyright: reportInvalidTypeForm=false
"""Functions scheduled by hand keep their schedule through the graph passes."""

from __future__ import annotations

import relaxlab as rl
from relaxlab.schedule import Schedule
from relaxlab.script import ir as I
from relaxlab.script import relax as R
from relaxlab.script import tir as T


@I.ir_module
class Scheduled:
    @T.prim_func
    def double(A: T.Buffer((4, 8), "float32"), B: T.Buffer((4, 8), "float32")):
        for i, j in T.grid(4, 8):
            with T.sblock("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj] * T.float32(2)

    @R.function
    def main(x: R.Tensor((4, 8), "float32")):
        cls = Scheduled
        with R.dataflow():
            y = R.call_tir(cls.double, (x,), out_ty=R.Tensor((4, 8), "float32"))
            z = R.add(y, x)
            R.output(z)
        return z


def test_an_elementwise_function_is_not_fused() -> None:
    sch = Schedule(Scheduled, "double")
    i, j = sch.get_loops(sch.get_block("B"))
    sch.reorder(j, i)
    sch.vectorize(i)
    compiled = rl.trace(sch).result.loop_functions()
    assert compiled["double"].body == sch.mod.loop_functions()["double"].body
