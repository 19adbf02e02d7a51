"""Schedules without search under TVM's names."""

from __future__ import annotations

from types import ModuleType

import numpy as np
import pytest

import relaxlab as rl
import relaxlab.tvm as tvm
from relaxlab.ir.target import target_kind
from relaxlab.script import tir as T
from relaxlab.tvm.script import ir as I
from relaxlab.tvm.tir import dlight as dl


@I.ir_module
class Mod:
    @T.prim_func
    def product(
        A: T.Buffer((64, 64), "float32"),
        B: T.Buffer((64, 64), "float32"),
        C: T.Buffer((64, 64), "float32"),
    ):
        for i, j, k in T.grid(64, 64, 64):
            with T.block("C"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    C[vi, vj] = 0.0
                C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]

    @T.prim_func
    def twice(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32")):
        for i in range(64):
            with T.block("B"):
                vi = T.axis.spatial(64, i)
                B[vi] = A[vi] * 2.0


def test_rules_schedule_what_they_fit() -> None:
    with tvm.target.Target("cuda"):
        after = dl.ApplyDefaultSchedule(dl.gpu.Matmul())(Mod)
        assert "threadIdx.x" in after["product"].script()
        assert rl.structural_equal(after["twice"], Mod["twice"])
        every = dl.ApplyDefaultSchedule(dl.gpu.Matmul(), dl.gpu.Fallback())(Mod)
        again = dl.ApplyDefaultSchedule(dl.gpu.Fallback())(every)
    assert "threadIdx.x" in every["twice"].script() and again is not None
    assert rl.structural_equal(again, every)
    assert every["twice"].attrs["tir.is_scheduled"]
    with tvm.target.Target("llvm"):
        on_cpu = dl.ApplyDefaultSchedule(dl.cpu.GEMV())(Mod)
    x = np.random.default_rng(0).standard_normal((64, 64)).astype("float32")
    out = np.zeros_like(x)
    tvm.build(on_cpu["product"], "llvm")(*map(tvm.runtime.tensor, (x, x)), out)
    np.testing.assert_allclose(out, x @ x, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("home", "kind"), [(dl.gpu, "cuda"), (dl.cpu, "cpu")])
def test_rules_are_those_of_the_core(home: ModuleType, kind: str) -> None:
    """Each name that a rule stands for is a rule of the core for that kind of targets."""
    known = {name for name, _ in target_kind(kind).rules()}
    ours = [c for c in vars(home).values() if isinstance(c, type) and c is not dl.ScheduleRule]
    assert ours and all(rule.core and known.issuperset(rule.core) for rule in ours)


def test_rules_of_users() -> None:
    class Named(dl.ScheduleRule):
        def apply(self, func, target, tunable=False):  # type: ignore[no-untyped-def]
            sch = tvm.s_tir.Schedule(func)
            if len(func.params) != 2:
                return None
            sch.parallel(sch.get_loops("B")[0])
            return sch

    after = dl.ApplyDefaultSchedule(Named())(Mod)
    assert "T.parallel" in after["twice"].script()
    with pytest.raises(AttributeError, match="dlight.Nothing is not among the names"):
        dl.Nothing  # noqa: B018
