"""The pipeline explorer: what every pass, and every rewrite of it, made of a program."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from relaxlab.ir.diagnostics import DiagnosticError
from relaxlab.ir.errors import kind_of
from relaxlab.ir.module import Module
from relaxlab.ir.node import Attrs
from relaxlab.ir.target import Target, parse_target, target_kinds
from relaxlab.lab.modules import ModuleTable, differences, function_lines
from relaxlab.lab.payload import Interner
from relaxlab.lab.report import diagnostics_state
from relaxlab.lab.view import Control, View
from relaxlab.passes.base import Pass, PassFailed, Pipeline, find_pass
from relaxlab.passes.pipeline import pipeline_for
from relaxlab.script import parse
from relaxlab.script.printer import print_module
from relaxlab.tracing import PassRecord, Remark, Trace, first_rewrites

STEP_LINES = 20_000
"""Most lines that are printed to show the rewrites of one pass one by one."""

MOST_LINES = 30_000
"""Distinct lines of all modules above which the rewrites of the passes are left out."""

PROGRAM_LINES = 2000
"""Lines of the longest program that can be edited in a live view."""

TEXT_LINES = 200
"""Lines of the plain text of a view, or of the last module in it: it is read where there is no
browser, or by those who do not see the view."""


def pipeline(
    program: Module | Trace | str | DiagnosticError | PassFailed,
    target: str | Target = "cpu",
    pipeline: Pipeline | None = None,
) -> View:
    """Every pass with the module before and after, its remarks, and why.

    program: a module or a script text, which the passes are run on here; a trace made already; or
    what was raised when there was none. pipeline: the passes; None: the default for `target`.
    A program that cannot be parsed or compiled gives a view as well: what is wrong with it, where,
    and all passes up to the failure. Raises ValueError for an unknown target.
    """
    chosen = parse_target(target)
    trace, error = traced(program, pipeline_for(chosen, pipeline))
    table = ModuleTable(Interner())
    notes: list[str] = []
    state = {
        "target": str(chosen.kind),
        "passes": pass_states(trace, error, table, notes),
        "failure": None if trace is not None else failure_state(error),
        "functions": table.functions,
        "modules": table.modules,
        "lines": table.interner.lines,
        "notes": notes,
    }
    controls = live_controls(program, chosen)
    again = _again(program, pipeline) if controls else None
    return View("pipeline", "Pipeline", state, _text(trace, error), controls, again)


def _again(given: Any, passes: Pipeline | None) -> Callable[..., View]:
    return lambda target, program=given: pipeline(program, target, passes)


def live_controls(program: object, target: Target) -> tuple[Control, ...]:
    """Return the controls of a live view: the program, if it is not too long to edit, and the
    target."""
    if not isinstance(program, Module | str):
        return ()
    return (*program_controls(program), target_control(target.kind))


def target_control(chosen: str) -> Control:
    """The control that chooses a target, among all kinds and the one that is chosen."""
    names = (chosen, *(kind.name for kind in target_kinds()))
    return Control("target", "choice", chosen, tuple(dict.fromkeys(names)))


def program_controls(program: object) -> tuple[Control, ...]:
    """An editor for a module or a script that is not too long, or nothing."""
    if isinstance(program, Module):
        lines = sum(len(function_lines(name, f)) for name, f in program.items())
        program = print_module(program) if lines <= PROGRAM_LINES else None
    return (Control("program", "program", program),) if isinstance(program, str) else ()


def traced(
    program: Module | Trace | str | DiagnosticError | PassFailed, passes: Pipeline
) -> tuple[Trace | None, Exception | None]:
    """Return the trace as far as it goes, and the error that ended it early. Raises TypeError for a
    value that is no program."""
    match program:
        case Trace():
            return program, None
        case PassFailed():
            return program.trace, program
        case DiagnosticError():
            return None, program
        case Module():
            return passes.attempt(program)
        case str():
            try:
                mod = parse(program, check=True)
            except DiagnosticError as error:
                return None, error
            return passes.attempt(mod)
        case _:
            raise TypeError(
                f"the passes of {kind_of(program)} cannot be shown; give a module, the "
                "text of a script, or a trace"
            )


def failure_state(error: Exception | None) -> dict[str, Any]:
    """Return an error as data for `failureFacts` of failure.js."""
    found = error.diagnostics if isinstance(error, DiagnosticError) else ()
    message = "" if found else str(error) or type(error).__name__
    return {"message": message, "diagnostics": diagnostics_state(found)}


def pass_states(
    trace: Trace | None,
    error: Exception | None,
    table: ModuleTable,
    notes: list[str],
    *,
    remarks: bool = True,
) -> list[dict[str, Any]]:
    """The passes of a trace. Modules go into `table`, sentences about what is left out into
    `notes`; `remarks`: with the single remarks of each pass."""
    states: list[dict[str, Any]] = []
    dropped: list[str] = []
    records = trace.passes if trace is not None else ()
    for record in records:
        table.add(record.after)
    if remarks and len(table.interner.lines) > MOST_LINES:
        remarks = False
        notes.append("The single remarks of the passes are left out, as the modules are so long.")
    for record in records:
        before, after = table.add(record.before), table.add(record.after)
        state: dict[str, Any] = {
            "name": record.name,
            "about": about(record.name),
            "options": options_text(record.name, record.options),
            "ms": round(record.seconds * 1e3, 3),
            "before": before,
            "after": after,
            "changed": record.changed,
            "remarks": [],
            "failure": None if record.error is None else failure_state(_error_of(record, error)),
        }
        if remarks:
            state["remarks"] = _remark_states(record, before, after, table, dropped)
        states.append(state)
    if dropped:
        names = ", ".join(dict.fromkeys(dropped))
        notes.append(
            f"The modules between two rewrites are left out, as there would be too many: {names}."
        )
    return states


def _error_of(record: PassRecord, error: Exception | None) -> Exception:
    return error if isinstance(error, DiagnosticError) else ValueError(record.error)


def options_text(name: str, options: Attrs) -> str:
    """Return the options of a pass that are not its default ones, as they are written in a call."""
    usual = _registered(name)
    given = [
        f"{key}={_option_text(value)}"
        for key, value in options.items()
        if value not in (None, ()) and (usual is None or getattr(usual.options, key, None) != value)
    ]
    return ", ".join(given)


def _option_text(value: object) -> str:
    return f"{value.kind} {value.cpu}".rstrip() if isinstance(value, Target) else str(value)


def about(name: str) -> str:
    """Return the first sentence of a pass's docstring; "" for a pass that has none."""
    found = _registered(name)
    text = " ".join((found.function.__doc__ or "").split("\n\n")[0].split()) if found else ""
    return text.split(". ")[0].rstrip(".") + "." if text else ""


def _remark_states(
    record: PassRecord, before: int, after: int, table: ModuleTable, dropped: list[str]
) -> list[list[int]]:
    """Six columns: rule, subject and reason of each rewrite (line numbers), whether it was made (1
    or 0), the number of the module right after it (-1 where that was not recorded), and the line
    of the pass that decided it (a line number)."""
    lines = max(table.line_count(before), table.line_count(after))
    made = [w for w in record.remarks if w.applied]
    modules: dict[int, Module] = {}
    if made and len(made) * lines <= STEP_LINES:
        modules = modules_between(record)
    elif record.changed and len(made) > 1:
        dropped.append(record.name)
    remarks = record.remarks
    columns = [
        table.interner.ids(w.rule for w in remarks),
        table.interner.ids(w.subject for w in remarks),
        table.interner.ids(w.reason for w in remarks),
        [int(w.applied) for w in remarks],
        [table.add(modules[i]) if i in modules else -1 for i in range(len(remarks))],
        table.interner.ids(w.source for w in remarks),
    ]
    return [differences(column) for column in columns]


def modules_between(record: PassRecord) -> dict[int, Module]:
    """The module right after each rewrite that the pass could have left out, by its place among
    the rewrites of `record`; empty for a pass that takes them all together."""
    one = _pass_of(record)
    if one is None or record.error is not None:
        return {}
    with first_rewrites(None) as all_:
        one(record.before)
    places = _places(record.remarks, all_.made)
    found: dict[int, Module] = {}
    for count, place in enumerate(places, 1):
        if count == len(places):
            found[place] = record.after
            break
        with first_rewrites(count):
            found[place] = one(record.before)
    return found


def _what(one: Remark) -> tuple[str, str, str]:
    return one.rule, one.subject, one.reason


def _places(remarks: Sequence[Remark], made: Iterable[Remark]) -> list[int]:
    """Return the positions of the rewrites of a pass among all of its remarks."""
    places: list[int] = []
    at = 0
    for one in made:
        while at < len(remarks) and _what(remarks[at]) != _what(one):
            at += 1
        if at == len(remarks):
            return []
        places.append(at)
        at += 1
    return places


def _registered(name: str) -> Pass | None:
    try:
        return find_pass(name)
    except KeyError:  # a pass that was made without a name of its own
        return None


def _pass_of(record: PassRecord) -> Pass | None:
    """The pass that made a record, if it is registered under its name."""
    found = _registered(record.name)
    try:
        return None if found is None else found.with_options(**record.options)
    except TypeError:
        return None


def _text(trace: Trace | None, error: Exception | None) -> str:
    if trace is None:
        return str(error).strip()
    lines: list[str] = []
    for r in trace.passes:
        what = "failed" if r.error is not None else "changed" if r.changed else "no change"
        lines.append(f"{r.name:32} {r.seconds * 1e3:8.1f} ms  {what}")
    if error is not None:
        lines += ["", str(error).strip()]
    script = [line for name, f in trace.result.items() for line in (*function_lines(name, f), "")]
    lines += ["", *script[:TEXT_LINES]]
    if len(script) > TEXT_LINES:
        lines.append(f"… {len(script) - TEXT_LINES} more lines")
    return "\n".join(lines)
