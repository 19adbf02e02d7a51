"""Masks of unrolled loops that are tested in front of them, on simulated threads."""

# Functions here are programs of the script language, whose annotations are buffers.
# pyright: basic, reportInvalidTypeForm=false

from __future__ import annotations

import numpy as np
import pytest

from relaxlab.codegen.gpu.lower import lower_launches
from relaxlab.ir.expr import Select
from relaxlab.ir.loops import IfThenElse, PrimFunc
from relaxlab.ir.node import walk
from relaxlab.runtime.simt.simt import simt_device_kernel
from relaxlab.script import parse


def masked(mask: str, loop: str = "T.unroll(4)") -> PrimFunc:
    """Sums over chunks of 4 positions, those that 8 threads see under a mask of x, chunk and j."""
    return parse(f"""
@T.prim_func
def main(A: T.Buffer((24,), "float32"), B: T.Buffer((8,), "float32")):
    for x in T.thread_binding(8, thread="threadIdx.x"):
        S = T.alloc_buffer((4,), "float32", scope="local")
        B[x] = T.float32(0)
        for chunk in range(6):
            for j in {loop}:
                S[j] = T.Select({mask}, A[chunk * 4 + j], T.float32(0))
            for j in range(4):
                B[x] = B[x] + S[j]
""")["main"]  # type: ignore[return-value]


def branches(func: PrimFunc) -> list[IfThenElse]:
    (launch,) = lower_launches(func, "main").launches
    return [n for n in walk(launch.body) if isinstance(n, IfThenElse)]


MASKS = {
    "linear": ("chunk * 4 + j <= x + 12", lambda x, p: p <= x + 12),
    "minimum": ("chunk * 4 + j < T.min(x * 2 + 5, 11)", lambda x, p: p < min(x * 2 + 5, 11)),
    "window": (
        "chunk * 4 + j <= x + 12 and x + 2 < chunk * 4 + j",
        lambda x, p: x + 2 < p <= x + 12,
    ),
}


@pytest.mark.parametrize("name", MASKS)
def test_loops_without_the_mask_where_it_is_true_for_all(name: str) -> None:
    text, sees = MASKS[name]
    func = masked(text)
    (branch,) = branches(func)
    assert branch.else_case is not None
    assert not any(isinstance(n, Select) for n in walk(branch.then_case))
    assert any(isinstance(n, Select) for n in walk(branch.else_case))
    a, got = np.arange(24, dtype=np.float32) + 1, np.zeros(8, np.float32)
    simt_device_kernel(func, lower_launches(func, "main"), [a, got]).check()
    want = [sum(a[p] for p in range(24) if sees(x, p)) for x in range(8)]
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("mask", ["(chunk * 4 + j) % 3 == x", "chunk * j < 9", "chunk < 3"])
def test_other_masks_stay(mask: str) -> None:
    assert not branches(masked(mask))


def test_masks_of_loops_that_start_elsewhere_stay() -> None:
    assert not branches(masked(MASKS["linear"][0], "T.unroll(1, 4)"))
