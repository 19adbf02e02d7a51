"""Counts of the work of one block, by hand."""

from __future__ import annotations

import numpy as np

from relaxlab.runtime.simt.counters import Counters
from relaxlab.runtime.simt.simt import simt_prim_func
from relaxlab.script import tir as T
from tests.runtime.simt import programs


def counters(func: object, args: list[np.ndarray], block: tuple[int, int, int]) -> Counters:
    report = simt_prim_func(func, args, record=block).check()  # type: ignore[arg-type]
    (launch,) = report.launches
    assert launch.counters is not None
    return launch.counters


@T.prim_func
def arithmetic(a: T.handle, b: T.handle, C: T.Buffer((256,), "int32"), d: T.handle):
    A, B, D = T.match_buffer(a, (256,)), T.match_buffer(b, (256,)), T.match_buffer(d, (256,))
    for bx in T.thread_binding(2, thread="blockIdx.x"):
        for tx in T.thread_binding(128, thread="threadIdx.x"):
            for _ in range(3):
                if tx < 64:
                    B[bx * 128 + tx] = A[bx * 128 + tx] * 2.0 + 1.0
            C[bx * 128 + tx] = C[bx * 128 + tx] * 3 + T.int32(7) // C[bx * 128 + tx]
            for v in T.vectorized(2):
                if tx < 32:
                    D[bx * 128 + tx * 2 + v] = T.exp(A[bx * 128 + tx * 2 + v])


def test_arithmetic_by_pipe():
    a, b, d = (np.ones(256, "float32") for _ in range(3))
    found = counters(arithmetic, [a, b, np.full(256, 3, "int32"), d], (1, 0, 0))
    # Two warps of four are active: three iterations of one fused operation, and for the third
    # loop one warp with two elements per thread.
    assert found.pipes["fma"] == 3 * 2 + 2 * 12
    assert found.pipes["xu"] == 2 + 4  # exponentials, and quotients by variables
    by_buffer = {k: c.instructions for k, c in found.by_buffer().items()}
    assert by_buffer == {
        ("A", False): 6 + 1, ("B", True): 6, ("C", False): 4, ("C", True): 4, ("D", True): 1,
    }  # fmt: skip
    assert found.pipes["lsu"] == sum(by_buffer.values())
    assert found.products == 0 == found.barriers


def test_a_block_counts_the_same_beside_others_and_alone():
    """The counters of one block do not include the work of others."""
    args = [np.ones((48, 32), "float32"), np.ones((32, 48), "float32")]
    found = [
        counters(programs.tiled_matmul, [*args, np.zeros((48, 48), "float32")], (x, y, 0))
        for x, y in ((0, 0), (2, 1))
    ]
    assert found[0].by_buffer() == found[1].by_buffer()
    assert found[0].pipes == found[1].pipes
    assert found[0].barriers == 4  # two slices
    assert found[0].pipes["fma"] == 2 * 16 * 8  # fused, of 8 warps
    shared = {k: c for k, c in found[0].by_buffer().items() if c.unit == "rounds of banks"}
    # Half of a warp reads one element of A, the other half one of the next row.
    assert {k: (c.count, c.least) for k, c in shared.items()} == {
        ("A_shared", True): (16, 16), ("A_shared", False): (256, 256),
        ("B_shared", True): (16, 16), ("B_shared", False): (256, 256),
    }  # fmt: skip


@T.prim_func
def again(a: T.handle, b: T.handle):
    A, B = T.match_buffer(a, (32,)), T.match_buffer(b, (32,))
    for tx in T.thread_binding(32, thread="threadIdx.x"):
        B[tx] = A[tx] * A[tx]
        B[tx] = A[tx] + B[tx]
        for _ in range(2):
            B[tx] = B[tx] + A[tx]


def test_an_element_that_is_in_a_register_is_not_loaded_again():
    found = counters(again, [np.ones(32, "float32"), np.ones(32, "float32")], (0, 0, 0))
    loads = {k: c.instructions for k, c in found.by_buffer().items() if not k[1]}
    assert loads == {("A", False): 1 + 2, ("B", False): 1 + 2}


def test_the_text_names_places():
    a = np.ones((64, 64), "float32")
    text = "\n".join(counters(programs.transpose, [a, np.zeros_like(a)], (0, 0, 0)).lines())
    assert "load  S    1024 rounds of banks  32.00 x the least, 32 instructions  B (" in text
    assert "programs.py:" in text
