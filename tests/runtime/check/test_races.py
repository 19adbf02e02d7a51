"""Races of loops whose iterations run at once."""

from __future__ import annotations

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.ir.loops import PrimFunc
from relaxlab.runtime.check.races import find_race

TEXT = """
@T.prim_func
def f(A: T.Buffer((8,), "int32"), X: T.Buffer((8,), "int32"), C: T.Buffer((16,), "int32")):
    for i in T.{kind}(8):
        with T.sblock("C"):
            v = T.axis.spatial(8, i)
            {body}

@R.function
def main(a: R.Tensor((8,), "int32"), x: R.Tensor((8,), "int32")):
    with R.dataflow():
        z = R.zeros((16,), "int32")
        y = R.call_tir_inplace(cls.f, (a, x, z), 2, out_ty=R.Tensor((16,), "int32"))
        R.output(y)
    return y
"""
RACES = [
    ("C[v // 2] = C[v // 2] + A[v]", "iterations 0 and 1 of the loop i", "C[0]"),
    ("C[v // 4] = A[v]", "iterations 0 and 1", "C[0]"),
    ("C[X[v]] = A[v]", "iterations 2 and 5", "C[2]"),
    ("C[v + 1] = C[v] + A[v]", "iterations 0 and 1", "C[1]"),
]
SOUND = [
    "C[v] = A[v]",
    "C[v] = C[v] + A[v]",
    "C[v * 2] = C[v * 2 + 1] + A[v]",
    "C[v // 2] = 7",  # the same value
    "C[X[v] * 2 + v % 2] = 7",
]


def module(body: str, kind: str = "parallel") -> rl.Module:
    return rl.parse(TEXT.format(body=body, kind=kind))


def arrays() -> list[np.ndarray]:
    x = np.array([0, 1, 2, 3, 4, 2, 6, 7], "int32")
    return [np.arange(1, 9, dtype="int32"), x, np.zeros(16, "int32")]


@pytest.mark.parametrize(("body", "who", "where"), RACES)
def test_races_are_named(body: str, who: str, where: str) -> None:
    func = module(body)["f"]
    race = find_race(func, arrays())
    assert race is not None
    assert who in str(race) and where in str(race) and "'C'" in str(race)
    serial = module(body, "serial")["f"]
    assert isinstance(serial, PrimFunc) and find_race(serial, arrays()) is None


@pytest.mark.parametrize("body", SOUND)
def test_no_race(body: str) -> None:
    func = module(body)["f"]
    assert find_race(func, arrays()) is None


@pytest.mark.parametrize("body", [RACES[0][0], RACES[2][0], SOUND[1]])
def test_check_reports_races(body: str) -> None:
    report = rl.check(module(body), inputs=lambda _: tuple(arrays()[:2]), runs=1)
    assert report.ok == (body in SOUND)
    assert report.ok or "the kernel `f` races: iterations" in str(report)
