"""What does not depend on the recursion is computed before it."""

import pytest

from relaxlab.ir import graph
from relaxlab.ir import recording as rec
from relaxlab.models.dynamic.sequences import bi_rnn
from relaxlab.passes.bindings import all_bindings, known_shape
from relaxlab.passes.clone_by_weights import clone_by_weights
from relaxlab.passes.lambda_lifting import lambda_lifting
from relaxlab.passes.lower_recording import lower_recording
from relaxlab.passes.make_blocks import make_blocks
from relaxlab.passes.normalize import normalize
from relaxlab.passes.pipeline import batched_pipeline
from relaxlab.passes.split_concat_product import split_concat_product
from relaxlab.passes.static_depth import DYNAMIC, static_depths
from relaxlab.script import parse
from relaxlab.testing.pass_check import check_module, compare_runs
from relaxlab.tracing import first_rewrites

PROGRAM = """
@R.function(private=True)
def steps(i: R.Tensor((), "int64"), x: R.Tensor((1, 3), "float32"),
          h: R.Tensor((1, 5), "float32"), w: R.Tensor((8, 5), "float32")
          ) -> R.Tensor((1, 5), "float32"):
    if R.less(i, R.const(1, "int64")):
        r = h
    else:
        y = R.tanh(R.matmul(R.concat((h, R.exp(x)), axis=1), w))
        j = R.subtract(R.minimum(i, R.const(4, "int64")), R.const(1, "int64"))
        r = cls.steps(j, x, y, w)
    return r

@R.function
def main(i: R.Tensor((), "int64"), x: R.Tensor((1, 3), "float32"),
         h: R.Tensor((1, 5), "float32"), w: R.Tensor((8, 5), "float32")):
    R.func_attr({"num_input": 3})
    return cls.steps(i, x, h, w)
"""


def prepared(text):
    mod = clone_by_weights(lambda_lifting(normalize(parse(text))))
    with first_rewrites(0):  # joins neighbouring blocks of bindings, as every pass does
        return split_concat_product(mod)


@pytest.fixture(scope="module")
def start():
    return prepared(PROGRAM)


def depths_of(mod, function):
    found = static_depths(mod, "main")
    return {b.var.name: found.of(b.var) for b in all_bindings(mod[function])}


def test_depths_count_operators_from_the_inputs(start):
    depths = depths_of(start, "steps")
    # Integers are known before anything is computed, however far the recursion counts.
    assert depths["j"] == depths["cond"] == 0
    assert min(depths["y"], depths["r"]) == DYNAMIC
    assert sorted(d for d in depths.values() if 0 < d < DYNAMIC) == [1]  # exp(x)


def test_the_part_that_is_known_is_a_product_of_its_own(start):
    after = split_concat_product(start)
    check_module(split_concat_product, start, after)
    compare_runs(start, after, sizes=(1,))
    products = [b for b in all_bindings(after["steps"]) if isinstance(b.value, graph.Call)
                and b.value.op == graph.Op("matmul")]  # fmt: skip
    depths = static_depths(after, "main")
    assert sorted(depths.of(b.var) for b in products) == [2, DYNAMIC]
    with first_rewrites(0):
        assert split_concat_product(start) is start


def test_rows_of_which_all_or_nothing_is_known_stay_whole():
    for given in ("(h, h)", "(x, x)"):
        width = 10 if "h" in given else 6
        text = PROGRAM.replace("(h, R.exp(x))", given).replace("(8, 5)", f"({width}, 5)")
        mod = prepared(text)
        assert split_concat_product(mod) is mod


def test_known_products_are_a_block_of_their_own_at_a_fixed_depth(start):
    split = split_concat_product(start)
    blocks = [n for n in make_blocks(split) if n not in split]
    assert len(blocks) == 2
    assert len([n for n in make_blocks.with_options(hoist=False)(split) if n not in split]) == 1
    program = lower_recording(batched_pipeline().run(bi_rnn(4, classes=2)).result)
    notes = {program.blocks[s.block].name: s.static_depth for f in program.functions.values()
             for s in rec.walk_steps(f.steps) if isinstance(s, rec.Record)}  # fmt: skip
    known = {n for n, depth in notes.items() if depth is not None}
    assert known == {"cell_block", "cell_clone_block"}
    assert program.first_depth > max(d for d in notes.values() if d is not None)


def test_both_parts_of_the_weight_are_packed_once():
    made = batched_pipeline().run(bi_rnn(40)).result
    blocks = [f for name, f in made.graph_functions().items() if name.endswith("_batched")]
    assert len(blocks) == 5
    for fn in blocks:
        assert "transform_params" in fn.attrs
        matrices = [p for p in fn.params[fn.attrs["num_input"] :] if len(known_shape(p.ty)) > 1]
        assert [len(known_shape(p.ty)) for p in matrices] == [3]
