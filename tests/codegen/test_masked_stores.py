"""Stores of a few lanes of a vector write nothing beside them."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import relaxlab as rl
from tests.codegen.kernels import Kernels, parse_kernels

PRODUCT = """
@R.function
def main(x: R.Tensor((2, "n", {k}), "{dtype}"), w: R.Tensor(({k}, {m}), "{dtype}")):
    with R.dataflow():
        y = R.matmul(x, w{out})
        R.output(y)
    return y
"""


@pytest.mark.parametrize("checks", ["default", "all"])
@pytest.mark.parametrize("columns", [15, 16, 17, 18, 33])
def test_products_of_halves_with_a_column_beyond_the_last_vector(columns, checks, rng) -> None:
    """LLVM knows which lanes are on in the last vector of a row, and that their values were made
    by truncation."""
    mod = rl.parse(PRODUCT.format(dtype="bfloat16", k=3, m=columns, out=""))
    exe = rl.compile(mod, use_cache=False, checks=checks)
    w = rng.uniform(-2, 2, (3, columns)).astype(ml_dtypes.bfloat16)
    for n in (1, 2, 5, 17):
        x = rng.uniform(-2, 2, (2, n, 3)).astype(ml_dtypes.bfloat16)
        want = x.astype("float32") @ w.astype("float32")
        np.testing.assert_allclose(exe["main"](x, w).astype("float32"), want, 2**-8, 2**-6)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int8", "int32"])
def test_reversed_stores(dtype: str, rng: np.random.Generator) -> None:
    """Lanes that are off leave what is before the array."""
    kernels = Kernels(parse_kernels(f"""
def kernel(A: T.Buffer((16,), "{dtype}"), c: T.handle):
    n = T.int64()
    C = T.match_buffer(c, (n,), "{dtype}")
    for v in T.vectorized(16):
        if v < n:
            C[n - 1 - v] = A[v]
"""))
    assert "scatter" not in kernels.text
    x = rng.integers(-9, 9, 16).astype(dtype)
    for n in (0, 1, 5, 15, 16, 40):
        memory = np.full(48, 7, dtype)
        out = memory[8 : 8 + n]
        assert kernels("kernel", [x, out], n=n) == 0
        want = np.full(48, 7, dtype)
        count = min(n, 16)
        want[8 + n - count : 8 + n] = x[:count][::-1]
        np.testing.assert_array_equal(memory, want)


SLICED = """
@R.function
def main(x: R.Tensor(("n", {columns}), "int8")):
    with R.dataflow():
        y = R.strided_slice(x, axes=[1], begin=[{first}], end=[{end}])
        R.output(y)
    return y
"""


@pytest.mark.parametrize(("columns", "first", "end"), [
    (8, 6, 8), (8, 1, 5), (16, 3, 7), (3, 1, 2), (5, 0, 2), (12, 4, 8),
])  # fmt: skip
def test_loads_of_spread_lanes(columns: int, first: int, end: int, rng) -> None:
    """LLVM aborts where the mask of pairs spread eight apart is shuffled as bits."""
    exe = rl.compile(
        rl.parse(SLICED.format(columns=columns, first=first, end=end)), use_cache=False
    )
    for n in (0, 1, 3, 31, 32, 50, 200):
        x = rng.integers(-99, 99, (n, columns)).astype("int8")
        np.testing.assert_array_equal(exe["main"](x), x[:, first:end])


def test_shuffles_of_conditions(rng: np.random.Generator) -> None:
    """Lanes of two vectors of comparisons, spread as those of a mask are."""
    picks = [v // 2 * 8 + v % 2 if p == 0 else 0 for v in range(8) for p in range(4)]
    low = "T.Broadcast({}, 32) > A[T.Ramp(0, 1, 32)]"
    kernels = Kernels(parse_kernels(f"""
def kernel(A: T.Buffer((32,), "int32"), C: T.Buffer((32,), "bool")):
    C[T.Ramp(0, 1, 32)] = T.call_intrin(
        "boolx32", "vector_shuffle", {low.format(0)}, {low.format(5)}, {str(picks)[1:-1]}
    )
"""))
    x = rng.integers(-9, 9, 32).astype("int32")
    out = np.zeros(32, bool)
    assert kernels("kernel", [x, out]) == 0
    np.testing.assert_array_equal(out, np.concatenate([x < 0, x < 5])[picks])
