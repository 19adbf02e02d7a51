"""Tensor expressions have the values that TVM's have."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.ir.loops import PrimFunc
from relaxlab.testing.pass_check import assert_same
from tests.tvm.te_cases import OPERATORS, PROGRAMS
from tests.tvm.wheel import needs_wheel, results

pytestmark = needs_wheel
CASES = (
    *(tuple(map(str.strip, line.split("|"))) for line in OPERATORS),
    *((text, given) for given, text in PROGRAMS.values()),
)
NAMES = (*(case[0] for case in CASES[: len(OPERATORS)]), *PROGRAMS)


def outcome(text: str, inputs: list[np.ndarray[Any, Any]]) -> list[np.ndarray[Any, Any]]:
    """The results of a loop function on numbers for its first parameters."""
    func = rl.parse(text)["main"]
    assert isinstance(func, PrimFunc)
    outs = func.buffers[len(inputs) :]
    made = [np.zeros([int(str(d)) for d in b.shape], b.dtype) for b in outs]
    rl.interpret(rl.parse(text), "main", *(x.copy() for x in inputs), *made)
    return made


def numbers(given: str) -> list[np.ndarray[Any, Any]]:
    """Numbers for the placeholders, from the description of which they are made."""
    rng = np.random.default_rng(len(given))
    found: list[np.ndarray[Any, Any]] = []
    for part in given.split():
        name, _, described = part.partition("=")
        dims, _, dtype = described.partition(":")
        shape = tuple(map(int, dims.split(",")))
        if dtype.startswith("int"):  # names of indices, or numbers to calculate with
            drawn = rng.integers(*((0, 2) if name == "i" else (1, 5)), shape).astype(dtype)
        else:
            drawn = rng.normal(size=shape).astype("float32")
        found.append(abs(drawn) if dtype == "abs" else drawn)
    return found


@pytest.mark.parametrize("name", NAMES)
def test_tensor_expressions_have_the_same_values(name: str) -> None:
    number = NAMES.index(name)
    theirs, ours = (results(which, "tensors", CASES)[number] for which in ("tvm", "relaxlab"))
    assert "script" in theirs and "script" in ours, (theirs, ours)
    inputs = numbers(CASES[number][1])
    if name.startswith("topi.searchsorted"):
        inputs[0].sort()
    want, got = (outcome(result["script"], inputs) for result in (theirs, ours))
    assert_same(tuple(got), tuple(want), name)


SORTED = {
    "topi.sort(x, axis=1)": lambda x: np.sort(x, axis=1),
    "topi.sort(x, axis=0, is_ascend=False)": lambda x: -np.sort(-x, axis=0),
    'topi.argsort(x, axis=1, dtype="int64")': lambda x: np.argsort(x, axis=1),
    'topi.topk(x, 2, axis=1, ret_type="values")': lambda x: -np.sort(-x, axis=1)[:, :2],
}


@pytest.mark.parametrize("expression", SORTED)
def test_sorting(expression: str) -> None:
    """TVM's functions call libraries that its wheel lacks."""
    cases = tuple((e, "x=2,5") for e in SORTED)
    made = results("relaxlab", "tensors", cases)[list(SORTED).index(expression)]
    inputs = numbers("x=2,5")
    assert_same(tuple(outcome(made["script"], inputs)), (SORTED[expression](*inputs),), expression)
