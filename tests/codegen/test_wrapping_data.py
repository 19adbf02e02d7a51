"""Conditions on elements of integer arrays, whose arithmetic wraps, against the interpreter."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from relaxlab.ir.module import Module
from relaxlab.schedule import Schedule
from tests.codegen.kernels import Kernels, parse_kernels

LANES = 16
CONDITIONS = (
    "A[i] * 3 < 9",
    "A[i] + 5 < 9",
    "A[i] - 5 < 9",
    "A[i] + 5 <= B[i]",
    "A[i] - B[i] < 0",
    "A[i] < B[i] + 1",
    "0 - A[i] > 0",
    "A[i] * 2 == 4",
    "A[i] * 3 != B[i] * 3",
    "A[i] * 3 <= B[i] * 3",
    "A[i] + 1 > A[i]",
    "A[i] + T.Cast(A.dtype, i) < 9",
    "A[i] * 4 // 4 == A[i]",
    "(A[i] * 4 + 3) // 4 == A[i]",
    "(A[i] * 4 + 3) % 4 == 3",
    "(A[i] * 6) % 4 == 0",
    "(A[i] * 6) // 3 == A[i] * 2",
    "(A[i] // 4 + 2) // 3 < 5",
    "(A[i] % 12 + 1) % 3 == 0",
    "T.max(A[i] + 1, A[i]) > A[i]",
    "T.min(A[i], B[i]) - A[i] <= 0",
    "T.abs(A[i]) >= 0",
    "A[i] < 3 and A[i] * 3 < 9",
    "A[i] > 0 and A[i] + 2 > 1",
    "A[i] * 3 >= 9 or B[i] * 3 <= 9",
    "A[i] * B[i] >= 0 or A[i] < 0 or B[i] < 0",
    "T.int64(A[i] * 3) < T.int64(9)",
    "T.Select(A[i] > 0, A[i] * 2, 1) > 0",
)


def pairs(dtype: str) -> tuple[Any, Any]:
    """All pairs of small and extreme numbers, a multiple of `LANES` of them."""
    info = np.iinfo(dtype)
    numbers = [0, 1, 2, 3, 4, 5, 7, 9, -1, -2, -3, -4, -7]
    numbers += [info.max, info.max - 1, info.min, info.min + 1]
    for divisor in (2, 3, 4, 6):
        numbers += [info.max // divisor, info.max // divisor + 1, info.min // divisor]
    numbers += [11, 12, 13]
    a, b = np.meshgrid(numbers, numbers)
    return np.array(a.ravel(), dtype), np.array(b.ravel(), dtype)


@cache
def kernels(dtype: str, vectorized: bool) -> Kernels:
    size = len(pairs(dtype)[0])
    assert size % LANES == 0
    texts: list[str] = []
    for number, text in enumerate(CONDITIONS):
        condition = text.replace("A.dtype", repr(dtype)).replace("i]", "vi]").replace("i)", "vi)")
        buffers = ", ".join(f'{b}: T.Buffer(({size},), "{dtype}")' for b in "AB")
        texts.append(f"""
def f{number}({buffers}, C: T.Buffer(({size},), "int32")):
    for i, j in T.grid({size // LANES}, {LANES}):
        with T.block("C"):
            vi = T.axis.spatial({size}, i * {LANES} + j)
            C[vi] = T.if_then_else({condition}, T.int32(1), T.int32(0))
""")
    mod = parse_kernels(*texts)
    if vectorized:
        mod = Module.of({name: _vectorize(func) for name, func in mod.items()})
    return Kernels(mod)


def _vectorize(func: Any) -> Any:
    sch = Schedule(func)
    sch.vectorize(sch.get_loops(sch.get_block("C"))[1])
    return sch.func


@pytest.mark.parametrize("vectorized", [False, True])
@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_conditions_on_data_that_wraps(dtype: str, vectorized: bool) -> None:
    a, b = pairs(dtype)
    with np.errstate(over="ignore"):
        wrong = []
        for number, text in enumerate(CONDITIONS):
            try:
                kernels(dtype, vectorized).agree(f"f{number}", [a, b, np.zeros(len(a), "int32")])
            except AssertionError as error:
                wrong.append(f"{text}: {error}")
        assert not wrong, "\n".join(wrong)
