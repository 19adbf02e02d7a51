"""A page of all that a process or a cell compiles: `RELAXLAB_TRACE=page.html`, `%%relaxlab`."""

from __future__ import annotations

import atexit
import multiprocessing.util
import os
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
FIRST = "RELAXLAB_TRACE_PROCESS"
"""The variable with the id of the process that was traced first, for those that it starts."""


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

    The processes that it forks or starts write what they compile to pages of their own,
    `page-PID.html`.

    Says on standard error where a page is, that there is nothing to write, or why it cannot be
    written. A process that is killed writes none.
    """
    recorder, stack = Recorder(), ExitStack()
    stack.enter_context(observing(recorder))
    page = Path(path).absolute()  # programs change their folder
    os.environ[VARIABLE] = str(page)
    os.environ.setdefault(FIRST, str(os.getpid()))

    def write() -> None:
        stack.close()
        _write(recorder, page)

    atexit.register(write)
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=recorder.programs.clear)
    # Its forked processes end without the functions of atexit.
    multiprocessing.util.register_after_fork(
        write, lambda write: multiprocessing.util.Finalize(None, write, exitpriority=0)
    )


def _write(recorder: Recorder, path: Path) -> None:
    """Write the page of a process, in the first process to the name that was given."""
    first = os.environ.get(FIRST) == str(os.getpid())
    page = recorder.page()
    if page is None:
        if first:
            print(f"{VARIABLE}: nothing was compiled", file=sys.stderr)
        return
    if not first:
        path = path.with_name(f"{path.stem}-{os.getpid()}{path.suffix}")
    try:
        written = page.save(path)
    except (OSError, ValueError) as error:
        print(f"{VARIABLE}: {error}", file=sys.stderr)
        return
    count = len(recorder.programs)
    programs = f"{count} program{'s' * (count != 1)}"
    print(f"{VARIABLE}: {programs} in {written}", file=sys.stderr)


def _place() -> str:
    """The file and line outside the package that started the compilation."""
    frame = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith((PACKAGE, "<frozen")):
        frame = frame.f_back
    if frame is None:
        return "program"
    name = frame.f_code.co_filename
    return f"{Path(title_of(name)).name}, line {frame.f_lineno}"
