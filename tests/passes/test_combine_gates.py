"""Products of one value by several weights of a block become one."""

import numpy as np
import pytest

import relaxlab as rl
from relaxlab import dynamic
from relaxlab.ir import graph
from relaxlab.passes.base import Pipeline
from relaxlab.passes.bindings import all_bindings
from relaxlab.passes.combine_gates import combine_gates
from relaxlab.passes.make_blocks import BLOCK
from relaxlab.passes.pipeline import batched_pipeline
from relaxlab.testing.pass_check import check_module
from relaxlab.tracing import first_rewrites

ROW, MATRIX = 'R.Tensor((1, 6), "float32")', 'R.Tensor((6, 6), "float32")'
PROGRAM = f"""
@R.function(private=True)
def cell(i: R.Tensor((), "int64"), m: {MATRIX}, h: {ROW}, wf: {MATRIX}, wi: {MATRIX},
         wo: {MATRIX}) -> {ROW}:
    if R.less(i, R.const(1, "int64")):
        out = h
    else:
        f = R.sigmoid(h @ wf)
        g = R.tanh(h @ wi)
        o = R.sigmoid(h @ wo)
        mine = h @ m
        new = o * R.tanh(f * h + g + mine)
        out = cls.cell(R.subtract(i, R.const(1, "int64")), m, new, wf, wi, wo)
    return out

@R.function
def main(i: R.Tensor((), "int64"), m: {MATRIX}, h: {ROW}, wf: {MATRIX}, wi: {MATRIX},
         wo: {MATRIX}):
    R.func_attr({{"num_input": 3}})
    last = cls.cell(i, m, h, wf, wi, wo)
    return last
"""


@pytest.fixture(scope="module")
def blocks():
    passes = batched_pipeline().passes
    end = next(i for i, p in enumerate(passes) if p.name == combine_gates.name)
    return Pipeline(passes[:end]).run(rl.parse(PROGRAM)).result


def products(mod):
    return [
        b.value.args[1].name
        for f in mod.graph_functions().values() if BLOCK in f.attrs
        for b in all_bindings(f)
        if isinstance(b.value, graph.Call) and b.value.op == graph.Op("matmul")
    ]  # fmt: skip


def test_gates_are_one_product_and_matrices_of_instances_stay(blocks):
    assert products(blocks) == ["wf", "wi", "wo", "m"]
    after = combine_gates(blocks)
    check_module(combine_gates, blocks, after)
    assert len(products(after)) == 2 and "m" in products(after)
    with first_rewrites(0):
        assert combine_gates(blocks) is blocks


def test_batches_compute_what_the_interpreter_does():
    mod, rng = rl.parse(PROGRAM), np.random.default_rng(0)
    weights = dynamic.random_weights(mod, rng, 0.5)
    main = rl.compile(mod, pipeline=rl.batched_pipeline(), threads=1)["main"].bind(*weights)

    def rows(count):
        return rng.standard_normal((count, 6)).astype(np.float32)

    instances = [(np.int64(n), rows(6), rows(1)) for n in (3, 0, 7, 5)]
    for given, found in zip(instances, main.batch(instances), strict=True):
        expected = rl.interpret(mod, "main", *given, *weights)
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
