import numpy as np
import pytest

from relaxlab.ir import host
from relaxlab.passes.base import Pipeline
from relaxlab.passes.lower_shapes import lower_shapes
from relaxlab.passes.pipeline import GRAPH_PASSES, MEMORY_PASSES
from relaxlab.runtime.vm.vm import VirtualMachine
from relaxlab.script import ir as I
from relaxlab.script import relax as R


@I.ir_module
class Mod:
    @R.function
    def inner(x: R.Tensor(("n",), "float32")) -> R.Tensor(("n",), "float32"):
        y = R.exp(x)
        return y

    @R.function
    def main(x: R.Tensor(("n",), "float32"), c: R.Tensor((), "bool")):
        cls = Mod
        a = cls.inner(x)
        if c:  # noqa: SIM108
            b = R.add(a, x)
        else:
            b = R.sin(a)
        d = R.sum(b)
        return d


@pytest.fixture(scope="module")
def program():
    return lower_shapes(Pipeline((*GRAPH_PASSES, *MEMORY_PASSES)).run(Mod).result)


def test_stepping_shows_every_instruction_and_register(program):
    x = np.arange(3, dtype="float32")
    vm = VirtualMachine(program)
    vm.start("main", x, np.array(True))
    steps = []
    while vm.frames:
        before = vm.frames[-1].next
        step = vm.step()
        assert step.instr is before
        steps.append(step)
    assert vm.step() is None
    np.testing.assert_allclose(vm.result, np.sum(np.exp(x) + x), rtol=1e-6)
    assert {s.function for s in steps} == {"main", "inner"}
    assert max(s.depth for s in steps) == 2
    assert sum(isinstance(s.instr, host.If) for s in steps) == 1


def test_symbols_and_registers_between_steps(program):
    vm = VirtualMachine(program)
    vm.start("inner", np.zeros(5, "float32"))
    vm.step()
    frame = vm.frames[-1]
    assert {s.name: v for s, v in frame.symbols.items()} == {"n": 5}
    held = zip(frame.function.registers, frame.registers, strict=True)
    assert [register.name for register, value in held if value is not None] == ["x"]


def test_profile_counts_instructions(program):
    vm = VirtualMachine(program)
    for _ in range(3):
        vm.run("main", np.ones(2, "float32"), np.array(False))
    kernels = [c for c in vm.profile() if isinstance(c.instr, host.CallKernel)]
    assert {c.count for c in kernels} == {3}
    assert all(c.seconds > 0 for c in kernels)
    assert len(kernels) == 3  # of the two branches only the one taken


def test_kernels_may_be_replaced(program):
    seen = []

    def exp(buffers, scalars):
        seen.append(list(scalars))
        np.exp(buffers[0], out=buffers[1])

    vm = VirtualMachine(program, {"exp": exp})
    x = np.linspace(0, 1, 4, dtype="float32")
    np.testing.assert_allclose(vm.run("inner", x), np.exp(x))
    assert seen == [[4]]


def test_unknown_functions_are_named(program):
    with pytest.raises(KeyError, match="no function named 'nope'.*inner, main"):
        VirtualMachine(program).run("nope")
