"""Threads of a block in the interpreter: barriers, shuffles and reductions over threads."""

from __future__ import annotations

from typing import cast

import numpy as np
import pytest

import relaxlab as rl
from relaxlab.ir.loops import PrimFunc
from relaxlab.runtime.arrays import Array, ExecutionError
from relaxlab.runtime.interpreter.interpreter import interpret_prim_func

THREADS = 48
"""The threads of a block: a warp and a half."""


def run(body: str, *arrays: Array) -> None:
    """Interpret a function of buffers A, B, C… with these statements in a block of threads."""
    params = ", ".join(f'{"ABC"[i]}: T.Buffer({a.shape}, "{a.dtype}")'
                       for i, a in enumerate(arrays))  # fmt: skip
    lines = "\n".join(f"    {line}" for line in body.strip().splitlines())
    text = f"@T.prim_func\ndef main({params}):\n{lines}\n"
    interpret_prim_func(cast("PrimFunc", rl.parse(text)["main"]), arrays)


def test_no_thread_passes_a_barrier_before_all_have_come(rng: np.random.Generator) -> None:
    x = rng.standard_normal((3, THREADS)).astype("float32")
    out = np.empty_like(x)
    run(
        f"""
bx = T.launch_thread("blockIdx.x", 3)
S = T.alloc_buffer(({THREADS},), "float32", scope="shared")
tx = T.launch_thread("threadIdx.x", {THREADS})
R = T.alloc_buffer((1,), "float32", scope="local")
S[tx] = A[bx, tx]
for i in range(3):
    T.tvm_storage_sync("shared")
    R[0] = S[(tx + 5) % {THREADS}]
    T.tvm_storage_sync("shared")
    S[tx] = R[0] + R[0]
B[bx, tx] = R[0]
""",
        x, out,
    )  # fmt: skip
    np.testing.assert_array_equal(out, np.roll(x, -15, axis=1) * 4)


def test_threads_at_different_barriers_are_an_error() -> None:
    body = """
tx = T.launch_thread("threadIdx.x", 4)
if tx < 2:
    T.tvm_storage_sync("shared")
    A[tx] = 1
else:
    T.tvm_storage_sync("shared")
    A[tx] = 2
"""
    with pytest.raises(ExecutionError, match="different barriers"):
        run(body, np.empty(4, "int32"))


@pytest.mark.parametrize("width", [8, 32])
@pytest.mark.parametrize("kind", ["", "_up", "_down", "_xor"])
def test_shuffles_return_the_value_of_another_lane(
    kind: str, width: int, rng: np.random.Generator
) -> None:
    x = rng.integers(0, 100, THREADS).astype("int32")
    out = np.empty_like(x)
    by = int(rng.integers(1, 8))
    run(
        f"""
tx = T.launch_thread("threadIdx.x", {THREADS})
B[tx] = T.tvm_warp_shuffle{kind}(T.tvm_warp_activemask(), A[tx], {by}, {width}, 32)
""",
        x, out,
    )  # fmt: skip
    for t in range(THREADS):
        first = t - t % width
        source = {"": first + by, "_up": t - by, "_down": t + by, "_xor": t ^ by}[kind]
        there = first <= source < min(first + width, THREADS)
        assert out[t] == x[source if there else t], t


@pytest.mark.parametrize("axes", ["x", "y", "x, y"])
def test_a_reduction_over_threads_is_that_of_the_values(
    axes: str, rng: np.random.Generator
) -> None:
    """Each thread gets the sum, and the largest value, over the threads along the axes; those for
    which the condition does not hold add nothing."""
    x = rng.integers(-9, 9, (6, 8)).astype("float32")  # whose sums have no rounding
    sums, largest = np.empty_like(x), np.empty_like(x)
    run(
        f"""
y = T.launch_thread("threadIdx.y", 6)
x = T.launch_thread("threadIdx.x", 8)
R = T.alloc_buffer((1,), "float32", scope="local")
M = T.alloc_buffer((1,), "float32", scope="local")
with T.attr(T.comm_reducer(lambda a, b, c, d: (a + c, T.max(b, d)), [T.float32(0), T.min_value("float32")]), "reduce_scope", 0):
    T.tvm_thread_allreduce(T.uint32(2), A[y, x], A[y, x], x < 5, R[0], M[0], {axes})
B[y, x] = R[0]
C[y, x] = M[0]
""",  # noqa: E501
        x, sums, largest,
    )  # fmt: skip
    axis = tuple(["y", "x"].index(a) for a in axes.split(", "))
    kept = np.where(np.arange(8) < 5, x, 0).sum(axis, keepdims=True)
    lowest = np.finfo("float32").min
    np.testing.assert_array_equal(sums, np.broadcast_to(kept, x.shape))
    top = np.where(np.arange(8) < 5, x, lowest).max(axis, keepdims=True)
    np.testing.assert_array_equal(largest, np.broadcast_to(top, x.shape))


def test_remarks_on_values_change_nothing(rng: np.random.Generator) -> None:
    x = rng.standard_normal(8).astype("float32")
    out = np.empty_like(x)
    run(
        """
T.start_profile_intrinsic(0)
for i in range(8):
    T.assume(A[i] > T.float32(100))
    B[i] = T.undef(dtype="float32")
    if T.tvm_thread_invariant(T.likely(i < 9)):
        B[i] = A[i]
T.end_profile_intrinsic(0)
""",
        x, out,
    )  # fmt: skip
    np.testing.assert_array_equal(out, x)
