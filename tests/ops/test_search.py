"""Searches in sorted boundaries: places are NumPy's, for every number of boundaries."""

from __future__ import annotations

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.ir import loops
from relaxlab.ir.dtypes import is_float, numpy_dtype
from relaxlab.ir.node import walk

SEARCH = """
@R.function
def main(x: R.Tensor(("n", "m"), "DTYPE"), ends: R.Tensor(("k",), "DTYPE")):
    with R.dataflow():
        a = R.bucketize(x, ends)
        b = R.bucketize(x, ends, out_int32=True, right=True)
        R.output(a, b)
    return (a, b)
"""
DTYPES = ["float16", "bfloat16", "float32", "float64", "int8", "int16", "int32", "int64",
          "uint8", "uint16", "uint32", "uint64"]  # fmt: skip


def program(dtype: str) -> rl.Module:
    return rl.parse(SEARCH.replace("DTYPE", dtype))


def numbers(dtype: str, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """Small numbers, many of them twice; of floats every eighth is special."""
    signed = dtype.startswith(("int", "float", "bfloat"))
    x = rng.integers(-40 if signed else 0, 40, shape).astype(numpy_dtype(dtype))
    if not is_float(dtype):
        return x
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, -np.nan]).astype(x.dtype)
    return np.where(rng.random(shape) < 0.125, rng.choice(special, shape), x)


@pytest.mark.parametrize("dtype", DTYPES)
def test_places_are_numpys(dtype: str, rng: np.random.Generator) -> None:
    main = rl.compile(program(dtype), checks="all")
    for shape in ((1, 1), (3, 37), (64, 1), (0, 5)):
        for count in (0, 1, 2, 3, 4, 5, 7, 8, 9, 33, 200):
            wide = "float64" if is_float(dtype) else dtype
            x, ends = numbers(dtype, shape, rng), numbers(dtype, (count,), rng)
            ends = np.sort(ends.astype(wide)).astype(ends.dtype)
            got = main["main"](x, ends)
            for places, side in zip(got, ("left", "right"), strict=True):
                want = np.searchsorted(ends.astype(wide), x.astype(wide), side)
                np.testing.assert_array_equal(places, want, f"{shape}, {count}, {side}")


def test_searches_advance_together() -> None:
    """One after the other they wait for their loads and for branches that nobody can foresee."""
    kernels = rl.trace(program("float32")).result.loop_functions().values()
    searches = [k for k in kernels if any(n.name == "T_bucketize" for n in blocks(k))]
    assert searches
    for kernel in searches:
        inner = [n for n in walk(kernel.body) if isinstance(n, loops.For)]
        assert any(n.kind == "vectorized" for n in inner), kernel


def blocks(kernel: loops.PrimFunc) -> list[loops.Block]:
    return [n for n in walk(kernel.body) if isinstance(n, loops.Block)]
