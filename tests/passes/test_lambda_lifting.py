"""Local functions become functions of the module."""

import random

import numpy as np
import pytest

from relaxlab.analysis.well_formed import check_well_formed
from relaxlab.ir import graph
from relaxlab.ir.node import replace, walk
from relaxlab.ir.substitute import substitute
from relaxlab.passes.base import Pipeline
from relaxlab.passes.bindings import map_blocks, vars_in, with_bindings
from relaxlab.passes.inline_functions import inline_functions
from relaxlab.passes.lambda_lifting import lambda_lifting
from relaxlab.passes.lower_shapes import lower_shapes
from relaxlab.passes.normalize import normalize
from relaxlab.passes.pipeline import GRAPH_PASSES, MEMORY_PASSES
from relaxlab.runtime.interpreter.interpreter import interpret
from relaxlab.runtime.vm.vm import VirtualMachine
from relaxlab.script import parse
from relaxlab.testing.pass_check import assert_same, check_module, compare_runs
from tests.passes.graph_programs import Programs

HEAD = """
@I.ir_module
class Module:
"""

CAPTURES = """
    @R.function
    def main(x: R.Tensor(("n", 4), "float32"), w: R.Tensor((4, 4), "float32")):
        e = R.exp(x)

        @R.function
        def inner(y: R.Tensor(("k", 4), "float32")):
            p = R.matmul(y, w)
            s = R.sum(e)
            return R.add(p, s)

        a = inner(x)
        b = inner(a)
        return b
"""

SYMBOLS = """
    @R.function
    def main(x: R.Tensor(("n",), "float32")):
        @R.function
        def inner(y: R.Tensor(("m",), "float32")):
            z = R.zeros(R.shape([n, 2]), "float32")
            s = R.sum(y)
            return R.add(z, s)

        e = R.exp(x)
        a = inner(e)
        return a
"""

NESTED = """
    @R.function
    def main(x: R.Tensor(("n",), "float32"), c: R.Tensor((), "bool")):
        @R.function
        def outer(y: R.Tensor(("n",), "float32")):
            @R.function
            def inner(z: R.Tensor(("n",), "float32")):
                return R.add(z, y)

            return inner(R.sin(y))

        if c:
            @R.function
            def local(y: R.Tensor(("n",), "float32")):
                return R.multiply(outer(y), x)

            r = local(x)
        else:
            r = outer(x)
        return r
"""

RECURSIVE = """
    @R.function
    def main(x: R.Tensor((3,), "float32"), i: R.Tensor((), "int64")):
        @R.function
        def again(
            y: R.Tensor((3,), "float32"), j: R.Tensor((), "int64")
        ) -> R.Tensor((3,), "float32"):
            done = R.less_equal(j, R.const(0, "int64"))
            if done:
                r = y
            else:
                k = R.subtract(j, R.const(1, "int64"))
                z = R.add(y, x)
                r = again(z, k)
            return r

        out = again(x, i)
        return out
"""


def module(text):
    return normalize(parse(HEAD + text))


def local_functions(mod):
    fns = mod.graph_functions().values()
    return [n for f in fns for n in walk(f.body) if isinstance(n, graph.Function)]


@pytest.mark.parametrize("text", [CAPTURES, SYMBOLS, NESTED], ids=["captures", "symbols", "nested"])
def test_local_functions_are_lifted(text):
    start = module(text)
    after = lambda_lifting(start)
    assert local_functions(start) and not local_functions(after)
    check_module(lambda_lifting, start, after)
    compare_runs(start, after, seed=3)
    program = Pipeline((*GRAPH_PASSES, *MEMORY_PASSES)).run(after).result
    vm = VirtualMachine(lower_shapes(program))
    shape = (5, 4) if text == CAPTURES else (5,)
    x = np.random.default_rng(0).uniform(-1, 1, shape).astype("float32")
    w = np.eye(4, dtype="float32") * 2
    args = (x, w) if text == CAPTURES else (x,) if text == SYMBOLS else (x, np.asarray(True))
    assert_same(vm.run("main", *args), interpret(start, "main", *args), "the result")


def test_captured_values_become_parameters():
    after = lambda_lifting(module(CAPTURES))
    fn = after["main_inner"]
    assert fn.private and [p.name for p in fn.params] == ["y", "w", "e", "symbols"]
    after = lambda_lifting(module(SYMBOLS))
    assert [str(p.ty) for p in after["main_inner"].params] == [
        "R.Tensor((m,), 'float32')",
        "R.Shape([n])",
    ]


def test_recursion():
    start = module(RECURSIVE)
    after = lambda_lifting(start)
    assert not local_functions(after) and not check_well_formed(after)
    x = np.arange(3, dtype="float32")
    for i in (0, 1, 4):
        args = (x, np.asarray(i, "int64"))
        assert_same(interpret(after, "main", *args), x * (i + 1), "the result")


VALUES = """
    @R.function
    def main(x: R.Tensor((4,), "float32")):
        @R.function
        def free(y: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            return R.exp(y)

        @R.function
        def bound(y: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            return R.add(y, x)

        a = R.invoke_pure_closure(free, (x,), sinfo_args=(R.Tensor((4,), "float32"),))
        t = (free, bound, a)
        return t
"""


def test_functions_that_are_values():
    start = module(VALUES)
    after = lambda_lifting(start)
    assert not check_well_formed(after) and not local_functions(after)
    assert after.script().count("R.make_closure") == 1  # `free` captures nothing
    x = np.ones(4, "float32")
    free, bound, a = interpret(after, "main", x)
    assert_same(free(x), np.exp(x), "free")
    assert_same(bound(x), x + x, "bound")
    assert_same(a, np.exp(x), "a")


HIGHER = """
    @R.function
    def twice(f: R.Object, x: R.Tensor(("n",), "float32")):
        y = R.invoke_pure_closure(f, (x,), sinfo_args=(R.Tensor((n,), "float32"),))
        z = R.invoke_pure_closure(f, (y,), sinfo_args=(R.Tensor((n,), "float32"),))
        return z

    @R.function
    def main(x: R.Tensor(("n",), "float32")):
        cls = Module
        e = R.exp(x)

        @R.function
        def shift(y: R.Tensor(("n",), "float32")) -> R.Tensor(("n",), "float32"):
            return R.add(R.sin(y), e)

        r = cls.twice(shift, x)
        return r
"""


def test_a_closure_runs_in_the_virtual_machine():
    start = module(HIGHER)
    after = lambda_lifting(start)
    assert not check_well_formed(after) and not local_functions(after)
    compare_runs(start, after)
    program = Pipeline((*GRAPH_PASSES, *MEMORY_PASSES)).run(after).result
    x = np.linspace(0, 1, 5, dtype="float32")
    got = VirtualMachine(lower_shapes(program)).run("main", x)
    assert_same(got, interpret(start, "main", x), "the result")


# --- Random programs --------------------------------------------------------------------------


def with_local_functions(mod, rng):
    """The program with some calls moved into local functions, which capture some of what they
    read and get the rest as arguments."""

    def block(blk):
        new = []
        for b in blk.bindings:
            reads = [v for v in dict.fromkeys(vars_in(b.value)) if v.ty is not None]
            plain = isinstance(b.value, graph.Call) and isinstance(b.value.op, graph.Op)
            if not plain or b.value.op.name == "call_tir_inplace" or rng.random() < 0.6:
                new.append(b)
                continue
            given = {v: graph.Var(v.name, v.ty) for v in reads if rng.random() < 0.5}
            result = graph.Var("r", b.var.ty)
            inner = (graph.VarBinding(substitute(b.value, values=given), result),)
            body = graph.SeqExpr((graph.BindingBlock(inner),), result)
            kind = type(b.var)
            f = kind(f"f_{b.var.name}")
            new.append(graph.VarBinding(graph.Function(tuple(given.values()), body), f))
            new.append(replace(b, value=graph.Call(f, tuple(given))))
        return with_bindings(blk, new)

    return normalize(mod.with_functions({"main": map_blocks(mod["main"], block)}))


@pytest.mark.parametrize("seed", range(20))
def test_random_programs_keep_their_meaning(seed):
    start = normalize(Programs(seed).module())
    local = with_local_functions(start, random.Random(seed))
    assert local_functions(local)
    after = lambda_lifting(local)
    assert not local_functions(after) and not check_well_formed(after)
    compare_runs(start, after, seed=seed, runs=2)
    back = inline_functions(after)
    assert not check_well_formed(back)
    assert sum(isinstance(n, graph.GlobalVar) for n in walk(back["main"])) < sum(
        isinstance(n, graph.GlobalVar) for n in walk(after["main"])
    )
    compare_runs(start, back, seed=seed, runs=2)


def test_bounds_of_captured_symbols_hold_in_the_lifted_function():
    before = parse(
        HEAD
        + """
    @R.function
    def main(x: R.Tensor(("n", "m"), "float32")):
        R.func_attr({"tir_var_upper_bound": {"n": 16}})

        @R.function
        def g(y: R.Tensor((n, "k"), "float32")):
            return R.add(y, y)

        return g(x)
"""
    )
    after = lambda_lifting(normalize(before))
    assert dict(after["main_g"].attrs["tir_var_upper_bound"]) == {"n": 16}


def test_results_of_local_functions_mention_symbols_around_them():
    start = module("""
    @R.function
    def main(x: R.Tensor(("n",), "float32")):
        @R.function
        def after(y: R.Tensor(("m",), "float32")):
            return R.concat((x, y), axis=0)

        a = after(x)
        b = after(a)
        return b
""")
    assert str(start["main"].ret_ty) == "R.Tensor((n * 3,), 'float32')"
    compare_runs(start, lambda_lifting(start))


def test_results_of_function_values_mention_known_symbols_only():
    start = module("""
    @R.function
    def main(f: R.Callable((R.Tensor(("n",), "float32"),), R.Tensor(("m",), "float32")),
             x: R.Tensor((4,), "float32")):
        y = f(x)
        return y
""")
    assert str(start["main"].ret_ty) == "R.Tensor(dtype='float32', ndim=1)"
