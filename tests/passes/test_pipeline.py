"""Random graph programs through the whole pipeline, against the interpreter."""

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.analysis.well_formed import check_well_formed
from relaxlab.ir.diagnostics import DiagnosticError
from relaxlab.ir.equal import assert_structural_equal
from relaxlab.passes.base import Pipeline, PipelineError, find_pass
from relaxlab.passes.lower_shapes import lower_shapes
from relaxlab.passes.pipeline import GRAPH_PASSES, MEMORY_PASSES
from relaxlab.runtime.interpreter.interpreter import interpret
from relaxlab.runtime.vm.vm import VirtualMachine
from relaxlab.script.parser import parse
from relaxlab.testing.pass_check import assert_same, compare_runs, random_arguments
from tests.passes.graph_programs import Programs

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


def test_pipelines_without_an_end_or_a_beginning_say_what_is_missing() -> None:
    mod = rl.parse(
        """
@R.function
def main(x: R.Tensor((4,), "float32")):
    with R.dataflow():
        y = R.exp(x)
        R.output(y)
    return y
"""
    )
    with pytest.raises(PipelineError, match="result of `main` has no type: .* needs `normalize`"):
        rl.compile(mod, pipeline=Pipeline([]))
    lowered = Pipeline([find_pass("normalize"), find_pass("legalize_ops")])
    with pytest.raises(DiagnosticError, match="the pass `expand_calls` lowers it"):
        rl.compile(mod, pipeline=lowered)
