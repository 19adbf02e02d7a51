"""The shapes explorer: how the type of every value was deduced, and its size."""

from __future__ import annotations

from typing import Any

from relaxlab.analysis.annotate import annotate, is_failed
from relaxlab.analysis.costs import bytes_of, call_cost
from relaxlab.analysis.subtype import defined_symbols
from relaxlab.ir import expr, graph, loops
from relaxlab.ir.diagnostics import DiagnosticError
from relaxlab.ir.errors import kind_of
from relaxlab.ir.module import Module
from relaxlab.ir.types import TensorType
from relaxlab.lab.attempts import Program, clipped, failure_lines, failure_of, first_shown
from relaxlab.lab.graph import describe, script_of
from relaxlab.lab.symbols import encode, symbols_of
from relaxlab.lab.view import Control, View
from relaxlab.passes.base import PassFailed
from relaxlab.passes.bindings import all_bindings, tir_call
from relaxlab.script import parse
from relaxlab.tracing import Trace
from relaxlab.tracing.deduction import (
    Asked,
    Checked,
    Deduced,
    DeductionEvent,
    Lost,
    Matched,
    Unified,
    deduction_events,
)

MAX_LIVE_EVENTS = 1000
"""Events up to which a program is small enough to be edited in a live view."""

ANSWERS = {True: "proved", False: "never", None: "open"}


def shapes(program: Program) -> View:
    """Deduction binding by binding: rules, unifications, questions to the prover, what is left to
    run time, and where shapes are lost.

    program: a module, the text of a script, a trace (its first module is taken), or an error.
    In the live version of the view of a small program, its script can be edited.
    Raises TypeError for what is none of these. The view of a wrong program shows its errors.
    """
    mod, error = _module_of(program)
    found: list[DeductionEvent] = []
    if mod is not None:
        with deduction_events() as found:
            mod, diagnostics = annotate(mod)
        error = DiagnosticError(diagnostics) if diagnostics else error
    functions = [] if mod is None else _functions(mod, found)
    failure = None if error is None else failure_of(error, "normalize" if mod is not None else None)
    notes = [] if functions or failure else ["The program has no graph functions."]
    start = first_shown(functions, [len(f["bindings"]) for f in functions])
    state = {"functions": functions, "start": start, "failure": failure, "notes": notes}
    text = _text(functions, failure)
    if len(found) > MAX_LIVE_EVENTS or not isinstance(program, Module | str):
        return View("shapes", "Shapes", state, text)
    script = program if isinstance(program, str) else script_of(program)
    controls = (Control("program", "program", script),)
    return View("shapes", "Shapes", state, text, controls, lambda program: shapes(program))


def _module_of(program: Program) -> tuple[Module | None, Exception | None]:
    match program:
        case Module():
            return program, None
        case Trace():
            return program.module, None
        case PassFailed():
            return program.trace.module, None
        case DiagnosticError():
            return None, program
        case str():
            try:
                return parse(program, check=False), None
            except DiagnosticError as error:
                return None, error
        case _:
            raise TypeError(
                f"the shapes of {kind_of(program)} cannot be shown; give a module, the "
                "text of a script, or a trace"
            )


def _functions(mod: Module, found: list[DeductionEvent]) -> list[dict[str, Any]]:
    """The functions in the order in which they were deduced, callees first."""
    pending: list[DeductionEvent] = []
    functions: dict[str, list[dict[str, Any]]] = {}
    exprs: dict[str, list[expr.PrimExpr]] = {}
    origins: dict[str, dict[str, str]] = {}
    bindings = {b.var: b for f in mod.graph_functions().values() for b in all_bindings(f)}
    for event in found:
        if not isinstance(event, Deduced):
            pending.append(event)
            continue
        own = functions.setdefault(event.function, [])
        used = exprs.setdefault(event.function, [])
        known = origins.setdefault(event.function, {})
        own.append(_binding(mod, event, pending, bindings, used, known))
        pending = []
    return [
        {"name": name, "bindings": own, "symbols": symbols_of(exprs[name]),
         "origins": origins[name]}
        for name, own in functions.items()
    ]  # fmt: skip


def _binding(
    mod: Module,
    event: Deduced,
    before: list[DeductionEvent],
    bindings: dict[graph.Var, graph.Binding],
    used: list[expr.PrimExpr],
    origins: dict[str, str],
) -> dict[str, Any]:
    name = "return" if event.var is None else event.var.name
    binding = None if event.var is None else bindings.get(event.var)
    failed = is_failed(event.ty)
    size = None if failed else bytes_of(event.ty)
    cost = None if binding is None or failed else call_cost(mod, binding)
    dims = event.ty.shape if isinstance(event.ty, TensorType) else None
    used += [*(dims or ()), *([size] if size is not None else [])]
    used += [cost.flops] if cost is not None else []
    defined = [s.name for s in defined_symbols(event.ty)] if event.ty is not None else []
    new = [s for s in dict.fromkeys(defined) if s not in origins]
    new = new if event.kind in ("parameter", "match_cast") else []
    origins.update(dict.fromkeys(new, name))
    return {
        "name": name, "kind": event.kind, "failed": failed, "made_up": _is_made_up(event.var),
        "op": "" if binding is None else describe(mod, binding)[0],
        "text": "" if binding is None else script_of(binding),
        "type": "" if failed or event.ty is None else str(event.ty),
        "dims": None if dims is None else [encode(d) for d in dims],
        "dtype": event.ty.dtype if isinstance(event.ty, TensorType) else None,
        "bytes": None if size is None else encode(size),
        "flops": None if cost is None else encode(cost.flops),
        "rule": _rule(mod, event), "defines": new,
        "events": [_event_state(f) for f in dict.fromkeys(before)],
    }  # fmt: skip


def _is_made_up(var: graph.Var | None) -> bool:
    """Return whether a variable of a script has a name that does not stand at its place there."""
    span = None if var is None else var.span
    if var is None or span is None:
        return False
    return not span.source.line(span.line)[span.col :].startswith(var.name)


def _event_state(event: DeductionEvent) -> dict[str, Any]:
    match event:
        case Asked(condition, answer):
            return {"kind": "asked", "text": str(condition), "answer": ANSWERS[answer]}
        case Unified(symbol, value, place):
            return {"kind": "unified", "text": f"{symbol} := {value}", "place": place}
        case Matched(declared, expected, actual, place, answer):
            bound = f" = {expected}" if expected is not None and expected != declared else ""
            shown = "unknown" if actual is None else str(actual)
            text = f"declared {declared}{bound}, given {shown}"
            return {"kind": "matched", "text": text, "place": place, "answer": ANSWERS[answer]}
        case Checked(claim, known):
            return {"kind": "checked", "text": claim, "place": f"known: {known}"}
        case Lost(source, reason, remedy):
            return {"kind": "lost", "text": f"{source}: {reason}", "remedy": remedy}
        case Deduced():
            raise TypeError("a deduction ends the events of its binding")


def _rule(mod: Module, event: Deduced) -> str:
    """Return the rule that gave the type, in a sentence."""
    value = event.value
    if event.kind == "parameter":
        return "annotation of the parameter"
    if event.kind == "match_cast":
        return "stated by match_cast, checked at run time"
    if event.kind == "result":
        return "result of the function: what it states, or what its body has of known symbols"
    call = tir_call(value)
    if call is not None:
        return f"stated by the call; the buffers of {call.callee} are unified with what it is given"
    match value:
        case graph.Call(graph.Op(name), ty_args=()):
            return f"the rule of the operator R.{name}"
        case graph.Call(graph.Op(name)):
            return f"stated by the call of R.{name}, as nothing is known of what it calls"
        case graph.Call(graph.GlobalVar(name)) if isinstance(mod.get(name), loops.PrimFunc):
            return f"{name} is a loop function: it stores its results"
        case graph.Call(graph.GlobalVar(name)):
            return f"the signature of {name}: its parameters are unified with the arguments"
        case graph.Call():
            return "the type of the called function"
        case graph.If():
            return "what both branches have in common"
        case graph.TupleGetItem(_, index):
            return f"field {index} of the tuple's type"
        case graph.Tuple():
            return "a tuple of the fields' types"
        case graph.Function():
            return "the signature of the local function"
        case _:
            return "the value itself"


def _text(functions: list[dict[str, Any]], failure: dict[str, Any] | None) -> str:
    lines = failure_lines(failure)
    for function in functions:
        lines.append(f"{function['name']}:")
        for b in function["bindings"]:
            lines.append(f"  {b['name']}: {b['type'] or 'no type'}  ({b['rule']})")
            for f in b["events"]:
                answer = f" {f['answer']}" if "answer" in f else ""
                place = f" ({f['place']})" if "place" in f else ""
                lines.append(f"      {f['kind']}: {f['text']}{answer}{place}")
                if "remedy" in f:
                    lines.append(f"        {f['remedy']}")
    return clipped(lines) or "no graph functions"
