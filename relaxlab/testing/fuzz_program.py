"""One random program over the whole operator table against NumPy: interpreted as it was made,
operators by their NumPy references, and compiled in one of several ways."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any, TypeAlias
from unittest.mock import patch

import numpy as np

from relaxlab.analysis.deduce import type_of
from relaxlab.codegen import program
from relaxlab.codegen.errors import CodegenError
from relaxlab.codegen.separate_inits import OVER_NOTHING
from relaxlab.ir import graph
from relaxlab.ir.dtypes import is_float
from relaxlab.ir.module import Module
from relaxlab.ir.node import Node, rewrite
from relaxlab.ir.substitute import symbols_in
from relaxlab.ir.target import Target
from relaxlab.ir.types import TensorType, TupleType
from relaxlab.passes.pipeline import cpu_pipeline, cuda_pipeline
from relaxlab.runtime.arrays import ExecutionError
from relaxlab.runtime.build import compile as build
from relaxlab.runtime.check.compare import ROUNDINGS, Tolerance, coarsest, difference, movement
from relaxlab.runtime.check.inputs import copy_value, nudged, roundoff
from relaxlab.runtime.executable import Executable
from relaxlab.runtime.interpreter.interpreter import interpret
from relaxlab.runtime.native.arguments import ArgumentError
from relaxlab.runtime.native.function import CheckFailed
from relaxlab.runtime.packed import register_func
from relaxlab.testing.batch_check import BatchFailure, run_batched_program
from relaxlab.testing.function_programs import FunctionProgram
from relaxlab.testing.processors import without_avx
from relaxlab.testing.quick_code import unoptimised
from relaxlab.testing.random_schedules import COLLIDING, schedule_at_random
from relaxlab.testing.replay import replay_for
from relaxlab.testing.shrink import shrunk
from relaxlab.testing.table_programs import EXACT, Attributes

OPTIMISED = 4
"""LLVM optimises one in so many programs; it would take most of the time of all others."""
SCHEDULED = 5
"""The kernels of one program in so many are scheduled at random, those of the others by rules."""
REPLAYED = 7
"""The schedules of one program in so many are replayed, for as long as making them took."""
OLDER = 7
"""One program in so many is compiled for a processor without AVX, where this one has it: vectors
are shorter, and nothing is masked."""
BATCHED = 11
"""One program in so many runs in batches: it has control flow of its own."""
SETS = 3
"""Sets of arguments that a compiled program is called with."""
TRIES = 5
"""Draws of the first arguments, until the interpreter accepts one."""
HALF_ROUNDINGS = 8
"""Roundings to halves that a result may differ by; what lies between is computed in float32."""
PER_TERM = 1 / 8
"""Roundings per square root of the number of terms, in sums of random signs."""
MOVES = 8
"""Moves whose distances are averaged: a single element may by chance hardly move in one."""

MOVED = "relaxlab.testing.moved_by_roundings"
"""The registered function that moves results for the tolerance."""

Args: TypeAlias = tuple[Any, ...]
Compiled: TypeAlias = Executable | Mapping[str, Callable[..., Any]]


@dataclass(frozen=True, slots=True)
class Failure:
    """A program that goes wrong, as small as it could be made."""

    seed: int
    problem: str
    program: Module
    args: Args

    def __str__(self) -> str:
        shapes = ", ".join(_described(a) for a in self.args)
        return f"seed {self.seed}: {self.problem}\n{self.program.script()}\narguments: {shapes}\n"


def _described(value: Any) -> str:
    if isinstance(value, tuple):
        return f"({', '.join(map(_described, value))})"  # type: ignore[reportUnknownVariableType]
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{list(value.shape)}"
    return str(value)


@dataclass(frozen=True, slots=True)
class Build:
    """A way to compile a program: as a debug build, with LLVM's optimiser, with random schedules of
    its kernels drawn from a seed, with replays of the schedules that rules make, for an older
    processor (its schedules by rules)."""

    checks: bool = False
    optimised: bool = True
    schedules: int | None = None
    replayed: bool = False
    older: bool = False

    @staticmethod
    def of_seed(seed: int) -> Build:
        """Every third a debug build; one in OPTIMISED optimised, one in SCHEDULED at random, of one
        in REPLAYED the schedules replayed, one in OLDER for an older processor."""
        schedules = seed if seed % SCHEDULED == 0 else None
        older = schedules is None and seed % OLDER == 3
        return Build(seed % 3 == 1, seed % OPTIMISED == 0, schedules, seed % REPLAYED == 0, older)

    def __call__(self, mod: Module) -> Executable | str:
        """The compiled program, or the error of the compiler in words."""
        quick = patch.object(program, "compile_objects", unoptimised)
        pipeline = None
        if self.schedules is not None:
            random_ones = schedule_at_random.with_options(seed=self.schedules)
            pipeline = cpu_pipeline().before("schedule_kernels", random_ones)
        checks = "all" if self.checks else "default"
        target = (without_avx() if self.older else None) or Target.host()
        try:
            for replayed in (cpu_pipeline(), cuda_pipeline()) if self.replayed else ():
                replay_for(mod, replayed)
            with nullcontext() if self.optimised else quick:
                exe = build(
                    mod, target=target, pipeline=pipeline, use_cache=False, checks=checks
                )
                assert isinstance(exe, Executable)
                return exe
        except CodegenError as error:
            if pipeline is None or COLLIDING not in str(error):
                return f"CodegenError: {error}"
            return replace(self, schedules=None)(mod)
        except Exception as error:  # noqa: BLE001  whatever it is: the interpreter has a result
            return f"{type(error).__name__}: {error}"


def problem_of(mod: Module, args: Args, exe: Compiled | str) -> str | None:
    """Return the error of the compiled program, in words; None if there is none. Raises
    ExecutionError if neither the interpreter nor the compiled program accepts the arguments."""
    try:
        want = interpret(mod, "main", *copy_value(args))
    except ExecutionError as reason:
        if isinstance(exe, str):
            raise
        try:
            exe["main"](*copy_value(args))
        except (ExecutionError, CheckFailed, ArgumentError) as refusal:
            if not same_claim(str(refusal), str(reason)):
                return f"refused with `{refusal}`, expected: {reason}"
            raise reason from None
        except Exception as error:  # noqa: BLE001  it is not the one that users are shown
            return f"{type(error).__name__}: {error}, expected: {reason}"
        return f"accepted, expected: {reason}"
    if isinstance(exe, str):
        return exe
    try:
        got = exe["main"](*copy_value(args))
    except Exception as error:  # noqa: BLE001  whatever it is: the interpreter computed a result
        return f"{type(error).__name__}: {error}"
    unit, length = _roundoff(mod), _length(mod, args)
    if difference(got, want, "the result", Tolerance(unit, length, ())) is None:
        return None
    if difference(interpret(mod, "main", *copy_value(args)), want, "", Tolerance(0.0, 0, ())):
        raise ExecutionError("the program gives another result each time")
    moved = _moved(mod, args, want)
    found = difference(got, want, "the result", Tolerance(unit, length, moved))
    return None if found is None else str(found)


def same_claim(got: str, want: str) -> bool:
    """True unless the interpreter's message `want` is of a failed `match_cast` and that of the
    compiled program is not, or has other extents of that dimension. Which one of several wrong
    dimensions is named is left open."""
    a, b = _failed_claim(got), _failed_claim(want)
    return b is None or (a is not None and a[0] == b[0] and (a[1] != b[1] or a == b))


def _failed_claim(text: str) -> tuple[str, ...] | None:
    """The variable of a failed `match_cast`, the dimension, and the extents that it has and should
    have; None for other errors."""
    for pattern in _FAILED_CLAIMS:
        if found := re.search(pattern, text):
            return tuple(found[name] for name in ("var", "axis", "got", "expected"))
    return None


_FAILED_CLAIMS = (
    r"match_cast `(?P<var>\w+)`: dimension (?P<axis>\d+) of .* is (?P<got>\d+), "
    r"expected (.* = )?(?P<expected>-?\d+)",
    r"match_cast `(?P<var>\w+)`: `\w+` is (?P<expected>-?\d+) in .* and (?P<got>\d+) in "
    r"dimension (?P<axis>\d+) of",
    r"dimension (?P<axis>\d+) of `(?P<var>\w+)` \(match_cast (of .* )?in `\w+`\) is (?P<got>\d+), "
    r"expected (.*? = )?(?P<expected>-?\d+)( \(|$)",
)
"""The interpreter's messages for an extent and for a symbol that has two values, and that of
compiled programs."""


def _roundoff(mod: Module) -> float:
    """The roundoff of the coarsest dtype; HALF_ROUNDINGS of them for halves, not ROUNDINGS."""
    unit = coarsest(mod)
    return unit if unit <= roundoff("float32") else unit * HALF_ROUNDINGS / ROUNDINGS


def _length(mod: Module, args: Args) -> int:
    """The length of sums for the tolerance: ROUNDINGS for the rest of the program and PER_TERM for
    sums over the largest argument, which halves take in float32."""
    if coarsest(mod) > roundoff("float32"):
        return 1
    return math.ceil((1 + PER_TERM * math.sqrt(_largest(args)) / ROUNDINGS) ** 2)


def _roundings(args: Args) -> float:
    """The roundings that a sum over the largest argument gathers."""
    return 1 + PER_TERM * math.sqrt(_largest(args))


def _largest(args: Args) -> int:
    """The number of elements of the largest argument."""
    return max((a.size for a in args if isinstance(a, np.ndarray)), default=1)


def _moved(mod: Module, args: Args, want: Any) -> tuple[float, ...]:
    """Return how far the results move, on average, when every input moves by the roundings of a
    sum, and when the results of operators do: little is left of terms that cancel each other, and a
    tanh keeps little of how large its operand was."""
    rng = np.random.default_rng(0)
    rounded = _with_roundings(mod, args, rng)
    inputs, between = list[tuple[float, ...]](), list[tuple[float, ...]]()
    try:
        for _ in range(MOVES):
            inputs.append(movement(interpret(mod, "main", *nudged(args, rng)), want))
            between.append(movement(interpret(rounded, "main", *copy_value(args)), want))
    except ExecutionError:
        return (math.inf,) * 64
    roundings = _roundings(args) if coarsest(mod) <= roundoff("float32") else 1.0
    far = np.maximum(roundings * np.mean(inputs, axis=0), np.mean(between, axis=0))
    return tuple(far.tolist())


def _with_roundings(mod: Module, args: Args, rng: np.random.Generator) -> Module:
    """The module whose inexact operators give results moved by roundings of the largest element."""
    roundings = _roundings(args)

    def moved(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(map(moved, value))  # type: ignore[reportUnknownArgumentType]
        if not is_float(dtype := str(value.dtype)):
            return value
        numbers = value.astype("float64")
        scale = np.abs(numbers[np.isfinite(numbers)]).max(initial=0.0) * roundoff(dtype)
        if roundoff(dtype) <= roundoff("float32"):  # halves are summed in float32
            scale *= roundings
        return (numbers + rng.choice((-scale, scale), value.shape)).astype(dtype)

    def rewritten(n: Node) -> Node | None:
        if not isinstance(n, graph.Call) or not isinstance(n.op, graph.Op) or n.op.name in EXACT:
            return None
        ty = type_of(n, mod)
        if not isinstance(ty, TensorType | TupleType):
            return None
        moving = graph.ExternFunc(MOVED)
        return graph.Call(graph.Op("call_pure_packed"), (moving, n), ty_args=(ty,))

    register_func(MOVED, moved, override=True)
    functions = {name: rewrite(fn, rewritten) for name, fn in mod.graph_functions().items()}
    return mod.with_functions(functions)


def run_program(
    seed: int, how: Build, *, shrink: bool = True, drawn: Attributes | None = None
) -> Failure | None:
    """Make the program of a seed and compare it; `drawn` counts what it calls. Raises
    ExecutionError if no arguments fit it."""
    made = FunctionProgram(seed)
    mod = made.random_module()
    if drawn is not None:
        drawn.update(made.drawn)
    exe = how(mod)
    rng = np.random.default_rng(seed)
    reason: ExecutionError | None = None
    compared = 0
    for attempt in range(TRIES):
        try:
            args = made.arguments(mod, rng, again=attempt > 0)
            problem = problem_of(mod, args, exe)
        except ExecutionError as error:
            reason = error
            continue
        # Loops of a random schedule may mix axes, which is refused where no term is left.
        if problem is not None and how.schedules is not None and OVER_NOTHING in problem:
            continue
        if problem is not None:
            if not shrink:
                return Failure(seed, problem, mod, args)
            return _smaller(seed, mod, args, problem, how)
        compared += 1
        if compared == SETS or not symbols_in(mod["main"]):
            break
    if not compared and reason is not None:
        raise reason
    return None


def _smaller(seed: int, mod: Module, args: Args, problem: str, how: Build) -> Failure:
    kind = _kind(problem)

    def now_of(m: Module, a: Args) -> str | None:
        return problem_of(m, a, how(m))

    def still_fails(m: Module, a: Args) -> bool:
        try:
            now = now_of(m, a)
        except Exception:  # noqa: BLE001  a candidate need not be a program
            return False
        return now is not None and _kind(now) == kind

    mod, args = shrunk(mod, args, still_fails)
    return Failure(seed, now_of(mod, args) or problem, mod, args)


def _kind(problem: str) -> str:
    """Return a key that is the same for problems that may have one cause: the exception, or that
    numbers differ."""
    first = problem.split(":")[0]
    return first if first.isidentifier() else "differs"


@dataclass(slots=True)
class Counts:
    """The numbers of programs that ran, failed, and accepted no arguments."""

    run: int = 0
    failed: int = 0
    unusable: int = 0


def run_programs(
    seeds: Iterable[int], report: Callable[[Failure | BatchFailure], None], counts: Counts,
    drawn: Attributes, *, shrink: bool = True,
) -> None:  # fmt: skip
    """Run the programs of some seeds."""
    for seed in seeds:
        counts.run += 1
        try:
            failure = (
                run_batched_program(seed, shrink=shrink) if seed % BATCHED == 0
                else run_program(seed, Build.of_seed(seed), shrink=shrink, drawn=drawn)
            )  # fmt: skip
        except ExecutionError:
            counts.unusable += 1
            continue
        if failure is not None:
            counts.failed += 1
            report(failure)
