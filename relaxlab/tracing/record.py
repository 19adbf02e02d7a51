"""Recording what passes do. A trace is a plain value; nothing here runs a pass."""

from __future__ import annotations

import contextvars
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from relaxlab.ir.arguments import methods_name_arguments
from relaxlab.ir.brief import Brief, cut
from relaxlab.ir.display import Displayed
from relaxlab.ir.module import Module
from relaxlab.ir.names import among
from relaxlab.ir.node import NO_ATTRS, Attrs


@dataclass(frozen=True, slots=True)
class Remark:
    """One decision of a pass: the rule, its subject, whether it was applied or refused, and why
    (LLVM's optimization remarks, passed and missed).

    `about` holds nodes of the module for programs to read, by names that the pass documents.
    `source` is the line of the pass's code that decided it ("relaxlab/passes/fuse_ops.py:120").
    """

    rule: str
    subject: str
    reason: str
    applied: bool = True
    about: Attrs = NO_ATTRS
    source: str = field(default="", compare=False, repr=False)


@dataclass(frozen=True, slots=True, repr=False)
class PassRecord(Brief):
    """One pass run. `after is before` when it changed nothing; `error` when it failed."""

    name: str
    options: Attrs
    before: Module
    after: Module
    seconds: float
    remarks: tuple[Remark, ...] = ()
    error: str | None = None

    def __repr__(self) -> str:
        what = self.error or ("changed" if self.changed else "no change")
        return f"PassRecord({self.name}: {cut(what)}, {self.seconds * 1e3:.1f} ms)"

    @property
    def changed(self) -> bool:
        """True if the pass returned a new module."""
        return self.after is not self.before


@methods_name_arguments
@dataclass(frozen=True, slots=True, repr=False)
class Trace(Displayed, Brief):
    """The passes a module went through, in order."""

    module: Module
    passes: tuple[PassRecord, ...] = ()

    def __repr__(self) -> str:
        changed = sum(r.changed for r in self.passes)
        seconds = sum(r.seconds for r in self.passes)
        return f"Trace({len(self.passes)} passes, {changed} changed the module, {seconds:.2f} s)"

    @property
    def result(self) -> Module:
        """The module after the last pass."""
        return self.passes[-1].after if self.passes else self.module

    def find(self, name: str) -> PassRecord:
        """The first record of the named pass. Raises KeyError."""
        for record in self.passes:
            if record.name == name:
                return record
        names = among(name, (r.name for r in self.passes))
        raise KeyError(f"pass {name!r} is not in the trace; it has: {names}")

    def __str__(self) -> str:
        lines: list[str] = []
        for r in self.passes:
            what = r.error or ("changed" if r.changed else "no change")
            lines.append(f"{r.name:32} {r.seconds * 1e3:8.1f} ms  {what}")
            for w in r.remarks:
                lines.append(f"    {'+' if w.applied else '-'} {w.rule}: {w.subject}: {w.reason}")
        return "\n".join(lines)


T = TypeVar("T")
_CURRENT: contextvars.ContextVar[list[Remark] | None] = contextvars.ContextVar(
    "relaxlab_trace", default=None
)


@contextmanager
def current(var: contextvars.ContextVar[T | None], value: T) -> Iterator[T]:
    """Let a context variable have a value inside the block; yields it."""
    token = var.set(value)
    try:
        yield value
    finally:
        var.reset(token)


def recording() -> AbstractContextManager[list[Remark]]:
    """Collect the remarks made inside the block (the pass runner uses this around each pass)."""
    return current(_CURRENT, list[Remark]())


def remark(rule: str, subject: str, reason: str, *, applied: bool = True, **about: Any) -> None:
    """Record a decision of the running pass; does nothing outside of `recording`."""
    remarks = _CURRENT.get()
    if remarks is not None:
        remarks.append(Remark(rule, subject, reason, applied, Attrs(about), _source_line()))


def repeat(found: Iterable[Remark]) -> None:
    """Record decisions again that were recorded elsewhere."""
    remarks = _CURRENT.get()
    if remarks is not None:
        remarks.extend(found)


PACKAGE = Path(__file__).parents[1]
_TRACING = f"{Path(__file__).parent.relative_to(PACKAGE.parent)}{os.sep}"


def _source_line() -> str:
    """Return the file and line of the nearest caller outside this package: of a file of relaxlab
    its path from there, of any other its name."""
    frame = sys._getframe(1)
    while frame.f_back is not None and _shown(frame.f_code.co_filename).startswith(_TRACING):
        frame = frame.f_back
    return f"{_shown(frame.f_code.co_filename)}:{frame.f_lineno}"


@cache
def _shown(file: str) -> str:
    """The path of a file of this package from the package's folder, of any other its name."""
    path = Path(file)
    return str(path.relative_to(PACKAGE.parent)) if path.is_relative_to(PACKAGE) else path.name
