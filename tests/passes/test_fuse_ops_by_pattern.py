"""Grouping by patterns: groups, refusals, and that groups become kernels."""

import functools
import operator

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.passes.base import Pipeline
from relaxlab.passes.fuse_ops_by_pattern import FusionPattern, fuse_ops_by_pattern
from relaxlab.passes.lower_shapes import lower_shapes
from relaxlab.passes.normalize import normalize
from relaxlab.passes.patterns import is_call_tir, is_op, wildcard
from relaxlab.passes.pipeline import GRAPH_PASSES, MEMORY_PASSES, cpu_pipeline
from relaxlab.runtime.interpreter.interpreter import interpret
from relaxlab.runtime.vm.vm import VirtualMachine
from relaxlab.script import ir as I
from relaxlab.script import relax as R
from relaxlab.testing.pass_check import assert_same, check_pass, random_arguments, remarks_of
from tests.passes.graph_programs import BINARY, UNARY, Programs

X, W = wildcard(), wildcard()
DENSE = FusionPattern("dense_relu", is_op("nn.relu")(is_op("matmul")(X, W)))


def with_patterns(*patterns):
    return fuse_ops_by_pattern.with_options(patterns=patterns)


@I.ir_module
class Layers:
    @R.function
    def main(
        x: R.Tensor(("n", 4), "float32"),
        w: R.Tensor((4, 4), "float32"),
        v: R.Tensor((4, 4), "float32"),
    ):
        with R.dataflow():
            a = R.matmul(x, w)
            b = R.nn.relu(a)
            c = R.matmul(b, v)
            d = R.nn.relu(c)
            e = R.multiply(d, R.const(2.0, "float32"))
            R.output(e)
        return e


def test_equal_groups_share_a_function():
    @I.ir_module
    class Expected:
        @R.function
        def main(
            x: R.Tensor(("n", 4), "float32"),
            w: R.Tensor((4, 4), "float32"),
            v: R.Tensor((4, 4), "float32"),
        ):
            cls = Expected
            with R.dataflow():
                b = cls.fused_dense_relu(x, w)
                d = cls.fused_dense_relu(b, v)
                e = R.multiply(d, R.const(2.0, "float32"))
                R.output(e)
            return e

        @R.function(private=True)
        def fused_dense_relu(x: R.Tensor(("n", 4), "float32"), w: R.Tensor((4, 4), "float32")):
            R.func_attr({"Composite": "dense_relu"})
            with R.dataflow():
                a = R.matmul(x, w)
                b = R.nn.relu(a)
                R.output(b)
            return b

    check_pass(with_patterns(DENSE), Layers, Expected)
    check_pass(fuse_ops_by_pattern, Layers)


def test_a_group_becomes_one_kernel_that_runs():
    pipeline = cpu_pipeline().with_options("fuse_ops_by_pattern", patterns=(DENSE,))
    trace = pipeline.run(Layers)
    merged = trace.find("fuse_tir").after
    assert set(merged.loop_functions()) >= {"fused_dense_relu"}
    assert "is one kernel" in str(trace)
    exe = rl.compile(Layers, pipeline=pipeline)
    rng = np.random.default_rng(1)
    for n in (1, 5, 33):
        args = [rng.standard_normal(s, "float32") for s in ((n, 4), (4, 4), (4, 4))]
        assert_same(exe["main"](*args), interpret(Layers, "main", *args), "the result")


def test_symbols_that_no_argument_has_are_passed():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor(("2 * n",), "float32"), s: R.Shape(["n"])):
            with R.dataflow():
                a = R.exp(x)
                b = R.negative(a)
                c = R.sin(b)
                R.output(c)
            return c

    pattern = FusionPattern("minus", is_op("negative")(is_op("exp")(X)))
    after = with_patterns(pattern)(normalize(Before))
    fn = after["fused_minus"]
    assert [p.name for p in fn.params] == ["x", "symbols"]
    x = np.arange(6, dtype="float32")
    assert_same(interpret(after, "main", x, (3,)), np.sin(-np.exp(x)), "the result")


def test_the_refusals_and_their_reasons():
    @I.ir_module
    class Twice:
        @R.function
        def main(x: R.Tensor(("n", 4), "float32"), w: R.Tensor((4, 4), "float32")):
            with R.dataflow():
                a = R.matmul(x, w)
                b = R.nn.relu(a)
                c = R.add(a, b)
                e = R.exp(c)
                s = R.sin(e)
                R.output(s)
            return s

    one = FusionPattern("one", is_op("exp")(is_op("add")(...)))
    two = FusionPattern("two", is_op("sin")(is_op("exp")(X)))
    no = FusionPattern("no", is_op("sin"), lambda match: f"`{match.root.name}` is too small")
    never = FusionPattern("never", is_op("exp")(is_op("nn.relu")))
    start = normalize(Twice)
    assert remarks_of(with_patterns(DENSE, one, two, no, never), start) == [
        ("main.b", "dense_relu: `a` is read outside the group, too", False),
        ("main.e", "one: `c`, `e` become one function", True),
        ("main.s", "two: `e` is in a group already", False),
        ("main.s", "`s` is too small", False),
        (
            "never",
            "matched nothing; the nearest miss is `main.e`: `c` is a call of add, "
            'not is_op("nn.relu")',
            False,
        ),
    ]


def test_groups_of_loop_functions():
    """After legalize_ops the pattern is over calls of loop functions."""
    pattern = FusionPattern("tail", is_call_tir("multiply", [is_call_tir("relu")]))
    pipeline = (
        cpu_pipeline()
        .without("fuse_ops_by_pattern")
        .before("annotate_pattern_kind", with_patterns(pattern))
    )
    trace = pipeline.run(Layers)
    assert "fused_tail" in trace.find("fuse_tir").after.loop_functions()
    args = [np.random.default_rng(2).standard_normal((4, 4), "float32") for _ in range(3)]
    got = VirtualMachine(lower_shapes(trace.result)).run("main", *args)
    assert_same(got, interpret(Layers, "main", *args), "the result")


def any_of(names):
    return functools.reduce(operator.or_, map(is_op, names))


SIMPLE = any_of((*UNARY, *BINARY, "permute_dims", "flatten", "expand_dims", "concat", "take"))
RANDOM = (
    FusionPattern("reduced", any_of(("sum", "mean", "max", "min", "nn.softmax"))(SIMPLE)),
    FusionPattern("product", is_op("matmul")(X, W).has_rank(2)),
    FusionPattern("left", SIMPLE(SIMPLE, ...)),
    FusionPattern("right", SIMPLE(X, SIMPLE | wildcard())),
)


@pytest.mark.parametrize("seed", range(20))
def test_random_programs_keep_their_meaning(seed):
    mod = normalize(Programs(seed).module(16))
    passes = Pipeline((*GRAPH_PASSES, *MEMORY_PASSES))
    trace = passes.with_options("fuse_ops_by_pattern", patterns=RANDOM).run(mod)
    vm = VirtualMachine(lower_shapes(trace.result))
    record = trace.find("fuse_ops_by_pattern")
    assert any(w.applied for w in record.remarks)
    grouped = record.after
    rng = np.random.default_rng(seed)
    for _ in range(2):
        args = random_arguments(mod["main"], rng)
        want = interpret(mod, "main", *args)
        assert_same(interpret(grouped, "main", *args), want, f"seed {seed}", 1e-4)
        assert_same(vm.run("main", *args), want, f"seed {seed}", 1e-4)
