"""Sizes that do not fit into 64 bits are refused by name, wherever a program calculates them."""

# pyright: reportInvalidTypeForm=false

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.runtime.arrays import ExecutionError
from relaxlab.runtime.interpreter.interpreter import interpret
from relaxlab.runtime.native.function import CheckFailed
from relaxlab.script import ir as I
from relaxlab.script import relax as R
from relaxlab.script import tir as T


@I.ir_module
class Wide:
    @R.function
    def shape(x: R.Tensor(("n", 0), "float32"), y: R.Tensor(("m", 0), "float32")):
        n, m = T.int64(), T.int64()
        return R.shape([2, n * m])

    @R.function
    def scalar(x: R.Tensor(("n", 0), "float32"), y: R.Tensor(("m", 0), "float32")):
        n, m = T.int64(), T.int64()
        return R.prim_value(n * m)

    @R.function
    def view(x: R.Tensor(("n", 0), "float32"), y: R.Tensor(("m", 0), "float32")):
        n, m = T.int64(), T.int64()
        return R.reshape(x, R.shape([n * m, 0]))

    @R.function
    def parameter(
        x: R.Tensor(("n", 0), "float32"),
        y: R.Tensor(("m", 0), "float32"),
        z: R.Tensor(("n * m",), "float32"),
    ):
        return z

    @R.function
    def branch(
        x: R.Tensor(("n", 0), "float32"), y: R.Tensor(("m", 0), "float32"), c: R.Tensor((), "bool")
    ):
        n, m = T.int64(), T.int64()
        if c:  # noqa: SIM108
            s = R.shape([n * m])
        else:
            s = R.shape([n + m])
        return s

    @R.function
    def empty(x: R.Tensor(("n", 0), "float32"), y: R.Tensor(("m", 0), "float32")):
        n, m = T.int64(), T.int64()
        ones = R.ones(R.shape([n, m, 0]), "float32")
        return R.sum(R.exp(ones), axis=1)


def rows(n: int) -> Any:
    return np.zeros((n, 0), "float32")


LONG = rows(1 << 33), rows(1 << 33)


@pytest.mark.parametrize("checks", ["default", "all"])
@pytest.mark.parametrize(
    ("name", "more", "text"),
    [
        ("shape", (), r"dimension 1 of the shape \(2, n \* m\) in `shape`"),
        ("scalar", (), r"n \* m in `scalar`"),
        ("view", (), "dimension 0 of `.*` in `view`, .*"),
        ("parameter", (np.zeros(0, "float32"),), "n .* m, dimension 0 of parameter `z` .*"),
        ("branch", (np.array(True),), "dimension 0 of the shape .* in `branch`"),
    ],
)
def test_wide_sizes_are_refused(name: str, more: tuple[Any, ...], text: str, checks: Any) -> None:
    function = rl.compile(Wide, checks=checks)[name]
    with pytest.raises(CheckFailed, match=f"{text}, must fit into 64 bits; [nm] is"):
        function(*LONG, *more)
    with pytest.raises(ExecutionError, match=r"must fit into 64 bits|expected n \* m = 737"):
        interpret(Wide, name, *LONG, *more)
    fine = (np.zeros(6, "float32"),) if name == "parameter" else more
    function(rows(2), rows(3), *fine)


def test_the_other_branch_may_be_taken() -> None:
    assert tuple(rl.compile(Wide)["branch"](*LONG, np.array(False))) == (1 << 34,)


@pytest.mark.parametrize("checks", ["default", "all"])
def test_empty_tensors_have_no_bytes(checks: Any) -> None:
    """However long their other dimensions are."""
    function = rl.compile(Wide, checks=checks)["empty"]
    assert function(*LONG).shape == (1 << 33, 0)
