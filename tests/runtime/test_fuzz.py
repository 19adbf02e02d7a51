"""Random programs over the whole operator table against NumPy, and how failing ones get smaller."""

from __future__ import annotations

import numpy as np
import pytest

from relaxlab.ir import graph
from relaxlab.ir.module import Module
from relaxlab.ir.node import walk
from relaxlab.passes.dead_code_elimination import dead_code_elimination
from relaxlab.runtime.arrays import ExecutionError
from relaxlab.runtime.interpreter import interpret
from relaxlab.testing.fuzz import run_program
from relaxlab.testing.shrink import shrunk
from relaxlab.testing.table_programs import TableProgram


def _compare(rng: np.random.Generator) -> None:
    seed = int(rng.integers(1 << 31))
    print(f"python -m relaxlab.testing.fuzz --programs 1 --seed {seed}")
    try:
        failure = run_program(seed, checks=seed % 2 == 1)
    except ExecutionError as reason:
        print(f"accepts no arguments: {reason}")
        return
    assert failure is None, str(failure)


@pytest.mark.parametrize("case", range(6))
def test_some_programs_compute_what_numpy_does(case, rng) -> None:
    _compare(rng)


@pytest.mark.parametrize("case", range(30))
def test_more_programs_compute_what_numpy_does(case, rng) -> None:
    """Left to the tier of all tests, for the time they take."""
    _compare(rng)


def _calls(mod: Module) -> list[str]:
    main = mod["main"]
    calls = (n for n in walk(main) if isinstance(n, graph.Call))
    return [c.op.name for c in calls if isinstance(c.op, graph.Op)]


def test_a_failing_program_becomes_small(rng) -> None:
    """As if the operator called last failed: little else is left."""
    made = TableProgram(int(rng.integers(1 << 31)))
    mod = made.module(8)
    args = made.arguments(mod, rng)
    wanted = _calls(dead_code_elimination(mod))[-1]

    def fails(m: Module, a: tuple[object, ...]) -> bool:
        interpret(m, "main", *a)
        return wanted in _calls(m)

    small, given = shrunk(mod, args, fails)
    assert wanted in _calls(small) and len(_calls(small)) <= 2
    assert len(given) == len(small["main"].params) <= 5
    assert isinstance(interpret(small, "main", *given), np.ndarray | tuple)
