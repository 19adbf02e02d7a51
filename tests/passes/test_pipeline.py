"""Random graph programs through the whole pipeline, against the interpreter."""

import numpy as np
import pytest

from relaxlab.analysis.well_formed import check_well_formed
from relaxlab.ir.equal import assert_structural_equal
from relaxlab.passes.base import Pipeline
from relaxlab.passes.lower_shapes import lower_shapes
from relaxlab.passes.pipeline import GRAPH_PASSES, MEMORY_PASSES
from relaxlab.runtime.interpreter.interpreter import interpret
from relaxlab.runtime.vm.vm import VirtualMachine
from relaxlab.script.parser import parse
from relaxlab.testing.graph_programs import Programs
from relaxlab.testing.pass_check import assert_same, compare_runs, random_arguments

SEEDS = range(30)


@pytest.mark.parametrize("seed", SEEDS)
def test_random_programs_keep_their_meaning(seed):
    mod = Programs(seed).module()
    trace = Pipeline((*GRAPH_PASSES, *MEMORY_PASSES), check_well_formed).run(mod)
    vm = VirtualMachine(lower_shapes(trace.result))
    rng = np.random.default_rng(seed)
    fn = trace.passes[0].after["main"]
    for _ in range(2):
        args = random_arguments(fn, rng)
        want = interpret(mod, "main", *args)
        assert_same(vm.run("main", *args), want, f"the result (seed {seed})", 1e-4)


@pytest.mark.parametrize("seed", range(0, 30, 6))
def test_every_pass_keeps_the_meaning_and_prints_what_parses(seed):
    mod = Programs(seed).module()
    for record in Pipeline((*GRAPH_PASSES, *MEMORY_PASSES)).run(mod).passes:
        if record.changed:
            compare_runs(mod, record.after, seed=seed, runs=1)
            assert_structural_equal(parse(record.after.script()), record.after)
