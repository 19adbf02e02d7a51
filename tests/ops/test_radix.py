"""Sorting and selection by digits: every order of NaN, zeros and equal elements, to the bit."""

from __future__ import annotations

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.ir.dtypes import numpy_dtype
from relaxlab.ir.op_table import op_row

ORDERS = """
@R.function
def main(x: R.Tensor(("n", "m"), "DTYPE")):
    with R.dataflow():
        a = R.sort(x, axis=1)
        b = R.argsort(x, axis=0, descending=True, dtype="int64")
        c = R.median(x, axis=1)
        R.output(a, b, c)
    return (a, b, c)
"""


def elements(dtype: str, shape: tuple[int, int], rng: np.random.Generator) -> np.ndarray:
    """Numbers of all magnitudes, many of them twice; of floats every fourth is special."""
    kind = numpy_dtype(dtype)
    if dtype.startswith(("int", "uint")):
        numbers = rng.integers(-1 << 62, 1 << 62, shape) // rng.choice([1, 1 << 60], shape)
        return numbers.astype(kind)
    x = (rng.integers(-9, 9, shape) * 10.0 ** rng.integers(-4, 4, shape)).astype(kind)
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, -np.nan]).astype(kind)
    return np.where(rng.random(shape) < 0.25, rng.choice(special, shape), x)


def bits(x: np.ndarray) -> np.ndarray:
    return x.view(f"u{x.dtype.itemsize}")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int16", "uint8"])
def test_orders_are_numpys(dtype: str, rng: np.random.Generator) -> None:
    mod = rl.parse(ORDERS.replace("DTYPE", dtype))
    executables = [rl.compile(mod, threads=2)]
    if dtype == "float32":
        executables.append(rl.compile(mod, checks="all"))
    for shape in ((1, 1), (3, 65), (130, 64), (2, 200), (0, 5)):
        x = elements(dtype, shape, rng)
        want = (
            op_row("sort").reference(x, axis=1),
            op_row("argsort").reference(x, axis=0, descending=True, dtype="int64"),
            *op_row("median").reference(x, axis=1),
        )
        for exe in executables:
            a, b, (c, d) = exe["main"](x)
            for found, expected in zip((a, b, c, d), want, strict=True):
                np.testing.assert_array_equal(bits(np.asarray(found)), bits(expected))


FIRST = """
@R.function
def main(x: R.Tensor(("n", ROW), "DTYPE")):
    with R.dataflow():
        a = R.sort(x, axis=1, descending=True)
        b = R.argsort(x, axis=1, dtype="int64")
        c = R.topk(x, k=COUNT, axis=1, ret_type="indices", dtype="int64")
        d = R.median(x, axis=1)
        R.output(a, b, c, d)
    return (a, b, c, d)
"""


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "int64", "int8", "uint8"])
def test_short_rows(dtype: str, rng: np.random.Generator) -> None:
    """Rows of few and of many vectors, of constant and of symbolic length: compared, moved by
    digits, inserted."""
    for checks, row in (("all", int(rng.integers(1, 40))), ("all", '"m"'), ("default", 100)):
        size = row if isinstance(row, int) else int(rng.integers(3, 300))
        count = int(rng.integers(1, min(size, 20) + 1))
        text = FIRST.replace("ROW", str(row)).replace("DTYPE", dtype)
        exe = rl.compile(rl.parse(text.replace("COUNT", str(count))), threads=2, checks=checks)
        sizes = [size] if isinstance(row, int) else [size, count, 32, 33, 64, 128, 129, 257]
        for width in (n for n in sizes if n >= count):
            shape = (int(rng.integers(0, 50)), width)
            x = elements(dtype, shape, rng)
            a, b, c, (_, d) = exe["main"](x)
            sort, order = op_row("sort").reference, op_row("argsort").reference
            np.testing.assert_array_equal(bits(np.asarray(a)), bits(sort(x, 1, True)))
            np.testing.assert_array_equal(b, order(x, 1, dtype="int64"))
            np.testing.assert_array_equal(c, order(x, 1, True, "int64")[:, :count])
            np.testing.assert_array_equal(d, op_row("median").reference(x, axis=1)[1])
