"""The memory explorer: the place and live range of every temporary, and the memory needed without
reuse."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from relaxlab.analysis.costs import bytes_of
from relaxlab.ir import graph, types
from relaxlab.ir.errors import counted
from relaxlab.ir.module import Module
from relaxlab.ir.names import among
from relaxlab.ir.node import replace
from relaxlab.ir.substitute import symbols_in
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
from relaxlab.lab.graph import describe
from relaxlab.lab.pictures import memory_drawing
from relaxlab.lab.pipeline import program_controls, target_control
from relaxlab.lab.symbols import encode, spelled, symbols_of
from relaxlab.lab.view import View
from relaxlab.passes.bindings import all_bindings
from relaxlab.passes.liveness import PER_THREAD, Liveness, is_allocation, liveness_of
from relaxlab.passes.pipeline import default_pipeline
from relaxlab.passes.plan_memory import Arena, MemoryPlan, Placement, memory_plan_of, size_of
from relaxlab.tracing import Trace

BOUNDS = (64, 256, 1024, 4096)
"""Upper bounds to try where a function declares none."""
SCALES = ((1, 4), (1, 2), (2, 1))
"""Multiples of the declared bounds to try."""


def memory(program: Program, name: str | None = None, target: str | Target = "cpu") -> View:
    """The plan of each graph function that has temporaries, or of the named one: as compiled, and
    for other upper bounds of its symbols.

    program: a module, the text of a script, or a trace (then the target is the trace's). The live
    version changes the target. Raises KeyError for a function that the program does not have,
    ValueError for an unknown target, TypeError for what is no program. A program that fails gives a
    view of that.
    """
    chosen_target = parse_target(target)
    kind = target if isinstance(target, str) else chosen_target.kind
    passes = default_pipeline(chosen_target).passes
    trace, failure = attempted(program, through(passes, "plan_memory"))
    record = record_of(trace, "plan_memory")
    notes: list[str] = []
    states: list[dict[str, Any]] = []
    if record is not None:
        known = record.before.graph_functions()
        if name is not None and name not in known:
            raise KeyError(f"no graph function {name!r}; the program has: {among(name, known)}")
        use_bounds = bool(record.options.get("use_bounds", True))
        chosen = known if name is None else {name: known[name]}
        found = [_function(n, f, record.before, use_bounds) for n, f in chosen.items()]
        states = [s for s in found if s["tensors"]]
        if not states:
            notes.append("No function has temporaries: there is nothing to plan.")
    elif trace is not None and failure is None:
        notes.append("The trace has no plan_memory: there is no plan to show.")
    start = first_shown(states, [len(s["tensors"]) for s in states])
    state = {"functions": states, "start": start, "failure": failure, "notes": notes}
    control = target_control(kind)

    source = program.module if isinstance(program, Trace) else program

    def again(target: str, program: Program = source) -> View:
        return memory(program, name, target)

    controls = (*program_controls(source), control)
    text = _text(states, failure)
    drawing = partial(memory_drawing, "Memory", text, states) if states else None
    return View("memory", "Memory", state, text, controls, again, drawing)


def _function(name: str, fn: graph.Function, mod: Module, use_bounds: bool) -> dict[str, Any]:
    live = liveness_of(fn, mod)
    steps, first, last = _steps(fn, mod, live)
    numbers: dict[graph.Var, int] = {}
    tensors: list[dict[str, Any]] = []
    sizes = [bytes_of(i.var.ty) for i in live.intervals.values()]
    for interval, size in zip(live.intervals.values(), sizes, strict=True):
        numbers[interval.var] = len(tensors)
        tensors.append({
            "name": interval.var.name, "type": str(interval.var.ty),
            "start": first[interval.start], "end": max(first[interval.start], last[interval.end]),
            "bytes": None if size is None else encode(size),
        })  # fmt: skip
    symbols = symbols_of(s for s in sizes if s is not None)
    declared: Mapping[str, int] = fn.attrs.get("tir_var_upper_bound", {})
    plans = [
        _plan(title, bounds, fn, mod, numbers)
        for title, bounds in _variants(declared if use_bounds else {}, symbols)
    ]
    return {
        "name": name, "steps": steps, "tensors": tensors, "symbols": symbols, "plans": plans,
        "start": next(i for i, p in enumerate(plans) if p["compiled"]),
    }  # fmt: skip


def _steps(
    fn: graph.Function, mod: Module, live: Liveness
) -> tuple[list[str], list[int], list[int]]:
    """Return the names of the steps in order, allocations left out; and for each position of a
    binding the next step at or after it, and the last at or before it."""
    ordered = sorted((live.positions[b], b) for b in all_bindings(fn) if b in live.positions)
    steps: list[str] = []
    first = [0] * len(ordered)
    last = [0] * len(ordered)
    for position, b in ordered:
        first[position] = len(steps)
        if not is_allocation(b.value):
            steps.append(describe(mod, b)[0])
        last[position] = max(0, len(steps) - 1)
    top = max(0, len(steps) - 1)
    return steps, [min(i, top) for i in first], last


def _variants(
    declared: Mapping[str, int], symbols: list[str]
) -> list[tuple[str, Mapping[str, int] | None]]:
    """Titles and bounds of the plans to make, in order of the bounds; None: as compiled."""
    unbounded: list[tuple[str, Mapping[str, int] | None]] = [("without upper bounds", {})]
    if not symbols:
        return [("as compiled", None)]
    if not declared:
        more = [(f"every symbol at most {b}", dict.fromkeys(symbols, b)) for b in BOUNDS]
        return [("as compiled: no upper bounds", None), *more]

    def scaled(up: int, down: int) -> dict[str, int]:
        return {s: max(1, b * up // down) for s, b in declared.items()}

    def text(bounds: Mapping[str, int]) -> str:
        return ", ".join(f"{s} ≤ {b}" for s, b in bounds.items())

    below = [(text(scaled(*s)), scaled(*s)) for s in SCALES if s[0] < s[1]]
    above = [(text(scaled(*s)), scaled(*s)) for s in SCALES if s[0] > s[1]]
    return [*unbounded, *below, (f"as compiled: {text(declared)}", None), *above]


def _plan(
    title: str,
    bounds: Mapping[str, int] | None,
    fn: graph.Function,
    mod: Module,
    numbers: dict[graph.Var, int],
) -> dict[str, Any]:
    if bounds is not None:
        fn = replace(fn, attrs=fn.attrs.with_(tir_var_upper_bound=bounds))
    used: Mapping[str, int] = fn.attrs.get("tir_var_upper_bound", {})
    plan: MemoryPlan = memory_plan_of(fn, mod)
    return {
        "title": title, "compiled": bounds is None, "bounds": dict(used),
        "arenas": [_arena(a, numbers, used) for a in plan.arenas],
        "unplanned": [[numbers[v], reason] for v, reason in plan.unplanned],
    }  # fmt: skip


def _arena(
    arena: Arena, numbers: dict[graph.Var, int], bounds: Mapping[str, int]
) -> dict[str, Any]:
    by_name = {p.var.name: numbers[p.var] for p in arena.placements}
    return {
        "scope": "for each thread" if arena.scope == PER_THREAD else "shared by all threads",
        "after": None if arena.after is None else arena.after.var.name,
        "size": encode(arena.size), "apart": encode(arena.apart),
        "blocks": [
            [numbers[p.var], encode(p.offset), encode(p.size), [by_name[n] for n in p.reuses],
             _why(p, arena, bounds)]
            for p in arena.placements
        ],
    }  # fmt: skip


def _why(p: Placement, arena: Arena, bounds: Mapping[str, int]) -> str:
    """Return the reason why a tensor shares memory with others, or does not."""
    if p.reuses:
        return f"it reuses the memory of {' and '.join(p.reuses)}, which nothing reads any more"
    dead = [q for q in arena.placements if q.end < p.start]
    if not dead:
        return "new memory: no earlier tensor is dead yet"
    known = bounds if all(symbols_bounded(q.var.ty, bounds) for q in arena.placements) else {}
    factors = size_of(p.var.ty, known)[1]
    alike = [q for q in dead if size_of(q.var.ty, known)[1] == factors]
    if not alike:
        return (
            f"new memory: dead tensors ({', '.join(q.var.name for q in dead[:3])}) have sizes in "
            "other symbols, and which is larger is not known"
        )
    names = ", ".join(q.var.name for q in alike[:3])
    return (
        f"new memory: dead tensors ({names}) are too small, or their memory is partly in use again"
    )


def symbols_bounded(ty: types.Type | None, bounds: Mapping[str, int]) -> bool:
    """True if all symbols of a type have upper bounds."""
    return all(s.name in bounds for s in symbols_in(ty))


def _text(states: list[dict[str, Any]], failure: dict[str, Any] | None) -> str:
    lines = failure_lines(failure)
    for s in states:
        plan = s["plans"][s["start"]]
        tensors = counted(len(s["tensors"]), "temporary", "temporaries")
        lines.append(f"{s['name']}: {tensors}, {counted(len(s['steps']), 'step')}")
        for a in plan["arenas"]:
            size, apart = spelled(a["size"]), spelled(a["apart"])
            lines.append(f"  an arena {a['scope']}: {size} bytes; without reuse {apart}")
            for number, offset, size, _, why in a["blocks"]:
                t = s["tensors"][number]
                place = f"{spelled(size)} bytes at {spelled(offset)}"
                lines.append(f"    {t['name']}: {place}: {why}")
        for number, reason in plan["unplanned"]:
            lines.append(f"  {s['tensors'][number]['name']}: allocated apart: {reason}")
    return clipped(lines) or "no plan"
