"""Run random programs over the whole operator table against NumPy, for as long as one likes:

    python -m relaxlab.testing.fuzz --programs 1000 --seed 7

Each program is interpreted as it was made, operators by their NumPy references, and compiled, every
other one as a debug build. A program that fails is made smaller and printed with its seed.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from relaxlab.ir.module import Module
from relaxlab.runtime.arrays import ExecutionError
from relaxlab.runtime.build import compile as build
from relaxlab.runtime.check_compare import Tolerance, coarsest, difference, movement
from relaxlab.runtime.check_inputs import copy_value, nudged
from relaxlab.runtime.interpreter import interpret
from relaxlab.testing.shrink import shrunk
from relaxlab.testing.table_programs import TableProgram

TRIES = 5
"""Draws of arguments per program, until the interpreter accepts one."""
CHUNK = 50
"""Programs between two lines about the rate."""
LENGTH = 1024
"""Terms of the longest sums in these programs, for the tolerance."""

Args = tuple[Any, ...]


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


def problem_of(mod: Module, args: Args, *, checks: bool) -> str | None:
    """Return the error of the compiled program, in words; None if there is none. Raises
    ExecutionError if the interpreter does not accept the arguments."""
    want = interpret(mod, "main", *copy_value(args))
    again = interpret(mod, "main", *copy_value(args))
    exact = Tolerance(0.0, 0, ())
    if difference(again, want, "the result", exact) is not None:
        raise ExecutionError("the program gives another result each time")
    moved = _moved(mod, args, want)
    try:
        exe = build(mod, use_cache=False, checks="all" if checks else "default")
        got = exe["main"](*copy_value(args))
    except Exception as error:  # noqa: BLE001  whatever it is: the interpreter computed a result
        return f"{type(error).__name__}: {error}"
    found = difference(got, want, "the result", Tolerance(coarsest(mod), LENGTH, moved))
    return None if found is None else str(found)


def _moved(mod: Module, args: Args, want: Any) -> tuple[float, ...]:
    """Return how far the results move when every input moves by a rounding."""
    try:
        other = interpret(mod, "main", *nudged(args, np.random.default_rng(0)))
    except ExecutionError:
        return (math.inf,) * 64
    return movement(other, want)


def run_program(seed: int, *, checks: bool, shrink: bool = True) -> Failure | None:
    """Make the program of a seed and compare it. Raises ExecutionError if no arguments fit it."""
    made = TableProgram(seed)
    mod = made.module(8)
    rng = np.random.default_rng(seed)
    reason = ExecutionError("")
    for _ in range(TRIES):
        args = made.arguments(mod, rng)
        try:
            problem = problem_of(mod, args, checks=checks)
        except ExecutionError as error:
            reason = error
            continue
        if problem is None:
            return None
        return _smaller(seed, mod, args, problem, checks) if shrink else Failure(
            seed, problem, mod, args
        )  # fmt: skip
    raise reason


def _smaller(seed: int, mod: Module, args: Args, problem: str, checks: bool) -> Failure:
    kind = _kind(problem)

    def still_fails(m: Module, a: Args) -> bool:
        try:
            now = problem_of(m, a, checks=checks)
        except Exception:  # noqa: BLE001  a candidate need not be a program
            return False
        return now is not None and _kind(now) == kind

    mod, args = shrunk(mod, args, still_fails)
    return Failure(seed, problem_of(mod, args, checks=checks) or problem, mod, args)


def _kind(problem: str) -> str:
    """The same for problems that may have one cause: the exception, or that numbers differ."""
    first = problem.split(":")[0]
    return first if first.isidentifier() else "differs"


def run_programs(
    seeds: Sequence[int], report: Callable[[Failure], None], *, shrink: bool = True
) -> tuple[int, int]:
    """Run programs; how many failed, and how many accepted no arguments."""
    failed = unusable = 0
    for seed in seeds:
        try:
            failure = run_program(seed, checks=seed % 2 == 1, shrink=shrink)
        except ExecutionError:
            unusable += 1
            continue
        if failure is not None:
            failed += 1
            report(failure)
    return failed, unusable


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m relaxlab.testing.fuzz", description=__doc__)
    parser.add_argument("--programs", type=int, default=100, help="how many (100)")
    parser.add_argument("--seed", type=int, default=None, help="of the first; the others follow")
    parser.add_argument("--no-shrink", action="store_true", help="print failing programs whole")
    options = parser.parse_args()
    seed = options.seed
    if seed is None:
        seed = int(np.random.default_rng().integers(1 << 31))
    start, end = time.perf_counter(), seed + options.programs
    failed = unusable = 0
    for first in range(seed, end, CHUNK):
        seeds = range(first, min(first + CHUNK, end))
        counts = run_programs(seeds, _show, shrink=not options.no_shrink)
        failed, unusable = failed + counts[0], unusable + counts[1]
        done, took = seeds.stop - seed, time.perf_counter() - start
        print(f"programs {seed} to {seeds.stop - 1}: {done / took:.2f} a second, {failed} failed, "
              f"{unusable} accepted no arguments", flush=True)  # fmt: skip
    return 1 if failed else 0


def _show(failure: Failure) -> None:
    print(failure, flush=True)


if __name__ == "__main__":
    sys.exit(main())
