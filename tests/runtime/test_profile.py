"""Timed programs: the same results, and every call of a run in its place."""

from __future__ import annotations

import numpy as np
import pytest

from relaxlab.ir import host
from relaxlab.ir.target import parse_target
from relaxlab.passes.lower_shapes import lower_shapes
from relaxlab.runtime.build import trace
from relaxlab.runtime.limits import measure_limits
from relaxlab.runtime.native.function import CheckFailed
from relaxlab.runtime.native.kernels import NativeKernels
from relaxlab.runtime.profile import profile
from relaxlab.runtime.vm.vm import VirtualMachine
from relaxlab.script import ir as I
from relaxlab.script import relax as R


@I.ir_module
class Mod:
    @R.function
    def twice(x: R.Tensor(("n", "m"), "float32")) -> R.Tensor(("n", "m"), "float32"):
        y = R.sum(R.add(x, x), axis=[0], keepdims=True)
        z = R.multiply(x, y)
        return z

    @R.function
    def add(x: R.Tensor(("n",), "float32"), y: R.Tensor(("n",), "float32")):
        z = R.add(x, y)
        return z

    @R.function
    def main(x: R.Tensor(("n", "m"), "float32"), c: R.Tensor((), "bool")):
        cls = Mod
        a = cls.twice(x)
        if c:  # noqa: SIM108
            b = R.nn.softmax(a)
        else:
            b = cls.twice(a)
        d = R.unique(b)
        return d


@pytest.fixture(scope="module")
def program():
    return lower_shapes(trace(Mod).result)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("condition", [True, False])
def test_calls_are_those_the_virtual_machine_makes(program, threads, condition):
    args = [np.ones((5, 4), "float32"), np.array(condition)]
    vm = VirtualMachine(program)
    vm.start("main", *args)
    wanted: list[host.Instr] = []
    while vm.frames:
        step = vm.step()
        if isinstance(step.instr, host.CallKernel | host.CallPacked):
            wanted.append(step.instr)
    made = profile(program, parse_target("cpu"), "main", args, threads)
    assert [c.call.instr for c in made.calls] == wanted
    assert made.threads == threads and made.seconds == min(made.runs)
    ends = 0.0
    for call in made.calls:
        assert call.start >= ends and call.seconds >= 0
        ends = call.start + call.seconds
    assert ends <= made.seconds


def test_failures_of_a_timed_program_are_raised(program):
    with pytest.raises(CheckFailed, match="dimension 0 of parameter `y` of `add` is 4"):
        wrong = [np.ones(5, "float32"), np.ones(4, "float32")]
        profile(program, parse_target("cpu"), "add", wrong)


def test_kernels_run_one_by_one(program):
    target = parse_target("cpu")
    native = NativeKernels.of(program, target)
    args = [np.arange(20, dtype="float32").reshape(5, 4), np.array(True)]
    kernels = {
        k: lambda buffers, scalars, k=k: native.run(k, buffers, scalars) for k in program.kernels
    }
    got = VirtualMachine(program, kernels).run("main", *args)
    np.testing.assert_allclose(got, VirtualMachine(program).run("main", *args), rtol=1e-5)


def test_limits_are_measured_once():
    one = measure_limits(1)
    assert one.flops > 1e8 and all(level.bandwidth > 1e7 for level in one.levels)
    assert [level.holds is None for level in one.levels] == [False] * (len(one.levels) - 1) + [True]
    assert measure_limits(1) is one and one.threads == 1
