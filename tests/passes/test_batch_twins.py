"""Products of several values of a block by one weight are rows of one batch."""

import numpy as np
import pytest

import relaxlab as rl
from relaxlab import dynamic
from relaxlab.ir import graph
from relaxlab.passes.base import Pipeline
from relaxlab.passes.batch_twins import batch_twins
from relaxlab.passes.bindings import all_bindings
from relaxlab.passes.pipeline import batched_pipeline
from relaxlab.testing.pass_check import check_module
from relaxlab.tracing import first_rewrites

ROW, MATRIX = 'R.Tensor((1, 6), "float32")', 'R.Tensor((6, 6), "float32")'
INDEX, INDICES = 'R.Tensor((), "int64")', 'R.Tensor(("n",), "int64")'
CELL = """
            f = R.sigmoid(a @ w)
            g = R.sigmoid(b @ w)
            out = R.tanh((a + b) @ u) + f * a + g * b
"""
PROGRAM = """
@I.ir_module
class ChildSum:
    @R.function(private=True)
    def cell(i: INDEX, left: INDICES, right: INDICES, x: ROW, w: MATRIX, u: MATRIX) -> ROW:
        child = R.take(left, i, axis=0)
        if R.less(child, R.const(0, "int64")):
            out = x
        else:
            a = cls.cell(child, left, right, x, w, u)
            b = cls.cell(R.take(right, i, axis=0), left, right, x, w, u)
BODY
        return out

    @R.function
    def main(i: INDEX, left: INDICES, right: INDICES, x: ROW, w: MATRIX, u: MATRIX):
        R.func_attr({"num_input": 4})
        h = cls.cell(i, left, right, x, w, u)
        return h
"""


def with_twins():
    return batched_pipeline().after("combine_gates", batch_twins)


def program(body=CELL):
    text = PROGRAM.replace("BODY", body.strip("\n"))
    for name in ("INDICES", "INDEX", "ROW", "MATRIX"):
        text = text.replace(name, globals()[name])
    return rl.parse(text)


def blocks_of(mod):
    passes = with_twins().passes
    end = next(i for i, p in enumerate(passes) if p.name == batch_twins.name)
    return Pipeline(passes[:end]).run(mod).result


def calls(mod, part):
    return [
        b.value.op.name
        for f in mod.graph_functions().values()
        for b in all_bindings(f)
        if isinstance(b.value, graph.Call) and isinstance(b.value.op, graph.GlobalVar)
        and part in b.value.op.name
    ]  # fmt: skip


def inputs(rng):
    root, left, right, _ = dynamic.parse_tree(rng, 6, 5)
    x, w, u = (rng.standard_normal(s).astype(np.float32) for s in ((1, 6), (6, 6), (6, 6)))
    return root, left, right, x, w, u


def test_twins_are_calls_of_one_block():
    before = blocks_of(program())
    after = batch_twins(before)
    check_module(batch_twins, before, after)
    assert calls(after, "twin") == 2 * [calls(after, "twin")[0]]
    assert len(calls(after, "rest")) == 1
    given = inputs(np.random.default_rng(1))
    found = rl.interpret(after, "main", *given)
    np.testing.assert_array_equal(found, rl.interpret(program(), "main", *given))


@pytest.mark.parametrize(
    "body",
    [
        # Another weight, another operator, one value, what reads a product, no weight, integers.
        "            out = R.tanh(a @ w) + R.tanh(b @ u)",
        "            out = R.tanh(a @ w) * R.matmul(b, R.permute_dims(w))",
        "            out = R.tanh(a @ w) + x",
        "            out = R.tanh(R.tanh(a @ w) @ w)",
        "            out = a + b * x",
        "            p = (a * R.astype(i, 'float32')) @ w\n"
        "            out = p + (b * R.astype(child, 'float32')) @ w",
    ],
)
def test_what_is_no_twin_stays(body):
    before = blocks_of(program(body))
    assert batch_twins(before) is before


def test_what_is_done_to_each_alone_goes_along():
    mod = batch_twins(blocks_of(program("            out = R.tanh(a @ w) * R.exp(b @ w)")))
    twin = mod[calls(mod, "twin")[0]]
    assert [b.value.op.name for b in all_bindings(twin)] == ["matmul"]
    mod = batch_twins(blocks_of(program(CELL)))
    twin = mod[calls(mod, "twin")[0]]
    assert [b.value.op.name for b in all_bindings(twin)] == ["matmul", "sigmoid", "multiply"]


def test_decisions_can_be_left_out():
    before = blocks_of(program())
    with first_rewrites(0):
        assert batch_twins(before) is before


@pytest.mark.parametrize(
    "body",
    [
        CELL,
        "            out = R.tanh(a @ w) * R.tanh(b @ w)",
        "            p = a @ w\n            q = b @ w\n            out = p + q * R.tanh(p @ u)",
    ],
)
def test_batches_compute_the_same_bits_with_fewer_products(body):
    mod, rng = program(body), np.random.default_rng(0)
    given = [inputs(rng)[:4] for _ in range(5)]
    weights = inputs(rng)[4:]
    results = []
    for pipeline in (with_twins(), batched_pipeline()):
        exe = rl.compile(mod, "cpu,reassociate=off", pipeline=pipeline, threads=1)
        main = exe["main"].bind(*weights)
        alone = [main.batch([g])[0] for g in given]
        results.append(main.batch(given))
        for one, several in zip(alone, results[-1], strict=True):
            np.testing.assert_array_equal(one, several)
        if not results[1:]:
            names = {block for block, _ in main.last_batch.launches}
            assert sum("twin" in name for name in names) == 1
            assert any("twin" in block and rows > 5 for block, rows in main.last_batch.launches)
    for a, b, g in zip(*results, given, strict=True):
        np.testing.assert_array_equal(a, b)
        expected = rl.interpret(mod, "main", *g, *weights)
        np.testing.assert_allclose(a, expected, rtol=1e-4, atol=1e-5)


def test_there_is_one_function_for_batches_of_twins():
    result = with_twins().run(program()).result
    batched = [n for n, f in result.graph_functions().items() if "batched" in f.attrs]
    assert sum("twin" in name for name in batched) == 1


def test_gpus_have_it():
    assert "batch_twins" in [p.name for p in batched_pipeline("cuda").passes]
    assert "batch_twins" not in [p.name for p in batched_pipeline().passes]
