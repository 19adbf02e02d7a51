"""Scalars of every dtype as arguments of operators that make values of them."""

from __future__ import annotations

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.runtime.arrays import ExecutionError
from relaxlab.runtime.native.function import CheckFailed

PROGRAM = """
@R.function
def main(x: R.Tensor((3,), "{dtype}"), v: R.Prim("{dtype}")):
    a = R.full((3,), v)
    b = R.where(R.greater(x, a), v, x)
    c = R.one_hot(R.astype(x, "int64"), v, R.prim_value(T.{dtype}(0)), 4, -1)
    d = R.full((2,), R.prim_value(T.{dtype}(1)))
    return (a, b, c, d)
"""


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8", "int64", "uint8"])
def test_operators_make_values_of_the_dtype_of_a_scalar(dtype: str) -> None:
    module = rl.parse(PROGRAM.format(dtype=dtype))
    x = np.array([0, 1, 2], dtype)
    want = (
        np.ones(3, dtype),
        np.array([0, 1, 1], dtype),
        np.eye(4, dtype=dtype)[:3],
        np.ones(2, dtype),
    )
    scalar = x[1].item()
    for run in (rl.interpret, lambda m, name, *a: rl.compile(m)[name](*a)):
        for got, expected in zip(run(module, "main", x, scalar), want, strict=True):
            assert got.dtype == expected.dtype
            np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize(
    ("value", "right", "wrong"),
    [("3", 3, 4), ("m > 2", True, False), ("T.float32(m) * T.float32(0.5)", 1.5, 1.75),
     ("T.float32(0.1)", 0.1, 0.2), ("T.float64(0.1)", 0.1, 0.5), ("T.bool(True)", True, False)],
)  # fmt: skip
def test_scalars_of_each_kind_have_the_value_that_is_stated(value, right, wrong) -> None:
    """Fractions were compared without their fractional part; a bool of symbols did not compile."""
    mod = rl.parse(f"""
@R.function
def main(h: R.Tensor(("m",), "float32"), v: R.Prim(value="{value}")):
    return h
""")
    h = np.zeros(3, "float32")
    for checks in ({}, {"checks": "all"}):
        main = rl.compile(mod, **checks)["main"]
        np.testing.assert_array_equal(main(h, right), h)
        with pytest.raises(CheckFailed, match="the value of parameter `v` of `main` is"):
            main(h, wrong)
    with pytest.raises(ExecutionError, match="the value of parameter `v` is"):
        rl.interpret(mod, "main", h, wrong)
