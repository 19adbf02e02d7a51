"""Checks of labs: wrong answers get a hint. Right ones are tested by running the labs."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest

import relaxlab as rl
from tests.test_repo import ROOT

COMPARE = rl.compare
SCALE = rl.parse("""
from relaxlab.script import ir as I, tir as T

@I.ir_module
class Scale:
    @T.prim_func
    def scale(a: T.Buffer((48,), "float32"), b: T.Buffer((48,), "float32")):
        for i in range(48):
            with T.sblock("twice"):
                x = T.axis.spatial(48, i)
                b[x] = a[x] * T.float32(2)
""")


def exercises(name: str) -> ModuleType:
    """The lessons have a package of the same name, so those of labs are loaded from their files."""
    spec = importlib.util.spec_from_file_location(name, ROOT / f"notebooks/exercises/{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # where dataclasses look up their annotations
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def lab7() -> ModuleType:
    return exercises("lab7")


def splitting(count: int) -> Callable[[Any], None]:
    def answer(sch: Any) -> None:
        (loop,) = sch.get_loops(sch.get_block("twice"))
        for _ in range(count):
            loop, _ = sch.split(loop, factors=[None, 1])

    return answer


def timed(monkeypatch: pytest.MonkeyPatch, lab: ModuleType, ratio: float) -> None:
    """Have the compiler take so many times as long as the answer."""

    def planted(candidates: dict[str, Any], *args: Any) -> Any:
        found = COMPARE(candidates, *args, samples=3)
        first, second = found.timings
        return replace(
            found, timings=(replace(first, samples=(ratio,)), replace(second, samples=(1.0,)))
        )

    monkeypatch.setattr(lab.rl, "compare", planted)


def test_lab_7_counts_and_measures(lab7: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    timed(monkeypatch, lab7, 1.6)
    good = lab7.blur(SCALE, splitting(10))
    assert good.ok and good.text == "1.60 times as fast as the compiler, with 10 primitives."
    dear = lab7.blur(SCALE, splitting(11))
    assert not dear.ok and "11 primitives, and the budget is 10: split, split" in dear.text
    timed(monkeypatch, lab7, 1.1)
    slow = lab7.blur(SCALE, splitting(1))
    assert not slow.ok and slow.text.endswith("with 1 primitive; 1.2 times are asked for")
    assert lab7.product(SCALE, splitting(1)).ok


def test_lab_7_refuses_in_words(lab7: ModuleType) -> None:
    assert "there is no answer yet" in lab7.blur(SCALE, None).text
    assert "must be a function" in lab7.blur(SCALE, 3).text
    assert "the function fails: " in lab7.blur(SCALE, lambda sch: sch.get_block("none")).text


def test_lab_8_refuses_in_words() -> None:
    lab8 = exercises("lab8")
    stairs = lab8.Staircase(SCALE, "h100")
    refused = lab8.factors(stairs, splitting(1), {"rows": 4})
    assert "`columns` should be 1, 2, 4 or 8" in refused.text
