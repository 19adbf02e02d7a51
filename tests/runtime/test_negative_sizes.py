"""Sizes that turn out to be negative are refused where they are needed, and only there."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.ir.module import Module
from relaxlab.ir.target import Target
from relaxlab.passes.lower_shapes import lower_shapes
from relaxlab.passes.pipeline import cpu_pipeline
from relaxlab.runtime.arrays import ExecutionError
from relaxlab.runtime.native.function import CheckFailed
from relaxlab.runtime.vm.vm import VirtualMachine
from relaxlab.script import ir as I
from relaxlab.script import relax as R
from relaxlab.script import tir as T


@I.ir_module
class Shrinking:
    @R.function
    def main(x: R.Tensor(("n",), "float32")):
        n = T.int64()
        ones = R.ones(R.shape([n - 3]), "float32")
        running = R.cumsum(R.exp(ones), axis=0)
        return R.add(R.sum(running), x)


@I.ir_module
class Branching:
    @R.function
    def main(x: R.Tensor(("n",), "float32"), large: R.Tensor((), "bool")):
        n = T.int64()
        y = R.exp(x)
        z = R.cumsum(y, axis=0)
        if large:
            ones = R.ones(R.shape([n - 3, 16]), "float32")
            r = R.add(R.sum(R.cumsum(R.exp(ones), axis=0)), z)
        else:
            r = R.cumsum(z, axis=0)
        return r


@I.ir_module
class Reading:
    @R.function
    def largest(x: R.Tensor(("n", "m"), "float32")):
        return R.argmax(x, axis=1)

    @R.function
    def window(x: R.Tensor((1, 2, "n"), "float32"), w: R.Tensor((3, 2, 4), "float32")):
        return R.nn.conv1d(x, w)


def runners(mod: Module) -> list[Any]:
    program = lower_shapes(cpu_pipeline(Target.host()).run(mod).result)
    machine, exe = VirtualMachine(program), rl.compile(mod, threads=2)
    return [
        lambda name, *args: machine.run(name, *args),
        lambda name, *args: exe[name](*args),
    ]


def test_a_tensor_of_negative_size_is_no_empty_one() -> None:
    for run in runners(Shrinking):
        for n in (3, 4, 9):
            x = np.zeros(n, "float32")
            np.testing.assert_allclose(run("main", x), rl.interpret(Shrinking, "main", x), 1e-6)
        for n in (0, 1, 2):
            text = r"in `main`, n - 3 \(n is dimension 0 of parameter `x` of `main`\), must not be "
            text += rf"negative \(it is {n - 3}\)"
            with pytest.raises((CheckFailed, ExecutionError), match=text):
                run("main", np.zeros(n, "float32"))


@pytest.mark.parametrize("n", [1, 2, 3, 40])
def test_sizes_in_a_branch_that_is_not_taken_do_not_matter(n: int) -> None:
    x = np.linspace(0, 1, n, dtype="float32")
    for run in runners(Branching):
        for large in (False, True):
            if large and n < 3:
                with pytest.raises((CheckFailed, ExecutionError), match="must not be negative"):
                    run("main", x, np.array(large))
            else:
                want = rl.interpret(Branching, "main", x, np.array(large))
                np.testing.assert_allclose(run("main", x, np.array(large)), want, 1e-5)


def test_needs_of_operators_are_in_symbols() -> None:
    for run in runners(Reading):
        text = r"needs m >= 1 or 0 == n; m is dimension 1 .*, n is dimension 0 of parameter `x` of "
        with pytest.raises((CheckFailed, ExecutionError), match=text):
            run("largest", np.zeros((2, 0), "float32"))
        assert run("largest", np.zeros((0, 0), "float32")).shape == (0,)
        text = r"needs n >= 4; n is dimension 2 of parameter `x` of `window` \(it is 1\)"
        with pytest.raises((CheckFailed, ExecutionError), match=text):
            run("window", np.zeros((1, 2, 1), "float32"), np.zeros((3, 2, 4), "float32"))


def test_symbols_found_from_compound_dimensions_are_not_negative() -> None:
    @I.ir_module
    class Offset:
        @R.function
        def main(x: R.Tensor(("n + 5",), "float32")):
            n = T.int64()
            return R.exp(x)

    for run in [*runners(Offset), lambda name, x: rl.interpret(Offset, name, x)]:
        assert run("main", np.zeros(5, "float32")).shape == (5,)
        with pytest.raises((CheckFailed, ExecutionError), match="n .*not.* negative"):
            run("main", np.zeros(3, "float32"))
