"""Random programs over triangles, bands and computed lengths: the interpreter, and compiled code
with all checks, against NumPy on one sequence after the other."""

from __future__ import annotations

import os
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.codegen import program
from relaxlab.passes.pipeline import cpu_pipeline
from relaxlab.testing.quick_code import unoptimised
from relaxlab.testing.ragged_tensor_programs import EXTENTS, STEPS, RaggedProgram, drawn_lengths
from relaxlab.testing.random_schedules import schedule_at_random

SEED = int(os.environ.get("RELAXLAB_SEED", "1"))
BANDS = [e for e in EXTENTS if "T.min({i} + 2" in e.text]


def given(made: RaggedProgram, rng: np.random.Generator) -> tuple[Any, ...]:
    s = drawn_lengths(rng)
    t = rng.permutation(s) if rng.integers(2) else rng.integers(0, 12, len(s)).astype("int32")
    return made.arguments(s, t, rng)


def compare(got: tuple[Any, ...], want: list[np.ndarray], args: tuple[Any, ...]) -> None:
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(np.asarray(a).reshape(-1), b, 2e-4, 2e-4, err_msg=str(args[:2]))


@pytest.mark.parametrize("number", range(16))
def test_random_programs(number: int) -> None:
    """Every second one is compiled, with schedules by rules or at random."""
    print(f"RELAXLAB_SEED={SEED}: program {number}")
    rng = np.random.default_rng([SEED, number])
    made = RaggedProgram.drawn(rng, int(rng.integers(1, 7)))
    mod = made.module()
    assert rl.structural_equal(rl.parse(mod.script()), mod)
    for _ in range(2):
        args = given(made, rng)
        compare(rl.interpret(mod, "main", *args), made.expected(args), args)
    if number % 2:
        return
    at_random = schedule_at_random.with_options(seed=number)
    pipeline = cpu_pipeline().before("schedule_kernels", at_random) if number % 4 else None
    with patch.object(program, "compile_objects", unoptimised):
        exe = rl.compile(mod, pipeline=pipeline, use_cache=False, checks="all")
    for _ in range(3):
        args = given(made, rng)
        compare(exe["main"](*args), made.expected(args), args)


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
