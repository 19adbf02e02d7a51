"""Passes that write operators in another order, or by others, and dataflow blocks."""

from __future__ import annotations

import relaxlab as rl
from relaxlab.passes.convert_to_dataflow import convert_to_dataflow
from relaxlab.passes.decompose_norms import decompose_norms
from relaxlab.passes.force_purity import force_purity
from relaxlab.passes.normalize import normalize
from relaxlab.passes.outline_scalars import outline_scalars
from relaxlab.passes.remove_redundant_reshape import remove_redundant_reshape
from relaxlab.passes.reorder_permute_dims_after_concat import reorder_permute_dims_after_concat
from relaxlab.passes.reorder_take_after_matmul import reorder_take_after_matmul
from relaxlab.passes.to_non_dataflow import to_non_dataflow
from relaxlab.script import ir as I
from relaxlab.script import relax as R
from relaxlab.script import tir as T
from relaxlab.testing.pass_check import check_module, check_pass, compare_runs


@I.ir_module
class Flow:
    @R.function
    def main(x: R.Tensor(("n", 3), "float32")):
        with R.dataflow():
            a = R.exp(x)
            b = R.sin(a)
            R.output(b)
        return b


@I.ir_module
class Plain:
    @R.function
    def main(x: R.Tensor(("n", 3), "float32")):
        a = R.exp(x)
        b = R.sin(a)
        return b


def test_dataflow_blocks_come_and_go() -> None:
    check_pass(to_non_dataflow, Flow, Plain)
    check_pass(convert_to_dataflow, Plain, Flow)
    check_pass(to_non_dataflow, Plain)
    check_pass(convert_to_dataflow.with_options(min_size=3), Plain)


def test_effects_split_dataflow_blocks() -> None:
    @I.ir_module
    class Before:
        @R.function(pure=False)
        def main(x: R.Tensor((3,), "float32")):
            a = R.exp(x)
            b = R.sin(a)
            _ = R.print(b, format="{}")
            c = R.cos(b)
            return c

    @I.ir_module
    class Expected:
        @R.function(pure=False)
        def main(x: R.Tensor((3,), "float32")):
            with R.dataflow():
                a = R.exp(x)
                b = R.sin(a)
                R.output(b)
            _ = R.print(b, format="{}")
            c = R.cos(b)
            return c

    check_pass(convert_to_dataflow, Before, Expected, compare=False)


def test_pure_functions_are_declared_so() -> None:
    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor(("n", 3), "float32")):
            R.func_attr({"relax.force_pure": True})
            a = R.exp(x)
            b = R.sin(a)
            return b

    check_pass(force_purity, Plain, Expected)


def test_calls_in_functions_that_are_declared_pure_are_plain_ones() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((3,), "float32"), f: R.Object):
            a = R.call_pure_packed("of.nobody", x, ty_args=R.Tensor((3,), "float32"))
            b = R.invoke_pure_closure(f, (a,), ty_args=R.Tensor((3,), "float32"))
            return b

        @R.function(pure=False)
        def effects(x: R.Tensor((3,), "float32")):
            return R.call_pure_packed("of.nobody", x, ty_args=R.Tensor((3,), "float32"))

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((3,), "float32"), f: R.Object):
            R.func_attr({"relax.force_pure": True})
            a = R.call_packed("of.nobody", x, ty_args=R.Tensor((3,), "float32"))
            b = R.invoke_closure(f, (a,), ty_args=R.Tensor((3,), "float32"))
            return b

        @R.function(pure=False)
        def effects(x: R.Tensor((3,), "float32")):
            return R.call_pure_packed("of.nobody", x, ty_args=R.Tensor((3,), "float32"))

    check_pass(force_purity, Before, Expected, compare=False)


def test_scalars_that_are_calculated_are_results_of_functions() -> None:
    """Shapes and plain symbols stay; equal scalars have one function."""

    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor(("n",), "float32")):
            n = T.int64()
            a = R.prim_value(n * 2 + 1)
            b = R.prim_value(n * 2 + 1)
            c = R.prim_value(n)
            y = R.zeros(R.shape([n * 2 + 1]), "float32")
            return (a, b, c, y)

    @I.ir_module
    class Expected:
        @T.prim_func(private=True, s_tir=True)
        def compute_symbolic_expr(n: T.int64) -> T.int64:
            T.func_attr({"tirx.is_host_func": True})
            return n * 2 + 1

        @R.function
        def main(x: R.Tensor(("n",), "float32")):
            n = T.int64()
            a = Expected.compute_symbolic_expr(R.prim_value(n))
            b = Expected.compute_symbolic_expr(R.prim_value(n))
            c = R.prim_value(n)
            y = R.zeros(R.shape([n * 2 + 1]), "float32")
            return (a, b, c, y)

    check_pass(outline_scalars, Before, Expected)


def test_columns_are_selected_after_a_product() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(
            x: R.Tensor((2, "n", 4), "float32"),
            w: R.Tensor((4, 5), "float32"),
            i: R.Tensor((3,), "int64"),
        ):
            v = R.take(w, i, axis=1)
            y = R.matmul(x, v)
            return y

    @I.ir_module
    class Expected:
        @R.function
        def main(
            x: R.Tensor((2, "n", 4), "float32"),
            w: R.Tensor((4, 5), "float32"),
            i: R.Tensor((3,), "int64"),
        ):
            v = R.matmul(x, w)
            y = R.take(v, i, axis=2)
            return y

    check_pass(reorder_take_after_matmul, Before, Expected, compare=False)


def test_selected_rows_stay() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(
            x: R.Tensor((2, 3), "float32"),
            w: R.Tensor((4, 5), "float32"),
            i: R.Tensor((3,), "int64"),
        ):
            v = R.take(w, i, axis=0)
            y = R.matmul(x, v)
            return y

    check_pass(reorder_take_after_matmul, Before, compare=False)


def test_matrices_are_transposed_after_they_are_joined() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(a: R.Tensor(("n", 3), "float32"), b: R.Tensor((5, 3), "float32")):
            at = R.permute_dims(a)
            bt = R.permute_dims(b, axes=[1, 0])
            w = R.concat([at, bt], axis=1)
            return w

    @I.ir_module
    class Expected:
        @R.function
        def main(a: R.Tensor(("n", 3), "float32"), b: R.Tensor((5, 3), "float32")):
            c = R.concat([a, b], axis=0)
            w = R.permute_dims(c)
            return w

    check_pass(reorder_permute_dims_after_concat, Before, Expected)

    @I.ir_module
    class Other:
        @R.function
        def main(a: R.Tensor((3, 5), "float32"), b: R.Tensor((5, 3), "float32")):
            at = R.permute_dims(a)
            w = R.concat([at, b], axis=1)
            return w

    check_pass(reorder_permute_dims_after_concat, Other)


def test_reshapes_of_reshapes() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((2, 6), "float32")):
            a = R.reshape(x, R.shape([3, 4]))
            b = R.reshape(a, R.shape([12]))
            c = R.reshape(b, R.shape([12]))
            return c

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((2, 6), "float32")):
            b = R.reshape(x, R.shape([12]))
            c = b
            return c

    check_pass(remove_redundant_reshape, Before, Expected)


@I.ir_module
class Norms:
    @R.function
    def main(
        x: R.Tensor((2, 3, 4), "float32"),
        gamma: R.Tensor((3,), "float32"),
        beta: R.Tensor((3,), "float32"),
        mean: R.Tensor((3,), "float32"),
        variance: R.Tensor((3,), "float32"),
        scale: R.Tensor((4,), "float32"),
    ):
        with R.dataflow():
            v = R.square(variance)
            t = R.nn.batch_norm(x, gamma, beta, mean, v, axis=1, training=False)
            y = t[0]
            z = R.nn.layer_norm(y, scale, scale, axes=[-1])
            R.output(t, z)
        return (t, z)


def test_a_batch_norm_of_inference() -> None:
    start = normalize(Norms)
    after = decompose_norms(start)
    assert "batch_norm" not in after.script() and "layer_norm" in after.script()
    check_module(decompose_norms, start, after)
    compare_runs(start, after)


def test_norms_of_training() -> None:
    start = normalize(rl.parse(Norms.script().replace(", training=False", "")))
    one = decompose_norms.with_options(training=True)
    after = one(start)
    assert "norm(" not in after.script()
    check_module(one, start, after)
    compare_runs(start, after)


def test_entries_stay_although_they_are_private() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((3,), "float32")):
            return x

        @R.function(private=True)
        def f(x: R.Tensor((3,), "float32")):
            return x

    one = rl.find_pass("dead_code_elimination")
    assert list(one(normalize(Before))) == ["main"]
    check_pass(one.with_options(entries=("f",)), Before)
