"""Loops around calls of C functions."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from relaxlab import compile as compiled
from relaxlab.schedule import Schedule, ScheduleError
from relaxlab.script import parse

DRAWN_BY_C = """
@T.prim_func
def f(A: T.Buffer((4, 20), "int32"), B: T.Buffer((4, 20), "int32")):
    for i, j in T.grid(4, 20):
        with T.sblock("b"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = T.call_extern("int32", "rand") + A[vi, vj]
"""


def test_calls_of_c_functions_keep_their_order() -> None:
    """Vectors had one number for all lanes."""
    libc = ctypes.CDLL(None)
    libc.srand(7)
    expected = [libc.rand() for _ in range(81)]
    exe = compiled(parse(DRAWN_BY_C))
    libc.srand(7)
    found = np.asarray(exe["f"](np.zeros((4, 20), "int32")))
    assert [*found.ravel().tolist(), libc.rand()] == expected


@pytest.mark.parametrize("step", ["parallel", "vectorize", "unroll_and_jam", "reorder", "bind"])
def test_loops_around_calls_of_c_functions_run_in_order(step: str) -> None:
    sch = Schedule(parse(DRAWN_BY_C)["f"])
    i, j = sch.get_loops(sch.get_block("b"))
    steps = {"reorder": lambda: sch.reorder(j, i), "bind": lambda: sch.bind(j, "threadIdx.x")}
    with pytest.raises(ScheduleError, match="no call does more than return a value"):
        steps.get(step, lambda: getattr(sch, step)(j))()
    # One that says that it returns a value alone may run in any order.
    pure = DRAWN_BY_C.replace("call_extern", "call_pure_extern")
    sch = Schedule(parse(pure)["f"])
    i, j = sch.get_loops(sch.get_block("b"))
    sch.reorder(j, i)


READ_TWICE = """
@T.prim_func
def f(A: T.Buffer((20,), "int32"), C: T.Buffer((20,), "int32")):
    B = T.alloc_buffer((20,), "int32")
    for i in range(20):
        with T.sblock("b"):
            vi = T.axis.spatial(20, i)
            B[vi] = T.call_extern("int32", "rand") % 1000 + A[vi]
    for i in range(20):
        with T.sblock("c"):
            vi = T.axis.spatial(20, i)
            C[vi] = B[19 - vi] + B[vi]
"""


def test_blocks_that_call_c_functions_stay_where_they_are() -> None:
    """Inlined by a rule, the function was called for each reader of the block."""
    libc = ctypes.CDLL(None)
    libc.srand(7)
    drawn = np.array([libc.rand() % 1000 for _ in range(20)])
    exe = compiled(parse(READ_TWICE))
    libc.srand(7)
    found = np.asarray(exe["f"](np.zeros(20, "int32")))
    np.testing.assert_array_equal(found, drawn + drawn[::-1])
    sch = Schedule(parse(READ_TWICE)["f"])
    drawing, reading = sch.get_block("b"), sch.get_block("c")
    with pytest.raises(ScheduleError, match="no call does more than return a value"):
        sch.compute_inline(drawing)
    with pytest.raises(ScheduleError, match="no call does more than return a value"):
        sch.compute_at(drawing, sch.get_loops(reading)[0])
