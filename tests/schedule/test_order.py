"""Loop functions that keep the order of their reductions, and schedules that change it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import pytest

from relaxlab.ir import expr
from relaxlab.ir.loops import PrimFunc
from relaxlab.ir.node import replace
from relaxlab.ops import te
from relaxlab.schedule import Schedule, ScheduleError
from relaxlab.schedule.order import KEEP_ORDER

Combine: TypeAlias = Callable[..., te.Reduce]


def reduction(dtype: str, combine: Combine, *, keep: bool) -> PrimFunc:
    """C[i] over A[i, j, k], in that order."""
    a = te.placeholder(tuple(map(expr.const, (4, 8, 8))), dtype, "A")
    j, k = te.reduce_axis(expr.const(8), "j"), te.reduce_axis(expr.const(8), "k")
    c = te.compute((expr.const(4),), lambda i: combine(a[i, j.var, k.var], j, k), "C")
    func = te.create_prim_func([a, c])
    return replace(func, attrs=func.attrs.with_(**{KEEP_ORDER: keep or None}))


def swap(sch: Schedule) -> None:
    i, j, k = sch.get_loops(sch.get_block("C"))
    sch.reorder(i, k, j)


def factor(sch: Schedule) -> None:
    sch.rfactor(sch.get_loops(sch.get_block("C"))[-1], 1)


def spread(sch: Schedule) -> None:
    sch.bind(sch.get_loops(sch.get_block("C"))[-1], "threadIdx.x")


@pytest.mark.parametrize("change", [swap, factor, spread])
def test_steps_that_change_the_order_are_refused(change: Callable[[Schedule], None]) -> None:
    for dtype, combine in (("float32", te.te_max), ("int32", te.te_sum)):
        change(Schedule(reduction(dtype, combine, keep=True)))
    change(Schedule(reduction("float32", te.te_sum, keep=False)))
    sch = Schedule(reduction("float32", te.te_sum, keep=True))
    with pytest.raises(ScheduleError, match="'keep_order' forbids it") as error:
        change(sch)
    assert "reassociate=True" in str(error.value)


def test_steps_that_keep_the_order_are_allowed() -> None:
    sch = Schedule(reduction("float32", te.te_sum, keep=True))
    i, j, k = sch.get_loops(sch.get_block("C"))
    outer, inner = sch.split(k, factors=[None, 4])
    sch.reorder(j, i, outer, inner)
    sch.decompose_reduction(sch.get_block("C"), j)


@pytest.mark.parametrize(
    ("dtype", "combine", "said"),
    [("float32", te.te_sum, True), ("float32", te.te_max, False), ("int32", te.te_sum, False)],
)
def test_remarks_on_the_order_of_accumulation(
    dtype: str, combine: Combine, said: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    sch = Schedule(reduction(dtype, combine, keep=False))
    factor(sch)
    sch.show()
    assert ("# accumulates in another order" in capsys.readouterr().out) is said
