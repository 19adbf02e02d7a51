"""Bodies in place of calls."""

import numpy as np
import pytest

from relaxlab.analysis.well_formed import check_well_formed
from relaxlab.passes.inline_functions import inline_functions
from relaxlab.passes.normalize import normalize
from relaxlab.runtime.arrays import ExecutionError
from relaxlab.runtime.interpreter.interpreter import interpret
from relaxlab.script import ir as I
from relaxlab.script import relax as R
from relaxlab.script import tir as T
from relaxlab.testing.pass_check import assert_same, check_pass, compare_runs, remarks_of
from tests.passes.graph_programs import Programs


def test_callees_are_inlined_first_and_symbols_are_renamed():
    @I.ir_module
    class Before:
        @R.function(private=True)
        def twice(y: R.Tensor(("m",), "float32")) -> R.Tensor(("m",), "float32"):
            cls = Before
            z = cls.plus(y)
            w = cls.plus(z)
            return w

        @R.function(private=True)
        def plus(x: R.Tensor(("n",), "float32")) -> R.Tensor(("n",), "float32"):
            with R.dataflow():
                e = R.exp(x)
                a = R.add(x, e)
                R.output(a)
            return a

        @R.function
        def main(x: R.Tensor(("n",), "float32")):
            cls = Before
            y = R.concat((x, x))
            z = cls.twice(y)
            return z

    start = normalize(Before)
    after = inline_functions(start)
    assert not check_well_formed(after) and inline_functions(after) is after
    text = after.script()
    main = text[text.index("def main") :]
    assert main.count("R.exp") == 2 and "cls." not in main
    compare_runs(start, after)
    only = inline_functions.with_options(functions=("plus",))(start)
    main = only.script()[only.script().index("def main") :]
    assert "cls.twice" in main and "cls.plus" not in only.script()


def test_checks_of_the_callee_remain():
    @I.ir_module
    class Before:
        @R.function(private=True)
        def square(x: R.Tensor(("k", "k"), "float32")) -> R.Tensor(("k", "k"), "float32"):
            y = R.exp(x)
            return y

        @R.function
        def main(x: R.Tensor(("n", "m"), "float32"), c: R.Tensor(ndim=2, dtype="float32")):
            cls = Before
            y = cls.square(x)
            z = cls.square(c)
            return (y, z)

    start = normalize(Before)
    after = inline_functions(start)
    assert not check_well_formed(after)
    two, wide = np.ones((2, 2), "float32"), np.ones((2, 3), "float32")
    assert_same(interpret(after, "main", two, two), interpret(start, "main", two, two), "it")
    for args in ((wide, two), (two, wide)):
        for mod in (start, after):
            with pytest.raises(ExecutionError):
                interpret(mod, "main", *args)


def test_functions_not_inlined_and_reasons():
    @I.ir_module
    class Before:
        @T.prim_func
        def copy(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
            for i in range(4):
                with T.block("B"):
                    vi = T.axis.spatial(4, i)
                    B[vi] = A[vi]

        @R.function(private=True)
        def again(x: R.Tensor((4,), "float32"), c: R.Tensor((), "bool")) -> R.Tensor(
            (4,), "float32"
        ):
            cls = Before
            if c:
                z = R.exp(x)
                y = cls.again(z, c)
            else:
                y = R.sin(x)
            return y

        @R.function(private=True)
        def branch(x: R.Tensor((4,), "float32"), c: R.Tensor((), "bool")):
            if c:
                z = R.exp(x)
                y = R.add(x, z)
            else:
                y = R.sin(x)
            return y

        @R.function(private=True)
        def group(x: R.Tensor((4,), "float32")):
            R.func_attr({"Primitive": True})
            cls = Before
            y = R.call_tir(cls.copy, (x,), out_sinfo=R.Tensor((4,), "float32"))
            return y

        @R.function(private=True)
        def bounded(x: R.Tensor(("n",), "float32")):
            R.func_attr({"tir_var_upper_bound": {"n": 8}})
            y = R.exp(x)
            return y

        @R.function
        def main(x: R.Tensor((4,), "float32"), c: R.Tensor((), "bool")):
            cls = Before
            with R.dataflow():
                a = cls.branch(x, c)
                b = cls.group(a)
                d = cls.bounded(b)
                e = cls.again(d, c)
                R.output(e)
            f = cls.branch(e, c)
            return f

    start = normalize(Before)
    remarks = remarks_of(inline_functions, start)
    assert ("again.y: again", "it calls itself", False) in [
        (s.replace("y_1", "y").replace("result", "y"), r, a) for s, r, a in remarks
    ]
    assert [n for n in remarks if n[0].startswith("main")] == [
        ("main.a: branch", "it branches, which a dataflow block cannot", False),
        ("main.b: group", "it is a group that becomes a kernel", False),
        ("main.d: bounded", "it declares upper bounds, which are checked when it is called", False),
        ("main.e: again", "it branches, which a dataflow block cannot", False),
        ("main.f: branch", "inlined", True),
    ]
    after = inline_functions(start)
    assert not check_well_formed(after)
    args = (np.ones(4, "float32"), np.asarray(False))
    assert_same(interpret(after, "main", *args), interpret(start, "main", *args), "the result")


def test_an_unknown_name_is_refused():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((4,), "float32")):
            y = R.exp(x)
            return y

    with pytest.raises(ValueError, match="no graph function `fn`; the module has: main"):
        inline_functions.with_options(functions=("fn",))(normalize(Before))
    check_pass(inline_functions, Before)


@pytest.mark.parametrize("seed", range(20))
def test_random_programs_keep_their_meaning(seed):
    start = normalize(Programs(seed).module(16))
    after = inline_functions.with_options(functions=("half",))(start)
    assert not check_well_formed(after)
    compare_runs(start, after, seed=seed, runs=2)
