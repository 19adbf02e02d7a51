"""merge: what it makes of loops that follow each other, and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest

from relaxlab.runtime.interpreter.interpreter import interpret_prim_func
from relaxlab.schedule import Schedule, ScheduleError
from relaxlab.script import tir as T


@T.prim_func
def passes(a: T.handle, b: T.handle, c: T.handle, d: T.handle):
    n = T.int64()
    A = T.match_buffer(a, (n, 4), "float32")
    B = T.match_buffer(b, (n, 4), "float32")
    C = T.match_buffer(c, (n,), "float32")
    D = T.match_buffer(d, (n,), "float32")
    for i, j in T.grid(n, 4):
        with T.sblock("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj] * T.float32(2)
    for i, k in T.grid(n, 4):
        with T.sblock("C"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                C[vi] = T.float32(0)
            C[vi] = C[vi] + B[vi, vk]
    for i in range(n):
        with T.sblock("D"):
            vi = T.axis.spatial(n, i)
            D[vi] = C[n - 1 - vi]


@pytest.mark.parametrize("n", [1, 5])
def test_what_one_iteration_makes_the_next_pass_reads_there(n: int) -> None:
    sch = Schedule(passes)
    loops = [sch.get_loops(sch.get_block(name)) for name in "BC"]
    sch.merge(loops[0][0], loops[1][0])
    assert len(sch.get_loops(sch.get_block("B"))) == 2
    outer = [sch.get(sch.get_loops(sch.get_block(name))[0]) for name in "BC"]
    assert outer[0] is outer[1]
    x = np.random.default_rng(0).standard_normal((n, 4)).astype("float32")
    made = [np.zeros(s, "float32") for s in ((n, 4), (n,), (n,))]
    interpret_prim_func(sch.func, [x, *made])
    np.testing.assert_allclose(made[2], (2 * x).sum(1)[::-1], rtol=1e-6)


@pytest.mark.parametrize(
    ("loops", "text"),
    [((("B", 1), ("C", 1)), "the loop is over spatial axes"),
     ((("C", 0), ("D", 0)), "no iteration depends on another"),
     ((("C", 0), ("B", 0)), "in the order in which they are given"),
     ((("B", 0), ("D", 0)), "the loops follow each other"),
     ((("B", 0), ("C", 1)), "the same depth"),
     ((("B", 0), ("B", 1)), "none of the loops is inside another")],
)  # fmt: skip
def test_what_is_refused(loops: tuple[tuple[str, int], ...], text: str) -> None:
    sch = Schedule(passes)
    with pytest.raises(ScheduleError, match=text):
        sch.merge(*(sch.get_loops(sch.get_block(name))[at] for name, at in loops))
    assert sch.func is sch.original
