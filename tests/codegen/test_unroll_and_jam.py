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
STAGED = """
@T.prim_func
def staged(X: T.Buffer((4, 6), "float32"), Y: T.Buffer((4, 6), "float32")):
    B = T.alloc_buffer((4, 6), "float32")
    for i, j in T.grid(4, 6):
        with T.sblock("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = X[vi, vj] * T.float32(2)
    for i, j in T.grid(4, 6):
        with T.sblock("Y"):
            vi, vj = T.axis.remap("SS", [i, j])
            Y[vi, vj] = B[vi, vj] + T.float32(1)
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


def test_steps_and_loops_of_any_length_are_refused() -> None:
    with pytest.raises(ScheduleError, match="unroll_and_jam"):
        jammed(STEPS, 4)
    (func,) = rl.parse(AVERAGE).loop_functions().values()
    sch = Schedule(func)
    (block,) = sch.get_child_blocks(sch.get_block("root"))
    with pytest.raises(ScheduleError, match="the extent is a constant; it is n"):
        sch.unroll_and_jam(sch.get_loops(block)[0])


def test_rows_side_by_side_share_no_buffer(rng: np.random.Generator) -> None:
    """A buffer that an iteration fills and reads has elements for all that are made together."""
    (func,) = rl.parse(STAGED).loop_functions().values()
    sch = Schedule(func)
    first, second = sch.get_child_blocks(sch.get_block("root"))
    rows = sch.get_loops(second)[0]
    sch.compute_at(first, rows)
    sch.set_scope(first, 0, "local")
    sch.unroll_and_jam(rows)
    sch.compact_buffers()
    x = rng.standard_normal((4, 6), np.float32)
    y = np.zeros_like(x)
    rl.compile(sch.func, checks="all", use_cache=False)(x, y)
    np.testing.assert_array_equal(y, 2 * x + 1)
