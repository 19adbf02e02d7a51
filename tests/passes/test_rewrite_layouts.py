import numpy as np
import pytest

from relaxlab.analysis.index_map import IndexMap
from relaxlab.ir import expr
from relaxlab.passes.base import Pipeline
from relaxlab.passes.canonicalize import canonicalize
from relaxlab.passes.legalize_ops import legalize_ops
from relaxlab.passes.lift_transform_params import lift_transform_params
from relaxlab.passes.normalize import normalize
from relaxlab.passes.rewrite_layouts import relayout_function, rewrite_layouts
from relaxlab.runtime.interpreter.interpreter import interpret, interpret_prim_func
from relaxlab.schedule.schedule import Schedule
from relaxlab.script import ir as I
from relaxlab.script import relax as R
from relaxlab.testing.pass_check import assert_same, check_module, compare_runs, random_arguments


@I.ir_module
class Linear:
    @R.function
    def main(x: R.Tensor(("n", 6), "float32"), w: R.Tensor((6, 8), "float32")):
        R.func_attr({"num_input": 1})
        with R.dataflow():
            y = R.matmul(x, w)
            z = R.matmul(y, R.permute_dims(w))
            u = R.matmul(z, w)
            R.output(u)
        return u


def packed(mod, name, index_map):
    """`mod` with the second parameter of loop function `name` in another layout."""
    sch = Schedule(mod[name])
    block = sch.get_block("T_matmul")
    sch.transform_layout(block, ("read", 1), index_map)
    return mod.with_functions({name: sch.func})


MAPS = [lambda i, j: (j // 4, i, j % 4), lambda i, j: (j, i)]


@pytest.mark.parametrize("which", range(len(MAPS)))
def test_a_repacked_weight_is_repacked_once_and_before(which):
    start = Pipeline((normalize, canonicalize, legalize_ops, canonicalize)).run(Linear).result
    changed = packed(start, "matmul", MAPS[which])
    after = rewrite_layouts(changed)
    check_module(rewrite_layouts, changed, after)
    compare_runs(start, after)
    assert "layout_rewrites" not in after["matmul"].attrs
    calls = [b.value.args[0].name for b in after["main"].body.blocks[0].bindings]
    assert calls.count("relayout") == 1
    lifted = lift_transform_params(after)
    rng = np.random.default_rng(0)
    x, w = random_arguments(start["main"], rng)
    weights = interpret(lifted, "main_transform_params", (w,))
    assert_same(interpret(lifted, "main", x, *weights), interpret(start, "main", x, w), "main")


@pytest.mark.parametrize(
    "shape, held, fn",
    [
        ((6, 8), (2, 3, 2, 4), lambda i, j: (j // 4, i // 2, i % 2, j % 4)),
        # does not divide: the rest is zero
        ((5, 7), (2, 5, 4), lambda i, j: (j // 4, i, j % 4)),
        ((5, 7), (35,), lambda i, j: (i * 7 + j,)),
        # fewer than a tile, joined
        ((2, 5, 4), (1, 2, 24), lambda i, j, k: ((j * 4 + k) // 24, i, (j * 4 + k) % 24)),
        ((2, 7, 3), (1, 2, 32), lambda i, j, k: ((j * 3 + k) // 32, i, (j * 3 + k) % 32)),
        ((2, 7, 3), (3, 2, 8), lambda i, j, k: ((j * 3 + k) // 8, i, (j * 3 + k) % 8)),
    ],
)
def test_relayouts_put_every_element_in_its_place(shape, held, fn):
    index_map = IndexMap.of(fn)
    dims, dims_held = (tuple(map(expr.const, each)) for each in (shape, held))
    func, new_shape = relayout_function(dims, "float32", index_map, dims_held)
    assert tuple(d.value for d in new_shape) == held
    source = np.random.default_rng(0).standard_normal(shape).astype("float32")
    got = np.full([d.value for d in new_shape], 9, "float32")
    interpret_prim_func(func, [source, got])
    want = np.zeros_like(got)
    for index in np.ndindex(shape):
        want[fn(*index)] = source[index]
    np.testing.assert_array_equal(got, want)


def test_nothing_to_rewrite():
    start = normalize(Linear)
    assert rewrite_layouts(start) is start


def test_other_arguments_than_weights_are_repacked_where_they_are_used():
    start = Pipeline((normalize, canonicalize, legalize_ops, canonicalize)).run(Linear).result
    changed = packed(start, "matmul1", lambda i, j: (j // 2, i, j % 2))
    after = rewrite_layouts(changed)
    check_module(rewrite_layouts, changed, after)
    compare_runs(start, after)
