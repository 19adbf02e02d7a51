"""Calls of operators that write over an operand which nothing reads afterwards."""

from __future__ import annotations

import numpy as np

import relaxlab as rl
from relaxlab.passes.bindings import all_bindings, tir_call
from relaxlab.passes.normalize import normalize
from relaxlab.passes.use_inplace_calls import use_inplace_calls
from relaxlab.testing.pass_check import check_module, compare_runs
from tests.passes.test_overwrite_operands import random_program

PROGRAM = """
@R.function
def main(x: R.Tensor(("n", 4), "float32"), y: R.Tensor((1, 4), "float32")):
    with R.dataflow():
        a = R.add(x, y)
        b = R.multiply(a, y)
        c = R.flip(b, axis=0)
        d = R.nn.relu(c)
        e = R.add(d, c)
        R.output(e)
    f = R.exp(e)
    return f
"""


def overwritten(text: str) -> dict[str, str]:
    """The variables that overwrite an operand, with its name, after the pass is checked."""
    start = normalize(rl.parse(text))
    after = use_inplace_calls(start)
    check_module(use_inplace_calls, start, after)
    compare_runs(start, after)
    calls = {b.var.name: tir_call(b.value) for b in all_bindings(after["main"])}  # type: ignore[arg-type]
    found = {name: c.args[c.inplace[0]] for name, c in calls.items() if c and c.inplace}
    return {name: operand.name for name, operand in found.items()}  # type: ignore[attr-defined]


def test_operators_overwrite_what_is_not_read_again() -> None:
    # `x` is the caller's, `flip` reads other places, `c` is read again, and `f` is not in dataflow.
    assert overwritten(PROGRAM) == {"b": "a", "e": "d"}


def test_a_value_that_is_read_twice_by_one_call_stays() -> None:
    assert overwritten(PROGRAM.replace("R.multiply(a, y)", "R.multiply(a, a)")) == {"e": "d"}


def test_compiled_programs_read_no_overwritten_value() -> None:
    for seed in range(4):
        start = normalize(random_program(seed))
        after = use_inplace_calls(start)
        check_module(use_inplace_calls, start, after)
        compare_runs(start, after, seed=seed, sizes=(1, 5), runs=1)
    rng = np.random.default_rng(0)
    args = [rng.normal(size=s).astype("float32") for s in ((5, 8), (5, 8), (8, 8))]
    got = rl.compile(after, use_cache=False)["main"](*args)
    for g, want in zip(got, rl.interpret(start, "main", *args), strict=True):
        np.testing.assert_allclose(g, want, rtol=1e-4, atol=1e-4)


def test_constants_that_are_folded_later_are_not_overwritten() -> None:
    text = """
@R.function
def main(x: R.Tensor((2,), "float32")):
    with R.dataflow():
        a = R.add(R.const([1.0, 2.0]), R.const([3.0, 4.0]))
        b = R.multiply(a, x)
        R.output(b)
    return b
"""
    mod = use_inplace_calls(normalize(rl.parse(text)))
    run = rl.compile(mod, use_cache=False)["main"]
    for _ in range(2):
        np.testing.assert_array_equal(run(np.ones(2, "float32")), np.array([4, 6], "float32"))
