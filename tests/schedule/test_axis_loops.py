"""Blocks whose axes a user has bound to other loops than one for each are scheduled, too."""

from __future__ import annotations

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.runtime.interpreter.interpreter import interpret_prim_func
from relaxlab.schedule import Schedule, ScheduleError
from relaxlab.schedule.rules.base import axis_loops
from relaxlab.testing.replay import replay_kernels

PRODUCT = """
@T.prim_func
def main(A: T.Buffer(("n", 12), "float32"), B: T.Buffer((12, 32), "float32"),
         C: T.Buffer(("n", 32), "float32")):
    for {loops}:
        with T.sblock("C"):
            {axes}
            with T.init():
                C[vi, vj] = T.float32(0)
            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
"""
AXES = "vi = T.axis.spatial(n, {}); vj = T.axis.spatial(32, {}); vk = T.axis.reduce(12, {})"
LOOPS = {
    "fused": ("f, k in T.grid(n * 32, 12)", ("f // 32", "f % 32", "k")),
    "split": ("i, j, k, l in T.grid(n, 32, 3, 4)", ("i", "j", "k * 4 + l")),
    "reordered": ("k, i, j in T.grid(12, n, 32)", ("i", "j", "k")),
}


@pytest.mark.parametrize("loops", LOOPS)
def test_products_in_other_loops(loops: str, rng: np.random.Generator) -> None:
    nest, values = LOOPS[loops]
    axes = AXES.format(*values).replace("; ", "\n            ")
    mod = rl.parse(PRODUCT.format(loops=nest, axes=axes))
    (func,) = mod.loop_functions().values()
    sch = Schedule(func)
    with pytest.raises(ScheduleError, match="each of its axes has a loop of its own, in order"):
        axis_loops(sch, sch.get_block("C"))
    for target in ("cpu", "cuda"):
        assert replay_kernels(rl.trace(mod, target=target)) == 1
    x, w = rng.random((5, 12), dtype="float32"), rng.random((12, 32), dtype="float32")
    want, got = np.zeros((5, 32), "float32"), np.zeros((5, 32), "float32")
    interpret_prim_func(func, [x, w, want])
    rl.compile(func, use_cache=False)(x, w, got)
    np.testing.assert_allclose(got, want, rtol=1e-5)
