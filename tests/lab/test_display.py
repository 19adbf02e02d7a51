"""Every kind of value shows itself: text for everybody, HTML that says the same."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.ir.display import Displayed
from relaxlab.lab.display import mimebundle, view_of
from relaxlab.lab.report import Change, report
from relaxlab.passes.base import PassFailed, Pipeline, find_pass
from relaxlab.passes.pipeline import cpu_pipeline
from relaxlab.runtime.check.compare import Difference
from relaxlab.script import ir as I
from relaxlab.script import relax as R


@I.ir_module
class Layer:
    @R.function
    def main(x: R.Tensor(("n", 4), "float32"), w: R.Tensor((4, 8), "float32")):
        with R.dataflow():
            y = R.matmul(x, w)
            z = R.nn.relu(y)
            R.output(z)
        return z


WRONG = """
@I.ir_module
class Wrong:
    @R.function
    def main(x: R.Tensor((n, 4), "float32")):
        return R.nosuch("<script>window.bad = 1</script>")
"""


def wrong() -> rl.DiagnosticError:
    with pytest.raises(rl.DiagnosticError) as error:
        rl.parse(WRONG)
    return error.value


TRACE = rl.trace(Layer)


def failed() -> PassFailed:
    passes = Pipeline((find_pass("normalize"),), lambda _: [rl.Diagnostic("E0599", "not today")])
    with pytest.raises(PassFailed) as error:
        passes.run(Layer)
    return error.value


def schedule() -> rl.Schedule:
    sch = rl.Schedule(rl.trace(Layer).find("fuse_tir").after["fused_matmul_relu"])
    sch.split(sch.get_loops(sch.get_block("T_relu"))[1], [None, 4])
    return sch


VALUES = {
    "module": (Layer, "def main("),
    "graph function": (Layer["main"], "R.matmul(x, w)"),
    "loop function": (TRACE.result["fused_matmul_relu"], "T.parallel("),
    "errors": (wrong(), "error[E0102]: undefined name 'n'"),
    "diagnostic": (wrong().diagnostics[1], "R has no operator 'nosuch'"),
    "pipeline": (cpu_pipeline(), "legalize_ops"),
    "trace": (TRACE, "legalize_ops"),
    "failed pass": (failed(), "not today"),
    "schedule": (schedule(), "T_relu"),
    "GPU program": (rl.compile(Layer, "cuda:sm_80"), "__global__"),
    "interpreted": (rl.compile(Layer, "interpreter"), "def main("),
    "executable": (rl.compile(Layer), "x: R.Tensor((n, 4), 'float32')"),
    "check": (rl.check(Layer, runs=1), "forms agree with the interpreter"),
    "simt": (
        rl.simt(
            rl.trace(Layer, target="cuda").result, "main",
            np.ones((3, 4), "float32"), np.ones((4, 8), "float32"),
        ),
        "no problems",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", VALUES)
def test_a_value_shows_itself(name, open_view):
    value, said = VALUES[name]
    bundle = value._repr_mimebundle_()
    assert set(bundle) == {"text/plain", "text/html"}
    assert said in bundle["text/plain"]
    page = open_view(view_of(value))
    shown = page.locator(".root").inner_text()
    assert " ".join(said.split()) in " ".join(shown.split())
    assert page.evaluate("window.bad") is None


def test_tips_with_costs_of_calls(open_view):
    page = open_view(view_of(TRACE.find("fuse_tir").after))
    page.locator("[data-n=fused_matmul_relu]").first.hover()
    assert page.locator(".tip").inner_text().splitlines() == [
        "fused_matmul_relu: n * 72 floating-point operations",
        "reads n * 16 + 128 bytes, writes n * 32",
    ]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_accessibility_of_displays(scheme, open_view, audit):
    for name in ("module", "errors", "executable"):
        assert audit(open_view(view_of(VALUES[name][0]), scheme)) == []


@pytest.mark.parametrize(
    "value, said",
    [
        (Layer["main"].params[0].ty, 'R.Tensor((n, 4), "float32")'),
        (Layer["main"].params[0].ty.shape[0] * 4 + 1, "n * 4 + 1"),
    ],
)
def test_one_line_needs_no_script(value, said):
    bundle = value._repr_mimebundle_()
    assert bundle["text/plain"] == said
    assert bundle["text/html"].startswith("<code>") and "<script" not in bundle["text/html"]


def test_everything_that_claims_to_show_itself_has_a_view():
    def below(cls):
        return {cls}.union(*map(below, cls.__subclasses__()))

    def is_used(cls):  # dataclasses with slots leave the class behind that they were made of
        return getattr(sys.modules[cls.__module__], cls.__name__, None) is cls

    kinds = set(filter(is_used, below(Displayed) - {Displayed}))
    without = view_of.dispatch(object)
    assert {rl.Module, rl.Schedule, rl.Executable, rl.Trace} <= kinds
    assert [c.__name__ for c in kinds if view_of.dispatch(c) is without] == []


def test_a_failing_display():
    bundle = mimebundle(object())
    assert "could not be displayed" in bundle["text/plain"]
    assert "no view is known for object" in bundle["text/html"]


def test_an_error_of_the_program_is_shown_without_the_compilers_frames():
    lines = wrong()._render_traceback_()
    assert lines[0] == "error[E0102]: undefined name 'n'"
    assert not any("Traceback" in line for line in lines)


def test_importing_the_package_loads_no_view():
    code = "import sys, relaxlab; relaxlab.parse; print([m for m in sys.modules if '.lab' in m])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def test_a_change_is_one_script_with_what_differs(open_view):
    after = rl.parse(Layer.script().replace("R.nn.relu(", "R.nn.silu("))
    view = report("check: differs", Change(Layer, after, ("before fuse_ops", "after it")))
    page = open_view(view)
    assert page.locator("h4").inner_text() == "− before fuse_ops + after it"
    gone, new = (page.locator(f".ln.{kind} .changed").all_inner_texts() for kind in ("del", "add"))
    assert gone == ["R.nn.relu"] and new == ["R.nn.silu"]
    assert "# before fuse_ops" in view.text and "R.nn.silu" in view.text


def test_numbers_of_a_difference_are_short_unless_they_read_the_same():
    def said(got, expected):
        return str(Difference("the result", (0,), got, expected, 1e-3, 1e-6, 1, 4))

    assert "is 0.333333, expected 0.5;" in said(np.float32(1 / 3), np.float32(0.5))
    assert "is 1.0000001, expected 1.0;" in said(np.float32(1 + 1e-7), np.float32(1))


def test_a_script_hides_what_the_compiler_notes_until_asked(open_view):
    page = open_view(view_of(rl.parse(NOTED)))
    text = page.locator(".script")
    assert "B[vi] = A[vi]" in text.inner_text()
    assert "T.reads" not in text.inner_text() and "s_tir" not in text.inner_text()
    page.get_by_label("show all").check()
    assert "T.reads(A[vi])" in text.inner_text() and "tir.noalias" in text.inner_text()


NOTED = """
@I.ir_module
class M:
    @T.prim_func
    def copy(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
        T.func_attr({"tir.noalias": True})
        for i in range(4):
            with T.sblock("B"):
                vi = T.axis.spatial(4, i)
                B[vi] = A[vi]
"""
