"""Upper bounds of symbols reach the functions that are called with them."""

from __future__ import annotations

import pytest

from relaxlab.passes.inherit_bounds import inherit_bounds
from relaxlab.passes.lambda_lifting import lambda_lifting
from relaxlab.passes.normalize import normalize
from relaxlab.passes.pipeline import cpu_pipeline
from relaxlab.script import parse
from relaxlab.testing.pass_check import check_module, compare_runs
from tests.passes.planned_bytes import bytes_planned

PROGRAM = """
@R.function(private=True)
def layer(x: R.Tensor(("n", 8), "float32")) -> R.Tensor(("n", 8), "float32"):
    a = R.nn.softmax(x)
    b = R.matmul(a, R.ones((8, 8), "float32"))
    c = R.nn.softmax(b)
    return c

@R.function(private=True)
def two(x: R.Tensor(("m", 8), "float32")) -> R.Tensor(("m", 8), "float32"):
    y = cls.layer({inner})
    return {result}

@R.function(private=True)
def halve(
    x: R.Tensor(("p", 8), "float32"), s: R.Shape(["q"])
) -> R.Tensor(("p", 8), "float32"):
    done = R.prim_value(q < 2)
    if done:
        r = x
    else:
        y = R.multiply(x, x)
        r = cls.halve(y, R.shape([{step}]))
    return r

@R.function
def main(x: R.Tensor(("k", 8), "float32")) -> R.Tensor(("k", 8), "float32"):
    R.func_attr({{"tir_var_upper_bound": {{"k": 32}}}})
    y = cls.two(x)
    z = cls.layer(y)
    w = cls.halve(z, R.shape([k]))
    return w
"""


def bounds(inner: str = "x", result: str = "y", step: str = "q // 2") -> dict[str, dict[str, int]]:
    start = normalize(parse(PROGRAM.format(inner=inner, result=result, step=step)))
    after = inherit_bounds(start)
    check_module(inherit_bounds, start, after)
    compare_runs(start, after)
    functions = after.graph_functions().items()
    return {n: dict(f.attrs.get("tir_var_upper_bound", {})) for n, f in functions}


@pytest.mark.parametrize(
    ("inner", "result", "largest"),
    [("x", "y", 32), ("R.concat((x, x), axis=0)",
      "R.strided_slice(y, axes=[0], begin=[0], end=[m])", 64)],
)  # fmt: skip
def test_the_largest_of_all_calls(inner: str, result: str, largest: int) -> None:
    found = bounds(inner, result)
    assert found["two"] == {"m": 32}
    assert found["layer"] == {"n": largest}
    assert found["halve"] == {"p": 32, "q": 32}  # although it calls itself


def test_sizes_that_grow_have_no_bound() -> None:
    start = normalize(parse(PROGRAM.format(inner="x", result="y", step="q + 1")))
    assert inherit_bounds(start) is start


def test_sizes_that_are_not_known_have_no_bound() -> None:
    coarse = PROGRAM.replace("y = cls.two(x)", "y = cls.two(R.unique(x, axis=0))")
    start = normalize(parse(coarse.format(inner="x", result="y", step="q")))
    after = inherit_bounds(start)
    assert "tir_var_upper_bound" not in after["two"].attrs


def test_memory_is_planned_for_them() -> None:
    start = parse(PROGRAM.format(inner="x", result="y", step="q // 2"))
    planned = cpu_pipeline().run(start).result.graph_functions()
    assert all(str(bytes_planned(f)).isdecimal() for f in planned.values())


def test_functions_that_are_values_are_left_alone() -> None:
    text = PROGRAM.replace("w = cls.halve", "f = cls.layer\n    v = f(z)\n    w = cls.halve")
    start = normalize(parse(text.format(inner="x", result="y", step="q")))
    after = inherit_bounds(lambda_lifting(start))
    assert "tir_var_upper_bound" not in after["layer"].attrs
    assert dict(after["two"].attrs["tir_var_upper_bound"]) == {"m": 32}


def test_a_function_that_nothing_calls_keeps_its_bounds():
    mod = normalize(
        parse(
            """
@R.function(private=True)
def other(x: R.Tensor(("n", 8), "float32")):
    R.func_attr({"tir_var_upper_bound": {"n": 4}})
    return R.exp(x)

@R.function
def main(x: R.Tensor((4,), "float32")):
    return R.exp(x)
"""
        )
    )
    assert inherit_bounds(mod) is mod
