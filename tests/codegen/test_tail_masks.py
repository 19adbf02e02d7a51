"""Masks of the last vectors of an axis."""

from __future__ import annotations

import numpy as np
import pytest

from relaxlab.codegen.llvm.kernel import emit_kernel
from relaxlab.ir.module import Module
from relaxlab.ir.target import Target
from tests.codegen.kernels import Kernels, at_the_end_of_memory, parse_kernels

TAIL = """
def kernel(A: T.Buffer(("n",), "float32"), c: T.handle):
    C = T.match_buffer(c, ({lanes},), "float32")
    for v in T.vectorized({lanes}):
        C[v] = C[v] + T.if_then_else({at} < n, A[{at}], T.float32(0))
"""
AVX512 = frozenset({"avx512f", "avx512bw", "bmi2"})


def tail(lanes: int, first: int, step: int) -> Module:
    return parse_kernels(TAIL.format(lanes=lanes, at=f"{step} * v + {first}"))


@pytest.mark.parametrize("step", [1, 2])
@pytest.mark.parametrize("first", [0, 3, 16])
@pytest.mark.parametrize("lanes", [4, 8, 12, 16, 32, 64])
def test_lanes_below_a_symbol(lanes: int, first: int, step: int, rng: np.random.Generator) -> None:
    kernels = Kernels(tail(lanes, first, step))
    ends = [first + step * k for k in (0, 1, lanes - 1, lanes, lanes + 1)]
    for n in (0, 1, 2, *ends, 1000):
        x = rng.standard_normal(n, np.float32)
        kernels.agree("kernel", [x, np.ones(lanes, "float32")], n=n)


APART = """
def kernel(A: T.Buffer(("n",), "{dtype}"), c: T.handle):
    C = T.match_buffer(c, (16,), "{dtype}")
    for v in T.vectorized(16):
        C[v] = T.if_then_else({inside}, A[{at}], T.Cast("{dtype}", 0))
"""


@pytest.mark.parametrize("dtype", ["float32", "float64", "int8"])
@pytest.mark.parametrize("step", [-4, -3, -2, -1, 2, 3, 4])
def test_lanes_apart_read_nothing_between(
    step: int, dtype: str, rng: np.random.Generator
) -> None:
    """Nor beyond the array, at whose edges no memory can be read: neighbours are loaded under the
    mask of the lanes' own elements."""
    at = f"{step} * v" if step > 0 else f"n - 1 - {-step} * v"
    inside = f"{at} < n" if step > 0 else f"{at} >= 0"
    kernels = Kernels(parse_kernels(APART.format(dtype=dtype, at=at, inside=inside)))
    assert "gather" not in kernels.text
    for n in (0, 1, 2, 7, 16, 33, 61, 64, 100):
        x, out = rng.integers(-9, 9, n).astype(dtype), np.zeros(16, dtype)
        with at_the_end_of_memory(x, beginning=step < 0) as edge:
            assert kernels("kernel", [edge, out], n=n) == 0
        found = (x if step > 0 else x[::-1])[:: abs(step)][:16]
        np.testing.assert_array_equal(out, np.pad(found, (0, 16 - len(found))))


@pytest.mark.parametrize(
    ("features", "lanes", "step", "is_integer"),
    [
        (AVX512, 64, 1, True),
        (AVX512, 8, 1, True),
        (AVX512, 8, 2, False),
        (AVX512, 12, 1, False),
        (AVX512 - {"bmi2"}, 64, 1, False),
        (frozenset({"avx2", "bmi2"}), 8, 1, False),
    ],
)
def test_masks_of_neighbours_are_integers_where_masks_have_registers(
    features: frozenset[str], lanes: int, step: int, is_integer: bool
) -> None:
    func = tail(lanes, 0, step)["kernel"]
    target = Target(features=features)
    assert ("bzhi" in emit_kernel(func, "kernel", {}, target).text) == is_integer
