"""Lowered programs on the virtual machine against the interpreter, and their checks."""

import re

import numpy as np
import pytest

from relaxlab.analysis.evaluate import evaluate
from relaxlab.ir import host
from relaxlab.passes.base import Pipeline
from relaxlab.passes.lower_shapes import lower_shapes
from relaxlab.passes.pipeline import GRAPH_PASSES, MEMORY_PASSES
from relaxlab.runtime.arrays import ExecutionError
from relaxlab.runtime.interpreter.interpreter import interpret
from relaxlab.runtime.packed import register_func
from relaxlab.runtime.vm.vm import VirtualMachine
from relaxlab.script import ir as I
from relaxlab.script import relax as R
from relaxlab.script import tir as T
from relaxlab.testing.pass_check import assert_same, copy_value

PASSES = Pipeline((*GRAPH_PASSES, *MEMORY_PASSES))


def lowered(mod):
    return lower_shapes(PASSES.run(mod).result)


def same(mod, *args, name="main"):
    """Run both; the results and what was written to the arguments must agree."""
    theirs = copy_value(args)
    want = interpret(mod, name, *args)
    got = VirtualMachine(lowered(mod)).run(name, *theirs)
    assert_same(got, want, "the result")
    assert_same(theirs, args, "the arguments")
    return got


def floats(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype("float32")


@I.ir_module
class Simple:
    @R.function
    def main(x: R.Tensor(("n", 4), "float32"), y: R.Tensor(("n",), "float32")):
        R.func_attr({"tir_var_upper_bound": {"n": 8}})
        n = T.int64()
        a = R.sum(x, axis=1)
        b = R.add(a, y)
        c = R.reshape(b, R.shape([n, 1]))
        return c


def test_instructions_of_a_simple_function():
    same(Simple, floats(3, 4), floats(3))
    fn = lowered(Simple).functions["main"]
    kinds = [type(i).__name__ for i in fn.instrs]
    assert kinds[:3] == ["MatchShape", "MatchShape", "Require"]
    assert kinds.count("CallKernel") == 1 and "View" in kinds
    assert [s.name for s in fn.symbols] == ["n"]
    assert fn.written == frozenset()


@pytest.mark.parametrize(
    "args, message",
    [
        ((floats(3, 4), floats(4)), "dimension 0 of parameter `y` of `main` is 4, expected n = 3 "
         "(n is dimension 0 of parameter `x` of `main`)"),
        ((floats(3, 5), floats(3)), "dimension 1 of parameter `x` of `main` is 5, expected 4"),
        ((floats(3), floats(3)), "parameter `x` of `main` has 1 dimensions, expected 2"),
        ((floats(3, 4).astype("float64"), floats(3)), "has dtype float64, expected float32"),
        ((floats(9, 4), floats(9)), "may be at most 8 (it is 9)"),
        ((floats(3, 4),), "takes 2 arguments, got 1"),
        ((floats(4, 3).T, floats(3)), "is not contiguous"),
        ((None, floats(3)), "must be an array, got None"),
    ],
)  # fmt: skip
def test_arguments_are_checked(args, message):
    with pytest.raises(ExecutionError, match=re.escape(message)):
        VirtualMachine(lowered(Simple)).run("main", *args)


def test_compound_dimensions_are_solved():
    @I.ir_module
    class Odd:
        @R.function
        def main(x: R.Tensor(("n * 2 + 1",), "float32")):
            a = R.exp(x)
            return a

    same(Odd, floats(7))
    with pytest.raises(ExecutionError, match=re.escape("is 6, expected n * 2 + 1 = 5")):
        VirtualMachine(lowered(Odd)).run("main", floats(6))


def test_data_dependent_shapes():
    """The paper's Figure 3."""

    @I.ir_module
    class Mod:
        @R.function
        def main(x: R.Tensor(("n", 2, 2), "float32")):
            n, m = T.int64(), T.int64()
            with R.dataflow():
                a = R.reshape(x, R.shape([n, 4]))
                b = R.flatten(a)
                c = R.unique(b)
                d = R.match_cast(c, R.Tensor((m,), "float32"))
                e = R.exp(d)
                R.output(e)
            return e

    x = np.array([[[1, 2], [2, 1]], [[3, 1], [1, 1]]], "float32")
    assert same(Mod, x).shape == (3,)


def test_functions_call_functions():
    """The paper's Figure 7: called directly, through a value, and with a coarse argument."""

    @I.ir_module
    class Mod:
        @R.function
        def fill(s: R.Shape(["n", "m"])) -> R.Tensor(("n * m",), "float32"):
            n, m = T.int64(), T.int64()
            a = R.ones(R.shape([n * m]), "float32")
            return a

        @R.function
        def main(x: R.Tensor(("n", 3), "float32"), s: R.Shape(ndim=2)):
            n = T.int64()
            cls = Mod
            a = cls.fill(R.shape([n, 3]))
            b = cls.fill(R.shape([4, 2]))
            f = cls.fill
            c = f(R.shape([n, n]))
            d = cls.fill(s)
            return (a, b, c, d)

    same(Mod, floats(2, 3), (5, 2))


def test_functions_as_arguments():
    @I.ir_module
    class Mod:
        @R.function
        def double(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            y = R.add(x, x)
            return y

        @R.function
        def twice(
            f: R.Callable((R.Tensor((4,), "float32"),), R.Tensor((4,), "float32")),
            x: R.Tensor((4,), "float32"),
        ) -> R.Tensor((4,), "float32"):
            y = f(x)
            z = f(y)
            return z

        @R.function
        def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            cls = Mod
            y = cls.twice(cls.double, x)
            return y

    same(Mod, floats(4))


@pytest.mark.parametrize("flag", [True, False])
def test_branches(flag):
    @I.ir_module
    class Mod:
        @R.function
        def main(x: R.Tensor(("n",), "float32"), c: R.Tensor((), "bool")):
            e = R.exp(x)
            if c:
                a = R.add(e, e)
                b = R.multiply(a, x)
                r = R.add(b, a)
            else:
                d = R.sin(x)
                r = R.add(d, e)
            z = R.add(r, e)
            return z

    same(Mod, floats(5), np.array(flag))


@pytest.mark.parametrize("flag", [True, False])
def test_branches_of_different_length(flag):
    @I.ir_module
    class Mod:
        @R.function
        def main(x: R.Tensor(("n",), "float32"), c: R.Tensor((), "bool")):
            if c:  # noqa: SIM108
                r = R.concat((x, x))
            else:
                r = x
            m = T.int64()
            y = R.match_cast(r, R.Tensor((m,), "float32"))
            z = R.exp(y)
            return z

    same(Mod, floats(5), np.array(flag))


def test_tuples_go_in_and_out():
    @I.ir_module
    class Mod:
        @R.function
        def swap(
            t: R.Tuple(R.Tensor(("n",), "float32"), R.Tensor(("m",), "float32")),
        ) -> R.Tuple(R.Tensor(("m",), "float32"), R.Tensor(("n",), "float32")):
            a = t[0]
            b = R.exp(t[1])
            return (b, a)

        @R.function
        def main(
            t: R.Tuple(R.Tensor(("n",), "float32"), R.Tensor(("m",), "float32")),
            u: R.Tuple(R.Tuple(R.Tensor(("n",), "float32")), R.Shape(["m"])),
        ):
            cls = Mod
            a = cls.swap(t)
            b = cls.swap((a[1], a[0]))
            c = u[0][0]
            return (a, b, (c,))

    same(Mod, (floats(2), floats(3)), ((floats(2),), (3,)))
    with pytest.raises(ExecutionError, match="parameter `t` of `main` must be a tuple of 2 values"):
        VirtualMachine(lowered(Mod)).run("main", (floats(2),), ((floats(2),), (3,)))
    message = re.escape("dimension 0 of parameter `u[1]` of `main` is 4, expected m = 3 "
                        "(m is dimension 0 of parameter `t[1]` of `main`)")  # fmt: skip
    with pytest.raises(ExecutionError, match=message):
        VirtualMachine(lowered(Mod)).run("main", (floats(2), floats(3)), ((floats(2),), (4,)))


def test_scalars_and_shapes():
    @I.ir_module
    class Mod:
        @R.function
        def main(x: R.Tensor(("n",), "float32"), k: R.Prim(value="k")):
            n, k_ = T.int64(), T.int64()
            s = R.shape([n, n * 2])
            return s

    same(Mod, floats(3), 5)


def test_a_lying_result_is_checked():
    @I.ir_module
    class Mod:
        @R.function
        def main(x: R.Tensor(("n",), "float32"), s: R.Shape(["m"])) -> R.Tensor(("m",), "float32"):
            m = T.int64()
            a = R.exp(x)
            b = R.match_cast(a, R.Tensor((m,), "float32"))
            return b

    same(Mod, floats(3), (3,))
    with pytest.raises(ExecutionError, match="is 3, expected m = 4"):
        VirtualMachine(lowered(Mod)).run("main", floats(3), (4,))


def test_registered_functions():
    register_func("test.twice", lambda x, k: x * np.float32(k))
    register_func("test.fill", lambda x, out: out.__setitem__(Ellipsis, x.sum()))
    register_func("test.pair", lambda x: (x, x.shape))

    @I.ir_module
    class Mod:
        @R.function(pure=False)
        def main(x: R.Tensor(("n",), "float32")):
            n = T.int64()
            a = R.call_pure_packed(
                "test.twice", x, R.prim_value(n + 1), sinfo_args=(R.Tensor((n,), "float32"),)
            )
            b = R.call_dps_packed("test.fill", (a,), out_sinfo=R.Tensor((n, 2), "float32"))
            c = R.call_packed(
                "test.pair", b, sinfo_args=(R.Tuple(R.Tensor((n, 2), "float32"), R.Shape([n, 2])),)
            )
            d = R.exp(c[0])
            return (d, c[1])

    same(Mod, floats(3))

    register_func("test.twice", lambda x, k: x[:1], override=True)
    with pytest.raises(ExecutionError, match="the result `a` of `test.twice` in `main` is 1"):
        VirtualMachine(lowered(Mod)).run("main", floats(3))


def test_the_arena_is_described():
    fn = lowered(Simple).functions["main"]
    assert fn.storages() and all(evaluate(s.size, {}) > 0 for s in fn.storages())


def test_updates_in_place_go_through_calls():
    @I.ir_module
    class Mod:
        @T.prim_func
        def bump(A: T.Buffer(("n",), "float32")):
            n = T.int64()
            for i in range(n):
                with T.block("A"):
                    vi = T.axis.spatial(n, i)
                    A[vi] = A[vi] + T.float32(1)

        @R.function
        def step(cache: R.Tensor(("n",), "float32")) -> R.Tensor(("n",), "float32"):
            n = T.int64()
            cls = Mod
            view = R.reshape(cache, R.shape([n]))
            new = R.call_tir_inplace(
                cls.bump, (view,), out_sinfo=R.Tensor((n,), "float32"), inplace_indices=[0]
            )
            return new

        @R.function
        def main(t: R.Tuple(R.Tensor(("n",), "float32")), x: R.Tensor(("n",), "float32")):
            cls = Mod
            a = cls.step(t[0])
            b = R.add(a, x)
            return b

    same(Mod, (floats(3),), floats(3))
    fn = lowered(Mod).functions["main"]
    assert fn.written == frozenset(host.leaves(fn.params[0].value))
    frozen = floats(3)
    frozen.flags.writeable = False
    with pytest.raises(ExecutionError, match="`t\\[0\\]` of `main` is updated in place"):
        VirtualMachine(lowered(Mod)).run("main", (frozen,), floats(3))
