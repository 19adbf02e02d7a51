import numpy as np

from relaxlab.analysis.well_formed import check_well_formed
from relaxlab.ir import graph
from relaxlab.ir.node import walk
from relaxlab.passes.annotate_pattern_kind import annotate_pattern_kind
from relaxlab.passes.canonicalize import canonicalize
from relaxlab.passes.legalize_ops import legalize_ops
from relaxlab.passes.lift_transform_params import lift_transform_params
from relaxlab.passes.normalize import normalize
from relaxlab.runtime.interpreter.interpreter import interpret
from relaxlab.script import ir as I
from relaxlab.script import relax as R
from relaxlab.script import tir as T
from relaxlab.testing.pass_check import assert_same, check_module, check_pass, random_arguments


@I.ir_module
class Before:
    @R.function
    def main(
        x: R.Tensor(("n", 4), "float32"),
        w: R.Tensor((8, 4), "float32"),
        b: R.Tensor((8,), "float32"),
        unused: R.Tensor((3,), "float32"),
    ) -> R.Tensor(("n", 8), "float32"):
        R.func_attr({"num_input": 1})
        with R.dataflow():
            t = R.permute_dims(w)
            s = R.multiply(t, R.const(2.0, "float32"))
            y = R.matmul(x, s)
            z = R.add(y, b)
            R.output(z)
        return z


def run_split(after, names):
    """Run the transform once, then every function with its result; compare with `Before`."""
    rng = np.random.default_rng(0)
    for name, original in names.items():
        fn = original[name]
        for _ in range(3):
            args = random_arguments(fn, rng)
            count = fn.attrs["num_input"]
            transform = next(f for f in after if f.endswith("transform_params"))
            weights = interpret(after, transform, args[count:])
            got = interpret(after, name, *args[:count], *weights)
            assert_same(got, interpret(original, name, *args), name)


def test_weight_only_values_move_to_a_function_of_the_weights():
    @I.ir_module
    class Expected:
        @R.function
        def main(
            x: R.Tensor(("n", 4), "float32"),
            b: R.Tensor((8,), "float32"),
            s: R.Tensor((4, 8), "float32"),
        ) -> R.Tensor(("n", 8), "float32"):
            R.func_attr({"num_input": 1, "transform_params": "main_transform_params"})
            with R.dataflow():
                y = R.matmul(x, s)
                z = R.add(y, b)
                R.output(z)
            return z

        @R.function
        def main_transform_params(
            params: R.Tuple(
                R.Tensor((8, 4), "float32"), R.Tensor((8,), "float32"), R.Tensor((3,), "float32")
            ),
        ) -> R.Tuple(R.Tensor((8,), "float32"), R.Tensor((4, 8), "float32")):
            with R.dataflow():
                w = params[0]
                t = R.permute_dims(w)
                s = R.multiply(t, R.const(2.0, "float32"))
                b = params[1]
                out = (b, s)
                R.output(out)
            return out

    after = check_pass(lift_transform_params, Before, Expected, compare=False)
    run_split(after, {"main": normalize(Before)})


def test_lowered_calls_move_too():
    start = annotate_pattern_kind(canonicalize(legalize_ops(canonicalize(normalize(Before)))))
    after = lift_transform_params(start)
    check_module(lift_transform_params, start, after)
    run_split(after, {"main": start})
    ops = [b.value.args[0].name for b in after["main"].body.blocks[0].bindings]
    assert ops == ["matmul", "add"]


def test_nothing_to_lift():
    @I.ir_module
    class Plain:
        @R.function
        def main(x: R.Tensor(("n", 4), "float32"), w: R.Tensor((4, 8), "float32")):
            R.func_attr({"num_input": 1})
            y = R.matmul(x, w)
            return y

    check_pass(lift_transform_params, Plain)


def test_constants_are_weights_and_inputs_are_not():
    @I.ir_module
    class Mixed:
        @R.function
        def main(x: R.Tensor((2,), "float32"), w: R.Tensor((2,), "float32")):
            R.func_attr({"num_input": 1})
            with R.dataflow():
                table = R.arange(R.prim_value(0), R.prim_value(2), R.prim_value(1), "float32")
                c = R.cos(table)
                d = R.multiply(c, w)
                e = R.exp(x)
                f = R.add(d, e)
                R.output(f)
            return f

    start = normalize(Mixed)
    after = lift_transform_params(start)
    check_module(lift_transform_params, start, after)
    run_split(after, {"main": start})
    names = [b.value.op.name for b in after["main"].body.blocks[0].bindings]
    assert names == ["exp", "add"]


def test_functions_with_the_same_weights_share_the_transformed_ones():
    @I.ir_module
    class Two:
        @R.function
        def prefill(x: R.Tensor(("n", 4), "float32"), w: R.Tensor((8, 4), "float32")):
            R.func_attr({"num_input": 1})
            t = R.permute_dims(w)
            y = R.matmul(x, t)
            return y

        @R.function
        def decode(x: R.Tensor((1, 4), "float32"), w: R.Tensor((8, 4), "float32")):
            R.func_attr({"num_input": 1})
            t = R.permute_dims(w)
            e = R.exp(t)
            y = R.matmul(x, t)
            z = R.matmul(x, e)
            return (y, z)

    start = normalize(Two)
    after = lift_transform_params(start)
    check_module(lift_transform_params, start, after)
    assert set(after) == {"prefill", "decode", "transform_params"}
    results = after["transform_params"].ret_ty.fields
    assert len(results) == 2
    for name in ("prefill", "decode"):
        assert len(after[name].params) == 3
    run_split(after, {"prefill": start, "decode": start})


def test_overwritten_weights_stay():
    @I.ir_module
    class Cache:
        @T.prim_func
        def bump(A: T.Buffer((4,), "float32")):
            for i in range(4):
                with T.block("A"):
                    vi = T.axis.spatial(4, i)
                    A[vi] = A[vi] + T.float32(1)

        @R.function
        def main(x: R.Tensor((4,), "float32"), w: R.Tensor((4,), "float32")):
            R.func_attr({"num_input": 1})
            cls = Cache
            with R.dataflow():
                e = R.exp(w)
                a = R.add(x, e)
                z = R.call_tir_inplace(
                    cls.bump, (w,), out_sinfo=R.Tensor((4,), "float32"), inplace_indices=[0]
                )
                b = R.add(a, z)
                R.output(b)
            return b

    check_pass(lift_transform_params, Cache)


def test_values_of_a_shared_weight_are_computed_once():
    @I.ir_module
    class Twice:
        @R.function
        def main(x: R.Tensor(("n", 4), "float32"), w: R.Tensor((8, 4), "float32")):
            R.func_attr({"num_input": 1})
            a = R.permute_dims(w)
            b = R.permute_dims(w)
            y = R.matmul(x, a)
            z = R.matmul(x, b)
            u = R.add(y, z)
            return u

    start = normalize(Twice)
    after = lift_transform_params(start)
    calls = [
        b.value
        for b in after["main_transform_params"].body.blocks[0].bindings
        if isinstance(b.value, graph.Call)
    ]
    assert len(calls) == 1
    run_split(after, {"main": start})


def test_callers_give_transformed_weights():
    @I.ir_module
    class Nested:
        @R.function
        def scale(
            x: R.Tensor((1, "h"), "float32"), w: R.Tensor((8, "h"), "float32")
        ) -> R.Tensor((1, 8), "float32"):
            R.func_attr({"num_input": 1})
            with R.dataflow():
                t = R.permute_dims(w)
                y = R.matmul(x, t)
                R.output(y)
            return y

        @R.function
        def main(
            x: R.Tensor((1, "k"), "float32"), w: R.Tensor((8, "k"), "float32")
        ) -> R.Tensor((1, 8), "float32"):
            first = Nested.scale(x, w)
            again = R.add(first, Nested.scale(x, w))
            return again

    after = lift_transform_params(normalize(Nested))
    assert not check_well_formed(after)
    calls = [n.op.name for n in walk(after["main"])
             if isinstance(n, graph.Call) and isinstance(n.op, graph.GlobalVar)]  # fmt: skip
    assert sorted(calls) == ["scale", "scale", *["scale_transform_params"] * 2]
    rng = np.random.default_rng(0)
    args = random_arguments(Nested["main"], rng)
    assert_same(interpret(after, "main", *args), interpret(Nested, "main", *args), "seed 0")
    assert lift_transform_params(after) is after


def test_functions_that_are_values_stay_whole():
    @I.ir_module
    class Value:
        @R.function
        def scale(x: R.Tensor((4,), "float32"), w: R.Tensor((4,), "float32")) -> R.Tensor(
            (4,), "float32"
        ):
            R.func_attr({"num_input": 1})
            with R.dataflow():
                y = R.add(x, R.tanh(w))
                R.output(y)
            return y

        @R.function
        def main(x: R.Tensor((4,), "float32"), w: R.Tensor((4,), "float32")) -> R.Tensor(
            (4,), "float32"
        ):
            f = Value.scale
            y = f(x, w)
            return y

    before = normalize(Value)
    assert lift_transform_params(before) is before
