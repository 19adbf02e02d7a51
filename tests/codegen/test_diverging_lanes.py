"""Loops inside vectorized loops whose bounds or conditions differ from lane to lane."""

from __future__ import annotations

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.runtime.interpreter.interpreter import interpret_prim_func
from relaxlab.schedule import Schedule
from relaxlab.script import parse

SUMS = """
@T.prim_func
def f(A: T.Buffer((8, 8), "int32"), P: T.Buffer((9,), "int32"), S: T.Buffer((8,), "int32")):
    for i in range(8):
        with T.sblock("S"):
            vi = T.axis.spatial(8, i)
            S[vi] = 0
            {body}
"""
BODIES = {
    "triangle": """for j in range(vi):
                S[vi] = S[vi] + A[vi, j]""",
    "rows of a sparse matrix": """for j in range(T.int64(P[vi]), T.int64(P[vi + 1])):
                S[vi] = S[vi] + A[vi, j % 8] * T.int32(j)""",
    "bounds that the body changes": """for j in range(T.int64(S[vi]), vi):
                S[vi] = S[vi] + A[vi, j]""",
    "two loops": """for j in range(vi):
                for k in range(j, vi + 1):
                    S[vi] = S[vi] + A[j, k]""",
    "negative extents": """for j in range(vi - 4):
                S[vi] = S[vi] + A[vi, j]""",
    "while": """while S[vi] < P[vi]:
                S[vi] = S[vi] + 7""",
    "while under if": """if P[vi] > 9:
                while S[vi] < P[vi]:
                    S[vi] = S[vi] + 7
            else:
                for j in range(T.int64(P[vi])):
                    S[vi] = S[vi] - A[vi, T.min(j, 7)]""",
}


@pytest.mark.parametrize("lanes", [8, 3])
@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_each_lane_runs_its_own_iterations(body: str, lanes: int, rng) -> None:
    func = parse(SUMS.format(body=body)).loop_functions()["f"]
    sch = Schedule(func)
    (i,) = sch.get_loops(sch.get_block("S"))
    sch.vectorize(sch.split(i, [None, lanes])[1])
    a = rng.integers(-9, 9, (8, 8)).astype("int32")
    p = np.array([0, 3, 3, 9, 10, 12, 20, 21, 30], "int32")
    want, got = np.empty(8, "int32"), np.empty(8, "int32")
    interpret_prim_func(func, [a, p, want], vectorise=False)
    rl.compile(sch, use_cache=False)(a, p, got)
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("n", [1, 100, 281, 400])
@pytest.mark.parametrize("unrolled", [False, True])
def test_guards_that_end_a_loop_at_another_place_per_lane(n: int, unrolled: bool, rng) -> None:
    """The compiler's own bounds: loops are ended where their guards fail."""
    func = parse("""
@T.prim_func
def f(A: T.Buffer(("n",), "int16"), D: T.Buffer(("n",), "int16")):
    for i, j in T.grid(4, 100):
        with T.sblock("D"):
            vi = T.axis.spatial(n, i * 100 + j)
            T.where(i * 100 + j < n)
            D[vi] = A[vi] * T.int16(2)
""").loop_functions()["f"]
    sch = Schedule(func)
    i, j = sch.get_loops(sch.get_block("D"))
    sch.vectorize(i)
    if unrolled:
        sch.unroll(j)
    a = rng.integers(-9, 9, n).astype("int16")
    np.testing.assert_array_equal(rl.compile(sch, use_cache=False)(a), a * 2)
