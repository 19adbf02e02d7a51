from dataclasses import dataclass

import pytest

from relaxlab.ir.diagnostics import Diagnostic
from relaxlab.ir.module import Module
from relaxlab.passes.base import NoOptions, PassFailed, Pipeline, find_pass, module_pass
from relaxlab.passes.fuse_ops import fuse_ops
from relaxlab.script import ir as I
from relaxlab.script import relax as R
from relaxlab.tracing import note


@dataclass(frozen=True, slots=True)
class Options:
    amount: int = 1


@module_pass("test_rename", Options)
def rename(mod: Module, options: Options) -> Module:
    note("test_rename", "main", f"by {options.amount}")
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
    assert trace.find("test_rename").rewrites[0].reason == "by 1"
    assert "test_rename" in str(trace) and "by 2" in str(trace)


def test_passes_are_found_by_name():
    assert find_pass("fuse_ops") is fuse_ops
    with pytest.raises(KeyError, match="unknown pass 'fuse'; known: .*fuse_ops"):
        find_pass("fuse")


def test_unknown_options_are_named():
    with pytest.raises(TypeError, match="'fuse_ops' has no option 'size'; it has: max_group"):
        fuse_ops.with_options(size=3)


def test_a_check_stops_the_pipeline_with_the_trace():
    def check(mod):
        return [Diagnostic("E9999", "too many functions")] if len(mod) > 1 else []

    with pytest.raises(PassFailed, match="pass 'test_rename' failed.*") as error:
        Pipeline((nothing, rename, nothing), check).run(Mod)
    assert [r.name for r in error.value.trace.passes] == ["test_nothing", "test_rename"]
    assert "too many functions" in error.value.trace.passes[-1].error


def test_two_files_cannot_share_a_name():
    with pytest.raises(ValueError, match="registered twice"):
        module_pass("fuse_ops")(lambda mod, options: mod)
