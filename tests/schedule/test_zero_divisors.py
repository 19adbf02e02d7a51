"""Zeros that stand for what was not read are no divisors."""

from __future__ import annotations

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.schedule import Schedule, ScheduleError
from relaxlab.schedule.zero_divisors import division_by_data

QUOTIENTS = """
@T.prim_func
def quotients(A: T.Buffer(("n",), "int32"), B: T.Buffer(("n",), "int32"),
              C: T.Buffer(("n",), "int32")):
    for i in range(n):
        with T.sblock("C"):
            vi = T.axis.spatial(n, i)
            C[vi] = VALUE
"""
SUMS = """
@T.prim_func
def sums(A: T.Buffer(("n", "m"), "int32"), B: T.Buffer(("n", "m"), "int32"),
         C: T.Buffer(("m",), "int32")):
    for i, k in T.grid(m, n):
        with T.sblock("C"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                C[vi] = 0
            C[vi] = C[vi] + A[vk, vi] OPERATOR B[vk, vi]
"""


@pytest.mark.parametrize(
    ("value", "may_be_zero"),
    [
        ("A[vi] // B[vi]", True),
        ("A[vi] % (B[vi] + 1)", True),
        ("T.truncdiv(A[vi], B[vi])", True),
        ("A[vi] // 3", False),
        ("A[vi] // T.Select(B[vi] == 0, 1, B[vi])", False),
        ("A[vi] // T.Select(B[vi] == 1, 1, B[vi])", True),
        ("A[vi] // T.Select(B[vi] == -1 or B[vi] == 0, 7, B[vi])", False),
        ("T.Cast('int32', T.Cast('float32', A[vi]) / T.Cast('float32', B[vi] + 2))", False),
    ],
)
def test_pad_einsum_refuses_divisions_by_operands(value: str, may_be_zero: bool, rng) -> None:
    sch = Schedule(rl.parse(QUOTIENTS.replace("VALUE", value)))
    block = sch.get_block("C")
    assert (division_by_data(sch.get(block)) is not None) == may_be_zero  # type: ignore[arg-type]
    if may_be_zero:
        with pytest.raises(ScheduleError, match="no operand that gets zeros is a divisor"):
            sch.pad_einsum(block, [4])
        return
    sch.pad_einsum(block, [4])
    quotients = rl.compile(sch, use_cache=False)["quotients"]
    before = rl.compile(sch.original, use_cache=False)["quotients"]
    a, b = (rng.integers(1, 50, 5).astype("int32") for _ in range(2))
    got, want = np.empty_like(a), np.empty_like(a)
    quotients(a, b, got)
    before(a, b, want)
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("operator", ["//", "%"])
@pytest.mark.parametrize("columns", [1, 7, 17, 33])
def test_sums_of_quotients_in_vectors_that_end_early(operator: str, columns: int, rng) -> None:
    """Lanes beyond the columns would divide zero by zero."""
    sums = rl.compile(rl.parse(SUMS.replace("OPERATOR", operator)), use_cache=False)["sums"]
    a, b = (rng.integers(1, 50, (40, columns)).astype("int32") for _ in range(2))
    got = np.empty(columns, "int32")
    sums(a, b, got)
    want = (a // b if operator == "//" else a % b).sum(0, dtype="int32")
    np.testing.assert_array_equal(got, want)
