"""A page of all that a process or a cell compiles: `RELAXLAB_TRACE=page.html`, `%%relaxlab`."""

from __future__ import annotations

import atexit
import sys
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

from relaxlab.ir.module import Module
from relaxlab.ir.span import title_of
from relaxlab.ir.target import Target
from relaxlab.lab.pipeline import pipeline as pipeline_view
from relaxlab.lab.view import Page, View
from relaxlab.passes.base import Pipeline
from relaxlab.runtime.observe import observing

PACKAGE = str(Path(__file__).resolve().parents[1])
VARIABLE = "RELAXLAB_TRACE"


@dataclass(slots=True)
class Recorder:
    """An observer of compilations. A module that is compiled twice for one target is recorded
    once."""

    programs: list[tuple[str, Module, Target, Pipeline | None]] = field(
        default_factory=list[tuple[str, Module, Target, Pipeline | None]]
    )

    def __call__(self, mod: Module, target: Target, pipeline: Pipeline | None) -> None:
        known = any(m is mod and t == target and p is pipeline for _, m, t, p in self.programs)
        if not known:
            self.programs.append((_place(), mod, target, pipeline))

    def page(self) -> Page | None:
        """A tab for each program, with its passes, which are run again here; None for none."""
        views: list[View] = []
        for place, mod, target, pipeline in self.programs:
            view = pipeline_view(mod, target, pipeline)
            views.append(replace(view, title=place, controls=(), again=None))
        return Page.of("Compiled programs", views) if views else None


def record_process(path: str) -> None:
    """Write the page of all that this process compiles to a file when it ends.

    Says on standard error where the page is, that there is nothing to write, or why it cannot be
    written.
    """
    recorder, stack = Recorder(), ExitStack()
    stack.enter_context(observing(recorder))

    def write() -> None:
        stack.close()
        page = recorder.page()
        if page is None:
            print(f"{VARIABLE}: nothing was compiled", file=sys.stderr)
            return
        try:
            written = page.save(path)
        except (OSError, ValueError) as error:
            print(f"{VARIABLE}: {error}", file=sys.stderr)
            return
        count = len(recorder.programs)
        programs = f"{count} program{'s' * (count != 1)}"
        print(f"{VARIABLE}: {programs} in {written}", file=sys.stderr)

    atexit.register(write)


def _place() -> str:
    """The file and line outside the package that asked for the compilation."""
    frame = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith((PACKAGE, "<frozen")):
        frame = frame.f_back
    if frame is None:
        return "program"
    name = frame.f_code.co_filename
    return f"{Path(title_of(name)).name}, line {frame.f_lineno}"
