"""Long reductions and scans against NumPy in float64: how much of a result is lost in its sum.

One float32 accumulator of 10 million random terms is off by about 1e-3, and stands still for equal
terms once the sum is 2**24 of them; the bounds below ask for partial sums.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from relaxlab.ir.dtypes import numpy_dtype
from relaxlab.runtime.build import compile as build
from relaxlab.script import parse

Array = np.ndarray[Any, Any]
LONG, HALF_LONG = 10_000_000, 1_000_000


def _softmax(x: Array, axis: int) -> Array:
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def _norm(x: Array, center: bool) -> Array:
    x = x - x.mean() if center else x
    return x / np.sqrt((x * x).mean() + 1e-5)


ROW: dict[str, Callable[[Array], Any]] = {
    "R.sum(x)": np.sum,
    "R.mean(x)": np.mean,
    "R.variance(x)": np.var,
    "R.std(x)": np.std,
    "R.matmul(x, x)": lambda x: x @ x,
    "R.nn.softmax(x)": lambda x: _softmax(x, 0),
    "R.nn.log_softmax(x)": lambda x: np.log(_softmax(x, 0)),
    "R.nn.rms_norm(x, w)": lambda x: _norm(x, center=False),
    "R.nn.layer_norm(x, w, z)": lambda x: _norm(x, center=True),
    "R.cumsum(x, axis=0)": np.cumsum,
}
"""Over a tensor of one dimension; `w` are ones and `z` zeros."""
COLUMNS: dict[str, Callable[[Array], Any]] = {
    "R.sum(x, axis=0)": lambda x: x.sum(0),
    "R.mean(x, axis=0)": lambda x: x.mean(0),
    "R.variance(x, axis=0)": lambda x: x.var(0),
    "R.std(x, axis=[0, 1])": np.std,
    "R.collapse_sum_to(x, R.shape([1, 5]))": lambda x: x.sum(0, keepdims=True),
    "R.nn.softmax(x, axis=0)": lambda x: _softmax(x, 0),
}
"""Down the rows of a matrix with five columns."""


def _compiled(call: str, x: Array) -> Array:
    shape = '"n"' if x.ndim == 1 else f'"n", {x.shape[1]}'
    vector = f'R.Tensor(("n",), "{x.dtype}")'
    mod = parse(f"""
@R.function
def main(x: R.Tensor(({shape},), "{x.dtype}"), w: {vector}, z: {vector}):
    y = {call}
    return y
""")
    ones, zeros = np.ones(len(x), x.dtype), np.zeros(len(x), x.dtype)
    return np.asarray(build(mod, use_cache=False)["main"](x, ones, zeros))


def _error(got: Array, want: Any) -> float:
    """The largest error, relative to the largest element."""
    want = np.asarray(want)
    return float(np.abs(got.astype("float64") - want).max() / np.abs(want).max())


@pytest.mark.parametrize("call", ROW)
def test_ten_million_terms(call: str, rng: np.random.Generator) -> None:
    x = rng.random(LONG, dtype=np.float32)
    bound = 2e-5 if "cumsum" in call else 1e-6
    assert _error(_compiled(call, x), ROW[call](x.astype("float64"))) < bound


@pytest.mark.parametrize("call", COLUMNS)
def test_two_million_rows(call: str, rng: np.random.Generator) -> None:
    x = rng.random((LONG // 5, 5), dtype=np.float32)
    assert _error(_compiled(call, x), COLUMNS[call](x.astype("float64"))) < 1e-6


@pytest.mark.parametrize(("call", "want"), [("R.sum(x)", 4e6), ("R.mean(x)", 0.4)])
def test_equal_terms(call: str, want: float) -> None:
    """Whose roundings all have one sign."""
    x = np.full(LONG, 0.4, "float32")
    assert _error(_compiled(call, x), want) < 1e-5


@pytest.mark.parametrize("call", ["R.variance(x)", "R.std(x)"])
def test_equal_terms_do_not_vary(call: str) -> None:
    x = np.full(LONG, 0.1, "float32")
    assert abs(float(_compiled(call, x))) < 1e-6


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("call", ["R.mean(x)", "R.variance(x)", "R.std(x)", "R.nn.rms_norm(x, w)",
                                  "R.nn.layer_norm(x, w, z)"])  # fmt: skip
def test_a_million_halves(call: str, dtype: str, rng: np.random.Generator) -> None:
    """Sums of halves are taken in float32: results are off by one rounding."""
    x = rng.random(HALF_LONG, dtype=np.float32).astype(numpy_dtype(dtype))
    unit = 2.0**-11 if dtype == "float16" else 2.0**-8
    assert _error(_compiled(call, x), ROW[call](x.astype("float64"))) < 1.5 * unit
