"""Two pipelines on one program: the first pass after which their modules differ."""

from __future__ import annotations

from difflib import SequenceMatcher
from types import NoneType
from typing import Any

from relaxlab.ir.diagnostics import DiagnosticError
from relaxlab.ir.errors import expect
from relaxlab.ir.loops import PrimFunc
from relaxlab.ir.module import Module
from relaxlab.ir.node import Attrs
from relaxlab.ir.target import Target, parse_target
from relaxlab.lab.modules import ModuleTable
from relaxlab.lab.payload import Interner
from relaxlab.lab.pipeline import failure_state, pass_states, traced
from relaxlab.lab.view import View
from relaxlab.passes.base import Pipeline
from relaxlab.passes.pipeline import default_pipeline
from relaxlab.schedule.replay import replay
from relaxlab.schedule.schedule import Schedule
from relaxlab.schedule.trace import Instruction
from relaxlab.tracing import PassRecord, Trace


def compare(
    program: Module | str | DiagnosticError,
    a: Pipeline | Trace | Schedule | None,
    b: Pipeline | Trace | Schedule | None,
    target: str | Target = "cpu",
    labels: tuple[str, str] = ("left", "right"),
) -> View:
    """The passes of two pipelines side by side, and how their modules differ after each; or the
    steps of two schedules.

    a, b: pipelines, which are run on `program` here, or traces made already, or schedules; None:
    the default pipeline for `target`. Passes are aligned by name. A pipeline that fails is shown as
    far as it goes. Raises ValueError for an unknown target.
    """
    default = default_pipeline(parse_target(target))
    interner = Interner()
    table = ModuleTable(interner)
    notes: list[str] = []
    failure: Exception | None = None
    sides: list[dict[str, Any]] = []
    texts: list[str] = []
    for label, given in zip(labels, (a, b), strict=True):
        if isinstance(given, Schedule):
            given = steps_of(given)
        kinds = (Pipeline, Trace, NoneType)
        expect(given, kinds, f"{label!r} is a pipeline, a trace, a schedule, or None")
        trace, error = (
            (given, None) if isinstance(given, Trace) else traced(program, given or default)
        )
        if trace is None:
            failure = error
            texts.append(str(error).strip())
            continue
        passes = pass_states(trace, error, table, notes, remarks=False)
        sides.append({"label": label, "passes": passes, "start": table.add(trace.module)})
        texts.append(f"# {label}\n{trace}")
    state = {
        "sides": sides,
        "rows": aligned(*(s["passes"] for s in sides)) if len(sides) == 2 else [],
        "failure": failure_state(failure) if failure is not None else None,
        "functions": table.functions,
        "modules": table.modules,
        "lines": interner.lines,
        "notes": notes,
    }
    schedules = isinstance(a, Schedule) and isinstance(b, Schedule)
    title = "Two schedules" if schedules else "Two pipelines"
    return View("compare", title, state, "\n\n".join(dict.fromkeys(texts)))


def steps_of(sch: Schedule) -> Trace:
    """The steps of a schedule that changed something, as a trace of passes."""
    name = sch.name
    funcs: list[PrimFunc] = []

    def visit(one: Schedule, step: Instruction | None) -> None:
        if not one.within:
            funcs.append(one.func)

    replay(sch.original, sch.trace, visit)
    states = [Module.of({name: func}) for func in funcs]
    records = [
        PassRecord(step.name, Attrs(), before, after, 0.0, ())
        for i, (step, before, after) in enumerate(zip(sch.trace, states, states[1:], strict=False))
        if funcs[i + 1] is not funcs[i]
    ]
    return Trace(states[0], tuple(records))


def aligned(a: list[dict[str, Any]], b: list[dict[str, Any]]) -> list[list[int]]:
    """Rows `[i, j, same]`: pass i of `a` beside pass j of `b` of the same name (-1: there is none),
    and whether the modules of both sides read the same from there on (1 or 0)."""
    names = [[p["name"] for p in side] for side in (a, b)]
    rows: list[list[int]] = []
    at = [-1, -1]

    def put(i: int, j: int) -> None:
        at[0], at[1] = max(at[0], i), max(at[1], j)
        now = [
            side[k]["after"] if k >= 0 else side[0]["before"] if side else None
            for side, k in ((a, at[0]), (b, at[1]))
        ]
        rows.append([i, j, int(now[0] == now[1])])

    matcher = SequenceMatcher(None, names[0], names[1], autojunk=False)
    for kind, i0, i1, j0, j1 in matcher.get_opcodes():
        if kind == "equal":
            for i, j in zip(range(i0, i1), range(j0, j1), strict=True):
                put(i, j)
            continue
        for i in range(i0, i1):
            put(i, -1)
        for j in range(j0, j1):
            put(-1, j)
    return rows
