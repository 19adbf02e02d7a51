"""The LLVM explorer: the changes that each of LLVM's own passes makes to a kernel."""

from __future__ import annotations

from dataclasses import replace

from relaxlab.codegen.llvm.pass_steps import PassStep, llvm_pass_steps
from relaxlab.ir.errors import counted
from relaxlab.ir.loops import PrimFunc
from relaxlab.ir.module import Module, name_of
from relaxlab.ir.names import among
from relaxlab.ir.target import Target, parse_target, target_kind
from relaxlab.lab.attempts import Program, attempted
from relaxlab.lab.modules import differences
from relaxlab.lab.payload import Interner
from relaxlab.lab.pipeline import pipeline, program_controls
from relaxlab.lab.view import View
from relaxlab.passes.pipeline import default_pipeline
from relaxlab.schedule.schedule import Schedule
from relaxlab.script.printer import print_module


def llvm(
    program: Program | PrimFunc | Schedule, name: str | None = None, target: str | Target = "cpu"
) -> View:
    """The passes of LLVM that changed a kernel, in their order, with what each changed.

    program: what the passes of relaxlab are run on here, a trace made already, or one scheduled
    loop function. name: the kernel (None: the longest one of the program). Raises KeyError for a
    name that is none of the program's kernels, ValueError for an unknown target and for a program
    without kernels, CodegenError for a kernel that the target cannot express. A program that does
    not compile gives the pipeline up to the failure.
    """
    chosen = parse_target(target)
    if not target_kind(chosen.kind).llvm:
        raise ValueError("LLVM makes the code of CPUs; for GPUs see relaxlab.explore.code")
    if isinstance(program, PrimFunc | Schedule):
        func = program.func if isinstance(program, Schedule) else program
        name = name or name_of(func)
        return _view(name, llvm_pass_steps(func, name, chosen))
    trace, failure = attempted(program, default_pipeline(chosen))
    if trace is None or failure is not None:
        return pipeline(program, chosen)
    kernel = _kernel_of(trace.result, name)
    view = _view(kernel, llvm_pass_steps(trace.result.loop_functions()[kernel], kernel, chosen))
    controls = program_controls(program)
    again = (lambda program: llvm(program, name, target)) if controls else None
    return replace(view, controls=controls, again=again)


def _kernel_of(mod: Module, name: str | None) -> str:
    kernels = mod.loop_functions()
    if not kernels:
        raise ValueError("the program has no kernels that LLVM would compile")
    if name is not None and name not in kernels:
        raise KeyError(
            f"no loop function {name!r} after the passes; there are: {among(name, kernels)}"
        )
    return name or max(kernels, key=lambda k: len(print_module(kernels[k])))


def _view(name: str, steps: tuple[PassStep, ...]) -> View:
    """The steps as a pipeline of which every module is one function."""
    interner = Interner()
    functions = [[name, "LLVM IR", differences(interner.ids(s.lines))] for s in steps]
    passes = [
        {
            "name": step.name, "about": "", "options": "", "ms": None, "before": number - 1,
            "after": number, "changed": True, "remarks": [], "failure": None,
        }
        for number, step in enumerate(steps)
        if number
    ]  # fmt: skip
    first, last = len(steps[0].lines), len(steps[-1].lines)
    state = {
        "target": "cpu", "passes": passes, "failure": None, "functions": functions,
        "modules": [[i] for i in range(len(steps))], "lines": interner.lines, "notes": [],
    }  # fmt: skip
    names = "\n".join(f"{s.name:32} {len(s.lines):6} lines" for s in steps)
    number = counted(len(passes), "pass", "passes")
    text = f"{name}: {number} of LLVM changed it, from {first} to {last} lines\n{names}"
    return View("pipeline", f"LLVM's passes on {name}", state, text)
