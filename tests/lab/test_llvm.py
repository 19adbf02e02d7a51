"""LLVM's passes one by one: they are those that compile the kernel, and the view shows them."""

from __future__ import annotations

import pytest

import relaxlab as rl
from relaxlab.codegen.llvm.pass_steps import function_lines, llvm_pass_steps
from relaxlab.ir.target import Target
from relaxlab.lab.llvm import llvm
from relaxlab.schedule import Schedule
from tests.lab.test_loops import MATMUL, function
from tests.lab.test_run import CHAIN


def test_the_last_step_is_what_is_compiled():
    """The same lines as the listing of the code view, whose debug metadata change nothing."""
    from relaxlab.codegen.llvm.listing import list_kernel

    target = Target.host()
    func = function(MATMUL)
    steps = llvm_pass_steps(func, "main", target)
    assert steps[0].name == "as emitted" and steps[0].lines[0].startswith("define void @rl.main(")
    assert {"EarlyCSE", "SimplifyCFG", "InstCombine"} <= {s.name for s in steps}
    assert all(a.lines != b.lines for a, b in zip(steps, steps[1:], strict=False))
    listed = [line.text for line in list_kernel(func, "main", target).optimised]
    assert sum(map(is_code, steps[-1].lines)) == sum(map(is_code, listed))


def is_code(line: str) -> bool:
    return line.startswith("  ")


def test_lines_of_a_function_have_no_metadata():
    text = """
define void @"rl.f"(ptr %a) #0 {
  %x = load float, ptr %a, align 4, !tbaa !3, !noalias !4
  br label %b ; to b

b:                                                ; preds = %0
  ret void
}
"""
    assert function_lines(text, "rl.f") == (
        'define void @"rl.f"(ptr %a)  {',
        "  %x = load float, ptr %a, align 4",
        "  br label %b",
        "",
        "b:",
        "  ret void",
        "}",
    )
    assert function_lines(text, "rl.g") == ()


def test_a_kernel_of_a_program_is_stepped_through(open_view):
    view = llvm(CHAIN)
    assert view.title.startswith("LLVM's passes on ") and "passes of LLVM changed it" in view.text
    (control,) = view.controls
    assert view.again is not None and control.kind == "program" and "softmax" in str(control.value)
    page = open_view(view)
    page.get_by_role("option", name="InstCombine").first.click()
    assert page.locator(".ln.del").count() > 0 and " ms" not in page.inner_text(".root")
    assert llvm(Schedule(function(MATMUL))).title == "LLVM's passes on main"


def test_programs_without_a_kernel():
    with pytest.raises(KeyError, match="no loop function 'nothing'"):
        llvm(CHAIN, "nothing")
    with pytest.raises(ValueError, match="GPUs see relaxlab.explore.code"):
        rl.explore.llvm(CHAIN, target="cuda:sm_90")
    assert llvm(CHAIN.replace("R.nn.softmax", "R.nn.nosuch")).kind == "pipeline"
