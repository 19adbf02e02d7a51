"""Programs written down line by line, each line with the line of the loop function it is from."""

from __future__ import annotations

from dataclasses import dataclass

from relaxlab.codegen.lower_blocks import lower_blocks
from relaxlab.codegen.positive import sizes_of
from relaxlab.codegen.simplify_indices import simplify_indices
from relaxlab.ir.expr import IntImm
from relaxlab.ir.loops import (
    AssertStmt,
    Block,
    BlockRealize,
    BufferLoad,
    BufferStore,
    Evaluate,
    PrimFunc,
    Stmt,
)
from relaxlab.ir.module import Module
from relaxlab.ir.node import field_names, replace, walk
from relaxlab.ir.span import Source, Span
from relaxlab.schedule.tensor_intrin import TENSOR_INTRIN
from relaxlab.script.printer import print_with_map


@dataclass(frozen=True, slots=True)
class Line:
    """A line of code; `loop` is the line of the printed loop function (from 1) that it was made
    for, or 0; `remark` a remark on it, such as a spill."""

    text: str
    loop: int = 0
    remark: str = ""


@dataclass(frozen=True, slots=True)
class LocatedFunc:
    """A loop function whose statements' spans are their places in its printed `lines`. `origins`
    are the spans that they and their reads had, by line (from 1): where in the user's program they
    come from."""

    func: PrimFunc
    lines: tuple[str, ...]
    origins: dict[int, tuple[Span, ...]]

    def numbered(self) -> tuple[Line, ...]:
        """The printed lines, each the line of itself."""
        return tuple(Line(text, number) for number, text in enumerate(self.lines, 1))


@dataclass(frozen=True, slots=True)
class Pane:
    """A kernel in one language, with a key by which other panes and views name it. `hidden`: shown
    on request. By line, where it is known: `bits`, the width of its vectors (0: none); `origins`,
    the line of CUDA C (from 1) that it was made of (0: none); `spellings`, the same
    line in another syntax."""

    key: str
    title: str
    lines: tuple[Line, ...]
    hidden: bool = False
    bits: tuple[int, ...] | None = None
    origins: tuple[int, ...] | None = None
    spellings: tuple[Line, ...] | None = None


@dataclass(frozen=True, slots=True)
class Listing:
    """A kernel in each language on the way to what runs it. `facts` about the code, `notes` on what
    could not be shown, in words; `origins` as `LocatedFunc` has them."""

    panes: tuple[Pane, ...]
    origins: dict[int, tuple[Span, ...]]
    facts: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def loops_pane(lines: tuple[Line, ...]) -> Pane:
    """The pane of the scheduled loops, to which all others refer."""
    return Pane("loops", "Scheduled loops", lines)


def loops_listing(name: str, func: PrimFunc) -> Listing:
    """A kernel as its scheduled loops; where it has tensor intrinsics, also as plain loops around
    their code."""
    located = locate(func, name)
    panes = [loops_pane(located.numbered())]
    if any(isinstance(n, Block) and TENSOR_INTRIN in n.annotations for n in walk(func.body)):
        panes.append(Pane("instructions", "Instructions", _instructions(name, located.func)))
    return Listing(tuple(panes), located.origins)


def _instructions(name: str, func: PrimFunc) -> tuple[Line, ...]:
    """The lines of a located function in which blocks are gone and intrinsics are their code."""
    body, allocated = lower_blocks(func.body)
    body = simplify_indices(body, sizes_of(func))
    root = Block("root", (), (), (), body, alloc_buffers=allocated)
    plain = locate(replace(func, body=BlockRealize((), IntImm(1, "bool"), root)), name)
    places = {line: spans[0].line for line, spans in plain.origins.items()}
    return tuple(Line(text, places.get(number, 0)) for number, text in enumerate(plain.lines, 1))


def locate(func: PrimFunc, name: str) -> LocatedFunc:
    """`func` as `name`, printed, with the places of its statements."""
    text, places = print_with_map(Module.of({name: func}), show_meta=False)
    root = places[f"[{name!r}]"]
    shift = root.line - 1
    lines = [line.removeprefix("    ") for line in text.split("\n")[shift : root.end_line]]
    source = Source(name, "\n".join(lines))
    origins: dict[int, dict[str, Span]] = {}

    def visit(s: Stmt, path: str, around: Span) -> tuple[Stmt, dict[str, Span]]:
        """Return the statement with its place as its span, and the original spans of it and its
        parts."""
        place = places.get(path)
        if place is not None:
            around = Span(source, place.line - shift, 0, place.end_line - shift, 0)
        own = _own_origins(s)
        inner: dict[str, Span] = {}
        changes: dict[str, object] = {"span": around}
        for field in field_names(type(s)):
            value = getattr(s, field)
            if isinstance(value, Stmt):
                changes[field], found = visit(value, f"{path}.{field}", around)
                inner |= found
            elif field == "stmts":
                parts = [visit(p, f"{path}.stmts[{i}]", around) for i, p in enumerate(value)]
                changes[field] = tuple(part for part, _ in parts)
                for _, found in parts:
                    inner |= found
        # A loop that runs one thing alone was made for that; one around several, for none of them.
        mine = own or (inner if len(inner) == 1 else {})
        origins.setdefault(around.line, {}).update(mine)
        return replace(s, **changes), own | inner

    whole = Span(source, 1, 0, len(lines), 0)
    body, _ = visit(func.body, f"[{name!r}].body", whole)
    found = {line: tuple(spans.values()) for line, spans in sorted(origins.items()) if spans}
    return LocatedFunc(replace(func, body=body), tuple(lines), found)


def _own_origins(s: Stmt) -> dict[str, Span]:
    """The places that a store and its reads, or another statement itself, were made of."""
    nodes = walk(s) if isinstance(s, BufferStore | Evaluate | AssertStmt) else (s,)
    spans = [n.span for n in nodes if isinstance(n, Stmt | BufferLoad) and n.span is not None]
    return {str(span): span for span in spans}
