"""Every use of every operator, through the default pipeline: native, stepped, interpreted.

Many functions share one module, so that one compilation serves many cases.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest

from relaxlab.codegen.program import compile_program
from relaxlab.ir.host import HostProgram
from relaxlab.ir.module import Module
from relaxlab.ir.target import Target
from relaxlab.passes.lower_shapes import lower_shapes
from relaxlab.passes.pipeline import cpu_pipeline
from relaxlab.runtime.executable import Executable
from relaxlab.runtime.interpreter.interpreter import interpret
from relaxlab.runtime.vm.vm import VirtualMachine
from relaxlab.testing.op_cases import FAMILIES
from relaxlab.testing.op_check import CaseProgram, Env, OpCase, compare, concrete_call

GROUP = 40
GROUPS = [
    (family, start) for family, cases in FAMILIES.items() for start in range(0, len(cases()), GROUP)
]
DEFAULT_SIZES = OpCase("add", ()).sizes


@cache
def module(family: str, start: int) -> tuple[Module, dict[str, OpCase]]:
    """A module with one function per case, and the cases by function name."""
    cases = {f"case{i}": c for i, c in enumerate(FAMILIES[family]()[start : start + GROUP])}
    functions = {n: CaseProgram(c, c.sizes[0], symbolic=True).function() for n, c in cases.items()}
    return Module.of(functions), cases


@cache
def program(family: str, start: int) -> HostProgram:
    return lower_shapes(cpu_pipeline(Target.host()).run(module(family, start)[0]).result)


@cache
def executable(family: str, start: int) -> Executable:
    """The program, as a debug build every other time: compiling both takes too long."""
    checks = random.random() < 0.5
    print("debug build" if checks else "default build")
    artifact = compile_program(program(family, start), Target.host(), checks=checks)
    return Executable(artifact, Target.host(), 1)


def sizes_of(case: OpCase) -> list[Env]:
    """The case's sizes; where any size will do also one with full vectors and a tail."""
    more: list[Env] = [{"n": 37}] if case.sizes == DEFAULT_SIZES else []
    return [*case.sizes, *more]


def displaced(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """A copy that starts one element after a 64-byte boundary."""
    step = array.dtype.itemsize
    raw = np.empty(array.nbytes + 128, np.uint8)
    first = -raw.__array_interface__["data"][0] % 64 + step
    view = raw[first : first + array.nbytes].view(array.dtype).reshape(array.shape)
    view[...] = array
    return view


def uses(family: str, start: int) -> Iterator[tuple[str, OpCase, Env, int]]:
    for name, case in module(family, start)[1].items():
        for seed, env in enumerate(sizes_of(case)):
            yield name, case, env, seed


def check(results: Any, expected: list[Any], where: str) -> None:
    results = results if isinstance(results, tuple | list) else (results,)
    for result, want in zip(results, expected, strict=True):
        assert np.shape(result) == want.shape, where
        compare(np.asarray(result), want, where)


def check_all(
    family: str, start: int, run: Callable[..., Any], sizes: Callable[[OpCase], list[Env]]
) -> None:
    for name, case, env, seed in uses(family, start):
        if env in sizes(case):
            arrays, expected = concrete_call(case, env, seed)
            got = run(name, *arrays, tuple(env.values()))
            check(got, expected, f"{case} with {dict(env)}, seed={seed}")


@pytest.mark.parametrize(("family", "start"), GROUPS)
def test_native_results_match_the_reference(family: str, start: int) -> None:
    exe = executable(family, start)
    exe.threads = 1
    check_all(family, start, lambda name, *args: exe[name](*args), sizes_of)


@pytest.mark.parametrize(("family", "start"), GROUPS)
def test_the_virtual_machine_agrees(family: str, start: int) -> None:
    machine = VirtualMachine(program(family, start))
    check_all(family, start, machine.run, lambda case: [case.sizes[0]])


@pytest.mark.parametrize(("family", "start"), GROUPS)
def test_the_interpreter_agrees(family: str, start: int) -> None:
    mod = module(family, start)[0]
    check_all(
        family, start, lambda name, *a: interpret(mod, name, *a), lambda case: [case.sizes[0]]
    )


@pytest.mark.parametrize(("family", "start"), GROUPS)
def test_neither_threads_nor_addresses_change_a_bit(family: str, start: int) -> None:
    exe = executable(family, start)
    calls = [
        (f"{case}, {dict(env)}", name, concrete_call(case, env, seed)[0], tuple(env.values()))
        for name, case, env, seed in uses(family, start)
    ]
    exe.threads = 1
    alone = [bits_of(exe[name](*arrays, env)) for _, name, arrays, env in calls]
    for (case, name, arrays, env), bits in zip(calls, alone, strict=True):
        assert bits_of(exe[name](*map(displaced, arrays), env)) == bits, f"{case}, displaced"
    for threads in (2, 3):  # all calls by each number: another one makes a team of threads anew
        exe.threads = threads
        for (case, name, arrays, env), bits in zip(calls, alone, strict=True):
            assert bits_of(exe[name](*arrays, env)) == bits, f"{case}, {threads} threads"


def bits_of(results: Any) -> list[bytes]:
    results = results if isinstance(results, tuple | list) else (results,)
    return [np.asarray(r).tobytes() for r in results]
