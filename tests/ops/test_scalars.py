"""Scalars among operands, steps that are symbols, and averages of integers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.ir.diagnostics import DiagnosticError
from relaxlab.passes.normalize import normalize

TEXT = """
@R.function
def main({params}):
    n, k = T.int64(), T.int64()
    with R.dataflow():
        y = {call}
        R.output(y)
    return y
"""
F, L = "float32", "int64"


def module(params: str, call: str) -> rl.Module:
    return rl.parse(TEXT.format(params=params, call=call))


def run(params: str, call: str, *args: Any) -> Any:
    """Return the native result, after comparing it with the interpreter's."""
    mod = module(params, call)
    got, want = rl.compile(mod, use_cache=False)(*args), rl.interpret(mod, "main", *args)
    np.testing.assert_allclose(got, want, rtol=1e-6)
    assert np.asarray(got).dtype.kind == np.asarray(want).dtype.kind
    return got


A, B = f'a: R.Prim("{L}")', f'b: R.Prim("{L}")'
X = f'x: R.Tensor(("n", 4), "{F}")'


@pytest.mark.parametrize(
    ("params", "call", "args", "want"),
    [
        (f"{A}, {B}", "R.add(a, b)", (3, 4), 7),
        (f"{A}, {B}", "R.floor_divide(a, b)", (-7, 2), -4),
        (f"{A}, {B}", "R.less(a, b)", (3, 4), True),
        ('a: R.Prim("float32")', "R.multiply(a, a)", (1.5,), 2.25),
        (f"{A}, {B}", "R.multiply(R.maximum(a, b), R.add(a, b))", (3, 4), 28),
    ],
)
def test_a_scalar_with_a_scalar_is_a_scalar(
    params: str, call: str, args: tuple[Any, ...], want: float
) -> None:
    result = run(params, call, *args)
    assert result == want and type(result) is type(want)
    assert "R.Prim(" in str(normalize(module(params, call))["main"].ret_ty)


@pytest.mark.parametrize("dtype", [F, L, "float16"])
def test_a_tensor_with_a_scalar_parameter(rng: np.random.Generator, dtype: str) -> None:
    x = rng.integers(0, 9, (3, 4)).astype(dtype)
    params = f'x: R.Tensor(("n", 4), "{dtype}"), a: R.Prim("{dtype}")'
    np.testing.assert_array_equal(run(params, "R.multiply(x, R.add(a, a))", x, 2), x * 4)


@pytest.mark.parametrize("step", [1, 2, 5, 9, 64])
def test_strides_that_are_symbols(rng: np.random.Generator, step: int) -> None:
    x = rng.random((9, 4), dtype=F)
    sliced = "R.strided_slice(x, axes=[0], begin=[1], end=[n], strides=[k])"
    np.testing.assert_array_equal(run(f'{X}, s: R.Shape(["k"])', sliced, x, (step,)), x[1::step])
    counted = run('s: R.Shape(["n", "k"])', 'R.arange(1, n, k, "int64")', (9, step))
    np.testing.assert_array_equal(counted, np.arange(1, 9, step))


def test_strides_must_be_positive() -> None:
    sliced = module(f'{X}, s: R.Shape(["k"])',
                    "R.strided_slice(x, axes=[0], begin=[1], end=[n], strides=[k])")  # fmt: skip
    with pytest.raises(rl.CheckFailed):
        rl.compile(sliced, use_cache=False)(np.zeros((9, 4), F), (0,))
    with pytest.raises(DiagnosticError, match="strides must not be 0"):
        normalize(module(X, "R.strided_slice(x, axes=[0], begin=[0], end=[4], strides=[0])"))


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", L])
def test_averages_of_integers_round_towards_zero(rng: np.random.Generator, dtype: str) -> None:
    info = np.iinfo(dtype)
    low, high = (info.min, info.max) if info.bits < 32 else (-1000, 1000)
    x = rng.integers(low, high, (1, 2, 6, 6), endpoint=True).astype(dtype)
    params = f'x: R.Tensor((1, 2, 6, 6), "{dtype}")'
    windows = x.reshape(1, 2, 3, 2, 3, 2).astype("float64").mean((3, 5))
    pooled = run(params, "R.nn.avg_pool2d(x, pool_size=(2, 2), strides=(2, 2))", x)
    np.testing.assert_array_equal(pooled, np.trunc(windows).astype(dtype))
    adaptive = run(params, "R.nn.adaptive_avg_pool2d(x, output_size=(3, 3))", x)
    np.testing.assert_array_equal(adaptive, pooled)


def test_products_of_mixed_dtypes(rng: np.random.Generator) -> None:
    x, w = rng.random((5, 64)).astype("float16"), rng.random((64, 32), dtype=F)
    params = 'x: R.Tensor(("n", 64), "float16"), w: R.Tensor((64, 32), "float32")'
    got = run(params, 'R.matmul(x, w, out_dtype="float32")', x, w)
    np.testing.assert_allclose(got, x.astype(F) @ w, rtol=1e-5)
    with pytest.raises(DiagnosticError, match="the arguments have dtypes float16 and float32"):
        normalize(module(params, "R.matmul(x, w)"))
