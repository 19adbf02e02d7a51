"""Functions as lists of closures against the virtual machine that looks every instruction up."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from relaxlab.ir.host import HostProgram
from relaxlab.ir.module import Module
from relaxlab.passes.base import Pipeline
from relaxlab.passes.lower_shapes import lower_shapes
from relaxlab.passes.pipeline import GRAPH_PASSES, MEMORY_PASSES
from relaxlab.runtime.arrays import ExecutionError
from relaxlab.runtime.vm.straight_line import StraightLine, straight_line
from relaxlab.runtime.vm.vm import VirtualMachine
from relaxlab.script import ir as I
from relaxlab.script import relax as R
from relaxlab.testing.pass_check import assert_same, random_arguments
from tests.passes.graph_programs import Programs


@I.ir_module
class Mod:
    @R.function
    def main(x: R.Tensor(("n", 4), "float32"), y: R.Tensor((3, 4), "float32")):
        with R.dataflow():
            rows = R.concat([x, x, y], axis=0)  # 2 * n + 3
            sums = R.sum(rows, axis=1)
            small = R.exp(R.multiply(y, R.const(0.5, "float32")))
            both = (R.add(small, y), sums)
            R.output(both)
        return both

    @R.function
    def branches(x: R.Tensor((4,), "float32"), c: R.Tensor((), "bool")):
        if c:  # noqa: SIM108
            y = R.exp(x)
        else:
            y = R.sin(x)
        return y

    @R.function
    def calls(x: R.Tensor(("n", 4), "float32"), y: R.Tensor((3, 4), "float32")):
        return Mod.main(x, y)


def lowered(mod: Module) -> HostProgram:
    return lower_shapes(Pipeline((*GRAPH_PASSES, *MEMORY_PASSES)).run(mod).result)


@pytest.fixture(scope="module")
def machine() -> VirtualMachine:
    return VirtualMachine(lowered(Mod))


@pytest.fixture
def line(machine: VirtualMachine) -> StraightLine:
    found = straight_line(machine, machine.program.functions["main"])
    assert found is not None
    return found


def arguments(n: int, seed: int = 0) -> list[Any]:
    rng = np.random.default_rng(seed)
    return [rng.standard_normal((rows, 4)).astype("float32") for rows in (n, 3)]


def test_calls_give_what_the_machine_gives(machine: VirtualMachine, line: StraightLine) -> None:
    for n in (1, 5, 0, 5):
        args = arguments(n, seed=n)
        want = machine.run("main", *args)
        for _ in range(2):  # the second time the arrays are known
            assert_same(line(args), want, f"n = {n}", 0)


def test_an_array_of_the_call_before_may_have_changed(
    machine: VirtualMachine, line: StraightLine
) -> None:
    args = arguments(2)
    line(args)
    args[1] += 1
    assert_same(line(args), machine.run("main", *args), "changed in place", 0)


def test_faults_are_those_of_the_machine(machine: VirtualMachine, line: StraightLine) -> None:
    x, y = arguments(2)
    line([x, y])
    for wrong in ([x], [x, y[:2]], [x[:, :3], y], [x.astype("float64"), y], [x, y[0]]):
        messages: list[str] = []
        for run in (lambda a: machine.run("main", *a), line):
            with pytest.raises(ExecutionError) as error:
                run(wrong)
            messages.append(str(error.value))
        assert messages[0] == messages[1] != ""


def test_branches_and_calls_are_left_to_the_machine(machine: VirtualMachine) -> None:
    for name in ("branches", "calls"):
        assert straight_line(machine, machine.program.functions[name]) is None


def test_random_programs() -> None:
    seed = random.randrange(1 << 32)
    for number in range(4):
        mod = Programs(seed + number).module()
        machine = VirtualMachine(lowered(mod))
        line = straight_line(machine, machine.program.functions["main"])
        if line is None:  # with a branch
            continue
        main, rng = mod["main"], np.random.default_rng(seed)
        for _ in range(3):
            args = random_arguments(main, rng)
            assert_same(line(args), machine.run("main", *args), f"seed {seed + number}", 0)
