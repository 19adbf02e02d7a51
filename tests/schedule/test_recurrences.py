"""Sums in loops that depend on themselves: what the iteration before stored is added last."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.ir.expr import Add, PrimExpr, Sub
from relaxlab.ir.loops import BufferLoad, BufferStore, PrimFunc
from relaxlab.ir.node import walk
from relaxlab.runtime.interpreter.interpreter import interpret_prim_func

PROGRAM = """
@T.prim_func
def main(x: T.handle, y: T.handle):
    n = T.int64()
    X = T.match_buffer(x, (n,), "float32")
    Y = T.match_buffer(y, (n + 2,), "float32")
    for i in range(n):
        Y[i + 2] = {value}
"""
LATEST = "Y[i + 1]"


def function(value: str) -> PrimFunc:
    (func,) = rl.parse(PROGRAM.format(value=value)).loop_functions().values()
    return func


def scheduled(value: str) -> PrimExpr:
    """The value that is stored once the loop is scheduled."""
    mod = rl.parse(PROGRAM.format(value=value))
    (func,) = rl.trace(mod).find("schedule_kernels").after.loop_functions().values()
    (store,) = (n for n in walk(func) if isinstance(n, BufferStore))
    return store.value


def height(value: PrimExpr) -> int:
    """The additions that wait for the element before."""

    def loads(e: PrimExpr) -> bool:
        found = (n for n in walk(e) if isinstance(n, BufferLoad))
        return any(n.buffer.name == "Y" and str(n.indices[0]).endswith("+ 1") for n in found)

    inside = [n for n in walk(value) if isinstance(n, Add | Sub) and n.dtype == "float32"]
    return sum(loads(n) for n in inside)


@pytest.mark.parametrize(
    "value",
    [
        f"{LATEST} + X[i] + Y[i]",
        f"X[i] - {LATEST} - Y[i]",
        f"T.float32(0.25) * (X[i] + {LATEST} * T.float32(0.5) + Y[i] - X[i])",
        f"T.max(X[i] + ({LATEST} - Y[i]), T.float32(0))",
        f"X[i] + Y[i] + {LATEST}",
    ],
)
def test_one_addition_waits(value: str) -> None:
    assert height(scheduled(value)) == 1


@pytest.mark.parametrize(
    "value", ["X[i] + Y[i]", f"{LATEST} - X[i] - Y[i]", f"{LATEST} + {LATEST} + X[i]"]
)
def test_other_sums_stay(value: str) -> None:
    """Nothing but the element before is positive in the second."""
    (store,) = (n for n in walk(function(value)) if isinstance(n, BufferStore))
    assert height(scheduled(value)) == height(store.value)


def random_sum(rng: Random, depth: int) -> str:
    if depth and rng.random() < 0.8:
        a, b = (random_sum(rng, depth - 1) for _ in range(2))
        return f"({a} {rng.choice('+-')} {b})"
    term = rng.choice((LATEST, "Y[i]", "X[i]", f"T.min({LATEST}, X[i])", "T.float32(2)"))
    return rng.choice((term, f"T.float32(0.25) * {term}"))


@pytest.mark.parametrize("number", range(8))
@pytest.mark.parametrize("reassociate", [True, False])
def test_random_sums(number: int, reassociate: bool, rng: np.random.Generator) -> None:
    """As the interpreter has it, whether sums keep their order or not."""
    value = f"T.float32(0.125) * {random_sum(Random(int(rng.integers(1 << 40)) + number), 3)}"
    target = replace(rl.Target.host(), reassociate=reassociate)
    exe = rl.compile(rl.parse(PROGRAM.format(value=value)), target=target, checks="all")
    for n in (0, 1, 40):
        given = [rng.standard_normal(n, np.float32), rng.standard_normal(n + 2, np.float32)]
        want = [a.copy() for a in given]
        interpret_prim_func(function(value), want)
        exe["main"](*given)
        np.testing.assert_allclose(given[1], want[1], 1e-4, 1e-5, err_msg=value)
