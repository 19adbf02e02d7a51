"""Matrix products by BLAS: which are taken, which are not and why, and that the values are right
in the interpreter, the virtual machine and native code."""

import numpy as np
import pytest

import relaxlab as rl
from relaxlab import ops
from relaxlab.ir import expr, graph, types
from relaxlab.ir.module import Module
from relaxlab.passes.adjust_matmul_order import adjust_matmul_order
from relaxlab.passes.base import Pipeline
from relaxlab.passes.combine_parallel_matmul import combine_parallel_matmul
from relaxlab.passes.expand_matmul_of_sum import expand_matmul_of_sum
from relaxlab.passes.fuse_ops_by_pattern import FusionPattern
from relaxlab.passes.inline_functions import inline_functions
from relaxlab.passes.lambda_lifting import lambda_lifting
from relaxlab.passes.libraries import library_call, register_library
from relaxlab.passes.lower_shapes import lower_shapes
from relaxlab.passes.lower_to_libraries import BLAS, lower_to_libraries
from relaxlab.passes.normalize import normalize
from relaxlab.passes.patterns import is_op, wildcard
from relaxlab.passes.pipeline import cpu_pipeline
from relaxlab.runtime.interpreter.interpreter import interpret
from relaxlab.runtime.vm.vm import VirtualMachine
from relaxlab.script import ir as I
from relaxlab.script import relax as R
from relaxlab.script import tir as T
from relaxlab.testing.pass_check import assert_same, check_pass, copy_value, random_arguments
from tests.passes.graph_programs import Programs
from tests.passes.matmul_programs import matmul_program

pytest.importorskip("scipy_openblas64")
WITH_BLAS = lower_to_libraries.with_options(use=BLAS)
PIPELINE = cpu_pipeline().with_options("lower_to_libraries", use=BLAS)


def library_calls(mod):
    return mod.script().count('call_dps_packed("relaxlab.blas')


def test_products_with_and_without_bias_become_calls():
    @I.ir_module
    class Before:
        @R.function
        def main(
            x: R.Tensor(("n", 4), "float32"),
            w: R.Tensor((8, 4), "float32"),
            b: R.Tensor((8,), "float32"),
        ):
            with R.dataflow():
                wt = R.permute_dims(w)
                y = R.matmul(x, wt)
                z = R.add(b, y)
                r = R.nn.relu(z)
                u = R.linear(x, w)
                out = R.add(r, u)
                R.output(out)
            return out

    @I.ir_module
    class Expected:
        @R.function
        def main(
            x: R.Tensor(("n", 4), "float32"),
            w: R.Tensor((8, 4), "float32"),
            b: R.Tensor((8,), "float32"),
        ):
            n = T.int64()
            with R.dataflow():
                z = R.call_dps_packed(
                    "relaxlab.blas.matmul_bias",
                    (x, w, b, R.prim_value(0), R.prim_value(1)),
                    out_sinfo=R.Tensor((n, 8), "float32"),
                )
                r = R.nn.relu(z)
                u = R.call_dps_packed(
                    "relaxlab.blas.matmul",
                    (x, w, R.prim_value(0), R.prim_value(1)),
                    out_sinfo=R.Tensor((n, 8), "float32"),
                )
                out = R.add(r, u)
                R.output(out)
            return out

    check_pass(WITH_BLAS, Before, Expected)
    check_pass(lower_to_libraries, Before)  # nothing is on


# --- Values -----------------------------------------------------------------------------------


def case(make, *params):
    """A module whose main is `make(*params)`, types given as (shape, dtype)."""
    symbols = {}

    def dim(d):
        return symbols.setdefault(d, expr.Var(d)) if isinstance(d, str) else expr.const(d)

    given = [
        graph.Var(f"p{i}", types.TensorType(tuple(map(dim, shape)), dtype))
        for i, (shape, dtype) in enumerate(params)
    ]
    result = graph.Var("result")
    block = graph.BindingBlock((graph.VarBinding(make(*given), result),))
    fn = graph.Function(tuple(given), graph.SeqExpr((block,), result))
    return normalize(Module.of({"main": fn}))


def swapped(x):
    ndim = x.ty.ndim
    return ops.permute_dims(x, axes=[*range(ndim - 2), ndim - 1, ndim - 2])


F, D = "float32", "float64"
PRODUCTS = {
    "plain": (ops.matmul, (("m", "k"), F), (("k", "n"), F)),
    "double": (ops.matmul, (("m", "k"), D), (("k", "n"), D)),
    "a_swapped": (lambda a, b: ops.matmul(swapped(a), b), (("k", "m"), F), (("k", "n"), F)),
    "b_swapped": (lambda a, b: ops.matmul(a, swapped(b)), (("m", "k"), D), (("n", "k"), D)),
    "both": (lambda a, b: ops.matmul(swapped(a), swapped(b)), (("k", "m"), F), (("n", "k"), F)),
    "linear": (ops.linear, (("b", "m", "k"), F), (("n", "k"), F)),
    "linear_bias": (ops.linear, (("m", "k"), F), (("n", "k"), F), (("n",), F)),
    "bias": (
        lambda a, b, c: ops.add(ops.matmul(a, b), c),
        (("b", "m", "k"), F), (("k", "n"), F), (("n",), F),
    ),
    "bias_a_swapped": (
        lambda a, b, c: ops.add(c, ops.matmul(swapped(a), b)),
        (("b", "k", "m"), D), (("k", "n"), D), (("n",), D),
    ),
    "batched": (ops.matmul, (("b", "h", "m", "k"), F), (("b", "h", "k", "n"), F)),
    "batched_swapped": (
        lambda a, b: ops.matmul(swapped(a), swapped(b)),
        (("b", "k", "m"), F), (("b", "n", "k"), F),
    ),
    "one_left": (ops.matmul, (("m", "k"), F), (("b", "k", "n"), F)),
    "static": (ops.matmul, ((33, 17), F), ((17, 65), F)),
}  # fmt: skip
SIZES = (0, 1, 2, 3, 17, 33, 64, 130)


@pytest.mark.parametrize("name", PRODUCTS)
def test_blas_computes_what_the_operators_mean(name):
    mod = case(*PRODUCTS[name])
    lowered = PIPELINE.run(mod).passes
    after = next(r for r in lowered if r.name == "lower_to_libraries").after
    assert library_calls(after) == 1, after.script()
    exe = rl.compile(mod, pipeline=PIPELINE, threads=2)
    vm = VirtualMachine(lower_shapes(lowered[-1].after))
    rng = np.random.default_rng(len(name))
    fn = mod["main"]
    for _ in range(12):
        args = random_arguments(fn, rng, SIZES if name != "batched" else SIZES[:5])
        want = interpret(mod, "main", *args)
        assert_same(interpret(after, "main", *args), want, "the interpreter", 1e-4)
        assert_same(vm.run("main", *args), want, "the virtual machine", 1e-4)
        for threads in (1, 2, 3):
            exe.threads = threads
            assert_same(exe["main"](*args), want, f"{threads} threads", 1e-4)


def test_numpy_agrees_on_a_large_product():
    mod = case(lambda a, b, c: ops.add(ops.matmul(a, b), c), (("m", 300), F), ((300, 200), F),
               ((200,), F))  # fmt: skip
    exe = rl.compile(mod, pipeline=PIPELINE)
    rng = np.random.default_rng(7)
    b, c = rng.standard_normal((300, 200), F), rng.standard_normal(200, F)
    for m in (1, 5, 400):
        a = rng.standard_normal((m, 300), F)
        np.testing.assert_allclose(exe["main"](a, b, c), a @ b + c, 1e-4, 1e-4)


@pytest.mark.parametrize("seed", range(12))
def test_random_programs_keep_their_meaning(seed):
    mod = matmul_program(seed)
    trace = PIPELINE.run(mod)
    assert library_calls(trace.find("lower_to_libraries").after)
    vm = VirtualMachine(lower_shapes(trace.result))
    rng = np.random.default_rng(seed)
    for _ in range(2):
        args = random_arguments(mod["main"], rng, (1, 2, 3, 8))
        want, got = interpret(mod, "main", *args), vm.run("main", *args)
        for g, w in zip(got, want, strict=True):
            scale = max(1.0, float(np.abs(w).max(initial=0)))
            assert_same(g / scale, w / scale, f"seed {seed}", 1e-4)


@pytest.mark.parametrize("seed", range(3))
def test_native_code_with_everything_switched_on(seed):
    graph_passes = (lambda_lifting, inline_functions, expand_matmul_of_sum)
    graph_passes = (*graph_passes, adjust_matmul_order, combine_parallel_matmul)
    fusion = FusionPattern("two_step", is_op("add")(is_op("exp") | is_op("matmul"), ...))
    pipeline = PIPELINE.before("fuse_ops_by_pattern", *graph_passes)
    pipeline = pipeline.with_options("fuse_ops_by_pattern", patterns=(fusion,))
    for mod in (normalize(Programs(seed).module(16)), matmul_program(seed)):
        exe = rl.compile(mod, pipeline=pipeline, threads=2)
        rng = np.random.default_rng(seed)
        for _ in range(3):
            args = random_arguments(mod["main"], rng, (1, 2, 3, 8))
            want = interpret(mod, "main", *copy_value(args))
            for g, w in zip(exe["main"](*args), want, strict=True):
                scale = max(1.0, float(np.abs(w).max(initial=0)))
                assert_same(g / scale, w / scale, f"seed {seed}", 1e-3)


# --- Decisions --------------------------------------------------------------------------------


def decisions(mod, use=BLAS):
    (record,) = Pipeline((lower_to_libraries.with_options(use=use),)).run(mod).passes
    return [(w.rule.rpartition(" ")[2], w.subject, w.reason) for w in record.remarks
            if w.subject.startswith("main.")]  # fmt: skip


def plus_bias(a, b, c):
    return ops.add(ops.matmul(a, b), c)


REFUSED = [
    ("half", (ops.matmul, ((2, 3), "float16"), ((3, 4), "float16")),
     "BLAS multiplies float32 or float64 alone, not float16"),
    ("vector", (ops.matmul, ((3,), F), ((3, 4), F)), "an operand is a vector"),
    ("broadcast", (ops.matmul, ((2, 1, 3, 4), F), ((5, 4, 6), F)),
     "the batch dimensions of an operand are broadcast"),
    ("wide_bias", (plus_bias, ((3, 4), F), ((4, 5), F), ((1,), F)),
     "the bias of type R.Tensor((1,), 'float32') is not one row of the product"),
]  # fmt: skip


@pytest.mark.parametrize("program, reason", [r[1:] for r in REFUSED], ids=[r[0] for r in REFUSED])
def test_products_that_blas_cannot_compute_stay(program, reason):
    assert reason in [r for _, _, r in decisions(case(*program))]


def test_a_product_that_is_read_elsewhere_is_not_merged_with_its_bias():
    @I.ir_module
    class Twice:
        @R.function
        def main(
            a: R.Tensor((3, 4), "float32"),
            b: R.Tensor((4, 5), "float32"),
            c: R.Tensor((5,), "float32"),
        ):
            y = R.matmul(a, b)
            z = R.add(y, c)
            return (y, z)

    assert decisions(normalize(Twice)) == [
        ("blas.matmul_bias", "main.z", "the product `y` is read elsewhere, too"),
        ("blas.matmul", "main.y", "matched: now a call of relaxlab.blas.matmul"),
    ]


def test_each_pattern_is_switched_on_by_name():
    mod = case(*PRODUCTS["bias"])
    only = lower_to_libraries.with_options(use=("blas.matmul",))
    assert 'relaxlab.blas.matmul"' in only(mod).script() and "R.add" in only(mod).script()
    assert lower_to_libraries.with_options(use=("blas.batch_matmul",))(mod) is mod
    with pytest.raises(KeyError, match=r"no library pattern 'mkl'; known: blas.matmul_bias"):
        lower_to_libraries.with_options(use=("mkl",))(mod)


def test_a_users_library_takes_part():
    x = wildcard()
    pattern = is_op("nn.relu")(is_op("negative")(x))
    register_library(
        "test.below",
        pattern,
        lambda call, match: library_call("test.below", (match[x],), match.root.ty),
    )
    rl.register_func("test.below", lambda a, out: np.maximum(-a, 0, out=out))
    mod = case(lambda a: ops.exp(ops.nn.relu(ops.negative(ops.sin(a)))), (("n", 5), F))
    pipeline = cpu_pipeline().with_options("lower_to_libraries", use=("test.below",))
    trace = pipeline.run(mod)
    assert "test.below" in trace.result.script()
    a = np.random.default_rng(0).standard_normal((7, 5), F)
    got = rl.compile(mod, pipeline=pipeline)["main"](a)
    np.testing.assert_allclose(got, np.exp(np.maximum(-np.sin(a), 0)), 1e-5)
    with pytest.raises(ValueError, match="registered already"):
        register_library("test.below", pattern, lambda call, match: "no")


def test_the_error_without_the_wheel_names_it(monkeypatch):
    from relaxlab.runtime import blas

    def missing(name):
        raise ModuleNotFoundError(name)

    monkeypatch.setattr(blas, "import_module", missing)
    with pytest.raises(blas.BlasNotFound, match=r"pip install 'relaxlab\[blas\]'"):
        blas.blas_path()


def test_blas_itself_uses_one_thread():
    """Its share is what each thread of the program's team computes."""
    from relaxlab.runtime.blas import BLAS
    from relaxlab.runtime.c_libraries import load_library

    assert load_library(BLAS).scipy_openblas_get_num_threads64_() == 1
