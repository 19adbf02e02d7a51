"""Swizzled storage: results on simulated threads, places, banks, and what is refused."""

# Functions here are programs of the script language, whose annotations are buffers.
# pyright: basic, reportInvalidTypeForm=false

from __future__ import annotations

import numpy as np
import pytest

from relaxlab.codegen.errors import CodegenError
from relaxlab.codegen.gpu.lower import lower_launches
from relaxlab.ir.facts import CUDA
from relaxlab.ir.loops import PrimFunc
from relaxlab.runtime.simt.simt import simt_prim_func
from relaxlab.schedule import Schedule
from relaxlab.schedule.annotate import Swizzle
from relaxlab.schedule.error import ScheduleError
from relaxlab.schedule.rules_gpu.base import swizzle_rows
from relaxlab.script import tir as T


def through_shared(rows: int, columns: int) -> PrimFunc:
    """A transpose by the threads of a warp."""

    @T.prim_func
    def f(A: T.Buffer((rows, columns), "float16"), B: T.Buffer((columns, rows), "float16")):
        S = T.alloc_buffer((rows, columns), "float16", scope="shared")
        for t in T.thread_binding(32, thread="threadIdx.x"):
            for i in range(rows * columns // 32):
                with T.block("S"):
                    v = T.axis.spatial(rows * columns, i * 32 + t)
                    S[v // columns, v % columns] = A[v // columns, v % columns]
        for t in T.thread_binding(32, thread="threadIdx.x"):
            for i in range(rows * columns // 32):
                with T.block("B"):
                    v = T.axis.spatial(rows * columns, i * 32 + t)
                    B[v // rows, v % rows] = S[v % rows, v // rows]

    return f


@pytest.mark.parametrize("bits", [1, 2, 3])
@pytest.mark.parametrize(("base", "shift"), [(0, 5), (3, 3), (2, 4)])
def test_elements_are_where_they_were_put(bits: int, base: int, shift: int) -> None:
    sch = Schedule(through_shared(16, 64))
    sch.swizzle(sch.get_block("S"), 0, bits=bits, base=base, shift=shift)
    a, b = np.arange(1024).reshape(16, 64).astype("float16"), np.zeros((64, 16), "float16")
    simt_prim_func(sch.func, [a, b]).check()
    np.testing.assert_array_equal(b, a.T)
    launch = lower_launches(sch.func, "f").launches[0]
    assert [str(d) for d in launch.shared[0].shape] == [
        str(n) for n in (1024 >> bits + base, 1 << bits, 1 << base)
    ]


@pytest.mark.parametrize(("bits", "shift"), [(1, 1), (3, 3), (2, 5)])
def test_layouts_are_bijections(bits: int, shift: int) -> None:
    layout = Swizzle(bits, 2, shift)
    assert layout.is_bijective
    assert sorted(map(layout, range(4096))) == list(range(4096))


@pytest.mark.parametrize("row", [16, 32, 64, 128, 256])
def test_eight_rows_are_in_different_banks(row: int) -> None:
    """`ldmatrix` reads 16 bytes of each of 8 neighbouring rows at once."""
    sch = Schedule(through_shared(16, row))
    swizzle_rows(sch, sch.get_block("S"), row, CUDA)
    ((_, *numbers),) = sch.get(sch.get_block("S")).annotations["buffer_swizzle"]
    layout = Swizzle(*numbers)
    for first in range(0, 16, 8):
        for column in range(0, row, 8):
            at = [layout((first + i) * row + column) * 2 for i in range(8)]
            assert len({place % 128 // 16 for place in at}) == 8


def test_layouts_that_lose_elements_are_refused() -> None:
    sch = Schedule(through_shared(16, 64))
    with pytest.raises(ScheduleError, match="has a place of its own: 3 bits.* 2 are given"):
        sch.swizzle(sch.get_block("S"), 0, bits=3, base=3, shift=2)
    with pytest.raises(ScheduleError, match="B is an intermediate buffer; it is a parameter"):
        sch.swizzle(sch.get_block("B"), 0, bits=3, base=3, shift=3)


def test_sizes_that_are_not_swizzled_evenly_are_refused() -> None:
    sch = Schedule(through_shared(3, 32))
    sch.swizzle(sch.get_block("S"), 0, bits=3, base=3, shift=3)
    with pytest.raises(CodegenError, match=r"buffer 'S' of shape \(3, 32\) is no multiple of 64"):
        lower_launches(sch.func, "f")


def test_addresses_of_elements_that_are_moved_apart_are_refused() -> None:
    @T.prim_func
    def f(A: T.Buffer((32,), "float16"), B: T.Buffer((32,), "float16")):
        S = T.alloc_buffer((8, 32), "float16", scope="shared")
        for t in T.thread_binding(32, thread="threadIdx.x"):
            with T.block("S"):
                v = T.axis.spatial(32, t)
                S[0, v] = A[v]
        for t in T.thread_binding(32, thread="threadIdx.x"):
            L = T.alloc_buffer((8,), "float16", scope="local")
            T.evaluate(T.ldmatrix(T.address_of(L[0]), T.address_of(S[t % 8, t // 8 * 8])))
            B[t] = L[0]

    sch = Schedule(f)
    sch.swizzle(sch.get_block("S"), 0, bits=1, base=2, shift=3)
    with pytest.raises(CodegenError, match="moves groups of 8 bytes, but 16 neighbours"):
        lower_launches(sch.func, "f")
