"""Random programs over data types in batches, against the interpreter."""

import os

import numpy as np
import pytest

from relaxlab.testing.batch_check import batch_problem, differs, run_batched_program, shrunk_text
from relaxlab.testing.data_programs import random_data_program

SEED = int(os.environ.get("RELAXLAB_SEED", "1"))


@pytest.mark.parametrize("number", range(1))
def test_random_programs(number):
    seed = SEED * 1000 + number
    print(f"RELAXLAB_SEED={SEED}: program {number}, seed {seed}")
    failure = run_batched_program(seed, shrink=False)
    assert failure is None, failure


def test_a_difference_is_reported_with_its_place():
    a = np.zeros((1, 4), np.float32)
    assert differs((a, (a, a)), (a, (a, a)), "it") is None
    assert differs((a, (a, a)), (a, (a, a + 1)), "it").startswith("it[1][1] is")


def test_errors_are_problems():
    text = random_data_program(np.random.default_rng(1))
    assert batch_problem(text.replace("R.phase()", "").replace("R.tanh", "R.print"), 1)


def test_programs_that_fail_are_made_smaller():
    text = random_data_program(np.random.default_rng(2))
    small = shrunk_text(text, lambda t: "R.tanh" in t and "walk0" in t)
    assert len(small.split("\n")) <= 8 < len(text.split("\n"))
