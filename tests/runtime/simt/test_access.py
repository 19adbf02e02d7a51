"""Sectors of main memory and conflicts of shared-memory banks, counted by hand."""

from __future__ import annotations

import numpy as np
import pytest

from relaxlab.ir.expr import const
from relaxlab.ir.loops import Buffer
from relaxlab.runtime.arrays import ExecutionError
from relaxlab.runtime.simt.access import Access, Cost, Site, cost_of, costs
from relaxlab.runtime.simt.simt import simt_prim_func
from relaxlab.script import tir as T
from tests.runtime.simt import programs


def access(offsets: object, itemsize: int = 4, per_thread: int = 1, scope: str = "shared"):
    """An access by consecutive threads of the elements at these byte offsets."""
    where = np.asarray(offsets).reshape(-1)
    threads = np.arange(len(where)) // per_thread
    site = Site(Buffer("X", (const(1),), scope=scope), False, "")
    return Access(site, threads, where, itemsize)


def sectors(a: Access) -> tuple[float, float]:
    cost = cost_of(a)
    assert cost.unit == "sectors"
    return cost.count, cost.least


def bank_conflicts(a: Access) -> tuple[float, float]:
    cost = cost_of(a)
    assert cost.unit == "rounds of banks"
    return cost.count, cost.least


LANES = np.arange(32)


@pytest.mark.parametrize(
    ("offsets", "itemsize", "expected"),
    [
        (4 * LANES, 4, (4, 4)),  # side by side
        (4 * LANES + 4, 4, (5, 4)),  # the same, not aligned to a sector
        (4 * LANES[::-1], 4, (4, 4)),  # the order within a warp does not matter
        (128 * LANES, 4, (32, 4)),  # a sector each
        (8 * LANES, 4, (8, 4)),  # every other element
        (0 * LANES, 4, (1, 1)),  # one element for all
        (2 * LANES, 2, (2, 2)),
        (8 * LANES, 8, (8, 8)),
        (4 * np.arange(64), 4, (8, 8)),  # two warps
        (4 * np.arange(8), 4, (1, 1)),  # a part of a warp
    ],
)
def test_sectors(offsets: np.ndarray, itemsize: int, expected: tuple[int, int]):
    assert sectors(access(offsets, itemsize, scope="global")) == expected


@pytest.mark.parametrize(
    ("offsets", "itemsize", "expected"),
    [
        (4 * LANES, 4, (1, 1)),
        (8 * LANES, 4, (2, 1)),  # stride 2: each bank twice
        (16 * LANES, 4, (4, 1)),
        (128 * LANES, 4, (32, 1)),  # a column of 32 x 32 floats
        (132 * LANES, 4, (1, 1)),  # the same, rows padded to 33
        (12 * LANES, 4, (1, 1)),  # odd strides are free of conflicts
        (0 * LANES, 4, (1, 1)),  # broadcast
        (2 * LANES, 2, (1, 1)),  # two halves of one word
        (4 * (LANES // 16) * 32, 4, (2, 1)),  # two words of bank 0
        (8 * LANES, 8, (2, 2)),  # per half warp
        (16 * LANES, 8, (4, 2)),
        (4 * np.arange(64), 4, (2, 2)),
    ],
)
def test_bank_conflicts(offsets: np.ndarray, itemsize: int, expected: tuple[int, int]):
    assert bank_conflicts(access(offsets, itemsize)) == expected


@pytest.mark.parametrize(
    ("offsets", "lines"), [(4 * LANES, 1), (4 * LANES + 4, 2), (8 * LANES, 2), (128 * LANES, 32)]
)
def test_lines(offsets: np.ndarray, lines: int):
    cost = cost_of(access(offsets, 4, scope="global"))
    assert (cost.lines, cost.instructions) == (lines, 1)


@pytest.mark.parametrize(
    ("stride", "swizzled", "rounds"), [(128, False, 32), (144, False, 4), (128, True, 4)]
)
def test_rows_of_tiles(stride: int, swizzled: bool, rounds: int):
    """`ldmatrix` of 16 x 16 halves: each lane reads a row of 16 bytes, eight of which are served at
    once. Rows of 128 bytes conflict unless they are padded or their pieces are swizzled."""
    row, piece = LANES % 16, LANES // 16
    at = row * stride + (piece ^ row % 8 if swizzled else piece) * 16
    one = access((at[:, None] + 2 * np.arange(8)).reshape(-1), 2, 8)
    assert cost_of(one) == Cost("rounds of banks", rounds, 4, 1)


def test_elements_side_by_side_are_one_instruction():
    four = 4 * np.arange(128)  # thread t: 4t, 4t+1, 4t+2, 4t+3
    assert sectors(access(four, 4, 4, "global")) == (16, 16)
    assert bank_conflicts(access(four, 4, 4)) == (4, 4)
    assert sectors(access(four + 4, 4, 4, "global")) == (3 * 16 + 17, 16)  # not aligned: one by one
    apart = (4 * LANES[:, None] + 128 * np.arange(4)).reshape(-1)
    assert sectors(access(apart, 4, 4, "global")) == (16, 16)
    assert sectors(access(4 * np.arange(256), 4, 8, "global")) == (64, 32)  # 16 bytes of 32, twice
    three = 4 * np.arange(96)
    assert sectors(access(three, 4, 3, "global")) == (36, 12)


def test_an_element_for_all_lanes_of_a_vector_is_read_once():
    same = np.repeat(4 * LANES, 4)
    assert cost_of(access(same, 4, 4)) == Cost("rounds of banks", 1, 1, 1)


def test_masked_vectors_go_element_by_element():
    threads = np.array([0, 0, 1, 2, 2, 2])
    one = Access(access([0]).site, threads, 4 * np.arange(6), 4)
    assert bank_conflicts(one) == (3, 3)


@pytest.mark.parametrize(("name", "load"), [("transpose", 32), ("transpose_padded", 1)])
def test_padding_a_tile_ends_its_conflicts(name: str, load: int):
    a, b = np.ones((64, 64), "float32"), np.zeros((64, 64), "float32")
    report = simt_prim_func(getattr(programs, name), [a, b], record=(1, 1, 0)).check()
    found = costs(report.launches[0].accesses)
    tile = {x.write: c for x, c in found.items() if x.buffer and x.buffer.name == "S"}
    assert tile == {
        True: Cost("rounds of banks", 32, 32, 32),
        False: Cost("rounds of banks", 32 * load, 32, 32),
    }
    for one in report.launches[0].accesses:
        if one.site.buffer and one.site.buffer.scope == "global":
            assert sectors(one) == (32, 32)  # 256 threads move 1024 bytes
    assert report.launches[0].counters and report.launches[0].counters.costs == found
    assert f"{load:6.2f} x the least" in str(report)


def test_a_transpose_without_shared_memory_scatters_its_stores():
    a, b = np.ones((64, 64), "float32"), np.zeros((64, 64), "float32")
    report = simt_prim_func(programs.transpose_naive, [a, b], record=(0, 0, 0)).check()
    loads = [sectors(x) for x in report.launches[0].accesses if not x.site.write]
    stores = [sectors(x) for x in report.launches[0].accesses if x.site.write]
    assert loads == [(32, 32)]
    assert stores == [(256, 32)]


@T.prim_func
def copy_by_four(a: T.handle, b: T.handle):
    A, B = T.match_buffer(a, (512,)), T.match_buffer(b, (512,))
    for bx in T.thread_binding(2, thread="blockIdx.x"):
        for tx in T.thread_binding(64, thread="threadIdx.x"):
            for v in T.vectorized(4):
                with T.block("B"):
                    i = T.axis.spatial(512, bx * 256 + tx * 4 + v)
                    B[i] = A[i]


def test_a_vectorized_loop_is_one_access():
    a, b = np.arange(512, dtype="float32"), np.zeros(512, "float32")
    report = simt_prim_func(copy_by_four, [a, b], record=(1, 0, 0)).check()
    np.testing.assert_array_equal(a, b)
    accesses = report.launches[0].accesses
    assert len(accesses) == 2
    assert [sectors(x) for x in accesses] == [(32, 32), (32, 32)]
    np.testing.assert_array_equal(accesses[0].offsets, 1024 + 4 * np.arange(256))
    np.testing.assert_array_equal(accesses[0].threads, np.arange(256) // 4)


def test_a_block_that_does_not_exist_cannot_be_recorded():
    a, b = np.ones(512, "float32"), np.zeros(512, "float32")
    with pytest.raises(ExecutionError, match=r"no block \(2, 0, 0\) in a grid of \(2, 1, 1\)"):
        simt_prim_func(copy_by_four, [a, b], record=(2, 0, 0))
