"""The code explorer: a kernel from script to machine code, lines linked with those they became."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any

from relaxlab.codegen.cuda.listing import list_cuda
from relaxlab.codegen.cuda.nvrtc import NvrtcError
from relaxlab.codegen.listing import Line
from relaxlab.codegen.llvm.expressions import CodegenError
from relaxlab.codegen.llvm.listing import line_bits, list_kernel
from relaxlab.ir.loops import PrimFunc
from relaxlab.ir.module import name_of
from relaxlab.ir.span import Source, Span, title_of
from relaxlab.ir.target import Target, parse_target
from relaxlab.lab.attempts import Program, attempted
from relaxlab.lab.modules import differences
from relaxlab.lab.payload import Interner
from relaxlab.lab.pipeline import live_controls
from relaxlab.lab.view import View
from relaxlab.passes.pipeline import default_pipeline
from relaxlab.runtime.vm.cuda import DEFAULT_ARCH
from relaxlab.schedule.schedule import Schedule

MOST_LINES = 18_000
"""Lines of code of all kernels of one view together."""

Origins = dict[int, tuple[Span, ...]]


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
                known = ", ".join(kernels) or "none"
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
    for name, func in kernels.items():
        if lines > MOST_LINES:
            notes.append(
                f"{len(states)} of {len(kernels)} kernels are shown, as there would be too many "
                "lines; give a name to see another one."
            )
            break
        kernel = _kernel(name, func, target, script)
        lines += sum(len(pane["lines"]) for pane in kernel["panes"])
        states.append(kernel)
    if kernels and not script.rows:
        notes.append("The kernels do not come from a script, so no lines of one can be linked.")
    if not kernels:
        notes.append("There are no loop functions to compile.")
    missing = target.kind == "cuda" and states and not any("PTX" in _titles(k) for k in states)
    if missing and not any(k["error"] for k in states):
        notes.append("PTX needs NVRTC, which is not installed: pip install 'relaxlab[cuda]'")
    rows = [[no, line] for no, line in script.rows]
    return {"kernels": states, "script": rows, "table": interner.lines}


def _titles(kernel: dict[str, Any]) -> list[str]:
    return [pane["title"] for pane in kernel["panes"]]


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


def _kernel(name: str, func: PrimFunc, target: Target, script: _Script) -> dict[str, Any]:
    """One kernel: its panes, what to know about it, or why it cannot be compiled."""
    panes: list[dict[str, Any]] = []
    facts: list[str] = []
    origins: Origins = {}
    error = ""
    try:
        make = _cuda if target.kind == "cuda" else _cpu
        panes, facts, origins = make(name, func, target, script.interner)
    except (CodegenError, NvrtcError, ValueError) as problem:  # also names that no script has
        error = str(problem)
    made = [[line, script.places(spans)] for line, spans in origins.items()]
    via = {", ".join(s.via) for spans in origins.values() for s in spans if s.via}
    return {
        "name": name, "panes": panes, "facts": facts, "error": error,
        "origins": [m for m in made if m[1]], "via": sorted(via),
    }  # fmt: skip


Made = tuple[list[dict[str, Any]], list[str], Origins]


def _cpu(name: str, func: PrimFunc, target: Target, interner: Interner) -> Made:
    found = list_kernel(func, name, target)
    instructions = [line for line in found.assembly if line.text.startswith(" ")]
    widths = [line_bits(line.text) for line in instructions]
    spills = [line for line in found.assembly if line.remark]
    wide = sum(width > 0 for width in widths)
    facts = [
        f"{len(instructions)} instructions, {wide} of them on vectors",
        f"vectors of up to {found.vector_bits} bits" if found.vector_bits else "no vectors",
        f"{len(spills)} spills and reloads" if spills else "no spills",
        f"{found.stack} bytes of stack",
    ]
    panes = [
        _pane("loops", "Scheduled loops", found.loops, interner),
        _pane("emitted", "LLVM IR as emitted", found.emitted, interner, hidden=True),
        _pane("optimised", "LLVM IR, optimised", found.optimised, interner),
        _pane("assembly", "Assembly", found.assembly, interner),
    ]
    if found.intel is not None:
        panes[-1]["intel"] = differences(interner.ids(_texts(found.intel)))
    panes[-1]["bits"] = differences([line_bits(line.text) for line in found.assembly])
    return panes, facts, found.origins


def _cuda(name: str, func: PrimFunc, target: Target, interner: Interner) -> Made:
    arch = target.cpu or DEFAULT_ARCH
    found = list_cuda(func, name, arch, contract=target.contract)
    facts: list[str] = []
    for kernel, r in found.resources.items():
        spills = r.spill_stores + r.spill_loads
        facts.append(
            f"{kernel} on {arch}: {r.registers} registers per thread, "
            + (f"{spills} bytes of spills" if spills else "no spills")
            + f", {r.stack} bytes of stack, {r.shared} bytes of shared memory"
        )
    panes = [
        _pane("loops", "Scheduled loops", found.loops, interner),
        _pane("cuda", "CUDA C", found.cuda, interner),
    ]
    if found.ptx:
        ptx = _pane("ptx", "PTX", found.ptx, interner)
        ptx["from"] = differences(found.ptx_lines)
        ptx["bits"] = differences([_ptx_bits(line.text) for line in found.ptx])
        panes.append(ptx)
    return panes, facts, found.origins


def _ptx_bits(text: str) -> int:
    """The width of a wide memory access of PTX (`ld.global.v4.f32`), in bits; 0 for others."""
    parts = text.strip().split(" ")[0].split(".")
    count = next((int(p[1:]) for p in parts if p in ("v2", "v4")), 0)
    digits = "".join(c for c in parts[-1] if c.isdigit())
    return count * int(digits) if count and digits else 0


def _pane(
    key: str, title: str, lines: Sequence[Line], interner: Interner, *, hidden: bool = False
) -> dict[str, Any]:
    """One language: lines, and for each the line of the loop function it was made for (0: none)."""
    return {
        "key": key,
        "title": title,
        "lines": differences(interner.ids(_texts(lines))),
        "loop": differences([line.loop for line in lines]),
        "hidden": hidden,
        "spills": [i for i, line in enumerate(lines) if line.remark],
    }


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
