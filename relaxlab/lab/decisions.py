"""The decisions of a kernel's rule in the loops explorer: what else could be chosen, the loops that
other choices make, and, where a kernel is there to ask, their code and, for this kind of machine,
their measured time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import numpy as np

from relaxlab.codegen.errors import CodegenError
from relaxlab.ir.loops import Buffer, PrimFunc
from relaxlab.ir.names import meant
from relaxlab.ir.substitute import symbols_in
from relaxlab.ir.target import Target, target_kind
from relaxlab.ir.types import PrimType, TensorType
from relaxlab.lab.loop_tree import difference, tree_of
from relaxlab.lab.payload import Interner
from relaxlab.lab.script import script_state
from relaxlab.lab.view import Control
from relaxlab.runtime.arrays import ExecutionError
from relaxlab.runtime.build import trace
from relaxlab.runtime.check.inputs import random_value
from relaxlab.runtime.timing import compare
from relaxlab.schedule.bounds import UPPER_BOUNDS
from relaxlab.schedule.compiled import context_of, schedule_of, scheduled_kernels
from relaxlab.schedule.decisions import Decision, Value, other_choices
from relaxlab.schedule.error import ScheduleError
from relaxlab.schedule.rules.decisions import meaning_of
from relaxlab.schedule.schedule import Schedule
from relaxlab.tracing import Trace

MOST_FORMS = 24
"""Other choices whose loops are recorded."""
MOST_SECONDS = 5.0
"""After which no further choice is recorded: a kernel with a dozen versions takes a second each."""
TIMED_SIZE = 256
"""The value of symbols in a measurement, at most their bounds."""
PREFIX = "decision "
"""Before the key of a decision in the name of its control."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel of a compilation that a rule scheduled. `chosen`: the texts of the values of
    decisions by key, where they are not the ones of the compilation."""

    trace: Trace
    name: str
    chosen: Mapping[str, str] = field(default_factory=dict[str, str])

    @staticmethod
    def of(trace: Trace, name: str | None) -> Kernel:
        """The kernel of that name, or the only one. Raises ValueError where there is none."""
        known = scheduled_kernels(trace)
        if name is None and len(known) == 1:
            name = known[0]
        if name is None or name not in known:
            names = ", ".join(known) or "none"
            asked = f"{name!r} is none of them{meant(name, known)}" if name else "name one of them"
            raise ValueError(f"the kernels that rules scheduled are: {names}; {asked}")
        return Kernel(trace, name)

    def schedule(self) -> Schedule:
        """Its schedule with the chosen values."""
        return schedule_of(self.trace, self.name, self._decided if self.chosen else None)

    def _decided(self, key: str, candidates: Sequence[Value]) -> Value | None:
        # A decision that the compilation did not ask for keeps its default until it is chosen.
        made = self.chosen.get(key)
        return next((c for c in candidates if str(c) == made), None)

    def choosing(self, values: Mapping[str, object]) -> Kernel:
        """The kernel with values of the controls that `decision_controls` has."""
        chosen = {k.removeprefix(PREFIX): str(v) for k, v in values.items() if k.startswith(PREFIX)}
        return Kernel(self.trace, self.name, chosen)


def decision_controls(sch: Schedule) -> tuple[Control, ...]:
    """A control of each decision, which the view itself shows."""
    return tuple(
        Control(PREFIX + d.key, "inner", str(d.value), tuple(map(str, d.candidates)))
        for d in sch.decisions.values()
    )


def decisions_state(kernel: Kernel, sch: Schedule, *, measured: bool) -> dict[str, Any]:
    """The decisions of a schedule. `measured`: with code and time, and any choice open;
    otherwise with the loops of other choices as far as `MOST_FORMS` and `MOST_SECONDS` go."""
    interner = Interner()
    decisions = list(sch.decisions.values())
    forms: list[dict[str, Any]] = []
    found: dict[tuple[str, Value], int | str] = {}
    started = perf_counter()
    for d, value in [] if measured else other_choices(decisions):
        if len(forms) == MOST_FORMS or perf_counter() - started > MOST_SECONDS:
            break
        made = Kernel(kernel.trace, kernel.name, _texts(decisions) | {d.key: str(value)})
        try:
            func = made.schedule().func
        except (ScheduleError, KeyError) as error:
            found[d.key, value] = f"no rule makes it: {error}"
            continue
        found[d.key, value] = len(forms)
        forms.append(_form(f"{d.key} = {value}", sch.func, func, interner))
    return {
        "rows": [_row(d, found) for d in decisions],
        "forms": forms,
        "table": interner.lines,
        "measured": _measured(kernel, sch) if measured else None,
    }


def _texts(decisions: Sequence[Decision]) -> dict[str, str]:
    return {d.key: str(d.value) for d in decisions}


def _row(d: Decision, found: Mapping[tuple[str, Value], int | str]) -> dict[str, Any]:
    """One decision; each candidate with the number of its form, or why it has none."""
    reason = "not recorded: a live view makes it"
    return {
        "key": d.key, "meaning": meaning_of(d.name),
        "value": str(d.value), "default": str(d.default),
        "choices": [[str(c), found.get((d.key, c), reason)] for c in d.candidates],
    }  # fmt: skip


def _form(title: str, before: PrimFunc, func: PrimFunc, interner: Interner) -> dict[str, Any]:
    """The loops of another choice, as a version of the function that is shown without a run."""
    tree = tree_of(func)
    change = difference(tree_of(before).rows, tree.rows)
    return {
        "title": title, "within": [], "rows": [r.state() for r in tree.rows],
        "marks": change.marks, "gone": [[at, r.state()] for at, r in change.gone],
        "run": None, "costs": None, "script": script_state(func, interner)["lines"],
    }  # fmt: skip


def _measured(kernel: Kernel, sch: Schedule) -> dict[str, Any]:
    """Code, and times beside those of the rule's defaults, in turns; or why there are none."""
    target = context_of(kernel.trace, kernel.name).target
    kind = target_kind(target.kind)
    made: dict[str, Any] = {"error": "", "times": [], "code": [], "language": ""}
    try:
        # The compiler moves scratch memory out of the loops.
        lowered = trace(sch, target).result.loop_functions()[kernel.name]
        pane = kind.code(kernel.name, lowered, target).panes[-1]
        made |= {"code": [line.text for line in pane.lines], "language": pane.title}
        if target.kind != Target.host().kind:
            return {**made, "error": f"not measured: the kernel is for {target.kind}"}
        usual = schedule_of(kernel.trace, kernel.name, lambda *_: None)
        arguments, sizes = _arguments(sch.func)
        result = compare({"defaults": usual.func, "this choice": sch.func}, *arguments)
    except (CodegenError, ExecutionError, ScheduleError, ValueError) as error:
        return {**made, "error": f"not measured: {error}"}
    differs = result.differs or {}
    return {
        **made,
        "error": "".join(f"the results differ: {d}" for d in differs.values()),
        "sizes": sizes,
        "times": [[t.name, t.seconds, t.spread, len(t.samples)] for t in result],
    }


def _arguments(func: PrimFunc) -> tuple[list[Any], str]:
    """Random arguments of a kernel, its results among them, and the sizes as text."""
    bounds: Mapping[str, int] = func.attrs.get(UPPER_BOUNDS, {})
    symbols = symbols_in(tuple(b.shape for b in func.buffers))
    env = {s: min(TIMED_SIZE, bounds.get(s.name, TIMED_SIZE)) for s in symbols}
    rng = np.random.default_rng(0)
    types = [
        TensorType(p.shape, p.dtype) if isinstance(p, Buffer) else PrimType(p.dtype)
        for p in func.params
    ]
    values = [random_value(t, env, rng) for t in types]
    return values, ", ".join(f"{s.name} = {n}" for s, n in env.items())
