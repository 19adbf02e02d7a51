"""Copies and pickles of what a notebook holds, and of errors, which pools of processes send."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import relaxlab as rl

MOD = rl.parse("""
@T.prim_func
def double(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):
    for i in range(16):
        with T.sblock("B"):
            vi = T.axis.spatial(16, i)
            B[vi] = A[vi] * T.float32(2)

@R.function
def main(x: R.Tensor(("n", 4), "float32")):
    return R.nn.relu(x)
""")
EXE = rl.compile(MOD)
WAYS: list[Callable[[Any], Any]] = [
    copy.copy, copy.deepcopy, lambda value: pickle.loads(pickle.dumps(value)),
]  # fmt: skip


def refused(*factors: Any) -> rl.Schedule:
    sch = rl.Schedule(MOD["double"])
    with pytest.raises(rl.ScheduleError):
        sch.split(sch.get_loops(sch.get_block("B"))[0], factors)
    return sch


def failing() -> list[Callable[[], object]]:
    return [
        lambda: rl.parse("@R.function\ndef f(x: R.Tensor((4,))):\n    return R.foo(x)\n"),
        lambda: (sch := refused(0)).split(sch.get_loops(sch.get_block("B"))[0], [0]),
        lambda: rl.compile(3),  # type: ignore[arg-type]
        lambda: EXE["main"](np.zeros((3, 5), "float32")),
        lambda: EXE["main"](np.zeros((3, 4), "int32")),
        lambda: rl.interpret(MOD, "main", np.zeros((3, 5), "float32")),
    ]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("fail", failing())
def test_errors(fail: Callable[[], object], way: Callable[[Any], Any]) -> None:
    with pytest.raises(Exception) as caught:  # noqa: PT011  each of them
        fail()
    again = way(caught.value)
    assert type(again) is type(caught.value)
    assert (str(again), repr(again)) == (str(caught.value), repr(caught.value))


@pytest.mark.parametrize("way", WAYS)
def test_a_copy_of_a_schedule_has_steps_of_its_own(way: Callable[[Any], Any]) -> None:
    sch = refused(None, 0)
    before, steps = sch.func.script(), len(sch.trace)
    again = way(sch)
    again.parallel(again.get_loops(again.get_block("B"))[0])
    assert (sch.func.script(), len(sch.trace)) == (before, steps)
    assert "T.parallel" in again.func.script()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("value", [EXE, EXE["main"]])
def test_executables_say_why_they_are_not_copied(value: Any, way: Callable[[Any], Any]) -> None:
    with pytest.raises(TypeError, match=r"exe\.export\(path\) and read it with rl\.load\(path\)"):
        way(value)
