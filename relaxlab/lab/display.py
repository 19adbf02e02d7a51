"""Displays of values in notebooks: their text, and a view of them as HTML.

`view_of` is a table by type. Front ends hide errors raised while displaying; here they are shown.
"""

from __future__ import annotations

import traceback
from functools import singledispatch
from html import escape
from typing import Any

from relaxlab.ir.diagnostics import Diagnostic, DiagnosticError
from relaxlab.ir.graph import Function
from relaxlab.ir.loops import PrimFunc
from relaxlab.ir.module import Module
from relaxlab.ir.node import Node
from relaxlab.lab.loops import loops
from relaxlab.lab.payload import Interner
from relaxlab.lab.pipeline import pipeline
from relaxlab.lab.predicted import predicted
from relaxlab.lab.report import Change, Diagnostics, Section, Table, report
from relaxlab.lab.script import function_facts, script_state
from relaxlab.lab.timings import timings
from relaxlab.lab.view import View
from relaxlab.passes.base import PassFailed, Pipeline
from relaxlab.runtime.check.check import CheckReport
from relaxlab.runtime.executable import Executable
from relaxlab.runtime.predict.predict import Prediction
from relaxlab.runtime.simt.simt import SimtReport
from relaxlab.runtime.timing import Comparison, Timing
from relaxlab.runtime.vm.cuda import CudaExecutable
from relaxlab.runtime.vm.executable import InterpretedExecutable
from relaxlab.runtime.vm.wgsl import WgslExecutable
from relaxlab.schedule.schedule import Schedule
from relaxlab.script.printer import print_module
from relaxlab.tracing import Trace


def mimebundle(value: Any) -> dict[str, str]:
    """Text and HTML of a value, by MIME type; for `_repr_mimebundle_`."""
    try:
        if isinstance(value, Node):
            text = print_module(value).rstrip("\n")
            if "\n" not in text:
                return {"text/plain": text, "text/html": f"<code>{escape(text)}</code>"}
        return view_of(value)._repr_mimebundle_()
    except Exception:  # noqa: BLE001 - otherwise the notebook shows nothing at all
        text = f"{object.__repr__(value)} could not be displayed:\n{traceback.format_exc()}"
        return {"text/plain": text, "text/html": f"<pre>{escape(text)}</pre>"}


@singledispatch
def view_of(value: Any) -> View:
    """The view of a value. Raises TypeError for a type that has none."""
    raise TypeError(f"no view is known for {type(value).__name__}")


@view_of.register
def _(value: Node) -> View:
    text = print_module(value).rstrip("\n")
    interner = Interner()
    title = _title(value)
    state = {**script_state(value, interner), "table": interner.lines, "title": title}
    if isinstance(value, Module):
        state["facts"] = function_facts(value)
    return View("module", title, state, text)


def _title(value: Node) -> str:
    match value:
        case Module():
            graphs, kernels = len(value.graph_functions()), len(value.loop_functions())
            counts = ((graphs, "graph function"), (kernels, "loop function"))
            held = " and ".join(_count(n, what) for n, what in counts if n) or "no functions"
            return f"{value.name_hint or 'Module'}: {held}"
        case Function():
            return f"graph function {value.name_hint}".rstrip()
        case PrimFunc():
            return f"loop function {value.name_hint}".rstrip()
        case _:
            return type(value).__name__


def _count(n: int, what: str) -> str:
    return f"{n} {what}{'s' * (n != 1)}"


@view_of.register
def _(value: Timing | Comparison) -> View:
    return timings(value)


@view_of.register
def _(value: Prediction) -> View:
    return predicted({value.name: value})


@view_of.register
def _(value: Diagnostic) -> View:
    return report(f"error {value.code}", Diagnostics((value,)))


@view_of.register
def _(value: DiagnosticError) -> View:
    return report(_count(len(value.diagnostics), "error"), Diagnostics(value.diagnostics))


@view_of.register
def _(value: Trace) -> View:
    return pipeline(value)


@view_of.register
def _(value: PassFailed) -> View:
    return pipeline(value)


@view_of.register
def _(value: Schedule) -> View:
    return loops(value)


@view_of.register
def _(value: Pipeline) -> View:
    rows = [
        (i, one.name, str(one)[len(one.name) :].strip("()"))
        for i, one in enumerate(value.passes, 1)
    ]
    return report("pipeline", Table(("", "pass", "options"), rows))


@view_of.register
def _(value: Executable) -> View:
    functions = [
        (f.name, ", ".join(f"{name}: {tree.text}" for name, tree in f.params), f.result.text)
        for f in value.artifact.functions
    ]
    facts = [
        ("target", f"{value.target.kind}, {value.target.cpu or value.target.triple}"),
        ("threads", value.threads),
        ("machine code", f"{sum(map(len, value.artifact.code)):,} bytes"),
        ("constants", f"{sum(c.nbytes for c in value.artifact.constants):,} bytes"),
        ("memory for temporaries", f"{value.arena_bytes():,} bytes"),
        ("from the cache", "yes" if value.from_cache else "no"),
    ]
    return report(
        "executable", Table(("function", "parameters", "result"), functions), Table(("", ""), facts)
    )


@view_of.register
def _(value: CudaExecutable) -> View:
    return report(f"CUDA C, compiled for {value.arch}", value.source())


@view_of.register
def _(value: WgslExecutable) -> View:
    return report("WGSL", value.source())


@view_of.register
def _(value: InterpretedExecutable) -> View:
    return report(f"a program for {value.target.kind}, interpreted", value.source())


@view_of.register
def _(value: CheckReport) -> View:
    sections: list[Section] = [str(value)]
    if value.finding is not None:
        before, after = value.finding.before, value.finding.after
        labels = (f"before {value.finding.stage}", "after it")
        sections.append(before if after is None else Change(before, after, labels))
    return report("check: agrees" if value.ok else "check: differs", *sections)


@view_of.register
def _(value: SimtReport) -> View:
    return report(f"simulated threads: {'no problems' if value.ok else 'problems'}", repr(value))
