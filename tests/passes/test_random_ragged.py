"""Random programs over triangles, bands and computed lengths: the interpreter, and compiled code
with all checks, against NumPy on one sequence after the other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.testing.ragged_tensor_programs import EXTENTS, STEPS, RaggedProgram, drawn_lengths
from tests.passes.ragged_checks import SEED, check_drawn, compare

BANDS = [e for e in EXTENTS if "T.min({i} + 2" in e.text]


def given(made: RaggedProgram, rng: np.random.Generator) -> tuple[Any, ...]:
    s = drawn_lengths(rng)
    t = rng.permutation(s) if rng.integers(2) else rng.integers(0, 12, len(s)).astype("int32")
    return made.arguments(s, t, rng)


@pytest.mark.parametrize("number", range(16))
def test_random_programs(number: int) -> None:
    check_drawn(RaggedProgram, given, number)


@pytest.mark.parametrize("number", range(3))
def test_random_programs_on_simulated_threads(number: int) -> None:
    print(f"RELAXLAB_SEED={SEED}: program {number}")
    rng = np.random.default_rng([SEED, number, 1])
    made = RaggedProgram.drawn(rng, int(rng.integers(1, 5)))
    exe = rl.compile(made.module(), "cuda:sm_90a", use_cache=False)
    for _ in range(2):
        args = given(made, rng)
        compare(exe.simulate("main", *args), made.expected(args), args)


@pytest.mark.parametrize("step", STEPS, ids=[s.text for s in STEPS])
def test_each_step_over_a_band(step: Any) -> None:
    """A band's extent is a difference, whose terms fall: no sum of these is a place."""
    operands = tuple(f"{p[0]}0" for p in step.text.split("{")[1:])
    extents = {"A": BANDS[0], "B": EXTENTS[0]}
    made = RaggedProgram(extents, ((step, operands, f"{step.kind}1"),), (f"{step.kind}1",))
    args = given(made, np.random.default_rng(SEED))
    mod = made.module()
    compare(rl.interpret(mod, "main", *args), made.expected(args), args)


def test_a_band_in_native_code() -> None:
    step = next(s for s in STEPS if "softmax({p}" in s.text)
    made = RaggedProgram({"A": BANDS[0], "B": BANDS[0]}, ((step, ("p0",), "p1"),), ("p1",))
    exe = rl.compile(made.module(), checks="all", use_cache=False)
    rng = np.random.default_rng(SEED)
    for _ in range(3):
        args = given(made, rng)
        compare(exe["main"](*args), made.expected(args), args)
