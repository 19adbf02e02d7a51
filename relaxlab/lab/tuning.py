"""The tuning explorer: the trials of a search, which decisions matter, and the loops and code of
each trial beside those of the default."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from statistics import fmean
from time import perf_counter
from typing import Any, TypeAlias

from relaxlab.ir.errors import kind_of
from relaxlab.ir.module import Module
from relaxlab.ir.target import Target, parse_target
from relaxlab.lab.code import code
from relaxlab.lab.compare import compare
from relaxlab.lab.loops import brief_loops
from relaxlab.lab.view import Control, Page, View
from relaxlab.runtime.programs import Program, as_module, with_entries
from relaxlab.schedule.compiled import schedule_of
from relaxlab.schedule.decisions import Value, is_in_space, values_in
from relaxlab.schedule.rules.decisions import meaning_of
from relaxlab.schedule.trace import from_json
from relaxlab.tuning.database import Database, Key, Record
from relaxlab.tuning.kernels import KERNEL, Kernel, kernels_of, schedule_alone
from relaxlab.tuning.measured import GAIN
from relaxlab.tuning.points import changed_keys
from relaxlab.tuning.tune import Tuning
from relaxlab.tuning.workshop import sizes_text

MOST_DETAILS = 4
"""Trials of a view whose loops and code are recorded: winners, then the best. A live view makes
others."""
MOST_SECONDS = 5.0
"""After which the loops and code of no further trial are recorded."""
ENDS = ("accepted", "default")
"""The outcomes of a search, as opposed to those of a trial."""

Subject: TypeAlias = Tuning | Database | str | os.PathLike[str]


class TuningView(View):
    """A search, with the views that a trial is looked at in."""

    __slots__ = ()

    @property
    def kinds(self) -> tuple[str, ...]:
        return ("tuning", "page", "compare", "loops", "code")


@dataclass(frozen=True, slots=True)
class _Trial:
    """A record of a trial. ratio, low, high: about how many times as fast as the default it is;
    None where it was not measured. best: the same of the best so far, this trial included."""

    record: Record
    ratio: float | None
    low: float | None
    high: float | None
    best: float


@dataclass(frozen=True, slots=True)
class _Search:
    """The last search for a kernel. end: how it ended; None while it runs. values: of each trial's
    decisions, by key."""

    key: Key
    name: str
    trials: tuple[_Trial, ...]
    end: Record | None
    kernel: Kernel | None
    values: tuple[Mapping[str, Value], ...] = field(default=())


def tuning(subject: Subject, program: Program | None = None) -> View:
    """The trials of the last search for each kernel: how the best got faster, which decisions
    matter, what failed and why.

    subject: the result of `tune`, its database, or the name of its file. program: the module that
    was tuned: with it, kernels of a database have names, and trials have loops and code. Live, the
    method `refresh` of the widget shows what the database has by then; it is meant for
    `tune(report=...)`.

    Raises FileNotFoundError where the file is not there.
    """
    kernels = {k.key: k for k in _kernels_of(program)}
    return _view(subject, kernels, "", recorded=True)


def _kernels_of(program: Program | None) -> Sequence[Kernel]:
    if program is None:
        return ()
    mod: Module = with_entries(as_module(program))[0]
    return kernels_of(mod, parse_target("cpu"), {})[0]


def _view(subject: Subject, kernels: Mapping[str, Kernel], trial: str, *, recorded: bool) -> View:
    """The view; `trial`: the numbers of a kernel and of a trial, `0:3`, whose details it has to
    have; `recorded`: with those of the best trials as well."""
    database = subject.database if isinstance(subject, Tuning) else subject
    if not isinstance(database, Database | str | os.PathLike):
        raise TypeError(
            "expected what rl.tune returned, a database of tuned kernels or the path of one, got "
            f"{kind_of(database)}; a program is the second argument"
        )
    if not isinstance(database, Database):
        database = Database(database, create=False)
    names = {k: kernel.name for k, kernel in kernels.items()}
    if isinstance(subject, Tuning):
        names |= {k.key: k.name for k in subject.kernels}
    found = [s for s in _searches(database, names, kernels) if _is_about(s, subject)]
    title = f"Tuning in {database.path.name}"
    state = {
        "title": title, "notes": _notes(found, kernels),
        "kernels": [_state(s) for s in found],
        "details": _details(found, trial, recorded=recorded),
        "left": dict(subject.left_out) if isinstance(subject, Tuning) else {},
    }  # fmt: skip

    def again(trial: str = "") -> View:
        return _view(subject, kernels, trial, recorded=False)

    controls = (Control("trial", "inner", ""),)
    return TuningView("tuning", title, state, _text(title, state), controls, again)


def _is_about(search: _Search, subject: Subject) -> bool:
    return not isinstance(subject, Tuning) or search.key.kernel in {k.key for k in subject.kernels}


def _searches(
    database: Database, names: Mapping[str, str], kernels: Mapping[str, Kernel]
) -> list[_Search]:
    """The last search for each kernel of a database."""
    records: dict[Key, list[Record]] = {}
    for record in database.records():
        of_kernel = records.setdefault(record.key, [])
        if of_kernel and of_kernel[-1].outcome in ENDS:
            of_kernel.clear()
        of_kernel.append(record)
    found: list[_Search] = []
    for key, made in records.items():
        end = made[-1] if made[-1].outcome in ENDS else None
        trials = tuple(_trials([r for r in made if r is not end]))
        name = names.get(key.kernel, f"kernel {key.kernel[:8]}")
        values = tuple({**_values(t.record.trace), **t.record.point} for t in trials)
        found.append(_Search(key, name, trials, end, kernels.get(key.kernel), values))
    return found


@lru_cache(256)
def _values(trace: str) -> Mapping[str, Value]:
    """The values of the decisions of a recorded trace."""
    if not trace:
        return {}
    return values_in(from_json(trace))


def _trials(records: Iterable[Record]) -> Iterable[_Trial]:
    """Yield the trials. Each was measured beside the best at that time, of which records do not
    say which trial it was: a point of one more change tells that the search went on from another
    one."""
    records = list(records)
    every = max((len(r.sizes) for r in records), default=1) or 1
    at: tuple[Mapping[str, Value], float] = ({}, 1.0)
    ahead: list[tuple[float, Record]] = []
    best = 1.0
    for record in records:
        if len(changed_keys(dict(at[0]), record.point)) > 1:
            near = [one for one in ahead if len(changed_keys(one[1].point, record.point)) <= 1]
            if near:
                ratio, started = max(near, key=lambda one: one[0])
                at, ahead = (started.point, ratio), []
        if record.interval is None:
            yield _Trial(record, None, None, None, best)
            continue
        share = len(record.sizes) / every
        middle, low, high = (at[1] * bound**share for bound in record.interval)
        if record.interval[1] > GAIN:
            ahead.append((middle, record))
            best = max(best, middle)
        yield _Trial(record, middle, low, high, best)


def _state(search: _Search) -> dict[str, Any]:
    """A kernel for the script."""
    end = search.end
    decisions = _decisions(search)
    shown = [d["key"] for d in decisions]
    return {
        "name": search.name, "threads": search.key.threads,
        "trials": [
            {
                "outcome": t.record.outcome, "reason": t.record.reason,
                "ratio": _rounded(t.ratio), "low": _rounded(t.low), "high": _rounded(t.high),
                "best": _rounded(t.best), "predicted": _rounded(t.record.predicted),
                "point": [[k, str(v)] for k, v in t.record.point.items()],
                "values": [str(values[k]) if k in values else None for k in shown],
                "sizes": "; ".join(filter(None, map(sizes_text, t.record.sizes))),
                "seconds": round(t.record.time - search.trials[0].record.time, 2),
            }
            for t, values in zip(search.trials, search.values, strict=True)
        ],
        "decisions": decisions,
        "end": None if end is None else {
            "outcome": end.outcome, "reason": end.reason, "interval": end.interval,
            "point": [[k, str(v)] for k, v in end.point.items()],
            "matrix": _matrix(end),
        },
    }  # fmt: skip


def _rounded(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.4g}")


def _matrix(end: Record) -> dict[str, Any] | None:
    """The winner of each size at all sizes, where that was measured at several."""
    matrix = end.matrix
    if matrix is None or len(matrix.sizes) < 2:
        return None
    return {
        "sizes": [sizes_text(s) for s in matrix.sizes],
        "rows": [
            [", ".join(f"{k} = {v}" for k, v in row.point.items()) or "default",
             [list(i.as_tuple()) for i in row.intervals]]
            for row in matrix.rows
        ],
        "chosen": list(matrix.chosen),
    }  # fmt: skip


def _decisions(search: _Search) -> list[dict[str, Any]]:
    """The decisions that trials changed, the one with the largest effect first. effect: how many
    times as fast as those with its worst value the trials with its best are, on average."""
    found: list[dict[str, Any]] = []
    for key in dict.fromkeys(k for t in search.trials for k in t.record.point):
        logs: dict[str, list[float]] = {}
        values: dict[str, Value] = {}
        default: str | None = None
        for trial, decided in zip(search.trials, search.values, strict=True):
            if key not in decided:
                continue
            text = str(decided[key])
            values[text] = decided[key]
            if key not in trial.record.point:
                default = text
            if trial.ratio is not None:
                logs.setdefault(text, []).append(math.log(trial.ratio))
        means = [fmean(of_value) for of_value in logs.values()]
        effect = math.exp(max(means) - min(means)) if len(means) > 1 else None
        ordered = sorted(values, key=lambda text: _order(values[text]))
        found.append({
            "key": key, "meaning": meaning_of(key.rpartition(" / ")[2]), "default": default,
            "values": ordered, "effect": _rounded(effect),
        })  # fmt: skip
    return sorted(found, key=lambda d: -(d["effect"] or 0.0))


def _order(value: Value) -> tuple[Any, ...]:
    """A key that sorts numbers by size, then everything else by text."""
    return (0, value, "") if isinstance(value, int) else (1, 0, str(value))


def _details(searches: Sequence[_Search], trial: str, *, recorded: bool) -> dict[str, Any]:
    """Tabs with the loops and code of trials, by the numbers of kernel and trial."""
    wanted: list[tuple[int, int]] = []
    if trial:
        k, t = map(int, trial.split(":"))
        wanted.append((k, t))
    if recorded:
        ranked = [
            (search.end is None or made.record.point != search.end.point, -made.ratio, k, t)
            for k, search in enumerate(searches) for t, made in enumerate(search.trials)
            if made.ratio is not None
        ]  # fmt: skip
        wanted += [(k, t) for *_, k, t in sorted(ranked)[:MOST_DETAILS]]
    found: dict[str, Any] = {}
    started = perf_counter()
    for k, t in wanted:
        kernel = searches[k].kernel if k < len(searches) else None
        if kernel is None or t >= len(searches[k].trials):
            continue
        if perf_counter() - started > MOST_SECONDS:
            break
        found[f"{k}:{t}"] = _detail(kernel, searches[k].trials[t].record, t)
    return found


def _detail(kernel: Kernel, record: Record, number: int) -> dict[str, Any]:
    """The tabs of a trial; a text for one that no rule schedules."""
    target = Target.host()
    try:
        usual = schedule_of(schedule_alone(kernel.program, target, {}), KERNEL)
        given = record.trace if is_in_space(record.point) else record.point
        made = schedule_alone(kernel.program, target, given)
        sch = schedule_of(made, KERNEL)
    except Exception as error:  # noqa: BLE001  the trial is shown without
        return {"error": f"{type(error).__name__}: {error}", "tabs": []}
    labels = ("default", f"trial {number + 1}")
    difference = compare(kernel.program, usual, sch, target, labels)
    views = {
        "Difference from the default": difference,
        "Loops": brief_loops(sch, kernel.name),
        "Code": code(made, target, KERNEL),
    }
    page = Page.of(kernel.name, list(views.values()))
    tabs = [
        {**tab, "title": title} for title, tab in zip(views, page.state["tabs"], strict=True)
    ]  # fmt: skip
    return {"error": "", "tabs": tabs}


def _notes(searches: Sequence[_Search], kernels: Mapping[str, Kernel]) -> list[str]:
    """Sentences about what is not here."""
    if not searches:
        return ["There are no trials yet."]
    if all(s.kernel is None for s in searches):
        told = "is none of these kernels'" if kernels else "was not given"
        return [
            f"The program {told}, so trials have no loops and no code: "
            "`rl.explore.tuning(database, mod)` has them."
        ]
    return []


def _text(title: str, state: Mapping[str, Any]) -> str:
    """The view's text, for readers without a script."""
    lines = [title, *state["notes"]]
    for kernel in state["kernels"]:
        end = kernel["end"]
        lines += ["", f"{kernel['name']}: {end_text(end)}"]
        for number, t in enumerate(kernel["trials"], 1):
            point = ", ".join(f"{k} = {v}" for k, v in t["point"]) or "default"
            low, high = t["low"], t["high"]
            ratio = "" if t["ratio"] is None else f"{t['ratio']:.3g} ({low:.3g}–{high:.3g})"
            lines.append("  ".join(filter(None, (
                f"{number:4}", f"{t['outcome']:8}", ratio, point, t["reason"]))))  # fmt: skip
        for d in kernel["decisions"]:
            effect = "" if d["effect"] is None else f": {d['effect']:.3g} times between its values"
            lines.append(f"    {d['key']}{effect}; {d['meaning']}")
    lines += [f"{name}: not tuned: {reason}" for name, reason in state["left"].items()]
    return "\n".join(lines)


def end_text(end: Mapping[str, Any] | None) -> str:
    """A sentence on how a search ended."""
    if end is None:
        return "the search has not ended"
    if end["outcome"] == "default":
        return f"the default stays: {end['reason']}"
    middle, low, high = end["interval"]
    return f"confirmed: {middle:.3g} ({low:.3g}–{high:.3g}) times as fast as the default"
