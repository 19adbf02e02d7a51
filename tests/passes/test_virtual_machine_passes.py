"""Shapes in a heap, registered functions for operators, and weights in other layouts."""

from __future__ import annotations

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.analysis.well_formed import check_well_formed
from relaxlab.passes.lower_builtins import lower_builtins
from relaxlab.passes.mark_free_layouts import mark_free_layouts
from relaxlab.passes.normalize import normalize
from relaxlab.passes.split_layout_rewrites import split_layout_rewrites
from relaxlab.passes.store_shapes import store_shapes
from relaxlab.runtime.arrays import ExecutionError
from relaxlab.runtime.interpreter.interpreter import interpret
from relaxlab.runtime.vm_builtins import FUNCTIONS, match_shape
from relaxlab.testing.pass_check import check_pass, compare_runs

HEAD = """
from relaxlab.script import ir as I, relax as R, tir as T

@I.ir_module
class Mod:
"""
SIZES = HEAD + """
    @R.function
    def main(
        x: R.Tensor(("n", "m"), "float32"),
        y: R.Tensor(("n * 2",), "float32"),
        t: R.Tuple(R.Tensor((4,), "float32"), R.Shape(["k"])),
    ) -> R.Tuple(R.Shape(ndim=2), R.Shape(["k + m"])):
        R.func_attr({"relax.force_pure": True})
        n = T.int64(); m = T.int64(); k = T.int64()
        a = R.shape([n * m, 3])
        b = R.shape([k + m])
        return (a, b)
"""
RESHAPED = HEAD + """
    @R.function(pure=False)
    def main(x: R.Tensor((2, 3), "float32")):
        s = R.memory.alloc_storage(
            R.shape([24]), R.prim_value(0), R.str("global"), R.dtype("uint8")
        )
        a = R.memory.alloc_tensor(s, R.prim_value(0), R.shape([2, 3]), R.dtype("float32"))
        y = R.reshape(x, R.shape([6]))
        z = R.shape_of(y)
        f = R.make_closure(Mod.added, (y,))
        w = R.invoke_closure(f, (y,), ty_args=R.Tensor((6,), "float32"))
        _ = R.memory.kill_tensor(a)
        return (w, z)

    @R.function(private=True)
    def added(
        a: R.Tensor((6,), "float32"), b: R.Tensor((6,), "float32")
    ) -> R.Tensor((6,), "float32"):
        return R.add(a, b)
"""
WEIGHTS = HEAD + """
    @R.function
    def main(x: R.Tensor((4,), "float32"), w: R.Tensor((4,), "float32")):
        R.func_attr({"num_input": 1})
        with R.dataflow():
            y = R.call_tir(Mod.product, (x, w), out_ty=R.Tensor((4,), "float32"))
            z = R.call_tir(Mod.product, (y, x), out_ty=R.Tensor((4,), "float32"))
            R.output(z)
        return z

    @T.prim_func(private=True, s_tir=True)
    def product(
        A: T.Buffer((4,), "float32"), W: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")
    ):
        C = T.sblock_alloc_buffer((2, 2), "float32")
        for i in range(4):
            with T.sblock("copy"):
                vi = T.axis.spatial(4, i)
                T.reads(W[vi])
                T.writes(C[vi % 2, vi // 2])
                T.sblock_attr({"meta_schedule.layout_rewrite_preproc": True})
                C[vi % 2, vi // 2] = W[vi]
        for i in range(4):
            with T.sblock("product"):
                vi = T.axis.spatial(4, i)
                B[vi] = A[vi] * C[vi % 2, vi // 2]
"""


def test_shapes_are_kept_in_a_tensor() -> None:
    before = normalize(rl.parse(SIZES))
    after = store_shapes(before)
    assert not check_well_formed(after) and store_shapes(after) is after
    calls = after.script()
    assert "R.shape([n" not in calls and calls.count("vm.builtin.match_shape") >= 4
    x, y, t = np.zeros((5, 7), "float32"), np.zeros(10, "float32"), np.zeros(4, "float32")
    for mod in (before, after):
        assert interpret(mod, "main", x, y, (t, (3,))) == ((35, 3), (10,))


@pytest.mark.parametrize("length", [9, 11])
def test_a_size_that_contradicts_another_is_found_by_its_check(length: int) -> None:
    heap = np.asarray([0, 0, 10], "int64")
    with pytest.raises(ExecutionError, match=f"dimension 0 is {length}, not 10"):
        match_shape(np.zeros(length), heap, 1, 3, 2, "")


def test_operators_become_calls_of_registered_functions() -> None:
    before = normalize(rl.parse(RESHAPED))
    after = check_pass(lower_builtins, before, lower_builtins(before))
    text = after.script()
    for name in ("vm.builtin.reshape", "vm.builtin.shape_of", "vm.builtin.make_closure"):
        assert f'"{name}"' in text
    assert "R.vm.alloc_storage" in text and "R.memory" not in text


def test_weights_are_marked() -> None:
    before = normalize(rl.parse(WEIGHTS))
    after = check_pass(mark_free_layouts, before, mark_free_layouts(before))
    marks = sorted(f.attrs["layout_free_buffers"] for f in after.loop_functions().values())
    assert marks == [(), (1,)]


def test_copies_of_weights_become_functions() -> None:
    before = normalize(rl.parse(WEIGHTS))
    after = check_pass(split_layout_rewrites, before, split_layout_rewrites(before))
    assert {*after.loop_functions()} == {"product_weight_prepack", "product_prepacked"}
    compare_runs(before, after)


CACHED = HEAD + """
    @R.function(pure=False)
    def main(x: R.Tensor((1, 3), "float32"), c: R.Object, total: R.Shape(["n"])):
        n = T.int64()
        d = R.call_inplace_packed(
            "vm.builtin.attention_kv_cache_append", c, x, inplace_indices=[0], ty_args=R.Object
        )
        y = R.call_pure_packed(
            "vm.builtin.attention_kv_cache_view", d, R.shape([n, 3]),
            ty_args=R.Tensor((n, 3), "float32"),
        )
        return y
"""


def test_a_cache_grows_by_its_calls() -> None:
    mod = normalize(rl.parse(CACHED))
    assert not check_well_formed(mod)
    cache = FUNCTIONS["vm.builtin.attention_kv_cache_create"](np.zeros((1, 3)), (1, 3), 0)
    rows = np.arange(9, dtype="float32").reshape(3, 3)
    cache.rows = cache.rows.astype("float32")
    for i in range(3):
        seen = interpret(mod, "main", rows[i : i + 1], cache, (i + 1,))
        np.testing.assert_array_equal(seen, rows[: i + 1])
    with pytest.raises(ExecutionError, match="3 rows are there, not 2"):
        cache.view((2, 3))
