"""Explanations of refused steps, which must hold when they are tried."""

from __future__ import annotations

import pytest

from relaxlab.ir.loops import PrimFunc
from relaxlab.schedule import Schedule, ScheduleError
from relaxlab.schedule.explain import explain_refusal
from relaxlab.schedule.replay import apply_trace
from relaxlab.script import parse

MATMUL = """
@T.prim_func
def main(A: T.Buffer((8, 8)), B: T.Buffer((8, 8)), C: T.Buffer((8, 8))):
    for i, j, k in T.grid(8, 8, 8):
        with T.block("C"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[vi, vj] = T.float32(0)
            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
"""


def matmul() -> PrimFunc:
    (func,) = (f for _, f in parse(MATMUL).functions)
    return func


def refused_reorder() -> Schedule:
    """Reordering loops that `decompose_reduction` took apart."""
    sch = Schedule(matmul())
    block = sch.get_block("C")
    i, j, k = sch.get_loops(block)
    sch.unroll(j)
    sch.decompose_reduction(block, k)
    with pytest.raises(ScheduleError):
        sch.reorder(k, i)
    return sch


def test_a_schedule_remembers_the_step_that_was_refused_last():
    sch = refused_reorder()
    assert sch.refused is not None
    assert str(sch.refused.step) == "sch.reorder(l2, l0)"
    assert sch.refused.error.refusal.primitive == "reorder"
    sch.get_block("C_update")
    assert sch.refused is None


def test_a_schedule_remembers_what_it_began_with():
    func = matmul()
    sch = Schedule(func)
    sch.unroll(sch.get_loops(sch.get_block("C"))[0])
    assert sch.original is func


def test_the_step_in_the_way_and_an_order_that_works():
    sch = refused_reorder()
    assert sch.refused is not None
    found = explain_refusal(sch.original, sch.trace, sch.refused.step)
    names = [s.name for s in sch.trace]
    assert found.causes == (names.index("decompose_reduction"),)
    assert found.order is not None and found.order == (0, 1, 2, 4, 3)
    steps = [*sch.trace, sch.refused.step]
    assert apply_trace(sch.original, [steps[n] for n in found.order]).trace[3].name == "reorder"


def test_no_order_where_a_step_is_never_right():
    sch = Schedule(matmul())
    *_, k = sch.get_loops(sch.get_block("C"))
    with pytest.raises(ScheduleError):
        sch.parallel(k)
    assert sch.refused is not None
    found = explain_refusal(sch.original, sch.trace, sch.refused.step)
    assert found.causes == () and found.order is None


def test_blocks_in_the_way_can_be_moved_behind():
    """The refused step needs a handle that is made after the step in its way."""
    sch = Schedule(matmul())
    block = sch.get_block("C")
    i, _, k = sch.get_loops(block)
    sch.decompose_reduction(block, k)
    outer, _ = sch.split(i, [None, 4])
    with pytest.raises(ScheduleError):
        sch.reorder(k, outer)
    assert sch.refused is not None
    found = explain_refusal(sch.original, sch.trace, sch.refused.step)
    assert found.causes == (2,)
    assert found.order == (0, 1, 3, 4, 2)
