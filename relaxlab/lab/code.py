"""The code explorer: a kernel from script to machine code, lines linked with those they became."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from relaxlab.codegen.cuda.nvrtc import NvrtcError
from relaxlab.codegen.errors import CodegenError
from relaxlab.codegen.listing import Line, Listing, Pane
from relaxlab.codegen.llvm import jit
from relaxlab.ir.loops import PrimFunc
from relaxlab.ir.module import name_of
from relaxlab.ir.names import among
from relaxlab.ir.node import walk
from relaxlab.ir.processes import map_forked
from relaxlab.ir.span import Source, Span, title_of
from relaxlab.ir.target import Target, parse_target, target_kind
from relaxlab.lab.attempts import Program, attempted
from relaxlab.lab.modules import differences
from relaxlab.lab.payload import Interner
from relaxlab.lab.pipeline import live_controls
from relaxlab.lab.view import View
from relaxlab.passes.pipeline import default_pipeline
from relaxlab.schedule.schedule import Schedule

MOST_LINES = 18_000
"""Lines of code of all kernels of one view together."""
TOGETHER = 8
"""Kernels that are compiled at the same time: few, as those after `MOST_LINES` are not shown."""
SECONDS = 2e-4
"""Time to list a kernel, by the number of its nodes: 0.3 to 1 s for those of an attention layer."""


def code(
    program: Program | PrimFunc | Schedule,
    target: str | Target = "cpu",
    name: str | None = None,
) -> View:
    """The kernels of a program in each language on the way to machine code, lines linked.

    program: what the passes are run on here, a trace made already, or one scheduled loop function.
    name: the loop function after the passes (None: as many as fit). A kernel that the target
    cannot express says why. Raises KeyError for a name that is none of the program's, ValueError
    for an unknown target.
    """
    chosen = parse_target(target)
    failure: dict[str, Any] | None = None
    if isinstance(program, PrimFunc | Schedule):
        func = program.func if isinstance(program, Schedule) else program
        kernels = {name or name_of(func): func}
    else:
        trace, failure = attempted(program, default_pipeline(chosen))
        kernels = trace.result.loop_functions() if trace is not None and failure is None else {}
        if name is not None and failure is None:
            if name not in kernels:
                known = among(name, kernels)
                raise KeyError(f"no loop function {name!r} after the passes; there are: {known}")
            kernels = {name: kernels[name]}
    notes: list[str] = []
    state = _state(kernels, chosen, notes)
    state |= {"failure": failure, "target": chosen.kind, "notes": notes}
    again: Callable[..., View] | None = None
    controls = ()
    if not isinstance(program, PrimFunc | Schedule):
        controls = live_controls(program, chosen)
        again = (lambda target, program=program: code(program, target)) if controls else None
    return View("code", "Code", state, _text(state), controls, again)


def _state(kernels: dict[str, PrimFunc], target: Target, notes: list[str]) -> dict[str, Any]:
    interner = Interner()
    script = _Script(interner)
    states: list[dict[str, Any]] = []
    lines = 0
    for name, found, error in _listings(kernels, target):
        if lines > MOST_LINES:
            notes.append(
                f"Only {len(states)} of {len(kernels)} kernels can be chosen here, since all would "
                "be too many lines; relaxlab.explore.code(mod, name=...) shows any of them."
            )
            break
        kernel = _kernel(name, found, error, script, notes)
        lines += sum(len(pane["lines"]) for pane in kernel["panes"])
        states.append(kernel)
    if kernels and not script.rows:
        notes.append("The kernels do not come from a script, so no lines of one can be linked.")
    if not kernels:
        notes.append("There are no loop functions to compile.")
    rows = [[no, line] for no, line in script.rows]
    return {"kernels": states, "script": rows, "table": interner.lines}


class _Script:
    """The classes and functions that kernels come from, one after the other: rows of `[line
    number, line]`."""

    def __init__(self, interner: Interner) -> None:
        self.interner = interner
        self.rows: list[tuple[int, int]] = []
        self._starts: dict[tuple[str, str, int], int] = {}

    def places(self, spans: Iterable[Span]) -> list[int]:
        """The rows of spans."""
        found = {row for span in spans for row in self._rows(span)}
        return sorted(found)

    def _rows(self, span: Span) -> range:
        part = next((p for p in _statements(span.source) if span.line in p), None)
        if part is None:  # a place that the source does not have
            return range(0)
        start = self._start(span.source, part)
        first = start + span.line - part.start
        return range(
            first, min(first + max(0, span.end_line - span.line), start + len(part) - 1) + 1
        )

    def _start(self, source: Source, part: range) -> int:
        key = (source.name, source.text, part.start)
        if key not in self._starts:
            texts = [f"# {title_of(source.name)}", *(source.line(n) for n in part)]
            self._starts[key] = len(self.rows) + 1
            self.rows += zip([0, *part], self.interner.ids(texts), strict=True)
        return self._starts[key]


@cache
def _statements(source: Source) -> tuple[range, ...]:
    """Return the lines of each class, function or other statement at the top of a source,
    decorators included; all lines together of a source that is no Python."""
    first = source.first_line
    try:
        body = ast.parse(source.text).body
    except SyntaxError:
        return (range(first, first + source.text.rstrip("\n").count("\n") + 1),)
    found: list[range] = []
    for s in body:
        decorators = getattr(s, "decorator_list", [])
        start = min([s.lineno, *(d.lineno for d in decorators)])
        found.append(range(first + start - 1, first + (s.end_lineno or s.lineno)))
    return tuple(found)


def _listings(
    kernels: Mapping[str, PrimFunc], target: Target
) -> Iterator[tuple[str, Listing, str]]:
    """Yield the name of each kernel and its listing, or why it cannot be compiled."""
    one = target_kind(target.kind).code

    def listing(item: tuple[str, PrimFunc]) -> tuple[Listing, str]:
        try:
            return one(*item, target), ""
        except (CodegenError, NvrtcError, ValueError) as problem:  # also names that no script has
            return Listing((), {}), str(problem)

    left = [*kernels.items()]
    while left:
        items, left = left[:TOGETHER], left[TOGETHER:]
        seconds = [SECONDS * sum(1 for _ in walk(func)) for _, func in items]
        # So no other thread is inside of LLVM when the processes fork, with locks of its own.
        with jit.llvm_lock():
            made = map_forked(listing, items, seconds)
        yield from ((name, *found) for (name, _), found in zip(items, made, strict=True))


def _kernel(
    name: str, found: Listing, error: str, script: _Script, notes: list[str]
) -> dict[str, Any]:
    """One kernel: its panes, what to know about it, or why it cannot be compiled."""
    notes += (note for note in found.notes if note not in notes)
    made = [[line, script.places(spans)] for line, spans in found.origins.items()]
    via = {", ".join(s.via) for spans in found.origins.values() for s in spans if s.via}
    return {
        "name": name, "panes": [_pane(pane, script.interner) for pane in found.panes],
        "facts": [*found.facts], "error": error,
        "origins": [m for m in made if m[1]], "via": sorted(via),
    }  # fmt: skip


def _pane(pane: Pane, interner: Interner) -> dict[str, Any]:
    """One language: lines, and for each the line of the loop function it was made for (0: none)."""
    state = {
        "key": pane.key,
        "title": pane.title,
        "lines": differences(interner.ids(_texts(pane.lines))),
        "loop": differences([line.loop for line in pane.lines]),
        "hidden": pane.hidden,
        "spills": [i for i, line in enumerate(pane.lines) if line.remark],
    }
    if pane.bits is not None:
        state["bits"] = differences([*pane.bits])
    if pane.origins is not None:
        state["from"] = differences([*pane.origins])
    if pane.spellings is not None:
        state["intel"] = differences(interner.ids(_texts(pane.spellings)))
    return state


def _texts(lines: Sequence[Line]) -> list[str]:
    """Lines with the compiler's remarks."""
    return [line.text + (f"  # {line.remark}" if line.remark else "") for line in lines]


def _text(state: dict[str, Any]) -> str:
    parts: list[str] = []
    failure = state["failure"]
    if failure is not None:
        parts.append(failure["message"] or "\n".join(d["message"] for d in failure["diagnostics"]))
    for kernel in state["kernels"]:
        parts.append(f"{kernel['name']}: {kernel['error'] or '; '.join(kernel['facts'])}")
    parts += state["notes"]
    return "\n".join(parts)
