"""Values of scalar expressions: what is prepared for many calls against one evaluation."""

from __future__ import annotations

import random

import pytest

from relaxlab.analysis.evaluate import CannotEvaluate, evaluate, evaluator, values_of
from relaxlab.ir.expr import Var, const
from tests.analysis.fuzz_arith import Generator


def outcome(run, *args) -> object:
    """The value and its type, or the message of what has none."""
    try:
        value = run(*args)
    except CannotEvaluate as error:
        return str(error)
    return type(value), value


@pytest.mark.parametrize("dtype", ["int64", "int32"])
def test_prepared_expressions_have_the_same_values(dtype: str) -> None:
    seed = random.randrange(1 << 32)
    rng = random.Random(seed)
    n, m = Var("n", dtype), Var("m", dtype)
    make = Generator(rng, [n, m], dtype)
    for number in range(300):
        e = make.condition(2) if number % 3 == 0 else make.integer(3)
        prepared = evaluator(e)
        # Also a value that is not there, divisors of 0, and what does not fit 32 bits.
        for env in ({n: 3, m: 0}, {n: -5, m: 7}, {n: 2**31 - 1, m: 2**30}, {n: 4}):
            got, want = outcome(prepared, env), outcome(evaluate, e, env)
            assert got == want, f"{e} at {env}, seed {seed}"


def test_what_cannot_be_evaluated_is_named() -> None:
    n, m = Var("n"), Var("m")
    for run in (evaluate, lambda e, env: evaluator(e)(env)):
        assert run(n // const(2) + m, {n: 7, m: 1}) == 4
        with pytest.raises(CannotEvaluate, match="division by zero in 4 // n"):
            run(const(4) // n, {n: 0})
        with pytest.raises(CannotEvaluate, match="symbol m is not known"):
            run(n + m, {n: 1})


def test_remembered_zeros_keep_their_signs() -> None:
    x = Var("x", "float32")
    values = values_of((x,))
    assert [str(values({x: v})[0]) for v in (0.0, -0.0)] == ["0.0", "-0.0"]
