"""Vectors of lengths that stay in registers."""

from __future__ import annotations

import re

import numpy as np
import pytest

from relaxlab.codegen.lower_blocks import lower_blocks
from relaxlab.codegen.split_vectors import split_vectors
from relaxlab.ir.expr import IntImm
from relaxlab.ir.loops import For
from relaxlab.ir.node import walk
from relaxlab.ir.target import Target
from tests.codegen.kernels import Kernels, optimised, parse_kernels

TARGETS = {
    "avx512": Target(features=frozenset({"avx2", "avx512f", "avx512bw"})),
    "avx2": Target(features=frozenset({"avx2"})),
    "generic": Target(),
}


def sums(lanes: int, dtype: str = "float32") -> str:
    """Sums of the columns of a matrix in a vector written by hand."""
    return f"""
def sums(a: T.handle, c: T.handle):
    n = T.int64()
    A = T.match_buffer(a, (n, {lanes}), "{dtype}")
    C = T.match_buffer(c, ({lanes},), "{dtype}")
    with T.sblock("all"):
        S = T.alloc_buffer(({lanes},), "{dtype}", scope="local")
        for v in T.vectorized({lanes}):
            S[v] = T.cast(0, "{dtype}")
        for i in range(n):
            for v in T.vectorized({lanes}):
                S[v] = S[v] + A[i, v]
        for v in T.vectorized({lanes}):
            C[v] = S[v]
"""


def parts(lanes: int, dtype: str, target: str) -> list[list[int]]:
    """First lane and number of lanes of the vectors of one of the loops."""
    func = parse_kernels(sums(lanes, dtype))["sums"]
    body = split_vectors(lower_blocks(func.body)[0], TARGETS[target])
    found: list[list[int]] = []
    for n in walk(body):
        if isinstance(n, For) and n.kind == "vectorized":
            assert isinstance(n.min, IntImm)
            assert isinstance(n.extent, IntImm)
            found.append([n.min.value, n.extent.value])
    third = len(found) // 3  # three loops, split alike
    assert found == found[:third] * 3
    return found[:third]


@pytest.mark.parametrize(
    ("lanes", "dtype", "target", "expected"),
    [
        (48, "float32", "avx512", [[0, 32], [32, 16]]),
        (63, "float32", "avx512", [[0, 32], [32, 16], [48, 15]]),
        (64, "float32", "generic", [[0, 64]]),
        (12, "float32", "avx512", [[0, 12]]),
        (12, "float32", "avx2", [[0, 8], [8, 4]]),
        (3, "float32", "generic", [[0, 3]]),
        (12, "float64", "avx512", [[0, 8], [8, 4]]),
        (48, "int8", "avx512", [[0, 48]]),
    ],
)
def test_parts_are_powers_of_two_or_fit_a_register(lanes, dtype, target, expected):
    assert parts(lanes, dtype, target) == expected


@pytest.mark.parametrize("lanes", [20, 48, 63])
def test_sums_stay_in_registers(lanes, rng):
    """LLVM would keep a value of 48 lanes that a loop carries as 48 scalars."""
    mod = parse_kernels(sums(lanes))
    carried = re.findall(r"= phi (?:<(\d+) x float>|float) ", optimised(mod))
    assert "" not in carried
    register = Target.host().lanes("float32")
    assert {int(n).bit_count() == 1 or int(n) <= register for n in carried} == {True}
    a = rng.integers(-9, 9, (5, lanes)).astype(np.float32)
    (_, c) = Kernels(mod).agree("sums", [a, np.zeros(lanes, np.float32)], n=5)
    np.testing.assert_array_equal(c, a.sum(0))
