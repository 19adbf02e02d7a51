"""The loops explorer: a loop function's tree, its accesses stepped on small sizes, what each step
of a schedule changed, why a step was refused, and what the threads of a GPU do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from relaxlab.analysis.costs import cost_of
from relaxlab.analysis.evaluate import CannotEvaluate, evaluate
from relaxlab.ir.facts import CUDA, Facts
from relaxlab.ir.host import kernel_symbols
from relaxlab.ir.loops import PrimFunc
from relaxlab.ir.module import Module, name_of
from relaxlab.ir.names import among
from relaxlab.ir.target import Target, parse_target
from relaxlab.lab.attempts import Program, attempted, unscheduled_functions
from relaxlab.lab.decisions import PREFIX, Kernel, decision_controls, decisions_state
from relaxlab.lab.loop_costs import costs_state
from relaxlab.lab.loop_run import SMALL, SMALL_BOUND, Sizes, record, run_state
from relaxlab.lab.loop_threads import is_bound, threads_state
from relaxlab.lab.loop_tree import Row, Tree, difference, tree_of
from relaxlab.lab.payload import Interner
from relaxlab.lab.pipeline import pipeline, program_controls
from relaxlab.lab.report import report
from relaxlab.lab.script import script_state
from relaxlab.lab.view import Control, View
from relaxlab.passes.kernel_calls import written_buffers
from relaxlab.passes.pipeline import default_pipeline
from relaxlab.schedule.compiled import context_of
from relaxlab.schedule.explain import explain_refusal
from relaxlab.schedule.replay import replay
from relaxlab.schedule.rules.decisions import meaning_of
from relaxlab.schedule.schedule import Schedule
from relaxlab.schedule.state import NO_LOOP_FUNCTIONS
from relaxlab.schedule.trace import Instruction
from relaxlab.script import parse
from relaxlab.script.printer import print_module
from relaxlab.tracing import Trace

MOST_ACCESSES = 20_000
"""Accesses that can be stepped through in one run."""
ALL_ACCESSES = 40_000
"""Accesses that can be stepped through in the runs of all steps of a schedule together: each is
three bytes or so of the page."""
FEWEST_ACCESSES = 500
"""Accesses that each run keeps however many steps a schedule has: some iterations of a tile."""
LARGE = (256,)
"""Sizes at which the function that computes most is chosen."""
COUNTED_ACCESSES = 150_000
"""Accesses that are counted in one run: some seconds of the interpreter. The runs of all steps of a
schedule may have twice as many together."""
LIVE_ACCESSES = 15_000
"""Accesses that are counted in one run while someone waits for a choice: a tenth of the time."""


@dataclass(frozen=True, slots=True)
class _Version:
    """A form of the function: after the step of that number (-1: as given). `calls` are the steps
    since the version before, as text, those that only look included. `within`: the versions of the
    function whose schedule this one is a step of, outermost first."""

    number: int
    calls: tuple[str, ...]
    func: PrimFunc
    within: tuple[str, ...] = ()


def loops(
    subject: PrimFunc | Schedule | Module | Trace, name: str | None = None, **sizes: int | float
) -> View:
    """Look at a loop function: of a module by its name, alone, or with the steps of its schedule;
    of the trace of a compilation, with the decisions of its rule.

    `sizes` are the values of its symbols and scalar parameters, small ones by default. Raises
    ValueError for a name or a symbol that is not there.
    """
    if isinstance(subject, Trace):
        return _kernel_view(Kernel.of(subject, name), sizes, measured=False)
    return _loops(subject, name, sizes, COUNTED_ACCESSES)


def brief_loops(sch: Schedule, name: str) -> View:
    """The loops of a schedule, of which few accesses are counted: one of several in a view."""
    view = _loops(sch, name, {}, LIVE_ACCESSES, FEWEST_ACCESSES)
    return replace(view, controls=(), again=None)


def _loops(
    subject: PrimFunc | Schedule | Module, name: str | None, sizes: Mapping[str, int | float],
    most_counted: int, most_stepped: int = ALL_ACCESSES, facts: Facts = CUDA,
) -> View:  # fmt: skip
    """`loops` of what is no trace; `most_counted`: accesses that are counted in one run;
    `most_stepped`: those that are stepped through in all of them, but `FEWEST_ACCESSES` each;
    `facts`: of the GPU whose threads are simulated."""
    title, func, versions = _versions(subject, name)
    bound = is_bound(func)
    chosen = Sizes.of(func, sizes, SMALL_BOUND if bound else SMALL)
    interner = Interner()
    runs = sum(not v.within for v in versions)
    share = max(FEWEST_ACCESSES, min(MOST_ACCESSES, most_stepped // runs))
    counted = min(most_counted, 2 * most_counted // runs)
    states: list[dict[str, Any]] = []
    before: dict[tuple[str, ...], list[Row]] = {}
    for v in versions:
        tree = tree_of(v.func)
        # A nested schedule begins with the function as it was before the step that holds it.
        last = v.within if v.number >= 0 else v.within[:-1]
        change = difference(before.get(last, tree.rows), tree.rows)
        states.append({
            "number": v.number, "calls": list(v.calls), "within": list(v.within),
            "rows": [r.state() for r in tree.rows],
            "marks": change.marks, "gone": [[at, r.state()] for at, r in change.gone],
            **_run(v, tree, chosen, share, counted),
            "script": script_state(v.func, interner)["lines"],
        })  # fmt: skip
        before[v.within] = tree.rows
    threads = threads_state(func, chosen, title, facts) if bound else None
    refused = _refused(subject) if isinstance(subject, Schedule) else None
    state = {
        "title": title, "sizes": chosen.state(), "versions": states, "refused": refused,
        "threads": threads, "table": interner.lines,
        "notes": _notes(states, chosen, share, counted),
    }  # fmt: skip

    script, known_as = _script_of(subject, title)
    editor = program_controls(script)

    def again(program: str | None = None, **values: int | float) -> View:
        if program is None or program == editor[0].value:
            return _loops(subject, name, values, COUNTED_ACCESSES, facts=facts)
        edited = parse(program)
        known = kernel_symbols(edited.loop_functions().get(known_as) or func)
        kept = {v.name: values[v.name] for v in known if v.name in values}
        return _loops(edited, known_as, kept, COUNTED_ACCESSES, facts=facts)

    controls = (*editor, *(Control(k, "number", n) for k, n in chosen.state().items()))
    text = _text(title, state, func)
    return View("loops", f"Loops of {title}", state, text, controls, again if controls else None)


def _kernel_view(kernel: Kernel, sizes: Mapping[str, int | float], *, measured: bool) -> View:
    """A kernel's schedule, step by step, under its decisions."""
    sch = kernel.schedule()
    facts = _gpu_facts(context_of(kernel.trace, kernel.name).target)
    counted = LIVE_ACCESSES if measured else COUNTED_ACCESSES
    view = _loops(sch, kernel.name, sizes, counted, facts=facts)
    state = {**view.state, "decisions": decisions_state(kernel, sch, measured=measured)}
    if not sch.decisions:
        state["notes"] = ["The rule of this kernel asks for no decisions.", *view.state["notes"]]

    def again(**values: Any) -> View:
        kept = {k: n for k, n in values.items() if not k.startswith(PREFIX)}
        return _kernel_view(kernel.choosing(values), kept, measured=True)

    text = "\n".join([
        *(f"{d.key} = {d.value}: {meaning_of(d.name)}" for d in sch.decisions.values()), view.text
    ])  # fmt: skip
    controls = (*view.controls, *decision_controls(sch))
    remade = again if controls else None
    return replace(view, state=state, text=text, controls=controls, again=remade)


def _gpu_facts(target: Target) -> Facts:
    """The facts of a GPU; for other machines, those of the GPU that threads are simulated on where
    a function is bound to them all the same."""
    return target.facts if target.facts.block_threads else CUDA


def _run(v: _Version, tree: Tree, sizes: Sizes, share: int, counted: int) -> dict[str, Any]:
    """A run of a form and its costs. A form for some sizes only has none: it is run as a part of
    the function that it becomes a version of."""
    if v.within:
        return {"run": None, "costs": None}
    found = record(v.func, sizes, counted)
    costs = {**costs_state(found, v.func), "flops": _flops(v.func, sizes)}
    return {"run": run_state(found.first(share), tree, v.func), "costs": costs}


def _script_of(subject: PrimFunc | Schedule | Module, title: str) -> tuple[Module | None, str]:
    """A module that can be edited and the name of the function in it; None for a schedule, whose
    steps belong to the loops that they were made for."""
    if isinstance(subject, PrimFunc):
        return Module.of({title: subject}), title
    return (subject if isinstance(subject, Module) else None), title


def loops_of_program(program: Program, target: str | Target = "cpu") -> View:
    """The loop function that computes most after the passes; of a program that fails, the pipeline.

    Raises ValueError for an unknown target.
    """
    chosen = parse_target(target)
    trace, failure = attempted(program, default_pipeline(chosen))
    found = trace.result.loop_functions() if trace is not None and failure is None else {}
    if trace is None or failure is not None:
        return replace(pipeline(program, chosen), title="Loops")
    if not found:
        return report("Loops", "The compiled program has no loop functions: it calls no kernel.")
    plain = unscheduled_functions(trace)  # a schedule computes more, for the rest of a tile
    compared = {k: plain.get(k, f) for k, f in found.items()}
    name = max(found, key=lambda k: _flops(compared[k], Sizes.of(compared[k], {}, LARGE)) or 0)
    view = _loops(trace.result, name, {}, COUNTED_ACCESSES, facts=_gpu_facts(chosen))
    if len(found) == 1:
        return view
    note = (
        f"Of {len(found)} loop functions this is the one that computes most; look at another with "
        "relaxlab.explore.loops(relaxlab.trace(mod).result, name)."
    )
    return replace(view, state={**view.state, "notes": [note, *view.state["notes"]]})


def _versions(
    subject: PrimFunc | Schedule | Module, name: str | None
) -> tuple[str, PrimFunc, list[_Version]]:
    """The title, the function in its last form, and its forms."""
    if isinstance(subject, Schedule):
        return name or subject.name, subject.func, _scheduled(subject)
    if isinstance(subject, Module):
        found = subject.loop_functions()
        if name is None and len(found) == 1:
            name = next(iter(found))
        if name not in found:
            raise ValueError(_missing(name, found))
        return name, found[name], [_Version(-1, (), found[name])]
    if not isinstance(subject, PrimFunc):  # type: ignore[reportUnnecessaryIsInstance]
        kind = type(subject).__name__
        raise TypeError(f"expected a loop function, a Schedule or a Module, got {kind}")
    return name or name_of(subject), subject, [_Version(-1, (), subject)]


def _missing(name: str | None, found: Mapping[str, PrimFunc]) -> str:
    if not found:
        return NO_LOOP_FUNCTIONS
    names = ", ".join(found)
    if name is None:
        return f"the module has {len(found)} loop functions; name one of them: {names}"
    return f"no loop function named {name!r} in the module; it has: {among(name, found)}"


def _scheduled(sch: Schedule) -> list[_Version]:
    """The form before the first step and after each that changed something, within nested schedules
    as well."""
    found: list[_Version] = []
    last: dict[tuple[str, ...], PrimFunc] = {}
    count: dict[tuple[str, ...], int] = {}
    calls: dict[tuple[str, ...], list[str]] = {}

    def visit(one: Schedule, step: Instruction | None) -> None:
        within = one.within
        if step is None:
            count[within], calls[within] = -1, []
        else:
            count[within] += 1
            # The steps of nested schedules are listed by themselves.
            calls[within].append(str(step).rpartition("\n")[2])
        if step is None or one.func is not last[within]:
            found.append(_Version(count[within], tuple(calls[within]), one.func, within))
            calls[within], last[within] = [], one.func

    replay(sch.original, sch.trace, visit)
    return found


def _flops(func: PrimFunc, sizes: Sizes) -> int | None:
    """The arithmetic of a run; None where the loops do not say."""
    cost = cost_of(func, len(written_buffers(func)))
    if cost is None:
        return None
    try:
        return int(evaluate(cost.flops, sizes.values))
    except CannotEvaluate:
        return None


def _refused(sch: Schedule) -> dict[str, Any] | None:
    if sch.refused is None:
        return None
    refusal = sch.refused.error.refusal
    why = explain_refusal(sch.original, sch.trace, sch.refused.step)
    steps = [*sch.trace, sch.refused.step]
    return {
        "step": str(sch.refused.step), "primitive": refusal.primitive, "place": refusal.place,
        "condition": refusal.condition, "suggestion": refusal.suggestion,
        "made_by": refusal.cause,
        "causes": [[n, str(steps[n])] for n in why.causes],
        "order": None if why.order is None else [[n, str(steps[n])] for n in why.order],
        "trials": why.trials,
    }  # fmt: skip


def _notes(states: list[dict[str, Any]], sizes: Sizes, share: int, counted: int) -> list[str]:
    """Return sentences about what the view leaves out."""
    found: list[str] = []
    whole = [s for s in states if s["run"] is not None]
    if len(whole) < len(states):
        found.append(
            "Indented steps are those of nested schedules, each of a version of the function for "
            "some sizes: their loops are shown, and run once the versions are together."
        )
    smaller = "; smaller sizes show more" if sizes.values else ""
    for what, most, cut in (
        ("stepped through", share, sum(s["run"]["cut"] for s in whole)),
        ("counted", counted, sum(s["costs"]["cut"] for s in whole)),
    ):
        after = f" after {cut} of {len(whole)} steps" if cut < len(whole) else ""
        if cut:
            found.append(f"Only the first {most:,} accesses are {what}{after}{smaller}.")
    if any(s["costs"]["through_addresses"] for s in whole):
        found.append(
            "Intrinsics are given addresses; what they read and write there is not among the "
            "accesses."
        )
    return found


def _text(title: str, state: Mapping[str, Any], func: PrimFunc) -> str:
    """Return the view's text, for readers without a script."""
    sizes = ", ".join(f"{k} = {v}" for k, v in state["sizes"].items())
    lines = [f"{title}{f' with {sizes}' if sizes else ''}", ""]
    for v in state["versions"]:
        costs = v["costs"]
        within = v["within"]
        head = " ; ".join(v["calls"]) or (f"{within[-1]}:" if within else "as given")
        lines.append("    " * (len(within) - (bool(within) and not v["calls"])) + head)
        if costs is None:
            continue
        lines.append(
            f"    {costs['reads']} reads and {costs['writes']} writes of {costs['elements']} "
            f"elements of memory by {costs['issued']['loads']} loads and "
            f"{costs['issued']['stores']} stores{' (cut)' if costs['cut'] else ''}"
        )
        if costs["error"]:
            lines.append(f"    fails: {costs['error']}")
    refused = state["refused"]
    if refused is not None:
        lines += ["", f"refused: {refused['step']}", f"    condition: {refused['condition']}"]
        lines += [f"    in its way: step {n}: {text}" for n, text in refused["causes"]]
        if refused["order"] is not None:
            lines += ["    this order works:", *(f"        {t}" for _, t in refused["order"])]
    threads = state["threads"]
    for p in threads["problems"] if threads else ():
        lines += ["", f"{p['kind']}: {p['message']}", f"    {p['site']}"]
    return "\n".join([*lines, "", print_module(func)])
