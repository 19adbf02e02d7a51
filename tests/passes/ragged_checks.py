"""Random programs on ragged tensors: the interpreter, and compiled code with all checks, against
NumPy on one sequence after the other."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import numpy as np

import relaxlab as rl
from relaxlab.codegen import program
from relaxlab.passes.pipeline import cpu_pipeline
from relaxlab.testing.quick_code import unoptimised
from relaxlab.testing.ragged_tensor_programs import DrawnProgram
from relaxlab.testing.random_schedules import schedule_at_random

SEED = int(os.environ.get("RELAXLAB_SEED", "1"))


def compare(got: tuple[Any, ...], want: list[np.ndarray], args: tuple[Any, ...]) -> None:
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(np.asarray(a).reshape(-1), b, 2e-4, 2e-4, err_msg=str(args[:3]))


def check_drawn(
    of: type[DrawnProgram],
    given: Callable[[Any, np.random.Generator], tuple[Any, ...]],
    number: int,
) -> None:
    """A random program on arguments that `given` draws for it; every second one is compiled, with
    schedules by rules or at random."""
    print(f"RELAXLAB_SEED={SEED}: program {number}")
    rng = np.random.default_rng([SEED, number])
    made: Any = of.drawn(rng, int(rng.integers(1, 7)))
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
