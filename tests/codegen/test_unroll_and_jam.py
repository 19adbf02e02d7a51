"""Copies of rows inside of the loops along them."""

from __future__ import annotations

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.codegen.lower_blocks import lower_blocks
from relaxlab.codegen.unroll_and_jam import unroll_and_jam
from relaxlab.ir.loops import For, PrimFunc
from relaxlab.ir.node import walk
from relaxlab.schedule import Schedule, ScheduleError

AVERAGE = """
@T.prim_func
def average(x: T.handle, y: T.handle):
    n, m = T.int64(), T.int64()
    X = T.match_buffer(x, (n, m), "float32")
    Y = T.match_buffer(y, (n, m), "float32")
    for i in range(n):
        with T.sblock("Y"):
            vi = T.axis.spatial(n, i)
            s = T.alloc_buffer((1,), "float32", scope="local")
            s[0] = T.float32(0)
            for j in range(m):
                s[0] = s[0] * T.float32(0.5) + X[vi, j]
                if j > 0:
                    Y[vi, j] = s[0]
                else:
                    Y[vi, j] = X[vi, j]
"""
STEPS = """
@T.prim_func
def steps(x: T.handle):
    n = T.int64()
    X = T.match_buffer(x, (n + 1,), "float32")
    for i in range(n):
        with T.sblock("X"):
            vi = T.axis.opaque(n, i)
            X[vi + 1] = X[vi] * T.float32(2)
"""


def jammed(text: str, factor: int) -> PrimFunc:
    (func,) = rl.parse(text).loop_functions().values()
    sch = Schedule(func)
    (block,) = sch.get_child_blocks(sch.get_block("root"))
    _, rows = sch.split(sch.get_loops(block)[0], factors=[None, factor])
    sch.unroll_and_jam(rows)
    return sch.func


def test_rows_are_inside_of_the_loop_along_them() -> None:
    body, _ = lower_blocks(jammed(AVERAGE, 4).body)
    nests = [n for n in walk(unroll_and_jam(body)) if isinstance(n, For)]
    along = [n for n in nests if n.loop_var.name == "j"]
    inside = [sum(isinstance(x, For) and x.kind == "unrolled" for x in walk(n)) for n in along]
    # All rows of a tile side by side, and the last ones, of which some may not be there, one by
    # one.
    assert sorted(inside) == [0, 3]


@pytest.mark.parametrize("factor", [1, 3, 4])
def test_any_number_of_rows(factor: int, rng: np.random.Generator) -> None:
    exe = rl.compile(jammed(AVERAGE, factor), checks="all", use_cache=False)
    for n, m in ((0, 5), (1, 5), (3, 1), (4, 9), (10, 0), (11, 7)):
        x = rng.standard_normal((n, m), np.float32)
        y = np.zeros_like(x)
        expected, s = np.zeros_like(x), np.zeros(n, np.float32)
        for j in range(m):
            s = s * np.float32(0.5) + x[:, j]
            expected[:, j] = s if j else x[:, j]
        exe(x, y)
        np.testing.assert_allclose(y, expected, 1e-6, 1e-6)


def test_steps_are_refused() -> None:
    with pytest.raises(ScheduleError, match="unroll_and_jam"):
        jammed(STEPS, 4)
