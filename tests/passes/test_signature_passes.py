"""Passes that change the signatures of private functions, and of models."""

from __future__ import annotations

import numpy as np

import relaxlab as rl
from relaxlab.passes.expand_tuple_arguments import expand_tuple_arguments
from relaxlab.passes.remove_unused_outputs import remove_unused_outputs
from relaxlab.passes.remove_unused_parameters import remove_unused_parameters
from relaxlab.script import ir as I
from relaxlab.script import relax as R
from relaxlab.script import tir as T
from relaxlab.testing.pass_check import check_pass


def test_parameters_that_are_not_read() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor(("n", 3), "float32"), y: R.Tensor((5,), "float32")):
            cls = Before
            a = cls.f(y, x, x)
            b = cls.g(a)
            return b

        @R.function(private=True)
        def f(
            y: R.Tensor((5,), "float32"),
            x: R.Tensor(("n", 3), "float32"),
            z: R.Tensor(("n", 3), "float32"),
        ) -> R.Tensor(("n", 3), "float32"):
            a = R.exp(x)
            return a

        @R.function(private=True)
        def g(x: R.Tensor(("n", 3), "float32")) -> R.Tensor(("n",), "float32"):
            n = T.int64()
            z = R.zeros(R.shape([n]), "float32")
            return z

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor(("n", 3), "float32"), y: R.Tensor((5,), "float32")):
            cls = Expected
            a = cls.f(x)
            b = cls.g(a)
            return b

        @R.function(private=True)
        def f(x: R.Tensor(("n", 3), "float32")) -> R.Tensor(("n", 3), "float32"):
            a = R.exp(x)
            return a

        @R.function(private=True)
        def g(x: R.Tensor(("n", 3), "float32")) -> R.Tensor(("n",), "float32"):
            n = T.int64()
            z = R.zeros(R.shape([n]), "float32")
            return z

    check_pass(remove_unused_parameters, Before, Expected)


def test_results_that_nobody_reads() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((4,), "float32")):
            cls = Before
            t = cls.f(x)
            y = t[2]
            u = cls.g(x)
            a = u[0]
            b = u[2]
            z = R.add(y, R.add(a, b))
            return z

        @R.function(private=True)
        def f(x: R.Tensor((4,), "float32")):
            a = R.exp(x)
            b = R.sin(x)
            c = R.cos(x)
            return (a, b, c)

        @R.function(private=True)
        def g(x: R.Tensor((4,), "float32")):
            a = R.exp(x)
            b = R.sin(x)
            c = R.cos(x)
            return (a, b, c)

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((4,), "float32")):
            cls = Expected
            t = cls.f(x)
            y = t
            u = cls.g(x)
            a = u[0]
            b = u[1]
            z = R.add(y, R.add(a, b))
            return z

        @R.function(private=True)
        def f(x: R.Tensor((4,), "float32")):
            c = R.cos(x)
            return c

        @R.function(private=True)
        def g(x: R.Tensor((4,), "float32")):
            a = R.exp(x)
            c = R.cos(x)
            return (a, c)

    check_pass(remove_unused_outputs, Before, Expected)


def test_a_result_that_is_read_as_a_whole() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((4,), "float32")):
            cls = Before
            t = cls.f(x)
            y = t[1]
            return (t, y)

        @R.function(private=True)
        def f(x: R.Tensor((4,), "float32")):
            a = R.exp(x)
            return (a, x)

    check_pass(remove_unused_outputs, Before)


def test_tuples_are_passed_by_field() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((4,), "float32"), y: R.Tensor((4,), "float32")):
            cls = Before
            t = (x, (y, x))
            z = cls.f(t, x)
            return z

        @R.function(private=True)
        def f(
            t: R.Tuple(
                R.Tensor((4,), "float32"),
                R.Tuple(R.Tensor((4,), "float32"), R.Tensor((4,), "float32")),
            ),
            c: R.Tensor((4,), "float32"),
        ) -> R.Tensor((4,), "float32"):
            a = t[0]
            s = R.add(a, c)
            return s

    after = check_pass(
        expand_tuple_arguments, Before, expand_tuple_arguments(rl.find_pass("normalize")(Before))
    )
    assert [p.name for p in after["f"].params] == ["t_0", "t_1_0", "t_1_1", "c"]
    only = remove_unused_parameters(rl.find_pass("canonicalize")(after))
    assert [p.name for p in only["f"].params] == ["t_0", "c"]


def test_a_function_that_is_used_as_a_value_keeps_its_signature() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((4,), "float32")):
            cls = Before
            f = cls.f
            y = f(x, x)
            return y

        @R.function(private=True)
        def f(x: R.Tensor((4,), "float32"), y: R.Tensor((4,), "float32")) -> R.Tensor(
            (4,), "float32"
        ):
            return x

    check_pass(remove_unused_parameters, Before)


def test_weights_become_a_tuple() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(
            x: R.Tensor((2, 3), "float32"),
            a: R.Tensor((3, 4), "float32"),
            b: R.Tensor((4,), "float32"),
        ):
            R.func_attr({"num_input": 1})
            y = R.matmul(x, a)
            z = R.add(y, b)
            return z

    start = rl.find_pass("normalize")(Before)
    after = rl.find_pass("bundle_model_params")(start)
    x, weights = after["main"].params
    assert str(weights.ty) == "R.Tuple(R.Tensor((3, 4), 'float32'), R.Tensor((4,), 'float32'))"
    rng = np.random.default_rng(0)
    args = [rng.standard_normal(s, "float32") for s in ((2, 3), (3, 4), (4,))]
    np.testing.assert_array_equal(
        rl.interpret(after, "main", args[0], tuple(args[1:])), rl.interpret(start, "main", *args)
    )
