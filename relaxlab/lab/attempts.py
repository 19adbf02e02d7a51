"""Programs given to explorers, compiled as far as possible, with the error that ended the
compilation as data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from relaxlab.ir.diagnostics import DiagnosticError
from relaxlab.ir.loops import PrimFunc
from relaxlab.ir.module import Module
from relaxlab.lab.pipeline import TEXT_LINES, failure_state, traced
from relaxlab.passes.base import Pass, PassFailed, Pipeline
from relaxlab.script import parse
from relaxlab.tracing import PassRecord, Trace

Program: TypeAlias = Module | Trace | str | DiagnosticError | PassFailed
"""A module, the text of a script, a trace, or an error raised when there was no trace."""


def through(passes: tuple[Pass, ...], last: str) -> Pipeline:
    """The passes up to the first of that name."""
    names = [p.name for p in passes]
    return Pipeline(passes[: names.index(last) + 1])


def attempted(program: Program, passes: Pipeline) -> tuple[Trace | None, dict[str, Any] | None]:
    """Return the trace as far as it goes (None: the text cannot be parsed), and the error that
    ended it as data for `failurePanel` of failure.js. Raises TypeError for a value that is no
    program."""
    if isinstance(program, str):
        try:
            program = parse(program, check=False)  # what is wrong is found by the passes, too
        except DiagnosticError as error:
            return None, failure_of(error)
    trace, error = traced(program, passes)
    if error is None:
        return trace, None
    failing = trace.passes[-1].name if trace is not None and trace.passes else None
    return trace, failure_of(error, failing)


def unscheduled_functions(trace: Trace) -> dict[str, PrimFunc]:
    """The loop functions before the first pass that schedules them."""
    for one in trace.passes:
        if one.name == "schedule_kernels":
            return one.before.loop_functions()
    return {}


def failure_of(error: Exception, failing: str | None = None) -> dict[str, Any]:
    """Return an error as data for `failurePanel` of failure.js; `failing`: the pass."""
    return {"pass": failing, **failure_state(error)}


def failure_lines(failure: dict[str, Any] | None) -> list[str]:
    """Return the result of `failure_of` as lines, for where no script runs."""
    if failure is None:
        return []
    what = f"the pass {failure['pass']} failed" if failure["pass"] else "it cannot be read"
    found = [f"error[{d['code']}]: {d['message']}" for d in failure["diagnostics"]]
    return [what, *found, *([failure["message"]] if failure["message"] else []), ""]


def clipped(lines: list[str]) -> str:
    """The first lines of a text that may be long, for where no script runs."""
    more = len(lines) - TEXT_LINES
    return "\n".join([*lines[:TEXT_LINES], *([f"… and {more} more lines"] if more > 0 else [])])


def first_shown(functions: Sequence[Mapping[str, Any]], sizes: Sequence[int]) -> int:
    """Return the number of the function that a view opens with: `main`, else the largest."""
    of_main = [f["name"] == "main" for f in functions]
    return max(range(len(functions)), key=lambda i: (of_main[i], sizes[i]), default=0)


def record_of(trace: Trace | None, name: str) -> PassRecord | None:
    """The record of a pass that went through, or None."""
    found = [r for r in (trace.passes if trace is not None else ()) if r.name == name]
    return found[0] if found and found[0].error is None else None
