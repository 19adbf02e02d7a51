"""Steps about threads that need each other, and others that programs for GPUs are lowered by: what
comes out computes the same, in the interpreter, on random values and sizes."""

from __future__ import annotations

from typing import cast

import ml_dtypes
import numpy as np
import pytest

import relaxlab as rl
from relaxlab.analysis.well_formed import check_well_formed
from relaxlab.codegen.steps import (
    allreduce,
    barriers,
    calls,
    cross_thread,
    double_buffer,
    instrument,
    merge_shared,
    warp_memory,
    widen,
)
from relaxlab.ir.expr import Call
from relaxlab.ir.loops import PrimFunc
from relaxlab.ir.module import Module
from relaxlab.ir.node import walk
from relaxlab.runtime.arrays import Array, ExecutionError
from relaxlab.runtime.interpreter.interpreter import interpret_prim_func


def function(text: str) -> PrimFunc:
    return cast("PrimFunc", rl.parse(f"@T.prim_func{text}")["main"])


def results(func: PrimFunc, *values: Array) -> list[Array]:
    given = [v.copy() for v in values]
    interpret_prim_func(func, given)
    return given


def count(func: PrimFunc, op: str) -> int:
    return sum(isinstance(n, Call) and n.op == op for n in walk(func.body))


REDUCED = """(s_tir=True)
def main(A: T.Buffer((3, {rows}, {n}), "float32"), B: T.Buffer((3, {rows}), "float32")):
    for b in T.thread_binding(3, thread="blockIdx.x"):
        for y in T.thread_binding({rows}, thread="threadIdx.y"):
            for o in range({outer}):
                for t in T.thread_binding({threads}, thread="threadIdx.x"):
                    with T.sblock("sum"):
                        vb, vy = T.axis.remap("SS", [b, y])
                        vk = T.axis.reduce({n}, o * {threads} + t)
                        T.where(o * {threads} + t < {n})
                        with T.init():
                            B[vb, vy] = {start}
                        B[vb, vy] = {step}
"""
KINDS = {
    "sum": ("T.float32(0)", "B[vb, vy] + A[vb, vy, vk]"),
    "maximum": ('T.min_value("float32")', "T.max(B[vb, vy], A[vb, vy, vk])"),
}


@pytest.mark.parametrize("warp", [1, 32])
@pytest.mark.parametrize("kind", KINDS)
def test_reductions_over_threads_by_what_threads_exchange(
    kind: str, warp: int, rng: np.random.Generator
) -> None:
    """Both lowerings: to an exchange, then to shuffles or shared memory, for numbers of threads
    that are powers of two, that are not, and that are more than a warp."""
    start, step = KINDS[kind]
    for threads in (1, 8, 20, 48, *rng.integers(2, 64, 2)):
        rows, n = int(rng.integers(1, 4)), int(rng.integers(threads, 3 * threads + 1))
        outer = -(-n // int(threads))
        func = function(REDUCED.format(rows=rows, n=n, outer=outer, threads=threads, start=start,
                                       step=step))  # fmt: skip
        x = rng.standard_normal((3, rows, n)).astype("float32")
        wanted = results(func, x, np.zeros((3, rows), "float32"))
        crossed = cross_thread.reductions_over_threads(func)
        assert count(crossed, "tvm_thread_allreduce") == 1
        assert not check_well_formed(Module.of({"main": crossed}))
        lowered = allreduce.allreduces_lowered(crossed, warp)
        assert not count(lowered, "tvm_thread_allreduce")
        for made in (crossed, lowered):
            for a, b in zip(results(made, x, np.zeros((3, rows), "float32")), wanted, strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_a_sum_that_does_not_begin_at_nothing_is_refused() -> None:
    text = REDUCED.format(rows=1, n=8, outer=1, threads=8, start="T.float32(5)",
                          step=KINDS["sum"][1])  # fmt: skip
    with pytest.raises(ValueError, match="no reduction of a known form"):
        cross_thread.reductions_over_threads(function(text))


SHARED = """
def main(A: T.Buffer((4, 24), "float32"), B: T.Buffer((4, 24), "float32")):
    bx = T.launch_thread("blockIdx.x", 4)
    S = T.alloc_buffer((24,), "float32", scope="shared.dyn")
    R = T.alloc_buffer((24,), "float32", scope="shared.dyn")
    I = T.alloc_buffer((24,), "int32", scope="shared.dyn")
    tx = T.launch_thread("threadIdx.x", 24)
    S[tx] = A[bx, tx]
    for i in range(5):
        R[tx] = S[(tx + 7) % 24] + T.float32(1)
        S[tx] = R[(tx + 5) % 24] * T.float32(0.5)
    I[tx] = T.Cast("int32", S[23 - tx])
    B[bx, tx] = R[tx] + T.Cast("float32", I[(tx + 1) % 24])
"""


def by_numpy(x: Array) -> Array:
    s = x
    r = s
    for _ in range(5):
        r = np.roll(s, -7, 1) + np.float32(1)
        s = np.roll(r, -5, 1) * np.float32(0.5)
    return r + np.roll(s[:, ::-1].astype("int32"), -1, 1).astype("float32")


def test_barriers_are_where_threads_share_memory(rng: np.random.Generator) -> None:
    """With barriers the threads compute what they do together; then their memory is one piece."""
    x = rng.standard_normal((4, 24)).astype("float32") * 10
    func = barriers.barriers_between(function(SHARED), "shared.dyn")
    np.testing.assert_allclose(results(func, x, np.zeros_like(x))[1], by_numpy(x), rtol=1e-6)
    assert barriers.barriers_between(func, "shared.dyn") is func
    assert barriers.barriers_between(func, "shared") is func
    merged = merge_shared.shared_memory_merged(func, ("shared.dyn",))
    (pool,) = merged.body.block.alloc_buffers  # type: ignore[attr-defined]
    assert pool.dtype == "uint8"
    np.testing.assert_allclose(results(merged, x, np.zeros_like(x))[1], by_numpy(x), rtol=1e-6)
    again = cast("PrimFunc", rl.parse(merged.script())["main"])
    np.testing.assert_allclose(results(again, x, np.zeros_like(x))[1], by_numpy(x), rtol=1e-6)


def test_memory_is_used_again_behind_a_barrier() -> None:
    text = """
def main(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
    S = T.alloc_buffer((8,), "float32", scope="shared")
    R = T.alloc_buffer((8,), "float32", scope="shared")
    tx = T.launch_thread("threadIdx.x", 8)
    S[tx] = A[tx]
    T.tvm_storage_sync("shared")
    B[tx] = S[7 - tx]
    {}
    R[tx] = A[tx]
    T.tvm_storage_sync("shared")
    B[tx] = B[tx] + R[(tx + 1) % 8]
"""
    for line, size in (('T.tvm_storage_sync("shared")', 8), ("T.evaluate(0)", 16)):
        merged = merge_shared.shared_memory_merged(function(text.format(line)), ("shared",))
        (pool,) = merged.body.block.alloc_buffers  # type: ignore[attr-defined]
        assert pool.shape[0].value == size


def test_a_barrier_in_a_branch_of_some_threads_is_refused() -> None:
    text = """
def main(A: T.Buffer((8,), "float32")):
    S = T.alloc_buffer((8,), "float32", scope="shared")
    tx = T.launch_thread("threadIdx.x", 8)
    if tx < 4:
        S[tx] = A[tx]
        A[tx] = S[3 - tx]
"""
    with pytest.raises(ValueError, match="not all run alike"):
        barriers.barriers_between(function(text), "shared")


@pytest.mark.parametrize("split", [False, True])
def test_double_buffers_are_filled_an_iteration_early(
    split: bool, rng: np.random.Generator
) -> None:
    text = """
def main(A: T.Buffer((40,), "float32"), C: T.Buffer((4,), "float32")):
    B = T.alloc_buffer((4,), "float32")
    for i in range({}):
        with T.attr(B.data, "double_buffer_scope", 1):
            for j in range(4):
                B[j] = A[4 * i + j]
        for j in range(4):
            C[j] = C[j] * T.float32(0.5) + B[3 - j]
"""
    func = function(text.format("T.Cast('int32', A[0] * T.float32(0)) + 9" if split else "10"))
    made = double_buffer.double_buffered(func)
    x = rng.standard_normal(40).astype("float32")
    first, second = (results(f, x, np.zeros(4, "float32"))[1] for f in (func, made))
    np.testing.assert_array_equal(first, second)
    (buffer,) = made.body.block.alloc_buffers  # type: ignore[attr-defined]
    assert buffer.shape[0].value == 8


def test_what_is_stored_before_it_is_filled_again_is_refused() -> None:
    text = """
def main(A: T.Buffer((40,), "float32")):
    B = T.alloc_buffer((4,), "float32")
    for i in range(9):
        with T.attr(B.data, "double_buffer_scope", 1):
            for j in range(4):
                B[j] = A[4 * i + j]
        for j in range(4):
            A[4 * i + j + 4] = B[3 - j]
"""
    with pytest.raises(ValueError, match="reads what the one before stores"):
        double_buffer.double_buffered(function(text))


@pytest.mark.parametrize("apart", [1, 2])
def test_memory_of_a_warp_is_in_registers(apart: int, rng: np.random.Generator) -> None:
    at = f"i // {apart} * {16 * apart} + tx * {apart} + i % {apart}"
    text = f"""
def main(A: T.Buffer((64,), "float32"), E: T.Buffer((64,), "float32")):
    W = T.alloc_buffer((64,), "float32", scope="warp")
    tx = T.launch_thread("threadIdx.x", 16)
    for i in range(4):
        W[{at}] = A[{at}]
    for i in range(4):
        E[{at}] = W[{at.replace("tx", "((tx + 3) % 16)")}]
"""
    made = warp_memory.warp_memory_lowered(function(text), 32)
    assert count(made, "tvm_warp_shuffle") == 1
    x = rng.standard_normal(64).astype("float32")
    rows = x.reshape(-1, 16, apart)
    wanted = np.roll(rows, -3, 1).reshape(64)
    np.testing.assert_array_equal(results(made, x, np.zeros_like(x))[1], wanted)


def test_private_functions_are_put_in_the_place_of_calls(rng: np.random.Generator) -> None:
    mod = rl.parse("""
@I.ir_module
class Mod:
    @T.prim_func
    def main(A: T.Buffer((6, 4, 5), "float32"), B: T.Buffer((12, 5), "float32")):
        for i in range(6):
            Mod.sums(T.address_of(A[i, 0, 0]), T.address_of(B[i * 2, 0]), i)

    @T.prim_func(private=True)
    def sums(a: T.handle("float32"), b: T.handle("float32"), k: T.int32):
        A = T.decl_buffer((20,), "float32", data=a)
        B = T.decl_buffer((2, 5), "float32", data=b)
        S = T.alloc_buffer((1,), "float32")
        for i, j in T.grid(2, 5):
            S[0] = A[i * 10 + j] + A[i * 10 + 5 + j]
            B[i, j] = S[0] * T.Cast("float32", k)
""")
    made = calls.private_calls_inlined(mod)
    assert [name for name, _ in made.functions] == ["main"]
    x = rng.standard_normal((6, 4, 5)).astype("float32")
    got = results(cast("PrimFunc", made["main"]), x, np.zeros((12, 5), "float32"))[1]
    sums = x.reshape(6, 2, 2, 5).sum(2) * np.arange(6, dtype="float32")[:, None, None]
    np.testing.assert_allclose(got, sums.reshape(12, 5), rtol=1e-5, atol=1e-6)


def test_accesses_are_checked_before_they_are_made() -> None:
    text = """
def main(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "int64")):
    for i in range(8):
        A[B[i]] = T.if_then_else(i > 0, A[i - 1], T.float32(0))
"""
    made = instrument.accesses_checked(function(text))
    x = np.ones(8, "float32")
    results(made, x, np.arange(8))
    with pytest.raises(ExecutionError, match="assertion failed: an index of A, B is outside"):
        results(made, x, np.arange(1, 9))


def test_what_is_allocated_is_as_wide_as_what_is_computed(rng: np.random.Generator) -> None:
    text = """
def main(A: T.Buffer((32,), "bfloat16"), B: T.Buffer((32,), "bfloat16")):
    C = T.alloc_buffer((32,), "bfloat16")
    for i in range(32):
        C[i] = A[i] * A[i]
    for i in range(32):
        B[i] = C[i] - A[31 - i]
"""
    made = widen.computed_in(function(text), "bfloat16", "float32")
    (own,) = made.body.block.alloc_buffers  # type: ignore[attr-defined]
    assert own.dtype == "float32"
    x = rng.standard_normal(32).astype(ml_dtypes.bfloat16)
    wide = x.astype("float32")
    wanted = (wide * wide - wide[::-1]).astype(ml_dtypes.bfloat16)
    np.testing.assert_array_equal(results(made, x, np.zeros_like(x))[1], wanted)
