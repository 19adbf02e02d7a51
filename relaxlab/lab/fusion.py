"""The fusion explorer: which calls become one kernel, decision by decision."""

from __future__ import annotations

from functools import partial
from typing import Any

from relaxlab.ir import graph, loops
from relaxlab.ir.module import Module
from relaxlab.ir.names import among
from relaxlab.ir.node import replace
from relaxlab.ir.substitute import substitute
from relaxlab.ir.target import Target, parse_target
from relaxlab.lab.attempts import (
    Program,
    attempted,
    clipped,
    failure_lines,
    first_shown,
    record_of,
    through,
)
from relaxlab.lab.graph import Dataflow, dataflow, flow_state
from relaxlab.lab.modules import function_lines
from relaxlab.lab.payload import Interner
from relaxlab.lab.pictures import graph_drawing
from relaxlab.lab.pipeline import program_controls
from relaxlab.lab.view import Control, View
from relaxlab.passes.bindings import all_bindings, map_blocks, tir_call, with_bindings
from relaxlab.passes.fuse_ops import FuseOptions
from relaxlab.passes.fusion_rules import summary_of
from relaxlab.passes.pipeline import default_pipeline
from relaxlab.tracing import PassRecord, Remark, Trace

KINDS = {
    "elementwise": "each element from the same place",
    "broadcast": "from a subsequence of its indices",
    "injective": "from single places",
    "reduction": "combines many elements",
    "out_ewise_fusible": "a sum of products, or a reduction applied back to rows",
    "opaque": "nothing is known",
}
"""The meaning of the pattern kinds (the paper's Algorithm 1), in a few words."""


def fusion(
    program: Program,
    name: str | None = None,
    target: str | Target = "cpu",
    *,
    max_group: int | None = None,
) -> View:
    """Every decision of `fuse_ops`, and what `fuse_tir` makes of each group.

    program: a module, the text of a script, or a trace. name: the graph function (None: all that
    call loop functions). max_group: the most calls in one kernel (None: as the pass has it; a trace
    is as it was made); the live version changes it. Raises KeyError for a function that the program
    does not have, ValueError for an unknown target, TypeError for what is no program. A program
    that fails gives a view of that.
    """
    passes = through(default_pipeline(parse_target(target)).passes, "fuse_tir")
    if max_group is not None:
        passes = passes.with_options("fuse_ops", max_group=max_group)
    trace, failure = attempted(program, passes)
    grouped, merged = record_of(trace, "fuse_ops"), record_of(trace, "fuse_tir")
    notes: list[str] = []
    interner = Interner()
    states: list[dict[str, Any]] = []
    if grouped is not None:
        after = merged.after if merged is not None else None
        states = [
            _function(n, fn, grouped, after, interner)
            for n, fn in _chosen(grouped.before, name).items()
        ]
    elif trace is not None and failure is None:
        notes.append("The trace has no fuse_ops: there are no decisions to show.")
    elif trace is not None:
        last = trace.passes[-1].before if trace.passes else trace.module
        states = [_undecided(n, fn, last) for n, fn in _chosen(last, name).items()]
    if trace is not None and not states and not notes:
        notes.append("The program has no graph functions: there is nothing to fuse.")
    start = first_shown(states, [len(s["steps"]) for s in states])
    state = {
        "functions": states, "start": start, "lines": interner.lines, "kinds": KINDS,
        "failure": failure, "notes": notes,
    }  # fmt: skip
    most = Control("max_group", "number", max_group or FuseOptions().max_group)

    source = program.module if isinstance(program, Trace) else program

    def again(max_group: float, program: Program = source) -> View:
        return fusion(program, name, target, max_group=max(1, int(max_group)))

    controls = (*program_controls(source), most)
    text = _text(states, failure)
    drawing = partial(graph_drawing, "Fusion", text, states) if states else None
    return View("fusion", "Fusion", state, text, controls, again, drawing)


def _chosen(mod: Module, name: str | None) -> dict[str, graph.Function]:
    known = {n: f for n, f in mod.graph_functions().items() if not f.attrs.get("Primitive")}
    if name is not None:
        if name not in known:
            raise KeyError(f"no graph function {name!r}; the program has: {among(name, known)}")
        return {name: known[name]}
    calling = {n: f for n, f in known.items() if any(map(_is_call, all_bindings(f)))}
    return calling or known


def _is_call(b: graph.Binding) -> bool:
    return tir_call(b.value) is not None


def _function(
    name: str,
    fn: graph.Function,
    record: PassRecord,
    merged: Module | None,
    interner: Interner,
) -> dict[str, Any]:
    """One function: its graph, the decisions in order, and what became of each group."""
    own = set(fn.params) | {b.var for b in all_bindings(fn)}
    own |= {v for r in record.remarks if r.about.get("source") in own for v in _copies(r)}
    decisions = [r for r in record.remarks if r.about.get("source") in own]
    flow = dataflow(record.before, with_copies(fn, decisions))
    steps = [_step(r, flow) for r in decisions]
    made: dict[int, list[int]] = {}
    for step in steps:
        if step["applied"] and step["members"]:
            made = {sink: m for sink, m in made.items() if sink not in step["members"]}
            made[step["members"][-1]] = step["members"]
    outlined = record.after.graph_functions()
    calls = {b.var: b.value for b in all_bindings(outlined[name])}
    groups: list[dict[str, Any]] = []
    parts: dict[str, list[int]] = {}
    for members in made.values():
        nodes = [flow.nodes[m] for m in members]
        sink = nodes[-1].var
        callee = None if sink is None else _callee(calls.get(sink))
        for n in nodes:
            if n.label not in parts:
                parts[n.label] = interner.ids(function_lines(n.label, record.before[n.label]))
        loop_function = None if merged is None or callee is None else merged.get(callee)
        groups.append({
            "members": members, "name": callee, "parts": [n.label for n in nodes],
            "grouped": [] if callee is None
            else interner.ids(function_lines(callee, outlined[callee])),
            "merged": interner.ids(function_lines(callee or "", loop_function))
            if isinstance(loop_function, loops.PrimFunc) else [],
        })  # fmt: skip
    state = flow_state(record.before, flow, _kinds(record.before, flow))
    return {"name": name, **state, "steps": steps, "made": groups, "parts": parts}


def _undecided(name: str, fn: graph.Function, mod: Module) -> dict[str, Any]:
    """The graph of a function of a program that failed before anything could be fused."""
    state = flow_state(mod, dataflow(mod, fn))
    return {"name": name, **state, "steps": [], "made": [], "parts": {}}


def _kinds(mod: Module, flow: Dataflow) -> dict[int, str]:
    """The kinds that fusion goes by: a gather counts as injective."""
    found: dict[int, str] = {}
    for i, n in enumerate(flow.nodes):
        func = mod.get(n.label) if n.origin == "loops" else None
        if isinstance(func, loops.PrimFunc) and "op_pattern" in func.attrs:
            found[i] = summary_of(func).kind.name.lower()
    return found


def _copies(r: Remark) -> list[graph.Var]:
    return [v for _, v in r.about.get("copies", ())] if r.applied else []


def _callee(value: graph.Expr | None) -> str | None:
    match value:
        case graph.Call(graph.GlobalVar(name)):
            return name
        case _:
            return None


def with_copies(fn: graph.Function, decisions: list[Remark]) -> graph.Function:
    """`fn` with a copy of a decode for each of its readers, where `fuse_ops` made them."""
    copies: dict[graph.Var, list[tuple[graph.Var, graph.Var]]] = {}
    split: set[graph.Var] = set()
    for r in decisions:
        if r.applied and "copies" in r.about:
            split.add(r.about["source"])
            for reader, copy in r.about["copies"]:
                copies.setdefault(reader, []).append((r.about["source"], copy))
    values = {b.var: b for b in all_bindings(fn)} if split else {}

    def block(blk: graph.BindingBlock) -> graph.BindingBlock:
        new: list[graph.Binding] = []
        for b in blk.bindings:
            mine = copies.get(b.var, [])
            new += [replace(values[source], var=copy) for source, copy in mine]  # type: ignore[call-arg]
            if b.var not in split:
                new.append(substitute(b, values=dict(mine)))
        return with_bindings(blk, new)

    return map_blocks(fn, block) if split else fn


def _step(r: Remark, flow: Dataflow) -> dict[str, Any]:
    about = r.about
    source, target = about["source"], about.get("target")
    members = [flow.number[v] for v in about.get("members", ()) if v in flow.number]
    copies = [flow.number[v] for _, v in about.get("copies", ()) if v in flow.number]
    return {
        "source": flow.number.get(source),
        "target": None if target is None else flow.number.get(target),
        "members": members, "copies": copies, "applied": r.applied,
        "subject": r.subject, "reason": r.reason,
    }  # fmt: skip


def _text(states: list[dict[str, Any]], failure: dict[str, Any] | None) -> str:
    lines = failure_lines(failure)
    for s in states:
        made = sum(step["applied"] for step in s["steps"])
        lines.append(f"{s['name']}: {len(s['steps'])} decisions, {made} made")
        for step in s["steps"]:
            sign = "+" if step["applied"] else "-"
            lines.append(f"  {sign} {step['subject']}: {step['reason']}")
    return clipped(lines) or "no decisions"
