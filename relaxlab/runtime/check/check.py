"""`check`: run a program before and after every pass, and find what changed its meaning."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from relaxlab.analysis.loops_check import check_loops
from relaxlab.analysis.well_formed import check_graphs
from relaxlab.ir import graph
from relaxlab.ir.arguments import names_arguments
from relaxlab.ir.data import data_types
from relaxlab.ir.diagnostics import Diagnostic, DiagnosticError
from relaxlab.ir.display import Displayed
from relaxlab.ir.errors import UserError, brief, counted, kind_of
from relaxlab.ir.loops import PrimFunc
from relaxlab.ir.module import Module
from relaxlab.ir.target import FLOAT_OPTIONS, Target, parse_target
from relaxlab.passes.base import Pass, PassFailed, Pipeline
from relaxlab.passes.effects import donated_params
from relaxlab.passes.pipeline import default_pipeline, marking_dead_memory, pipeline_for
from relaxlab.runtime.arrays import ExecutionError, OutOfMemory
from relaxlab.runtime.check.bisect import FaultyRewrite, find_faulty_rewrite
from relaxlab.runtime.check.compare import Difference, Tolerance, coarsest, difference, movement
from relaxlab.runtime.check.inputs import SIZES, copy_value, nudged, random_arguments
from relaxlab.runtime.check.kernels import find_wrong_kernel
from relaxlab.runtime.check.stages import (
    Interpreter,
    Stage,
    arguments_for,
    host_stages,
    same_parameters,
)
from relaxlab.runtime.interpreter.check_values import Symbols, arguments, match_value
from relaxlab.runtime.native.weights import transform_of
from relaxlab.runtime.programs import Program, as_module, with_entries

TRIES = 20
"""Draws of arguments per run, until the program accepts one."""

Inputs = Callable[[np.random.Generator], tuple[Any, ...]]


class CheckError(UserError, ValueError):
    """A program, or a function of it, that cannot be checked; the message gives the reason."""


@dataclass(frozen=True, slots=True)
class Finding:
    """The first place where a program goes wrong.

    `stage` is where (a pass with its number in the pipeline, the virtual machine, native code,
    simulated GPU threads); `cause` the pass's rewrite, or what else could be found out (the loop
    function that native code computes differently). `problem` is a `Difference`, or in words what
    failed; `again` the call that reproduces it. `before` and `after` are the modules on both sides.
    `function` is empty where a pass fails before anything can be called.
    """

    function: str
    stage: str
    pass_name: str | None
    cause: FaultyRewrite | str | None
    symbols: tuple[tuple[str, int], ...]
    seed: int
    problem: Difference | str
    again: str
    before: Module = field(repr=False)
    after: Module | None = field(repr=False)

    def __str__(self) -> str:
        name = f"`{self.function}`" if self.function else "the program"
        lines = [f"{name} goes wrong in {self.stage}"]
        if self.cause is not None:
            lines.append(f"  rewrite   {self.cause}")
        lines.append(f"  problem   {self.problem}")
        if self.symbols:
            lines.append(f"  with      {', '.join(f'{n} = {v}' for n, v in self.symbols)}")
        return "\n".join([*lines, f"  again     {self.again}"])


@dataclass(frozen=True, slots=True)
class CheckReport(Displayed):
    """The result of `check`: nothing wrong (`ok`), or a `finding`. `left_out` lists what was not
    compared, in words."""

    functions: tuple[str, ...]
    stages: int
    runs: int
    seed: int
    finding: Finding | None = None
    left_out: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """True if everything compared agrees."""
        return self.finding is None

    def __str__(self) -> str:
        names = ", ".join(f"`{n}`" for n in self.functions)
        last = self.seed + self.runs - 1
        seeds = f"seed {self.seed}" if self.runs == 1 else f"seeds {self.seed} to {last}"
        lines = [f"{names}: {self.stages} forms agree with the interpreter ({seeds})"]
        if self.finding is not None:
            lines = [str(self.finding)]
        return "\n".join([*lines, *(f"  note      {text}" for text in self.left_out)])


@names_arguments
@brief
def check(
    program: Program,
    name: str | None = None,
    *,
    target: str | Target = "cpu",
    pipeline: Pipeline | None = None,
    seed: int = 0,
    runs: int = 4,
    sizes: Sequence[int] = SIZES,
    inputs: Inputs | None = None,
) -> CheckReport:
    """Compare what a program computes before and after every pass, on random arguments.

    program: as `compile` takes it. name: the function to call; None: every public graph function;
    private ones, or loop functions, where there are no others. pipeline: the passes; None: the
    target's default. Run i draws values of the symbols from `sizes` (at most their declared bounds)
    and arguments with the seed `seed + i`; `inputs` makes arguments from a generator instead. After
    the passes come the virtual machine and native code (on GPUs: simulated threads). The reference
    is the interpreter on the program as given; arguments that it refuses are drawn again.
    `relaxlab.runtime.check.compare.Tolerance` defines when results agree.

    The report names the first form that differs, fails or is ill-formed, and the one rewrite of the
    pass with which it does. A pass that changes a function's parameters in a way that arguments do
    not show (`bind_params`) starts anew: what comes after it is compared with its own result.

    Raises CheckError for a function whose arguments cannot be drawn, or whose results change from
    call to call, and for no runs or a negative seed; DiagnosticError for a program that is wrong in
    itself.
    """
    if runs < 1 or seed < 0:
        raise CheckError(
            f"runs is at least 1 and seed at least 0; they are {runs} and {seed}: without a run "
            "nothing is compared"
        )
    if not len(sizes):
        raise CheckError("sizes are values for the symbols of the program; there are none")
    mod, _ = with_entries(as_module(program))
    chosen = parse_target(target)
    checker = _Checker(mod, chosen, pipeline_for(chosen, pipeline), seed, runs, sizes, inputs)
    return checker.report(_names(mod, name))


def _names(mod: Module, name: str | None) -> list[str]:
    if name is None:
        graphs = mod.graph_functions()
        found = [n for n, f in graphs.items() if not f.private] or [*graphs]
        if not found:
            raise CheckError("the module has no function to call")
        return found
    if not isinstance(mod.get(name), graph.Function):
        raise CheckError(f"the module has no graph function {name!r}")
    return [name]


class _Stop(Exception):  # noqa: N818
    def __init__(self, finding: Finding) -> None:
        super().__init__()
        self.finding = finding


@dataclass(slots=True)
class _Checker:
    mod: Module
    target: Target
    pipeline: Pipeline
    seed: int
    runs: int
    sizes: Sequence[int]
    inputs: Inputs | None
    interpreter: Interpreter = field(default_factory=Interpreter)
    stages: list[Stage] = field(default_factory=list[Stage])
    left_out: list[str] = field(default_factory=list[str])
    sound: set[PrimFunc] = field(default_factory=set[PrimFunc])
    roundoffs: dict[Module, float] = field(default_factory=dict[Module, float])

    def report(self, names: list[str]) -> CheckReport:
        checked: list[str] = []
        finding: Finding | None = None
        try:
            self.lower()
            for name in names:
                try:
                    self.function(name)
                    checked.append(name)
                except CheckError as reason:
                    if len(names) == 1:
                        raise
                    self.left_out.append(str(reason))
            if not checked:
                raise CheckError("; ".join(self.left_out))
        except _Stop as stop:
            finding = stop.finding
        return CheckReport(
            tuple(checked), len(self.stages), self.runs, self.seed, finding, tuple(self.left_out)
        )

    # --- The forms of the program -------------------------------------------------------------

    def lower(self) -> None:
        """Run the passes and the stages after them."""
        mod = self.mod
        # Memory that is not in use is overwritten, so that reading it too late is seen.
        for number, one in enumerate(marking_dead_memory(self.pipeline).passes, 1):
            before, mod = mod, self.run_pass(number, one, mod)
            if mod is not before:
                title = f"pass {number}, {one.name}"
                run = self.interpreter.module(mod)
                self.stages.append(Stage(title, number, one, before, mod, run))
        if not any(p.name == "expand_calls" for p in self.pipeline.passes):
            self.left_out.append("not compiled: the pipeline stops before `expand_calls`")
            return
        try:
            stages, left_out = host_stages(mod, self.target, len(self.pipeline.passes) + 1)
        except DiagnosticError:
            raise
        except Exception as error:
            raise self.failed("code generation", None, mod, error) from error
        self.stages += stages
        self.left_out += left_out

    def run_pass(self, number: int, one: Pass, mod: Module) -> Module:
        try:
            return Pipeline((one,), self.pipeline.check or self.ill_formed).run(mod).result
        except DiagnosticError:  # about the program, which is the user's
            raise
        except Exception as error:
            raise self.failed(f"pass {number}, {one.name}", one, mod, error) from error

    def ill_formed(self, mod: Module) -> list[Diagnostic]:
        """Return the diagnostics of a module. Its calls are not checked between a schedule that
        changed the layout of parameters and `rewrite_layouts`, which changes the calls."""
        loops = mod.loop_functions()
        waiting = any(f.attrs.get("layout_rewrites") for f in loops.values())
        found = [] if waiting else check_graphs(mod)
        for name, func in loops.items():
            # Most passes leave most loop functions as they are.
            if func not in self.sound:
                wrong = check_loops(name, func)
                found += wrong
                self.sound.update(() if wrong else (func,))
        return found

    def failed(self, stage: str, one: Pass | None, before: Module, error: Exception) -> _Stop:
        """Return the finding for a pass that raises, or leaves an ill-formed module."""

        def wrong(make: Callable[[], Module]) -> bool:
            try:
                return bool(self.ill_formed(make()))
            except Exception:  # noqa: BLE001  the failure that is being looked for
                return True

        cause = find_faulty_rewrite(one, before, wrong) if one else None
        text = str(error) if isinstance(error, PassFailed) else f"{type(error).__name__}: {error}"
        pass_name = one.name if one else None
        finding = Finding(
            "", stage, pass_name, cause, (), self.seed, text, self.again("", self.seed), before,
            None,
        )  # fmt: skip
        return _Stop(finding)

    def again(self, name: str, seed: int) -> str:
        """The call that reproduces a finding."""
        args = ["mod", *([repr(name), f"seed={seed}", "runs=1"] if name else [])]
        off = [f"{name}=off" for name in FLOAT_OPTIONS if not getattr(self.target, name)]
        target = ",".join([self.target.kind, *off])
        if target != "cpu":
            args.append(f"target={target!r}")
        if self.pipeline.passes != default_pipeline(self.target).passes:
            args.append("pipeline=...")
        if self.inputs is not None:
            args.append("inputs=...")
        elif tuple(self.sizes) != SIZES:
            args.append(f"sizes={tuple(self.sizes)}")
        return f"relaxlab.check({', '.join(args)})"

    # --- Running ------------------------------------------------------------------------------

    def function(self, name: str) -> None:
        """Compare all forms of one function. Raises _Stop with the finding."""
        for start, stages in self.segments(name):
            reference = self.interpreter.module(start)
            for run in range(self.runs):
                case = self.draw(name, start, reference, self.seed + run)
                for stage in stages:
                    self.compare(case, stage)

    def segments(self, name: str) -> Iterator[tuple[Module, list[Stage]]]:
        """The forms between which the function's parameters stay the same."""
        start, stages = self.mod, list[Stage]()
        for stage in self.stages:
            if _renewed(start, stage.after, name):
                yield start, stages
                what = f"`{name}` is not compared across {stage.title}: it changes the parameters"
                self.left_out.append(what)
                start, stages = stage.after, []
            else:
                stages.append(stage)
        yield start, stages

    def draw(self, name: str, mod: Module, reference: Any, seed: int) -> _Case:
        """Return arguments that the program accepts, with its results."""
        fn = mod[name]
        assert isinstance(fn, graph.Function)
        rng = np.random.default_rng(seed)
        random = partial(random_arguments, fn, sizes=self.sizes, data=data_types(mod))
        reason: Exception = ValueError()
        for _ in range(TRIES):
            try:
                args = self.inputs(rng) if self.inputs else random(rng)
                args = _values(args, fn, name)
                given = copy_value(args)
                result = reference(name, given)
                again = copy_value(args)
                # A program with state, or random numbers that no seed fixes, would be reported as a
                # wrong pass.
                if difference(reference(name, again), result, "the result", _EXACT) is not None:
                    raise CheckError(f"`{name}` gives another result each time it is called")
                moved = _moved(reference, name, fn, args, (result, given), rng)
            except OutOfMemory as error:
                raise CheckError(
                    f"`{name}` cannot be run: {error}; write symbols or smaller numbers for its "
                    "dimensions, and give `check` small values of the symbols by `sizes`"
                ) from error
            except ExecutionError as error:
                reason = error
                continue
            return _Case(name, fn, seed, args, result, given, moved)
        drawn, way_out = ("random arguments", "; give it some that fit by `inputs`")
        if self.inputs is not None:
            drawn, way_out = "arguments that `inputs` gave", ""
        raise CheckError(
            f"`{name}` accepts none of {TRIES} {drawn} (seed {seed}): {reason}{way_out}"
        )

    def compare(self, case: _Case, stage: Stage) -> None:
        problem = self.problem(case, stage)
        if problem is None:
            return
        cause: FaultyRewrite | str | None = None
        if stage.one is None:
            args = arguments_for(stage, case.name, case.fn, case.args)
            # No pass made this form: which loop function differs is what can be found out.
            cause = find_wrong_kernel(stage, self.target, case.name, args)
        else:
            one = stage.one

            def wrong(make: Callable[[], Module]) -> bool:
                try:
                    made = make()
                except Exception:  # noqa: BLE001  a half-done pass may fail in its own way
                    return False
                tried = replace(stage, after=made, run=self.interpreter.module(made))
                return self.problem(case, tried) is not None

            cause = find_faulty_rewrite(one, stage.before, wrong)
        symbols = _symbols(case.fn, case.args)
        pass_name = stage.one.name if stage.one else None
        raise _Stop(
            Finding(
                case.name,
                stage.title,
                pass_name,
                cause,
                symbols,
                case.seed,
                problem,
                self.again(case.name, case.seed),
                stage.before,
                stage.after,
            )  # fmt: skip
        )

    def problem(self, case: _Case, stage: Stage) -> Difference | str | None:
        """Return the first difference between a stage's results and the reference, or the error
        that it raised; None if they agree."""
        try:
            args = arguments_for(stage, case.name, case.fn, case.args)
            result = stage.run(case.name, args)
        except Exception as error:  # noqa: BLE001  whatever it is: the reference computed a result
            return f"{type(error).__name__}: {error}"
        # The coarser of both, as a pass may go to float16, or the program compute in it.
        u = max(self.roundoff(self.mod), self.roundoff(stage.after))
        tolerance = Tolerance(u, self.interpreter.length, case.moved[0])
        found = difference(result, case.result, "the result", tolerance)
        if found is not None:
            return found
        count = min(len(args), len(case.written))
        if transform_of(stage.after, case.name) is not None:
            count = case.fn.attrs.get("num_input", count)
        tolerance = replace(tolerance, moved=case.moved[1])
        mine, theirs = (tuple(_arrays(_kept(a[:count], case.fn))) for a in (args, case.written))
        return difference(mine, theirs, "the arguments", tolerance)

    def roundoff(self, mod: Module) -> float:
        if mod not in self.roundoffs:
            self.roundoffs[mod] = coarsest(mod)
        return self.roundoffs[mod]


@dataclass(frozen=True, slots=True)
class _Case:
    """One call: the result and the arguments afterwards, and how far both move when the arguments
    are nudged."""

    name: str
    fn: graph.Function
    seed: int
    args: tuple[Any, ...]
    result: Any
    written: tuple[Any, ...]
    moved: tuple[tuple[float, ...], tuple[float, ...]]


_EXACT = Tolerance(0.0, 0, ())


def _values(args: tuple[Any, ...], fn: graph.Function, name: str) -> tuple[Any, ...]:
    given: object = args
    if not isinstance(given, tuple | list):
        raise CheckError(f"`inputs` returns a tuple of arguments, it returned {kind_of(given)}")
    if len(args) != len(fn.params):
        params = counted(len(fn.params), "parameter")
        raise CheckError(f"`{name}` has {params}, `inputs` gave {counted(len(args), 'argument')}")
    return arguments(args, fn, name)


def _renewed(start: Module, after: Module, name: str) -> bool:
    """True if the function takes other arguments now, which do not follow from its old ones."""
    old, new = start.get(name), after.get(name)
    if not isinstance(old, graph.Function) or not isinstance(new, graph.Function):
        return False
    return not same_parameters(old, new) and transform_of(after, name) is None


def _moved(
    reference: Any, name: str, fn: graph.Function, args: tuple[Any, ...],
    results: tuple[Any, Any], rng: np.random.Generator,
) -> tuple[tuple[float, ...], tuple[float, ...]]:  # fmt: skip
    """Return how far the result, and the arguments afterwards, move when inputs are nudged by one
    rounding."""
    other = nudged(args, rng)
    try:
        result = reference(name, other)
    except ExecutionError:
        return (), ()
    written, nudged_ones = (tuple(_arrays(_kept(a, fn))) for a in (results[1], other))
    return movement(results[0], result), movement(written, nudged_ones)


def _kept(args: tuple[Any, ...], fn: graph.Function) -> tuple[Any, ...]:
    """The arguments whose values callers may use after the call, or the first ones of them."""
    donated = donated_params(fn)
    return tuple(a for i, a in enumerate(args) if i not in donated)


def _arrays(value: Any) -> Iterator[Any]:
    if isinstance(value, tuple):
        for v in value:  # type: ignore[reportUnknownVariableType]
            yield from _arrays(v)
    elif isinstance(value, np.ndarray):
        yield value


def _symbols(fn: graph.Function, args: tuple[Any, ...]) -> tuple[tuple[str, int], ...]:
    symbols = Symbols()
    pairs = [(a, p) for a, p in zip(args, fn.params, strict=True) if p.ty is not None]
    symbols.bind([d for a, p in pairs for d in match_value(a, p.ty, p.name)])  # type: ignore
    return tuple((s.name, v) for s, v in symbols.values.items())
