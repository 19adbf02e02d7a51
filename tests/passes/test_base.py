from dataclasses import dataclass

import numpy as np
import pytest

from relaxlab.ir import expr, graph, types
from relaxlab.ir.diagnostics import Diagnostic, DiagnosticError
from relaxlab.ir.errors import NestedTooDeeply
from relaxlab.ir.module import Module
from relaxlab.ir.node import replace
from relaxlab.passes.annotate_pattern_kind import annotate_pattern_kind
from relaxlab.passes.base import (
    NoOptions,
    PassFailed,
    Pipeline,
    PipelineError,
    find_pass,
    module_pass,
)
from relaxlab.passes.bind_params import bind_params
from relaxlab.passes.expand_calls import expand_calls
from relaxlab.passes.fuse_ops import fuse_ops
from relaxlab.passes.legalize_ops import legalize_ops
from relaxlab.passes.normalize import normalize
from relaxlab.passes.patterns import is_const, is_op, rewrite_call, wildcard
from relaxlab.passes.pipeline import cpu_pipeline
from relaxlab.passes.plan_memory import plan_memory
from relaxlab.runtime.build import compile as build
from relaxlab.script import ir as I
from relaxlab.script import relax as R
from relaxlab.tracing import remark


@dataclass(frozen=True, slots=True)
class Options:
    amount: int = 1


@module_pass("test_rename", Options)
def rename(mod: Module, options: Options) -> Module:
    remark("test_rename", "main", f"by {options.amount}")
    return mod.with_functions({f"main{options.amount}": mod["main"]})


@module_pass("test_nothing")
def nothing(mod: Module, _: NoOptions) -> Module:
    return mod


@I.ir_module
class Mod:
    @R.function
    def main(x: R.Tensor((4,), "float32")):
        return x


def test_a_trace_tells_what_ran():
    trace = Pipeline((nothing, rename, rename.with_options(amount=2))).run(Mod)
    assert [(r.name, r.changed, dict(r.options)) for r in trace.passes] == [
        ("test_nothing", False, {}),
        ("test_rename", True, {"amount": 1}),
        ("test_rename", True, {"amount": 2}),
    ]
    assert set(trace.result) == {"main", "main1", "main2"}
    assert trace.find("test_rename").remarks[0].reason == "by 1"
    assert "test_rename" in str(trace) and "by 2" in str(trace)


@pytest.mark.parametrize("kind", [list, tuple, iter])
def test_passes_come_from_any_iterable(kind):
    pipeline = Pipeline(kind([rename, nothing]))
    assert pipeline.passes == (rename, nothing)
    assert set(pipeline.run(Mod).result) == {"main", "main1"}


def test_passes_are_found_by_name():
    assert find_pass("fuse_ops") is fuse_ops
    with pytest.raises(KeyError, match="unknown pass 'fuse'; known: .*fuse_ops"):
        find_pass("fuse")


def test_unknown_options_are_named():
    message = "'fuse_ops' has no option 'size'; it has: target, max_group"
    with pytest.raises(TypeError, match=message):
        fuse_ops.with_options(size=3)


def test_a_check_stops_the_pipeline_with_the_trace():
    def check(mod):
        return [Diagnostic("E9999", "too many functions")] if len(mod) > 1 else []

    with pytest.raises(PassFailed, match="pass 'test_rename' failed.*") as error:
        Pipeline((nothing, rename, nothing), check).run(Mod)
    assert [r.name for r in error.value.trace.passes] == ["test_nothing", "test_rename"]
    assert "too many functions" in error.value.trace.passes[-1].error


def test_two_files_cannot_share_a_name():
    with pytest.raises(ValueError, match="'fuse_ops' is one of relaxlab.passes.fuse_ops"):
        module_pass("fuse_ops")(lambda mod, options: mod)


# --- Pipelines as lists -----------------------------------------------------------------------


def test_a_pipeline_prints_its_passes_and_options():
    text = str(Pipeline((normalize, rename.with_options(amount=3), rename)))
    assert text.splitlines() == [
        "  1 normalize",
        "  2 test_rename(amount=3)",
        "  3 test_rename",
    ]


def test_options_may_print_themselves():
    weights = bind_params.with_options(params={"w": np.zeros((1000, 1000))})
    swap = rewrite_call(is_op("add")(wildcard(), is_const(0.0)), lambda call, m: None, "no_zero")
    assert str(Pipeline((weights, swap), None)).splitlines() == [
        "  1 bind_params(main: w)",
        '  2 no_zero(is_op("add")(wildcard(), is_const(0.0)))',
    ]


def test_a_pipeline_is_edited_by_name():
    start = Pipeline((nothing, rename, nothing))
    assert names_of(start.before("test_nothing", rename)) == "rename nothing rename nothing"
    assert names_of(start.after("test_nothing", rename)) == "nothing rename nothing rename"
    assert names_of(start.without("test_nothing")) == "rename"
    changed = start.with_options("test_rename", amount=5)
    assert changed.passes[1].options.amount == 5 and start.passes[1].options.amount == 1
    with pytest.raises(KeyError, match="no pass 'fuse'; it has: test_nothing, test_rename"):
        start.without("fuse")


def names_of(pipeline):
    return " ".join(p.name.removeprefix("test_") for p in pipeline.passes)


def test_impossible_orders_are_refused_with_the_way_out():
    with pytest.raises(PipelineError) as error:
        Pipeline((legalize_ops, expand_calls, normalize, fuse_ops, plan_memory))
    assert str(error.value).splitlines()[1:] == [
        "  `legalize_ops` (pass 1) needs `normalize` before it, which is pass 3: swap them",
        "  `expand_calls` (pass 2) needs `normalize` before it, which is pass 3: swap them",
        "  `fuse_ops` (pass 4) needs `annotate_pattern_kind` before it, which is missing: add it",
        "  `fuse_ops` (pass 4) comes after `expand_calls` (pass 2), which leaves nothing for it: "
        "move it to the front",
    ]
    with pytest.raises(PipelineError, match="needs `expand_calls` before it, which is missing"):
        cpu_pipeline().without("expand_calls")


def test_attributes_for_scheduling_and_fusion():
    with pytest.raises(PipelineError, match="`fuse_ops` .* needs `annotate_pattern_kind`"):
        cpu_pipeline().without("annotate_pattern_kind")
    with pytest.raises(PipelineError, match="`rewrite_layouts` .* needs `schedule_kernels`"):
        cpu_pipeline().without("schedule_kernels")
    with pytest.raises(PipelineError, match="annotate_pattern_kind.*, which is pass 2: swap them"):
        Pipeline((fuse_ops, annotate_pattern_kind))


def test_a_pipeline_may_continue_where_another_stopped():
    Pipeline((plan_memory,))
    Pipeline((legalize_ops, fuse_ops))


@module_pass("test_raises")
def raises(mod: Module, _: NoOptions) -> Module:
    remark("test_raises", "main", "tried", applied=False)
    raise DiagnosticError([Diagnostic("E0599", "cannot be done")])


def test_an_attempt_keeps_what_ran_before_a_failure():
    pipeline = Pipeline((rename, raises, nothing))
    trace, error = pipeline.attempt(Mod)
    assert isinstance(error, DiagnosticError)
    assert [(r.name, r.error is None) for r in trace.passes] == [
        ("test_rename", True),
        ("test_raises", False),
    ]
    assert "cannot be done" in (trace.passes[-1].error or "")
    assert [w.reason for w in trace.passes[-1].remarks] == ["tried"]
    assert trace.passes[-1].before is trace.passes[0].after
    with pytest.raises(DiagnosticError) as info:
        pipeline.run(Mod)
    assert info.value.diagnostics == error.diagnostics


def test_an_attempt_that_succeeds_has_no_error():
    trace, error = Pipeline((rename, nothing)).attempt(Mod)
    assert error is None and len(trace.passes) == 2


def test_a_program_nested_too_deeply_is_refused_with_a_way_out():
    x = graph.Var("x", types.TensorType((expr.const(4),), "float32"))
    value: graph.Expr = x
    for _ in range(2000):
        value = graph.Call(graph.Op("nn.relu"), (value,))
    mod = Module.of({"main": graph.Function((x,), graph.SeqExpr((), value))})
    with pytest.raises(PassFailed, match="'normalize' failed: .*bind parts of them to variables"):
        cpu_pipeline().run(mod)
    with pytest.raises(NestedTooDeeply, match="bind parts"):
        build(mod)


@I.ir_module
class Chain:
    @R.function
    def main(x: R.Tensor(("n", 4), "float32")):
        y = R.exp(x)
        z = R.tanh(y)
        return z


def broken(how):
    """A pass of a user, which changes the bindings of `main`."""

    def function(mod: Module, _: NoOptions) -> Module:
        fn = mod["main"]
        block = replace(fn.body.blocks[0], bindings=tuple(how(fn.body.blocks[0].bindings)))
        body = replace(fn.body, blocks=(block, *fn.body.blocks[1:]))
        return mod.with_functions({"main": replace(fn, body=body)})

    return module_pass("test_broken")(function)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        (lambda bs: bs[1:], "`y` is used but not defined"),
        (lambda bs: (*bs, bs[0]), "`y` is defined twice"),  # without end, before
    ],
)
def test_a_users_pass_that_breaks_the_program_is_named(how, message):
    pipeline = Pipeline((broken(how), *cpu_pipeline().passes))
    with pytest.raises(PassFailed, match=rf"(?s)pass 'test_broken' failed: .*{message}"):
        build(Chain, pipeline=pipeline, use_cache=False)


def test_a_pass_returns_a_module():
    for value, kind in ((None, "None"), ("text", "a str")):
        one = module_pass("test_broken")(lambda mod, _, value=value: value)
        with pytest.raises(TypeError, match=f"pass 'test_broken' returned {kind}; a pass returns"):
            Pipeline((one,)).run(Chain)


def test_names_of_passes_in_needs_are_checked():
    with pytest.raises(TypeError, match='needs and ends are names of passes, .* not "?\'normalize'):
        module_pass("test_base.needs", needs="normalize")
    late = module_pass("test_base.needs", needs=("normalise",))(lambda mod, options: mod)
    with pytest.raises(PipelineError, match="is no pass; did you mean 'normalize'?"):
        cpu_pipeline().before("legalize_ops", late)
