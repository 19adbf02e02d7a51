"""`relaxlab.explore`: the explorers by name, and all of them as one page.

    rl.explore(mod)                     # tabs
    rl.explore.pipeline(mod)            # one of them

Each explorer is a function of the file of its name, imported when it is used.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

from relaxlab.batching.automaton import Automaton
from relaxlab.batching.graph import Graph
from relaxlab.batching.layout import BlockKernel, Layout
from relaxlab.batching.learn import Learned
from relaxlab.ir.arguments import methods_name_arguments
from relaxlab.ir.brief import Brief
from relaxlab.ir.data import data_types
from relaxlab.ir.diagnostics import DiagnosticError
from relaxlab.ir.graph import Function
from relaxlab.ir.loops import PrimFunc
from relaxlab.ir.module import Module, name_of
from relaxlab.ir.names import among
from relaxlab.ir.node import walk
from relaxlab.ir.processes import map_forked
from relaxlab.ir.target import Target, parse_target
from relaxlab.lab.attempts import Program
from relaxlab.lab.pipeline import traced
from relaxlab.lab.report import report
from relaxlab.lab.view import Page, View
from relaxlab.passes.base import Pipeline
from relaxlab.passes.pipeline import default_pipeline
from relaxlab.runtime.check.inputs import random_arguments
from relaxlab.runtime.executable import Executable
from relaxlab.runtime.predict.predict import Prediction
from relaxlab.runtime.programs import as_module, with_entries
from relaxlab.runtime.ragged import Ragged
from relaxlab.runtime.timing import Comparison, Timing
from relaxlab.schedule.schedule import Schedule
from relaxlab.script import parse
from relaxlab.tracing import Trace
from relaxlab.tuning.database import Database
from relaxlab.tuning.tune import Tuning

Given: TypeAlias = "Program | PrimFunc | Function | Schedule"
"""A program as explorers of modules take it."""

@methods_name_arguments
class Explore(Brief):
    """The explorers. A call makes a page with all views that fit a program."""

    def __call__(
        self,
        program: Given,
        target: str | Target = "cpu",
        views: Sequence[str] = (),
    ) -> Page:
        """The named explorers (by default all of `PAGE` but `SLOW`) of a program, as tabs.

        program: a module or the text of one, a function or a schedule, or an error.
        An explorer that cannot show the program says why in its tab. Raises ValueError for an
        unknown name or target.
        """
        if isinstance(views, str):
            raise TypeError(f"views are a list of names: views=[{views!r}]")
        unknown = [name for name in views if name not in PAGE]
        if unknown:
            known = among(unknown[0], PAGE)
            raise ValueError(f"no view is called {unknown[0]!r}; they are: {known}")
        program = _whole(program)
        passes = default_pipeline(parse_target(target))
        chosen = tuple(views) or tuple(name for name in PAGE if name not in SLOW)
        if isinstance(program, DiagnosticError):  # there is nothing but the errors to see
            return Page.of("relaxlab", [self.pipeline(program, target)])
        trace, error = traced(program, passes)  # once for all that need no more
        compiled = program if trace is None or error is not None else trace
        of = {name: compiled if name in OF_TRACES else program for name in chosen}
        title = ("" if trace is None else _name_of(trace)) or "relaxlab"
        functions = trace.result.loop_functions().values() if trace else ()
        nodes = sum(1 for f in functions for _ in walk(f))
        return Page.of(title, _attempts(of, target, SECONDS * nodes))

    def pipeline(
        self,
        program: Given,
        target: str | Target = "cpu",
        pipeline: Pipeline | None = None,
    ) -> View:
        """Every pass, what it changed, its rewrites and why: `relaxlab.lab.pipeline`."""
        from relaxlab.lab.pipeline import pipeline as view

        return replace(view(_whole(program), target, pipeline), program=_name_of(program))

    def compare(
        self,
        program: Module | str | DiagnosticError,
        a: Pipeline | Trace | Schedule | None,
        b: Pipeline | Trace | Schedule | None,
        target: str | Target = "cpu",
        labels: tuple[str, str] = ("left", "right"),
    ) -> View:
        """Two pipelines, or two schedules, side by side: `relaxlab.lab.compare`."""
        from relaxlab.lab.compare import compare

        return compare(program, a, b, target, labels)

    def graph(self, program: Given, name: str | None = None) -> View:
        """The graph functions as drawings: `relaxlab.lab.graph`."""
        from relaxlab.lab.graph import graph_view

        return replace(graph_view(_whole(program), name), program=_name_of(program))

    def tree(self, program: Any, name: str | None = None) -> View:
        """The nodes of a program, each with its text: `relaxlab.lab.ir_tree`."""
        from relaxlab.lab.ir_tree import tree

        return tree(program, name)

    def shapes(self, program: Given) -> View:
        """Type deduction, binding by binding: `relaxlab.lab.shapes`."""
        from relaxlab.lab.shapes import shapes

        return replace(shapes(_whole(program)), program=_name_of(program))

    def fusion(
        self, program: Given, name: str | None = None, target: str | Target = "cpu"
    ) -> View:
        """Every decision of fusion: `relaxlab.lab.fusion`."""
        from relaxlab.lab.fusion import fusion

        return replace(fusion(_whole(program), name, target), program=_name_of(program))

    def memory(
        self, program: Given, name: str | None = None, target: str | Target = "cpu"
    ) -> View:
        """The places and live ranges of temporaries: `relaxlab.lab.memory`."""
        from relaxlab.lab.memory import memory

        return replace(memory(_whole(program), name, target), program=_name_of(program))

    def code(
        self,
        program: Given,
        target: str | Target = "cpu",
        name: str | None = None,
    ) -> View:
        """Kernels from script to machine code, lines linked: `relaxlab.lab.code`."""
        from relaxlab.lab.code import code

        return replace(code(_of_graph(program), target, name), program=_name_of(program))

    def llvm(
        self,
        program: Given,
        name: str | None = None,
        target: str | Target = "cpu",
    ) -> View:
        """LLVM's own passes on a kernel, one after the other: `relaxlab.lab.llvm`."""
        from relaxlab.lab.llvm import llvm

        return llvm(_of_graph(program), name, target)

    def run(
        self,
        subject: Module | Executable,
        name: str = "main",
        *args: Any,
        threads: int | None = None,
        timed: bool = True,
    ) -> View:
        """A call, instruction by instruction, and its kernels timed: `relaxlab.lab.run`."""
        from relaxlab.lab.run import run

        return run(subject, name, *args, threads=threads, timed=timed)

    def roofline(self, programs: Mapping[str, Any], *args: Any) -> View:
        """Several programs, or schedules of one, under one roofline: `relaxlab.lab.run`."""
        from relaxlab.lab.run import roofline

        return roofline(programs, *args)

    def predicted(self, predictions: Mapping[str, Prediction]) -> View:
        """Results of `relaxlab.predict` under the roofline of a GPU: `relaxlab.lab.predicted`."""
        from relaxlab.lab.predicted import predicted

        return predicted(predictions)

    def timings(self, results: Comparison | Timing | Mapping[str, Timing | float]) -> View:
        """Times as bars on a logarithmic scale: `relaxlab.lab.timings`."""
        from relaxlab.lab.timings import timings

        return timings(results)

    def tuning(
        self, subject: Tuning | Database | str | os.PathLike[str], program: Any = None
    ) -> View:
        """The trials of a search, and what each does to loops and code: `relaxlab.lab.tuning`."""
        from relaxlab.lab.tuning import tuning

        return tuning(subject, program)

    def policy(self, subject: Automaton | Learned | None, minibatches: Sequence[Graph]) -> View:
        """A learned batching policy, and policies side by side: `relaxlab.lab.policy`."""
        from relaxlab.lab.policy import policy

        return policy(subject, minibatches)

    def batching(self, exe: Executable, name: str, instances: Sequence[Any]) -> View:
        """Instances of a batched program, batch by batch: `relaxlab.lab.batching`."""
        from relaxlab.lab.batching import batching

        return batching(exe, name, instances)

    def layout(self, subject: Layout | Sequence[BlockKernel]) -> View:
        """The order of a block's variables, by PQ-trees: `relaxlab.lab.block_layout`."""
        from relaxlab.lab.block_layout import layout_view

        return layout_view(subject)

    def ragged(
        self,
        lengths: Ragged | Sequence[int] | np.ndarray[Any, Any],
        *,
        multiple: int = 8,
        threads: int = 2,
        row_bytes: int = 4,
        quadratic: bool = False,
    ) -> View:
        """Loops over sequences of different lengths, step by step: `relaxlab.lab.ragged`."""
        from relaxlab.lab.ragged import ragged

        return ragged(
            lengths, multiple=multiple, threads=threads, row_bytes=row_bytes, quadratic=quadratic
        )

    def array(self, value: Any) -> View:
        """An array: statistics and values: `relaxlab.lab.array`."""
        from relaxlab.lab.array import array_view

        return array_view(value)

    def loops(
        self,
        subject: PrimFunc | Schedule | Module | Trace,
        name: str | None = None,
        **sizes: int | float,
    ) -> View:
        """A loop function, stepped on small sizes: `relaxlab.lab.loops`."""
        from relaxlab.lab.loops import loops

        return loops(subject, name, **sizes)


explore = Explore()


def _whole(program: Given) -> Program:
    """A function or a schedule as a module of one; any other program as it is."""
    return as_module(program) if isinstance(program, PrimFunc | Function | Schedule) else program


def _of_graph(program: Given) -> Program | PrimFunc | Schedule:
    """A graph function as a module of one; any other program as it is."""
    return as_module(program) if isinstance(program, Function) else program


def _name_of(program: Given) -> str:
    """Return the name of a program or of its class, "" if it has none."""
    match program:
        case Module():
            return program.name_hint
        case Trace():
            return program.module.name_hint
        case PrimFunc() | Function():
            return name_of(program)
        case Schedule():
            return name_of(program.func)
        case str():
            try:
                return parse(program, check=False).name_hint
            except DiagnosticError:
                return ""
        case _:  # an error
            return ""


def _loops(program: Program, target: str | Target) -> View:
    from relaxlab.lab.loops import loops_of_program

    return loops_of_program(program, target)


PAGE: dict[str, Callable[[Any, str | Target], View]] = {
    "pipeline": explore.pipeline,
    "graph": lambda program, _: explore.graph(program),
    "shapes": lambda program, _: explore.shapes(program),
    "fusion": lambda program, target: explore.fusion(program, target=target),
    "memory": lambda program, target: explore.memory(program, target=target),
    "loops": _loops,
    "code": explore.code,
    "llvm": lambda program, target: explore.llvm(program, target=target),
    "run": lambda program, _: _drawn_run(program),
}
"""The views of a page, by name, for any program. `run` takes random arguments for symbols of
`RUN_SIZE`, on this machine's CPU whatever the target."""

SLOW = ("llvm",)
"""The views of a page that are made only when asked for: printing a kernel of 5000 lines after each
of LLVM's passes was measured to take 7 s, ten times as long as the code view."""

MEASURED = ("run",)
"""The views of a page that measure time: nothing else is done meanwhile."""

SECONDS = 2e-4
"""Time to make a view, by the nodes of the program's loop functions: those of a transformer layer
with 11,000 nodes were measured to take 0.3 to 3 s."""

OF_TRACES = ("pipeline", "fusion", "memory", "loops", "code", "llvm")
"""The views of a trace, which take one if there is one."""

RUN_SIZE = 16
"""The value of symbols: enough for vectors, and few enough to look at every element."""


def _drawn_run(program: Module | str) -> View:
    """A call of `main`, or of the first function that others may call."""
    mod, _ = with_entries(parse(program) if isinstance(program, str) else program)
    functions = mod.graph_functions()
    public = [name for name, f in functions.items() if not f.private]
    if not public:
        raise ValueError("the program has no function that could be called")
    name = "main" if "main" in public else public[0]
    chosen = functions[name]
    if "num_input" in chosen.attrs:
        raise ValueError(
            f"`{name}` takes weights, which the compiler packs: give relaxlab.explore.run "
            "the executable and the packed weights"
        )
    arguments = random_arguments(
        chosen, np.random.default_rng(0), sizes=(RUN_SIZE,), data=data_types(mod)
    )
    return replace(explore.run(mod, name, *arguments), title="Run")


def _attempts(
    programs: Mapping[str, Program], target: str | Target, seconds: float
) -> list[View]:
    """The views of these names, made at the same time but for those that measure; `seconds`: about
    how long each takes."""
    from relaxlab.codegen.llvm.jit import llvm_lock

    def made(name: str) -> View:
        view = _attempt(name, programs[name], target)
        # A page is drawn once: its views have no controls, and are not made again.
        return replace(view, controls=(), again=None, drawing=None)

    together = [name for name in programs if name not in MEASURED]
    # So no other thread is inside of LLVM when the processes fork, with locks of its own.
    with llvm_lock():
        views = map_forked(made, together, [seconds] * len(together))
    found = dict(zip(together, views, strict=True))
    return [found[name] if name in found else made(name) for name in programs]


def _attempt(name: str, program: Program, target: str | Target) -> View:
    """A view, or where it cannot be made a report that says why."""
    try:
        return PAGE[name](program, target)
    except Exception as error:  # noqa: BLE001  the other tabs are worth seeing
        title = "Dataflow" if name == "graph" else name.capitalize()
        return report(title, f"{type(error).__name__}: {error}")
