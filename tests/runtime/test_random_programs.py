"""Random graph programs: scheduled, on the virtual machine and as native code."""

import pytest

from relaxlab.passes.lower_shapes import lower_shapes
from relaxlab.passes.pipeline import cpu_pipeline
from relaxlab.runtime.build import compile as build
from relaxlab.runtime.interpreter.interpreter import interpret
from relaxlab.runtime.vm.vm import VirtualMachine
from relaxlab.testing.pass_check import assert_same, random_arguments
from tests.passes.graph_programs import Programs


@pytest.mark.parametrize("case", range(16))
def test_executors_agree(case, rng):
    seed = int(rng.integers(1 << 31))
    mod = Programs(seed).module()
    trace = cpu_pipeline().run(mod)
    vm = VirtualMachine(lower_shapes(trace.result))
    native = build(mod, use_cache=False)["main"]
    debug = build(mod, use_cache=False, checks="all")["main"]
    for _ in range(3):
        args = random_arguments(trace.passes[0].after["main"], rng)
        want = interpret(mod, "main", *args)
        assert_same(vm.run("main", *args), want, f"virtual machine (seed {seed})", 1e-4)
        assert_same(native(*args), want, f"native (seed {seed})", 1e-4)
        assert_same(debug(*args), want, f"debug build (seed {seed})", 1e-4)
