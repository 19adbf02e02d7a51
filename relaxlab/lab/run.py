"""The run explorer: a call stepped instruction by instruction, its kernels as a timeline, and each
of them under the machine's roofline (Williams, Waterman, Patterson 2009)."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from relaxlab.analysis.prelude import is_prelude
from relaxlab.codegen.errors import CodegenError
from relaxlab.codegen.llvm.host_frame import UnsupportedHost
from relaxlab.ir import host
from relaxlab.ir.errors import counted, path_of
from relaxlab.ir.module import Module
from relaxlab.ir.target import Target, parse_target
from relaxlab.lab.attempts import unscheduled_functions
from relaxlab.lab.pipeline import pipeline
from relaxlab.lab.run_steps import MOST_STEPS, RunRecord, record_run
from relaxlab.lab.view import Control, View
from relaxlab.passes.base import Pipeline
from relaxlab.passes.lower_shapes import lower_shapes
from relaxlab.passes.pipeline import default_pipeline
from relaxlab.runtime.build import compile
from relaxlab.runtime.executable import Executable
from relaxlab.runtime.limits import measure_limits
from relaxlab.runtime.native.kernels import NativeKernels
from relaxlab.runtime.profile import Profile, copies_where_updated, profile
from relaxlab.runtime.programs import Program, as_module, with_entries
from relaxlab.tracing import Trace


class RunView(View):
    """A run with its profile."""

    __slots__ = ()

    def chrome_trace(self, path: str | os.PathLike[str]) -> Path:
        """Write the timeline as a file that chrome://tracing and Perfetto open. Raises ValueError
        for a run that was not timed, OSError where the file cannot be written."""
        made = self.state["profile"]
        if made is None:
            raise ValueError("the run was not timed; the notes of the view say why")
        target = path_of(path, "the path of a timeline")
        text = json.dumps({"traceEvents": _events(made), "displayTimeUnit": "ns"})
        target.write_text(text, encoding="utf-8")
        return target


def _events(made: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A profile in Chrome's trace event format: complete events, times in microseconds."""

    def event(
        name: str, kind: str, start: float, seconds: float, about: Any, thread: int = 0
    ) -> dict[str, Any]:
        return {
            "name": name, "cat": kind, "ph": "X", "pid": 1, "tid": thread, "ts": start * 1e6,
            "dur": seconds * 1e6, "args": about,
        }  # fmt: skip

    calls = [
        event(made["names"][c["name"]], c["kind"], c["start"], c["seconds"],
              {"function": c["in"], **(c["cost"] or {})})
        for c in made["calls"]
    ]  # fmt: skip
    others = [
        event("waits" if waits else made["names"][name], "barrier" if waits else "kernel",
              start / 1e9, took / 1e9, {}, thread)
        for thread, lane in enumerate(made["lanes"]) for name, start, took, waits in lane
        if thread or waits
    ]  # fmt: skip
    return [event(made["function"], "call", 0.0, made["seconds"], {}), *calls, *others]


def run(
    subject: Module | Executable,
    name: str = "main",
    *args: Any,
    threads: int | None = None,
    timed: bool = True,
) -> View:
    """Step through a call of a function, and time its kernels.

    A module is compiled for this machine's CPU. The arguments are as for an executable (without
    those bound to it), and are not changed. threads: of the timed run; None: as many as the
    executable has, or all. timed: whether to run natively and to measure the machine; else only
    the steps are shown. A program that cannot be compiled gives the pipeline up to the failure.

    Raises ExecutionError or KeyError for a call that cannot begin, ValueError for an executable
    that was not compiled from a module in this process.
    """
    target = parse_target("cpu")
    mod, passes = _source_of(subject, target)
    if isinstance(subject, Executable):
        threads = threads or subject.threads
        args = subject[name].completed(args)
    trace, error = passes.attempt(mod)
    if error is not None:
        return pipeline(mod, target, passes)
    program = lower_shapes(trace.result)
    notes: list[str] = []
    native = _native(program, target, notes)
    own = list(args)
    if name in program.functions and len(args) == len(program.functions[name].params):
        own = copies_where_updated(program.functions[name], args)
    record = record_run(program, name, own, native, unscheduled_functions(trace))
    if record.cut:
        notes.append(f"The first {MOST_STEPS:,} instructions are shown; the run goes on.")
    made = _profiled(program, target, name, args, threads, record, notes) if timed else None
    measured = None if made is None else _profile_state(made, record, _tuned(trace), program)
    state = {
        "title": f"Run of {name}", "run": record.state, "error": record.error,
        "profile": measured, "notes": notes,
    }  # fmt: skip

    def again(threads: int) -> View:
        return run(subject, name, *args, threads=threads)

    controls = (Control("threads", "number", made.threads),) if made else ()
    text, remade = _text(state), again if controls else None
    return RunView("run", f"Run of {name}", state, text, controls, remade)


def _source_of(subject: Module | Executable, target: Target) -> tuple[Module, Pipeline]:
    """The module and the passes that make it a program."""
    passes = default_pipeline(target)
    if not isinstance(subject, Executable):
        return with_entries(as_module(subject))[0], passes
    if subject.compiled_from is None:
        raise ValueError(
            "this executable was loaded from a file, and has no module to step through; give the "
            "module that it was made from"
        )
    mod, given = subject.compiled_from
    return mod, given or passes


def roofline(programs: Mapping[str, Program | Executable], *args: Any) -> View:
    """The kernels of several programs under one roof, each with its name.

    programs: by name, modules, functions, schedules or executables; each is called with `args`.
    Raises ValueError without programs, and for one that fails or has no native code; else what
    `run` raises.
    """
    if not programs:
        raise ValueError("there is nothing to draw: give a dictionary of names and programs")
    runs: list[dict[str, Any]] = []
    for label, program in programs.items():
        exe = program if isinstance(program, Executable) else compile(program)
        view = run(exe, exe.chosen().info.name, *args)
        state = view.state.get("profile")
        if state is None:
            notes = view.state.get("notes") or ["it does not compile"]
            raise ValueError(f"{label!r} has no profile: {' '.join(notes)}")
        runs.append({"label": label, "profile": {**state, "lanes": []}})
    profiles = [(r["label"], r["profile"]) for r in runs]
    lines = [
        f"{label}: {p['seconds'] * 1e6:.1f} µs, {counted(len(p['calls']), 'call')}"
        for label, p in profiles
    ]
    title = "Roofline of " + ", ".join(programs)
    return View("roofline", title, {"title": title, "runs": runs, "notes": []}, "\n".join(lines))


def _native(program: host.HostProgram, target: Target, notes: list[str]) -> NativeKernels | None:
    try:
        return NativeKernels.of(program, target)
    except CodegenError as error:
        notes.append(f"The kernels are run by the interpreter, as there is no native code: {error}")
        return None


def _profiled(
    program: host.HostProgram,
    target: Target,
    name: str,
    args: Sequence[Any],
    threads: int | None,
    record: RunRecord,
    notes: list[str],
) -> Profile | None:
    """The profile of a run that gets to its end; else a note says why there is none."""
    if record.error is not None:
        notes.append("There is no profile, as the run fails.")
        return None
    try:
        return profile(program, target, name, args, threads)
    except (CodegenError, UnsupportedHost) as error:
        notes.append(f"There is no profile, as there is no native code: {error}")
        return None


def _tuned(trace: Trace) -> list[str]:
    """The names of the kernels for which a search found decisions."""
    return [
        r.subject for record in trace.passes for r in record.remarks
        if r.rule == "schedule_kernels" and r.reason.startswith("tuned:")
    ]  # fmt: skip


def _profile_state(
    made: Profile, record: RunRecord, tuned: Sequence[str], program: host.HostProgram
) -> dict[str, Any]:
    """The timeline with what each call computes, and the machine's limits. Times in seconds.

    The virtual machine makes the same calls in the same order, so that its sizes are known."""
    limits = measure_limits(made.threads)
    known = record.calls
    if [n for n, _, _ in known] != [c.name for c in made.calls[: len(known)]]:
        known = []
    names = list(dict.fromkeys(c.name for c in made.calls))
    prelude = [n for n in names if n in program.kernels and is_prelude(program.kernels[n])]
    lanes = made.lanes if any(made.lanes[1:]) else ()
    return {
        "function": made.name, "seconds": made.seconds, "runs": list(made.runs),
        "threads": made.threads, "names": names, "tuned": [n for n in names if n in tuned],
        "prelude": prelude,
        "calls": [
            {
                "name": names.index(c.name), "kind": c.kind, "in": c.call.function,
                "start": round(c.start, 9), "seconds": round(c.seconds, 9),
                "cost": known[i][1] if i < len(known) else None,
                "memory": known[i][2] if i < len(known) else None,
            }
            for i, c in enumerate(made.calls)
        ],
        "lanes": [
            [
                [names.index(i.call.instr.function), round(i.start * 1e9),
                 round(i.seconds * 1e9), int(i.waits)]
                for i in lane
            ]
            for lane in lanes
        ],
        "limits": {"flops": limits.flops, "levels": [asdict(level) for level in limits.levels]},
    }  # fmt: skip


def _text(state: Mapping[str, Any]) -> str:
    """Return the view's text, for readers without a script."""
    run_ = state["run"]
    lines = [state["title"], ""]
    for step in run_["steps"]:
        fn = run_["functions"][run_["activations"][step["frame"]]["function"]]
        depth, text = fn["rows"][step["row"]]
        lines.append(f"{fn['name']}: {'  ' * depth}{text}")
    if state["error"]:
        lines += ["", f"fails: {state['error']}"]
    made = state["profile"]
    if made:
        lines += ["", f"{made['seconds'] * 1e6:.1f} µs with {made['threads']} threads"]
        for call in made["calls"]:
            name = made["names"][call["name"]]
            mark = " (tuned)" if name in made["tuned"] else ""
            mark += " (prelude)" if name in made["prelude"] else ""
            lines.append(f"    {call['seconds'] * 1e6:10.1f} us  {name}{mark}")
        lines += _prelude_text(made)
    return "\n".join(lines)


def _prelude_text(made: Mapping[str, Any]) -> list[str]:
    """The time of what is computed of lengths and positions alone, if there is any."""
    known, names = made["prelude"], made["names"]
    seconds = sum(call["seconds"] for call in made["calls"] if names[call["name"]] in known)
    share = seconds / made["seconds"] if made["seconds"] else 0
    text = f"prelude, index arrays alone: {seconds * 1e6:.1f} us, {share:.1%}"
    return [text] if known else []
