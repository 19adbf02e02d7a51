"""Functions passed from Python, whose effects on their arguments the program must know."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.passes.lower_shapes import lower_shapes
from relaxlab.passes.pipeline import cpu_pipeline
from relaxlab.runtime.vm.vm import VirtualMachine
from relaxlab.script import ir as I
from relaxlab.script import relax as R
from relaxlab.script import tir as T


@I.ir_module
class M:
    @T.prim_func
    def bump(A: T.Buffer((4,), "float32")):
        for i in range(4):
            with T.sblock("A"):
                vi = T.axis.spatial(4, i)
                A[vi] = A[vi] + T.float32(1)

    @R.function
    def main(
        x: R.Tensor((4,), "float32"),
        g: R.Callable((R.Tensor((4,), "float32"),), R.Tensor((4,), "float32")),
    ):
        y = R.multiply(x, R.const(2.0, "float32"))
        t = R.exp(y)
        v = g(y)
        z = R.call_tir_inplace(M.bump, (v,), 0, out_ty=R.Tensor((4,), "float32"))
        w = R.exp(y)
        return (t, z, w)


@I.ir_module
class Overwriting:
    @T.prim_func
    def f(A: T.Buffer((4,), "float32")):
        for i in range(4):
            with T.sblock("A"):
                vi = T.axis.spatial(4, i)
                A[vi] = A[vi] + T.float32(1)


Run = Callable[..., Any]


def interpreted(*args: Any) -> Any:
    return rl.interpret(M, "main", *args)


def on_the_virtual_machine(*args: Any) -> Any:
    return VirtualMachine(lower_shapes(cpu_pipeline().run(M).result)).run("main", *args)


def increment(a: np.ndarray) -> np.ndarray:
    a += 1
    return a


@pytest.mark.parametrize("run", [interpreted, on_the_virtual_machine])
def test_a_result_that_is_the_argument_is_a_copy(run: Run) -> None:
    x = np.arange(4, dtype="float32")
    t, z, w = run(x, lambda a: a)
    np.testing.assert_array_equal(t, w)
    np.testing.assert_array_equal(z, 2 * x + 1)


@pytest.mark.parametrize("run", [interpreted, on_the_virtual_machine])
@pytest.mark.parametrize("native", [False, True])
def test_a_function_that_overwrites_its_argument_is_refused(run: Run, native: bool) -> None:
    fn = rl.compile(Overwriting, use_cache=False).f if native else increment
    with pytest.raises(rl.ExecutionError, match="writes to its own arguments"):
        run(np.zeros(4, "float32"), fn)
